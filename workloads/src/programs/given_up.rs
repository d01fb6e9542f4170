//! A function that is called at a steady pace, beside two that are called without end for a while:
//! for probes that give these up, and must miss none of the first.

use std::hint::black_box;
use std::time::Duration;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;

pub(super) const PROGRAM: Program = Program {
    name: "given-up",
    about: "--count (default 2000) calls of steady_call a millisecond apart; another thread calls dear_first and \
            dear_second without end from half a second on",
    run,
};

#[inline(never)]
fn steady_call(sum: u64) -> u64 {
    black_box(sum) + 1
}

#[inline(never)]
fn dear_first(sum: u64) -> u64 {
    black_box(sum) + 2
}

#[inline(never)]
fn dear_second(sum: u64) -> u64 {
    black_box(sum) + 3
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let count = options.count_or(2000);
    std::thread::spawn(|| {
        sys::nanosleep(500_000_000);
        loop {
            black_box(dear_first(black_box(1)));
            black_box(dear_second(black_box(1)));
        }
    });
    for number in 0..count {
        black_box(steady_call(number));
        std::thread::sleep(Duration::from_millis(1));
    }
    truth.set("steady_calls", count);
    Ok(truth)
}
