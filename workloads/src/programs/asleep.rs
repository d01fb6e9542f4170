//! Threads that have long been asleep, in each kind of wait and at many depths: whoever comes later
//! has to find their stacks without any event of theirs.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::{self, Truth};

pub(super) const PROGRAM: Program = Program {
    name: "asleep",
    about: "--threads (default 500) threads asleep in nanosleep, futex, read and epoll, 3 to 30 functions deep, until standard input closes",
    run,
};

pub(super) const IN_TURN: Program = Program {
    name: "asleep-in-turn",
    about: "--threads (default 4000) threads that sleep for 3 s and for 1 s in turn, until standard input closes",
    run: run_in_turn,
};

/// Calls of `go_deeper` above each sleep: thread `n` has `LEAST + n / 4 % DEPTHS`.
const LEAST: usize = 3;
const DEPTHS: usize = 28;

static AWAKE: AtomicU32 = AtomicU32::new(0);

/// Where threads sleep.
#[derive(Clone, Copy)]
struct Places {
    quiet: i32,
    epoll: i32,
}

#[inline(never)]
fn rest_in_nanosleep() {
    sys::nanosleep(3_600_000_000_000);
}

#[inline(never)]
fn rest_in_futex() {
    while AWAKE.load(Ordering::Acquire) == 0 {
        sys::futex_wait(&AWAKE, 0);
    }
}

#[inline(never)]
fn rest_in_read(fd: i32) {
    // Not the code of another program here, which the linker would fold with it.
    sys::read(fd, &mut [1, 2, 3]);
}

#[inline(never)]
fn rest_in_epoll(epoll: i32) {
    sys::epoll_wait(epoll);
}

#[inline(never)]
fn go_deeper(depth: usize, kind: usize, places: Places) {
    if depth > 1 {
        go_deeper(black_box(depth - 1), kind, places);
    } else {
        match kind {
            0 => rest_in_nanosleep(),
            1 => rest_in_futex(),
            2 => rest_in_read(places.quiet),
            _ => rest_in_epoll(places.epoll),
        }
    }
    // No call is the last thing that a function does, or it would not be on the stack.
    black_box(depth);
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let count = options.threads_or(500);
    let (quiet, _writing) = sys::pipe()?;
    let epoll = sys::epoll(quiet)?;
    let places = Places { quiet, epoll };
    for number in 0..count {
        let depth = LEAST + number / 4 % DEPTHS;
        std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || go_deeper(depth, number % 4, places))?;
    }
    // The last of them may not sleep yet.
    sys::nanosleep(100_000_000);
    truth::ready(
        "asleep",
        json!({ "sleepers": count, "least": LEAST, "depths": DEPTHS }),
    );
    truth::hold_until_closed();
    truth.set("sleepers", count);
    Ok(truth)
}

#[inline(never)]
fn rest_for_long() {
    sys::nanosleep(3_000_000_000);
    black_box(3);
}

#[inline(never)]
fn rest_for_short() {
    sys::nanosleep(1_000_000_000);
    black_box(1);
}

fn run_in_turn(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let count = options.threads_or(4000);
    for number in 0..count {
        let before_ns = number as u64 * 4_000_000_000 / count as u64;
        std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || {
                sys::nanosleep(before_ns);
                loop {
                    rest_for_long();
                    rest_for_short();
                }
            })?;
    }
    truth::ready("asleep-in-turn", json!({ "sleepers": count }));
    truth::hold_until_closed();
    truth.set("sleepers", count);
    Ok(truth)
}
