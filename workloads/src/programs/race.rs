//! Wakers and sleepers on different processors, as fast as they can: a wake-up that overtakes the
//! switch-out it ends is the hardest case for a clock of thread states. Whatever the order, blocked
//! + runnable + running is the wall time.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::{self, TimedThread, Truth};
use crate::work::{Jitter, burn};

pub(super) const PROGRAM: Program = Program {
    name: "race",
    about: "--threads (default 2) pairs hand a turn over by futex or event counter across processors, --count (default \
            50000) turns a pair [--kind futex|eventfd]",
    run,
};

/// The turn of a pair: even for one side, odd for the other.
struct Pair {
    turn: AtomicU32,
    events: [i32; 2],
}

#[inline(never)]
fn race_futex(pair: &Pair, side: u32, turns: u32, jitter: &mut Jitter) {
    for turn in (side..turns).step_by(2) {
        loop {
            let now = pair.turn.load(Ordering::Acquire);
            if now == turn {
                break;
            }
            sys::futex_wait(&pair.turn, now);
        }
        black_box(burn(jitter.between(0, 2000), u64::from(turn)));
        pair.turn.store(turn + 1, Ordering::Release);
        sys::futex_wake(&pair.turn, 1);
    }
}

#[inline(never)]
fn race_eventfd(pair: &Pair, side: u32, turns: u32, jitter: &mut Jitter) {
    let (own, other) = (pair.events[side as usize], pair.events[1 - side as usize]);
    let mut count = [0u8; 8];
    for turn in (side..turns).step_by(2) {
        if turn > 0 {
            sys::read(own, &mut count);
        }
        black_box(burn(jitter.between(0, 2000), u64::from(turn)));
        sys::write(other, &1u64.to_ne_bytes());
    }
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let turns = options.count_or(50_000) as u32;
    let by_eventfd = options.kind == "eventfd";
    let processors = sys::processors();
    let mut racers = Vec::new();
    for index in 0..options.threads_or(2) {
        let pair = Arc::new(Pair {
            turn: AtomicU32::new(0),
            events: [sys::eventfd()?, sys::eventfd()?],
        });
        for side in 0..2u32 {
            let pair = Arc::clone(&pair);
            let name = format!("race-{index}-{side}");
            racers.push(TimedThread::spawn(&name.clone(), move || {
                let start_ns = sys::monotonic_ns();
                let pinned = sys::pin((index + side as usize) % processors).is_ok();
                let mut jitter = Jitter::new();
                let race = if by_eventfd { race_eventfd } else { race_futex };
                race(&pair, side, turns, &mut jitter);
                let mut fact = truth::thread(&name, start_ns);
                fact["pinned"] = pinned.into();
                fact
            })?);
        }
    }
    let threads = TimedThread::join(racers);
    let switches: u64 = threads
        .iter()
        .filter_map(|fact| fact["switches"].as_u64())
        .sum();
    truth.set("turns", turns);
    truth.set("switches", switches);
    truth.set("threads", threads);
    Ok(truth)
}
