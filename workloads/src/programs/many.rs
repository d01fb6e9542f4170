//! Many threads asleep: what a profiler pays for threads that do nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::{self, Truth};

pub(super) const PROGRAM: Program = Program {
    name: "many",
    about: "--threads (default 500) threads asleep until standard input closes; with --kind processes, processes",
    run,
};

#[inline(never)]
fn sleep_among_many(word: &AtomicU32) {
    while word.load(Ordering::Acquire) == 0 {
        sys::futex_wait(word, 0);
    }
}

#[inline(never)]
fn sleep_as_process(reading: i32) {
    let mut byte = [0u8];
    sys::read(reading, &mut byte);
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let count = options.threads_or(500);
    truth.set("sleepers", count);
    if options.kind == "processes" {
        let (reading, writing) = sys::pipe()?;
        for _ in 0..count {
            sys::fork(|| {
                sys::close(writing);
                sleep_as_process(reading);
            })?;
        }
        truth::ready("many", json!({ "sleepers": count }));
        truth::hold_until_closed();
        sys::close(writing);
        for _ in 0..count {
            sys::wait_child(-1)?;
        }
        return Ok(truth);
    }
    let word = Arc::new(AtomicU32::new(0));
    let handles = (0..count)
        .map(|_| {
            let word = Arc::clone(&word);
            std::thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(move || sleep_among_many(&word))
        })
        .collect::<Result<Vec<_>, _>>()?;
    truth::ready("many", json!({ "sleepers": count }));
    truth::hold_until_closed();
    word.store(1, Ordering::Release);
    sys::futex_wake(&word, u32::MAX >> 1);
    let ended = handles
        .into_iter()
        .map(|handle| handle.join())
        .filter(Result::is_ok)
        .count();
    truth.set("ended", ended);
    Ok(truth)
}
