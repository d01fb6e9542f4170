//! Two processes, one pid: the second must not inherit the first one's time.

use std::hint::black_box;

use anyhow::Context;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;
use crate::work::{rounds_per_ms, workers};

pub(super) const PROGRAM: Program = Program {
    name: "pid-reuse",
    about: "a child works --millis (default 300) ms in reuse_first_work and ends; a second with the same pid works \
            twice that in reuse_second_work (needs root)",
    run,
};

workers! {
    /// The first process of the pid.
    reuse_first_work = 331;
    /// The second.
    reuse_second_work = 332;
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let rounds = rounds_per_ms() * options.millis_or(300);
    let first = sys::fork(|| {
        black_box(reuse_first_work(rounds));
    })?;
    let (_, first_usage) = sys::wait_child(first)?;
    // Start times are told apart in ticks of 10 ms.
    sys::nanosleep(50_000_000);
    let second = sys::fork_as(first, || {
        black_box(reuse_second_work(rounds * 2));
    })
    .with_context(|| format!("starting a second process with pid {first}"))?;
    let (_, second_usage) = sys::wait_child(second)?;
    truth.set("reused_pid", second);
    truth.set("first_cpu_ns", first_usage.user_ns + first_usage.system_ns);
    truth.set(
        "second_cpu_ns",
        second_usage.user_ns + second_usage.system_ns,
    );
    Ok(truth)
}
