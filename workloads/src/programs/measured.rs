//! Functions whose calls are counted and timed by the program itself: for probes that do the same.

use std::hint::black_box;
use std::panic::{catch_unwind, set_hook};
use std::time::Duration;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;
use crate::work::{burn, rounds_per_ms};

pub(super) const PROGRAM: Program = Program {
    name: "measured",
    about: "calls measured_* functions a known number of times and times them: empty ones on two threads, recursion, \
            sleeps, panics",
    run,
};

/// Empty calls of each thread.
const EMPTY: u64 = 5_000;
/// Calls of `measured_outer`.
const OUTER: u64 = 20;
/// Depth of the recursion.
const DEPTH: u64 = 25;
/// Calls of `called_function` by one function and by another.
const CALLED: [u64; 2] = [300, 100];
/// Calls of `called_function` of which each is made at another place of one function.
const PLACES: u64 = 72;
/// Calls of `measured_thrower`, of which every other panics.
const THROWN: u64 = 100;

fn run(_: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    // What the panics say is nobody's business.
    set_hook(Box::new(|_| {}));
    let per_ms = rounds_per_ms();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..EMPTY).fold(0, |sum, _| measured_empty(sum)));
        }
    });
    let (mut elapsed_ns, mut cpu_ns) = (0, 0);
    for _ in 0..OUTER {
        let (began_ns, began_cpu_ns) = (sys::monotonic_ns(), sys::thread_cpu_ns());
        measured_outer(per_ms);
        elapsed_ns += sys::monotonic_ns() - began_ns;
        cpu_ns += sys::thread_cpu_ns() - began_cpu_ns;
    }
    let depth = measured_recursive(DEPTH - 1);
    let caught = (0..THROWN).filter(|number| catch_unwind(|| measured_thrower(*number)).is_err());
    for (name, calls) in [
        ("often_elapsed_ns", measured_often as fn(u64)),
        ("seldom_elapsed_ns", measured_seldom),
    ] {
        let began_ns = sys::monotonic_ns();
        calls(per_ms);
        truth.set(name, sys::monotonic_ns() - began_ns);
    }
    measured_many_places(per_ms);
    truth.set("often_calls", CALLED[0]);
    truth.set("seldom_calls", CALLED[1]);
    truth.set("places", PLACES);
    truth.set("caught", caught.count());
    truth.set("depth", depth);
    truth.set("empty_calls", 2 * EMPTY);
    truth.set("outer_calls", OUTER);
    truth.set("outer_elapsed_ns", elapsed_ns);
    truth.set("outer_cpu_ns", cpu_ns);
    truth.set("inner_calls", 2 * OUTER);
    truth.set("thrower_calls", THROWN);
    Ok(truth)
}

#[inline(never)]
fn measured_empty(sum: u64) -> u64 {
    black_box(sum) + 1
}

/// Sleeps 10 ms, works 4 ms, and calls twice for 2 ms more.
#[inline(never)]
fn measured_outer(per_ms: u64) {
    std::thread::sleep(Duration::from_millis(10));
    black_box(burn(4 * per_ms, 701));
    black_box(measured_inner(2 * per_ms));
    // Used after the call, so that the call is a call and not a jump.
    black_box(measured_inner(2 * per_ms));
}

#[inline(never)]
fn measured_inner(rounds: u64) -> u64 {
    burn(rounds, 702)
}

#[inline(never)]
fn measured_recursive(depth: u64) -> u64 {
    if depth == 0 {
        return black_box(1);
    }
    black_box(measured_recursive(depth - 1)) + 1
}

#[inline(never)]
fn measured_thrower(number: u64) -> u64 {
    assert!(number.is_multiple_of(2), "odd ones panic");
    black_box(number)
}

/// Works 100 us.
#[inline(never)]
fn called_function(per_ms: u64) -> u64 {
    burn(per_ms / 10, 703)
}

#[inline(never)]
fn measured_often(per_ms: u64) {
    for _ in 0..CALLED[0] {
        black_box(called_function(per_ms));
    }
}

#[inline(never)]
fn measured_seldom(per_ms: u64) {
    for _ in 0..CALLED[1] {
        black_box(called_function(per_ms));
    }
}

macro_rules! six_times {
    ($call:expr) => {
        $call;
        $call;
        $call;
        $call;
        $call;
        $call;
    };
}

#[inline(never)]
fn measured_many_places(per_ms: u64) {
    six_times!({
        six_times!(black_box(called_function(per_ms)));
        six_times!(black_box(called_function(per_ms)));
    });
}
