//! One thread asleep in each kind of wait, for as long as the reader likes: their blocked time must
//! grow while they sleep.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use serde_json::json;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::{self, Truth};

pub(super) const PROGRAM: Program = Program {
    name: "sleeper",
    about: "threads asleep in nanosleep, read, futex and poll until a line arrives on standard input",
    run,
};

/// What a sleeping thread runs.
type Sleep = Box<dyn FnOnce() + Send>;

static NEVER: AtomicU32 = AtomicU32::new(0);

#[inline(never)]
fn sleep_in_nanosleep() {
    loop {
        sys::nanosleep(3_600_000_000_000);
    }
}

#[inline(never)]
fn sleep_in_read(fd: i32) {
    let mut byte = [0u8];
    while sys::read(fd, &mut byte) != 0 {}
}

#[inline(never)]
fn sleep_in_futex() {
    while NEVER.load(Ordering::Relaxed) == 0 {
        sys::futex_wait(&NEVER, 0);
    }
}

#[inline(never)]
fn sleep_in_poll(fd: i32) {
    loop {
        sys::poll(fd, -1);
    }
}

fn run(_options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let (quiet, _writing_end) = sys::pipe()?;
    let (announce, announced) = mpsc::channel();
    let sleepers: [(&'static str, &'static str, Sleep); 4] = [
        (
            "sleep_in_nanosleep",
            "nanosleep",
            Box::new(sleep_in_nanosleep),
        ),
        (
            "sleep_in_read",
            "read",
            Box::new(move || sleep_in_read(quiet)),
        ),
        ("sleep_in_futex", "futex", Box::new(sleep_in_futex)),
        (
            "sleep_in_poll",
            "poll",
            Box::new(move || sleep_in_poll(quiet)),
        ),
    ];
    for (function, call, sleep) in sleepers {
        let announce = announce.clone();
        std::thread::Builder::new().name(call.to_owned()).spawn(move || {
            let fact = json!({"function": function, "syscall": call, "tid": sys::gettid(), "asleep_since_ns": sys::monotonic_ns()});
            if announce.send(fact).is_ok() {
                sleep();
            }
        })?;
    }
    let threads: Vec<_> = announced.iter().take(4).collect();
    // The last of them has announced itself but may not sleep yet.
    sys::nanosleep(20_000_000);
    truth::ready("sleeper", json!({ "threads": threads }));
    truth::wait_for_line();
    truth.set("threads", threads);
    Ok(truth)
}
