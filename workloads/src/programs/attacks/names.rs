//! A function whose name takes a demangler of C++ names for ever: each `nw` doubles what it tries.

use std::hint::black_box;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;
use crate::work::rounds_per_ms;

pub(super) const PROGRAM: Program = Program {
    name: "attack-names",
    about: "works for --seconds in a function whose name is dear to demangle",
    run,
};

#[unsafe(export_name = "_Z1fDTnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnwnw")]
#[inline(never)]
extern "C" fn dear_to_demangle(rounds: u64) -> u64 {
    let mut value = rounds;
    for _ in 0..rounds {
        value = black_box(value.wrapping_mul(0x5851_F42D_4C95_7F2D).rotate_left(7));
    }
    value
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let per_ms = rounds_per_ms();
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let mut calls = 0u64;
    while sys::monotonic_ns() < until_ns {
        black_box(dear_to_demangle(black_box(per_ms)));
        calls += 1;
    }
    truth.set("calls", calls);
    Ok(truth)
}
