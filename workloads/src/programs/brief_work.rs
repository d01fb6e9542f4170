//! Brief work and brief sleeps in turn, below many callers: a process that is at work for a small
//! part of a processor, and whose stacks are dear to walk at each of its switches.

use std::hint::black_box;
use std::thread;

use anyhow::anyhow;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;
use crate::work::{burn, rounds_per_ms};

pub(super) const PROGRAM: Program = Program {
    name: "brief-work",
    about: "works 25 us in work_briefly and sleeps 200 us in sleep_briefly, in turn, below --depth \
            callers (default 0); with --kind threads in threads of four turns each, one after the \
            other [--seconds, --cpu]",
    run,
};

const SLEEP_NS: u64 = 200_000;
/// So often a thread sleeps, with `--kind threads`.
const SLEEPS_OF_A_THREAD: u64 = 4;

#[inline(never)]
fn work_briefly(rounds: u64) -> u64 {
    burn(rounds, 25)
}

#[inline(never)]
fn sleep_briefly() -> u64 {
    sys::nanosleep(SLEEP_NS);
    black_box(SLEEP_NS)
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    if let Some(cpu) = options.cpu {
        sys::pin(cpu)?;
    }
    let rounds = rounds_per_ms() / 40;
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let (depth, since_cpu_ns) = (options.depth, sys::process_cpu_ns());
    let mut switches = 0;
    if options.kind == "threads" {
        while sys::monotonic_ns() < until_ns {
            // That of its end, and that of the wait for it.
            switches += 2;
            switches += thread::spawn(move || below(depth, rounds, until_ns, SLEEPS_OF_A_THREAD))
                .join()
                .map_err(|_| anyhow!("a thread panicked"))?;
        }
    } else {
        switches = below(depth, rounds, until_ns, u64::MAX);
    }
    truth.set("switches", switches);
    truth.set("running_ns", sys::process_cpu_ns() - since_cpu_ns);
    Ok(truth)
}

#[inline(never)]
fn below(callers: u32, rounds: u64, until_ns: u64, most_sleeps: u64) -> u64 {
    if callers != 0 {
        // Used after the call, so that the call is a call and not a jump.
        return black_box(below(callers - 1, rounds, until_ns, most_sleeps)) ^ black_box(0);
    }
    let mut sleeps = 0;
    while sleeps < most_sleeps && sys::monotonic_ns() < until_ns {
        black_box(work_briefly(rounds));
        black_box(sleep_briefly());
        sleeps += 1;
    }
    sleeps
}
