//! Two phases that alternate, separated by sleeps or by system calls: here every change of function
//! is an event, so the time of each function is known closely, not just statistically.

use std::hint::black_box;

use serde_json::json;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;
use crate::work::{burn, rounds_per_ms};

pub(super) const PROGRAM: Program = Program {
    name: "wait-split",
    about: "phase_long (works 6 ms) and phase_short (works 2 ms) in turn, each ending in a wait \
            [--seconds, --kind sleep|syscall]",
    run,
};

/// A sleep or one system call, inlined so that the phase itself is the leaf.
#[inline(always)]
fn wait(sleep: bool, sleep_ns: u64) {
    if sleep {
        sys::nanosleep(sleep_ns);
    } else {
        black_box(sys::getppid());
    }
}

/// Works 6 ms, then sleeps 2 ms or makes one system call.
#[inline(never)]
fn phase_long(per_ms: u64, sleep: bool) -> u64 {
    let start_ns = sys::monotonic_ns();
    black_box(burn(per_ms * 6, 61));
    wait(sleep, 2_000_000);
    black_box(sys::monotonic_ns() - start_ns)
}

/// Works 2 ms, then sleeps 6 ms or makes one system call.
#[inline(never)]
fn phase_short(per_ms: u64, sleep: bool) -> u64 {
    let start_ns = sys::monotonic_ns();
    black_box(burn(per_ms * 2, 22));
    wait(sleep, 6_000_000);
    black_box(sys::monotonic_ns() - start_ns)
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let sleep = options.kind != "syscall";
    let per_ms = rounds_per_ms();
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let (mut long_ns, mut short_ns, mut cycles) = (0, 0, 0u64);
    while sys::monotonic_ns() < until_ns {
        long_ns += phase_long(per_ms, sleep);
        short_ns += phase_short(per_ms, sleep);
        cycles += 1;
    }
    truth.set("cycles", cycles);
    truth.set(
        "elapsed_ns",
        json!({"phase_long": long_ns, "phase_short": short_ns}),
    );
    truth.set("work_ratio", 3.0);
    Ok(truth)
}
