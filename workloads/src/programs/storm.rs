//! Storms of system calls with an exact count: every one must be found, and the loop is what a
//! profiler slows down most.

use std::hint::black_box;

use anyhow::Context;
use serde_json::json;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;

pub(super) const PROGRAM: Program = Program {
    name: "storm",
    about: "makes exactly --count system calls [--kind getppid|mix: read, write and getpid by turns|brief: getppid, ten in each of as many threads]",
    run,
};

const CALLS_OF_BRIEF: u64 = 10;

#[inline(never)]
fn storm_getppid(count: u64) {
    for _ in 0..count {
        black_box(sys::getppid());
    }
}

/// Each thread is over within the time that a profiler takes to read of it.
fn storm_brief(threads: u64) -> anyhow::Result<()> {
    for _ in 0..threads {
        let thread = std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(|| storm_getppid(CALLS_OF_BRIEF))
            .context("starting a thread")?;
        black_box(thread.join().is_ok());
    }
    Ok(())
}

#[inline(never)]
fn storm_mix(count: u64, zero: i32, null: i32) {
    let mut bytes = [0u8; 512];
    for _ in 0..count {
        black_box(sys::read(zero, &mut bytes));
        black_box(sys::write(null, &bytes));
        black_box(sys::getpid());
    }
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let count = options.count_or(1_000_000);
    let zero = std::fs::File::open("/dev/zero").context("opening /dev/zero")?;
    let null = std::fs::File::options()
        .write(true)
        .open("/dev/null")
        .context("opening /dev/null")?;
    let start_ns = sys::monotonic_ns();
    if options.kind == "mix" {
        use std::os::fd::AsRawFd;
        storm_mix(count, zero.as_raw_fd(), null.as_raw_fd());
        // Reads and writes of the start-up and of this line come on top; getpid is made nowhere
        // else.
        truth.set(
            "syscalls",
            json!({"read": count, "write": count, "getpid": count}),
        );
    } else if options.kind == "brief" {
        let threads = count / CALLS_OF_BRIEF;
        storm_brief(threads)?;
        truth.set("syscalls", json!({ "getppid": threads * CALLS_OF_BRIEF }));
    } else {
        storm_getppid(count);
        truth.set("syscalls", json!({ "getppid": count }));
    }
    let storm_ns = sys::monotonic_ns() - start_ns;
    truth.set("storm_ns", storm_ns);
    truth.set("ns_per_round", storm_ns as f64 / count as f64);
    Ok(truth)
}
