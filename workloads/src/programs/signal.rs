//! A timer signal whose handler works: its time belongs to the handler, above whatever it
//! interrupted.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;
use crate::work::{burn, rounds_per_ms, workers};

pub(super) const PROGRAM: Program = Program {
    name: "signal",
    about: "SIGALRM every 20 ms; on_alarm works 5 ms each time, signal_main_work the rest [--seconds]",
    run,
};

workers! {
    /// What is interrupted.
    signal_main_work = 551;
}

static HANDLER_ROUNDS: AtomicU64 = AtomicU64::new(0);
static HANDLED: AtomicU64 = AtomicU64::new(0);
static HANDLER_NS: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
extern "C" fn on_alarm(_signal: libc::c_int) {
    let start_ns = sys::monotonic_ns();
    black_box(burn(HANDLER_ROUNDS.load(Ordering::Relaxed), 552));
    HANDLED.fetch_add(1, Ordering::Relaxed);
    HANDLER_NS.fetch_add(sys::monotonic_ns() - start_ns, Ordering::Relaxed);
}

fn set_timer(interval_us: i64) {
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: interval_us,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: a valid timer value; the old one is not asked for.
    unsafe {
        sys::raw(
            libc::SYS_setitimer,
            [
                libc::ITIMER_REAL as usize,
                &raw const timer as usize,
                0,
                0,
                0,
                0,
            ],
        )
    };
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let per_ms = rounds_per_ms();
    HANDLER_ROUNDS.store(per_ms * 5, Ordering::Relaxed);
    let handler: extern "C" fn(libc::c_int) = on_alarm;
    // SAFETY: the handler touches atomics and reads a clock, both allowed in a handler.
    unsafe { libc::signal(libc::SIGALRM, handler as libc::sighandler_t) };
    set_timer(20_000);
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let start_ns = sys::monotonic_ns();
    while sys::monotonic_ns() < until_ns {
        black_box(signal_main_work(per_ms));
    }
    let working_ns = sys::monotonic_ns() - start_ns;
    set_timer(0);
    truth.set("handled", HANDLED.load(Ordering::Relaxed));
    truth.set("handler_ns", HANDLER_NS.load(Ordering::Relaxed));
    truth.set("working_ns", working_ns);
    Ok(truth)
}
