//! System calls that run long: of seconds and of microseconds beside each other, by threads that
//! live for a millisecond, by threads that are killed within.

use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;

use super::Program;
use crate::options::Options;
use crate::places::{Places, Times};
use crate::sys;
use crate::truth::Truth;
use crate::work::workers;

pub(super) const LONG_CALLS: Program = Program {
    name: "long-calls",
    about: "one call of --millis (default 4000) ms in fill, 30 ms of user code in think, one call of 50 us in glance [--seconds]",
    run: run_long,
};

pub(super) const SHORT_THREADS: Program = Program {
    name: "short-threads",
    about: "--count (default 3000) threads, one after another: 10 calls of 50 us in early, then 10 in late",
    run: run_short_threads,
};

pub(super) const KILLED: Program = Program {
    name: "killed",
    about: "--count (default 30) forked children with a thread in doomed_call and one in doomed_code, killed after some 20 ms",
    run: run_killed,
};

workers! {
    /// Between long calls.
    think = 351;
}

#[inline(never)]
fn fill(file: i32, pieces: &[libc::iovec]) {
    sys::readv(file, pieces);
}

/// Functions that ask for random bytes.
macro_rules! fillers {
    ($($name:ident = $seed:literal)*) => {
        $(#[inline(never)]
        fn $name(bytes: &mut [u8]) {
            black_box(sys::getrandom(bytes));
            // Equal functions would be made one.
            bytes[0] = black_box($seed);
        })*
    };
}
fillers! { glance = 1 early = 2 late = 3 calibrate = 4 doomed_call = 5 }

/// How many random bytes take a microsecond: the fastest of several.
fn bytes_per_us() -> u64 {
    let mut bytes = vec![0; 20_000];
    let fastest_ns = (0..20).map(|_| {
        let start_ns = sys::monotonic_ns();
        calibrate(&mut bytes);
        sys::monotonic_ns() - start_ns
    });
    (20_000_000 / fastest_ns.min().unwrap_or(1).max(1)).max(1)
}

fn run_long(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["fill", "think", "glance"]);
    let random = std::fs::File::open("/dev/urandom").context("opening /dev/urandom")?;
    let rate = bytes_per_us();
    // One piece of memory, a thousand times in one call.
    let mut memory = vec![0u8; (rate * options.millis_or(4000)) as usize];
    let pieces = vec![
        libc::iovec {
            iov_base: memory.as_mut_ptr().cast(),
            iov_len: memory.len(),
        };
        1000
    ];
    let mut bytes = vec![0; (rate * 50) as usize];
    let rounds = places.rounds(30_000);
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        places.call(0, || fill(random.as_raw_fd(), &pieces));
        places.work(1, rounds, think);
        places.call(2, || glance(&mut bytes));
    }
    truth.set("functions", places.json());
    Ok(truth)
}

fn run_short_threads(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    const CALLS: u64 = 10;
    let mut places = Places::new(&["early", "late"]);
    let size = (bytes_per_us() * 50) as usize;
    let per_ms = places.per_ms();
    for _ in 0..options.count_or(3000) {
        let thread = std::thread::spawn(move || {
            let mut bytes = vec![0; size];
            let mut times = [Times::default(); 2];
            for (times, function) in times.iter_mut().zip([early as fn(&mut [u8]), late]) {
                let start_ns = sys::monotonic_ns();
                for _ in 0..CALLS {
                    function(&mut bytes);
                }
                times.call_ns = sys::monotonic_ns() - start_ns;
                times.readings = 1;
                times.user_error_ns = CALLS * 300;
            }
            let mut places = Places::with_rate(&["early", "late"], per_ms);
            for (place, times) in times.iter().enumerate() {
                places.of(place).add(times);
            }
            places
        });
        if let Ok(thread) = thread.join() {
            places.merge(&thread);
        }
    }
    truth.set("functions", places.json());
    Ok(truth)
}

/// Calls without end.
fn call_for_ever(begun_ns: &AtomicU64, size: usize) -> ! {
    let mut bytes = vec![0; size];
    begun_ns.store(sys::monotonic_ns(), Ordering::Release);
    loop {
        doomed_call(&mut bytes);
    }
}

#[inline(never)]
fn doomed_code(begun_ns: &AtomicU64) -> ! {
    begun_ns.store(sys::monotonic_ns(), Ordering::Release);
    let mut seed = 352;
    loop {
        seed = crate::work::burn(1000, seed);
    }
}

fn run_killed(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["doomed_call", "doomed_code"]);
    // Calls of 5 ms: most are cut short.
    let size = (bytes_per_us() * 5000) as usize;
    for round in 0..options.count_or(30) {
        let begun = sys::map_shared(16).context("mapping shared memory")?;
        let [call_ns, code_ns] = [0, 1].map(|at| &begun[at]);
        let pid = sys::fork(|| {
            // SAFETY (of threads after a fork): the parent has one thread.
            std::thread::spawn(move || doomed_code(code_ns));
            call_for_ever(call_ns, size);
        })?;
        sys::nanosleep(20_000_000 + round * 317_000);
        let killed_ns = sys::monotonic_ns();
        sys::kill(pid, libc::SIGKILL);
        sys::wait_child(pid)?;
        let ended_ns = sys::monotonic_ns();
        for (place, begun) in [call_ns, code_ns].into_iter().enumerate() {
            let begun_ns = begun.load(Ordering::Acquire);
            let lived_ns = killed_ns.saturating_sub(begun_ns);
            if begun_ns == 0 {
                continue;
            }
            let times = places.of(place);
            if place == 0 {
                times.call_ns += lived_ns;
            } else {
                times.user_ns += lived_ns;
            }
            times.error_ns += ended_ns - killed_ns;
            // Two threads and others on few processors: how long it ran is not known here.
            times.user_error_ns += if place == 0 { lived_ns / 20 } else { lived_ns };
        }
    }
    truth.set("functions", places.json());
    truth.set("scope", "session");
    Ok(truth)
}
