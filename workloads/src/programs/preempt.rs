//! More runners than one processor can carry: what a runner does not run, it is runnable.

use std::hint::black_box;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::{self, TimedThread, Truth};
use crate::work::{rounds_per_ms, workers};

pub(super) const PROGRAM: Program = Program {
    name: "preempt",
    about: "--threads (default 4) runners in preempted_work, all pinned to --cpu (default 0), for --seconds",
    run,
};

workers! {
    /// What every runner does.
    preempted_work = 909;
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let cpu = options.cpu.unwrap_or(0);
    let rounds = rounds_per_ms() / 10;
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let runners = (0..options.threads_or(4))
        .map(|index| {
            let name = format!("runner-{index}");
            TimedThread::spawn(&name.clone(), move || {
                let start_ns = sys::monotonic_ns();
                let pinned = sys::pin(cpu).is_ok();
                while sys::monotonic_ns() < until_ns {
                    black_box(preempted_work(rounds));
                }
                let mut fact = truth::thread(&name, start_ns);
                fact["pinned"] = pinned.into();
                fact
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    truth.set("threads", TimedThread::join(runners));
    Ok(truth)
}
