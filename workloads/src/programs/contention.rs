//! One holder and several waiters at a gate: each waiter's blocked time is the time the gate was
//! held shut.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::{self, Truth};

pub(super) const PROGRAM: Program = Program {
    name: "contention",
    about: "--threads (default 3) waiters in wait_at_gate; hold_gate keeps it shut --millis (default 20) ms, \
            --count (default 50) times",
    run,
};

/// Waits on the futex until the gate's number moves past `round`; returns the time it took.
#[inline(never)]
fn wait_at_gate(gate: &AtomicU32, round: u32) -> u64 {
    let start_ns = sys::monotonic_ns();
    while gate.load(Ordering::Acquire) <= round {
        sys::futex_wait(gate, round);
    }
    black_box(sys::monotonic_ns() - start_ns)
}

/// Sleeps with the gate shut.
#[inline(never)]
fn hold_gate(hold_ns: u64) -> u64 {
    let start_ns = sys::monotonic_ns();
    sys::nanosleep(hold_ns);
    black_box(sys::monotonic_ns() - start_ns)
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let gate = Arc::new(AtomicU32::new(0));
    let rounds = options.count_or(50) as u32;
    let waiters = (0..options.threads_or(3))
        .map(|index| {
            let gate = Arc::clone(&gate);
            let name = format!("waiter-{index}");
            std::thread::Builder::new()
                .name(name.clone())
                .spawn(move || {
                    let start_ns = sys::monotonic_ns();
                    let waited_ns: u64 = (0..rounds).map(|round| wait_at_gate(&gate, round)).sum();
                    let mut fact = truth::thread(&name, start_ns);
                    fact["waited_ns"] = waited_ns.into();
                    fact
                })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut held_ns = 0;
    for round in 0..rounds {
        held_ns += hold_gate(options.millis_or(20) * 1_000_000);
        gate.store(round + 1, Ordering::Release);
        sys::futex_wake(&gate, u32::MAX >> 1);
    }
    let threads: Vec<_> = waiters
        .into_iter()
        .filter_map(|handle| handle.join().ok())
        .collect();
    truth.set("held_ns", held_ns);
    truth.set("threads", threads);
    Ok(truth)
}
