//! Threads that wake every 20 to 100 us and count it: whoever looks at them twice can tell whether
//! they ran in between.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use serde_json::json;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::{self, Truth};

pub(super) const PROGRAM: Program = Program {
    name: "wakers",
    about: "--threads (default and most: 8) threads that wake every 20 to 100 us and count it, until standard input closes",
    run,
};

const MOST: usize = 8;

static COUNTERS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

#[inline(never)]
fn wake_often(counter: &AtomicU64) {
    loop {
        let wakes = counter.fetch_add(1, Ordering::Relaxed);
        sys::nanosleep(20_000 + wakes * 7_919 % 80_000);
    }
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let count = options.threads_or(MOST).min(MOST);
    let (announce, announced) = mpsc::channel();
    for (number, counter) in COUNTERS[..count].iter().enumerate() {
        let announce = announce.clone();
        std::thread::Builder::new().spawn(move || {
            if announce.send((number, sys::gettid())).is_ok() {
                wake_often(counter);
            }
        })?;
    }
    let mut tids: Vec<(usize, u32)> = announced.iter().take(count).collect();
    tids.sort_unstable();
    let tids: Vec<u32> = tids.into_iter().map(|(_, tid)| tid).collect();
    truth::ready(
        "wakers",
        json!({ "tids": tids, "counters": COUNTERS.as_ptr().addr() }),
    );
    truth::hold_until_closed();
    truth.set("threads", count);
    Ok(truth)
}
