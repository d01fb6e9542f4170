//! A function that calls itself to a known depth and works at the bottom: inclusive values count it
//! once.

use std::hint::black_box;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;
use crate::work::{rounds_per_ms, workers};

pub(super) const PROGRAM: Program = Program {
    name: "recursion",
    about: "recurse calls itself --depth times (default 60); recursion_bottom works [--seconds]",
    run,
};

workers! {
    /// All the work.
    recursion_bottom = 404;
}

/// Works so many rounds at the bottom, and adds how long that took.
#[inline(never)]
fn recurse(depth: u32, rounds: u64, bottom_ns: &mut u64) -> u64 {
    if depth <= 1 {
        let start_ns = sys::monotonic_ns();
        let work = black_box(recursion_bottom(rounds));
        *bottom_ns += sys::monotonic_ns() - start_ns;
        return work;
    }
    // Used after the call, so that the call is a call and not a jump.
    black_box(recurse(depth - 1, rounds, bottom_ns)) ^ u64::from(depth)
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let depth = if options.depth == 0 {
        60
    } else {
        options.depth
    };
    let per_ms = rounds_per_ms();
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let (mut calls, mut bottom_ns) = (0u64, 0u64);
    let start_ns = sys::monotonic_ns();
    while sys::monotonic_ns() < until_ns {
        black_box(recurse(depth, per_ms * 5, &mut bottom_ns));
        calls += 1;
    }
    truth.set("depth", depth);
    truth.set("calls", calls);
    truth.set("bottom_ns", bottom_ns);
    truth.set("recursing_ns", sys::monotonic_ns() - start_ns);
    Ok(truth)
}
