//! More runners than one processor can carry: what a runner does not run, it is runnable.

use std::hint::black_box;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::{self, Truth};
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
            let spawned_unix_ns = sys::unix_ns();
            std::thread::Builder::new()
                .name(name.clone())
                .spawn(move || {
                    let start_ns = sys::monotonic_ns();
                    let pinned = sys::pin(cpu).is_ok();
                    while sys::monotonic_ns() < until_ns {
                        black_box(preempted_work(rounds));
                    }
                    let mut fact = truth::thread(&name, start_ns);
                    fact["pinned"] = pinned.into();
                    fact["spawned_unix_ns"] = spawned_unix_ns.into();
                    fact
                })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let threads: Vec<_> = runners
        .into_iter()
        .filter_map(|handle| handle.join().ok())
        .collect();
    truth.set("threads", threads);
    Ok(truth)
}
