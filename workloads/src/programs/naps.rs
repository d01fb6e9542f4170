//! Waits in system calls, of lengths that meet the shortest time between two stacks in every way:
//! shorter, longer, exactly as long, bursts that use up what is allowed before the one that counts.
//! Each wait is timed by the program.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Program;
use crate::options::Options;
use crate::places::Places;
use crate::sys;
use crate::truth::Truth;
use crate::work::{Jitter, workers};

pub(super) const NAPS: Program = Program {
    name: "naps",
    about: "sleeps of 10 us (ten), 150 us (four) and 1 ms, and a lock that another thread holds, each in its own function [--seconds]",
    run: run_naps,
};

pub(super) const BURST: Program = Program {
    name: "burst",
    about: "30 waits of 20 us in hop, with 30 us of user code in step, then one of 700 ms in halt [--seconds]",
    run: run_burst,
};

pub(super) const EXACTLY: Program = Program {
    name: "exactly",
    about: "waits of 0.25 ms in quarter and 0.75 ms in three_quarters, at absolute times [--seconds, --count microseconds of a \
            period, default 1000]",
    run: run_exactly,
};

pub(super) const BUCKET: Program = Program {
    name: "bucket",
    about: "nine waits of 1 us in drain, then one of 900 us in victim: what is allowed is used up when it counts [--seconds]",
    run: run_bucket,
};

pub(super) const FRAMES: Program = Program {
    name: "frames",
    about: "--count (default 60) times a second, at absolute times: 250 us in each of first, second, third, fourth [--seconds]",
    run: run_frames,
};

/// Functions that sleep, each with its own code.
macro_rules! sleepers {
    ($($name:ident = $seed:literal)*) => {
        $(#[inline(never)]
        fn $name(ns: u64) {
            sys::nanosleep(black_box(ns));
            // Equal functions would be made one.
            black_box($seed);
        })*
    };
}
sleepers! {
    nap_10us = 1 nap_150us = 2 nap_1ms = 3 hop = 4 halt = 5 drain = 6 victim = 7 nap_holding = 8
}

workers! {
    /// Between short waits.
    step = 331;
    /// A quarter of a frame.
    first = 332;
    /// The next quarter.
    second = 333;
    /// The third.
    third = 334;
    /// And the last.
    fourth = 335;
}

/// 0: open; 1: asked for; 2: held.
#[inline(never)]
fn wait_for_lock(lock: &AtomicU32) {
    lock.store(1, Ordering::Release);
    sys::futex_wake(lock, 1);
    loop {
        let state = lock.load(Ordering::Acquire);
        if state == 0 {
            return;
        }
        sys::futex_wait(lock, state);
    }
}

/// Waits until the lock is asked for, or the program ends (3).
#[inline(never)]
fn wait_to_be_asked(lock: &AtomicU32) -> bool {
    loop {
        match lock.load(Ordering::Acquire) {
            1 => return true,
            3 => return false,
            state => sys::futex_wait(lock, state),
        }
    }
}

const NAPS_PLACES: [&str; 6] = [
    "nap_10us",
    "nap_150us",
    "nap_1ms",
    "wait_for_lock",
    "wait_to_be_asked",
    "nap_holding",
];

fn run_naps(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&NAPS_PLACES);
    let lock = Arc::new(AtomicU32::new(0));
    let holder = std::thread::Builder::new().name("holder".into()).spawn({
        let lock = Arc::clone(&lock);
        let mut places = Places::with_rate(&NAPS_PLACES, places.per_ms());
        move || {
            let mut jitter = Jitter::new();
            loop {
                let mut asked = false;
                places.call(4, || asked = wait_to_be_asked(&lock));
                if !asked {
                    return places;
                }
                places.call(5, || nap_holding(jitter.between(50_000, 400_000)));
                lock.store(0, Ordering::Release);
                sys::futex_wake(&lock, 1);
            }
        }
    })?;
    let mut jitter = Jitter::new();
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        for _ in 0..4 {
            places.call(1, || nap_150us(jitter.between(150_000, 180_000)));
        }
        places.call(2, || nap_1ms(1_000_000));
        for _ in 0..10 {
            places.call(0, || nap_10us(10_000));
        }
        places.call(3, || wait_for_lock(&lock));
    }
    lock.store(3, Ordering::Release);
    sys::futex_wake(&lock, 1);
    if let Ok(holder) = holder.join() {
        places.merge(&holder);
    }
    truth.set("functions", places.json());
    Ok(truth)
}

fn run_burst(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["hop", "step", "halt"]);
    let rounds = places.rounds(30);
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        for _ in 0..30 {
            places.work(1, rounds, step);
            places.call(0, || hop(20_000));
        }
        places.call(2, || halt(700_000_000));
    }
    truth.set("functions", places.json());
    Ok(truth)
}

/// Functions that sleep until a time of the monotonic clock.
macro_rules! sleepers_until {
    ($($name:ident = $seed:literal)*) => {
        $(#[inline(never)]
        fn $name(until_ns: u64) {
            sys::sleep_until(black_box(until_ns));
            black_box($seed);
        })*
    };
}
sleepers_until! { quarter = 1 three_quarters = 2 wait_for_frame = 3 }

fn run_exactly(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["quarter", "three_quarters"]);
    let period_ns = options.count_or(1000) * 1000;
    let mut at_ns = sys::monotonic_ns() + period_ns;
    let until_ns = at_ns + options.duration_ns();
    while at_ns < until_ns {
        places.call(0, || quarter(at_ns + period_ns / 4));
        at_ns += period_ns;
        places.call(1, || three_quarters(at_ns));
    }
    truth.set("functions", places.json());
    Ok(truth)
}

fn run_bucket(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["drain", "victim"]);
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        for _ in 0..9 {
            places.call(0, || drain(1_000));
        }
        places.call(1, || victim(900_000));
    }
    truth.set("functions", places.json());
    Ok(truth)
}

fn run_frames(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["first", "second", "third", "fourth", "wait_for_frame"]);
    let rounds = places.rounds(250);
    let frame_ns = 1_000_000_000 / options.count_or(60);
    let mut at_ns = sys::monotonic_ns() + frame_ns;
    let until_ns = at_ns + options.duration_ns();
    while at_ns < until_ns {
        places.call(4, || wait_for_frame(at_ns));
        places.work(0, rounds, first);
        places.work(1, rounds, second);
        places.work(2, rounds, third);
        places.work(3, rounds, fourth);
        at_ns += frame_ns;
    }
    truth.set("functions", places.json());
    Ok(truth)
}
