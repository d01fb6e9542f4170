//! Many threads that live at once and call one function a known number of times each.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use super::Program;
use crate::options::Options;
use crate::truth::Truth;

pub(super) const PROGRAM: Program = Program {
    name: "crowd",
    about: "--threads (default 1100) threads, which live to the end of the process, call crowd_call --count (default 10) \
            times each",
    run,
};

#[inline(never)]
fn crowd_call(calls: &AtomicU64) -> u64 {
    black_box(calls.fetch_add(1, Ordering::Relaxed)) + 1
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let threads = options.threads_or(1100);
    let count = options.count_or(10);
    let calls = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicUsize::new(0));
    // No thread is gone before each has called.
    let all = Arc::new(Barrier::new(threads));
    for _ in 0..threads {
        let (calls, done, all) = (Arc::clone(&calls), Arc::clone(&done), Arc::clone(&all));
        std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || {
                all.wait();
                for _ in 0..count {
                    black_box(crowd_call(&calls));
                }
                done.fetch_add(1, Ordering::Release);
                loop {
                    std::thread::park();
                }
            })?;
    }
    while done.load(Ordering::Acquire) < threads {
        std::thread::sleep(Duration::from_millis(5));
    }
    truth.set("calls", calls.load(Ordering::Relaxed));
    truth.set("threads", threads);
    Ok(truth)
}
