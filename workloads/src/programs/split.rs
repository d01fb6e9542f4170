//! Processor time split 60 / 30 / 10 between three functions by counted work: no system call, no
//! sleep.
//!
//! Only the sampling timer can see who works here, so the shares found carry the error of that many
//! walks and no less.

use std::hint::black_box;

use serde_json::json;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;
use crate::work::{Jitter, rounds_per_ms, workers};

pub(super) const PROGRAM: Program = Program {
    name: "split",
    about: "works 60/30/10 in split_sixty, split_thirty, split_ten [--seconds, --cpu], below --depth callers (default 0)",
    run,
};

workers! {
    /// Six tenths of the rounds.
    split_sixty = 601;
    /// Three tenths.
    split_thirty = 302;
    /// One tenth.
    split_ten = 103;
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    if let Some(cpu) = options.cpu {
        sys::pin(cpu)?;
    }
    let per_ms = rounds_per_ms();
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let cycles = split_below(options.depth, per_ms, until_ns);
    truth.set("cycles", cycles);
    truth.set("rounds_per_ms", per_ms);
    truth.set(
        "shares",
        json!({"split_sixty": 0.6, "split_thirty": 0.3, "split_ten": 0.1}),
    );
    Ok(truth)
}

#[inline(never)]
fn split_below(callers: u32, per_ms: u64, until_ns: u64) -> u64 {
    if callers == 0 {
        return split_loop(per_ms, until_ns);
    }
    // Used after the call, so that the call is a call and not a jump.
    black_box(split_below(callers - 1, per_ms, until_ns)) ^ black_box(0)
}

#[inline(never)]
fn split_loop(per_ms: u64, until_ns: u64) -> u64 {
    let mut jitter = Jitter::new();
    let mut cycles = 0;
    while sys::monotonic_ns() < until_ns {
        // A cycle of 5 to 15 ms of work, the three parts always in the same proportion.
        let tenth = per_ms * jitter.between(500, 1500) / 1000;
        black_box(split_sixty(tenth * 6));
        black_box(split_thirty(tenth * 3));
        black_box(split_ten(tenth));
        cycles += 1;
    }
    cycles
}
