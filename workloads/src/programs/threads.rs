//! Threads with known, different amounts of work; and a churn of threads that live for
//! milliseconds.

use std::hint::black_box;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::{self, Truth};
use crate::work::{rounds_per_ms, workers};

pub(super) const PROGRAM: Program = Program {
    name: "threads",
    about: "thread i of --threads (default 4) works (i+1) x --millis (default 100) ms in thread_work",
    run,
};

pub(super) const CHURN: Program = Program {
    name: "churn",
    about: "--count (default 500) threads of --millis (default 2) ms each in churn_work, --threads (default 4) at once",
    run: run_churn,
};

workers! {
    /// The work of a numbered thread.
    thread_work = 707;
    /// The whole life of a short thread.
    churn_work = 808;
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let per_ms = rounds_per_ms();
    let unit = per_ms * options.millis_or(100);
    let handles = (0..options.threads_or(4))
        .map(|index| {
            let name = format!("worker-{index}");
            std::thread::Builder::new()
                .name(name.clone())
                .spawn(move || {
                    let start_ns = sys::monotonic_ns();
                    // In slices, so that a long thread is not one single call.
                    for _ in 0..10 {
                        black_box(thread_work(unit * (index as u64 + 1) / 10));
                    }
                    truth::thread(&name, start_ns)
                })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let threads: Vec<_> = handles
        .into_iter()
        .filter_map(|handle| handle.join().ok())
        .collect();
    truth.set("threads", threads);
    Ok(truth)
}

fn run_churn(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let rounds = rounds_per_ms() * options.millis_or(2);
    let count = options.count_or(500);
    let at_once = options.threads_or(4) as u64;
    let mut started = 0;
    while started < count {
        let batch = at_once.min(count - started);
        let handles = (0..batch)
            .map(|_| {
                std::thread::Builder::new()
                    .stack_size(64 << 10)
                    .spawn(move || black_box(churn_work(rounds)))
            })
            .collect::<Result<Vec<_>, _>>()?;
        for handle in handles {
            black_box(handle.join().is_ok());
        }
        started += batch;
    }
    truth.set("threads_started", started);
    Ok(truth)
}
