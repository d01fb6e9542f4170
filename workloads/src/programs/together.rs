//! Threads that depend on each other: a server and its client, steps on all processors at once, a
//! processor given away again and again, a lock that all want.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::Program;
use crate::options::Options;
use crate::places::Places;
use crate::sys;
use crate::truth::Truth;
use crate::work::{Jitter, burn, workers};

pub(super) const SERVER: Program = Program {
    name: "server",
    about: "requests of exponential lengths: parse, take (read), compute, give (write), idle (poll); a client thread [--seconds]",
    run: run_server,
};

pub(super) const LOCKSTEP: Program = Program {
    name: "lockstep",
    about: "a thread on each processor, all in tick_step, then all in tock_step (2 : 1), and at a barrier in between [--seconds]",
    run: run_lockstep,
};

pub(super) const YIELDS: Program = Program {
    name: "yields",
    about: "20 us in share_work, 10 sched_yield in give_way, beside a thread in rival on the same processor [--seconds, --cpu]",
    run: run_yields,
};

pub(super) const CONVOY: Program = Program {
    name: "convoy",
    about: "--threads (default 4) that want one lock: queue waits for it, hold works 100 us with it, apart 50 us without [--seconds]",
    run: run_convoy,
};

workers! {
    /// What a request says.
    parse = 371;
    /// What it asks for.
    compute = 372;
    /// Two thirds of a step.
    tick_step = 373;
    /// A third of it.
    tock_step = 374;
    /// Between calls to give way.
    share_work = 375;
    /// What others do meanwhile.
    rival = 376;
    /// With the lock.
    hold = 377;
    /// Without it.
    apart = 378;
    /// The client's.
    client_think = 379;
}

#[inline(never)]
fn take(fd: i32, bytes: &mut [u8]) {
    black_box(sys::read(fd, bytes));
}

#[inline(never)]
fn give(fd: i32, bytes: &[u8]) {
    black_box(sys::write(fd, bytes));
}

#[inline(never)]
fn idle(fd: i32) {
    sys::poll(fd, 1000);
}

fn run_server(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["parse", "take", "compute", "give", "idle"]);
    let (ours, theirs) = sys::socket_pair()?;
    let per_ms = places.per_ms();
    let client = std::thread::Builder::new()
        .name("client".into())
        .spawn(move || {
            let mut jitter = Jitter::new();
            let mut bytes = [0u8; 4096];
            loop {
                let pause_ns = jitter.exponential(800_000);
                if pause_ns > 60_000 {
                    sys::nanosleep(pause_ns - 50_000);
                } else {
                    black_box(client_think(per_ms * pause_ns / 1_000_000));
                }
                if sys::write(theirs, &bytes) <= 0 || sys::read(theirs, &mut bytes) <= 0 {
                    return;
                }
            }
        })?;
    let mut jitter = Jitter::new();
    let mut bytes = [0u8; 4096];
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        places.call(4, || idle(ours));
        places.call(1, || take(ours, &mut bytes));
        let rounds = places.rounds(jitter.exponential(300));
        places.work(0, rounds, parse);
        let rounds = places.rounds(jitter.exponential(2000));
        places.work(2, rounds, compute);
        places.call(3, || give(ours, &bytes));
    }
    sys::close(ours);
    sys::shut_down(theirs);
    truth.set("client_ended", client.join().is_ok());
    truth.set("functions", places.json());
    Ok(truth)
}

/// A place where all threads meet by turning, not sleeping; `arrived` counts over all steps.
#[inline(never)]
fn barrier(arrived: &AtomicU32, wanted: u32) {
    arrived.fetch_add(1, Ordering::AcqRel);
    while arrived.load(Ordering::Acquire) < wanted {
        black_box(burn(200, 380));
    }
}

fn run_lockstep(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    const NAMES: [&str; 3] = ["tick_step", "tock_step", "barrier"];
    let mut places = Places::new(&NAMES);
    let (per_ms, threads) = (places.per_ms(), sys::processors());
    let arrived = Arc::new(AtomicU32::new(0));
    // The step that is no more, once somebody knows: set before the barrier of the last one.
    let end = Arc::new(AtomicU32::new(u32::MAX));
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let runners: Vec<_> = (0..threads)
        .map(|cpu| {
            let (arrived, end) = (Arc::clone(&arrived), Arc::clone(&end));
            std::thread::Builder::new()
                .name(format!("step-{cpu}"))
                .spawn(move || {
                    sys::pin(cpu).unwrap_or_default();
                    let mut places = Places::with_rate(&NAMES, per_ms);
                    let mut wanted = 0;
                    for step in 0.. {
                        if step >= end.load(Ordering::Acquire) {
                            break;
                        }
                        if cpu == 0 && sys::monotonic_ns() >= until_ns {
                            end.store(step + 1, Ordering::Release);
                        }
                        for (place, us, function) in
                            [(0, 2000, tick_step as fn(u64) -> u64), (1, 1000, tock_step)]
                        {
                            let rounds = places.rounds(us);
                            places.work(place, rounds, function);
                            wanted += threads as u32;
                            let start_ns = sys::monotonic_ns();
                            barrier(&arrived, wanted);
                            let wall_ns = sys::monotonic_ns() - start_ns;
                            let times = places.of(2);
                            times.user_ns += wall_ns;
                            times.readings += 1;
                            // Turning or preempted: not known.
                            times.user_error_ns += wall_ns;
                        }
                    }
                    places
                })
        })
        .collect::<Result<_, _>>()?;
    for runner in runners {
        if let Ok(runner) = runner.join() {
            places.merge(&runner);
        }
    }
    truth.set("threads_in_step", threads);
    truth.set("functions", places.json());
    Ok(truth)
}

const YIELDS_AT_ONCE: u64 = 10;

#[inline(never)]
fn give_way() {
    for _ in 0..YIELDS_AT_ONCE {
        sys::sched_yield();
    }
}

fn run_yields(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    const NAMES: [&str; 3] = ["share_work", "give_way", "rival"];
    let mut places = Places::new(&NAMES);
    let cpu = options.cpu.unwrap_or(0);
    sys::pin(cpu)?;
    let over = Arc::new(AtomicBool::new(false));
    let rival_thread = std::thread::Builder::new().name("rival".into()).spawn({
        let over = Arc::clone(&over);
        let mut places = Places::with_rate(&NAMES, places.per_ms());
        move || {
            let rounds = places.rounds(50);
            while !over.load(Ordering::Acquire) {
                places.work(2, rounds, rival);
            }
            places
        }
    })?;
    let rounds = places.rounds(20);
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        places.work(0, rounds, share_work);
        places.call(1, give_way);
        places.of(1).user_error_ns += YIELDS_AT_ONCE * 300;
    }
    over.store(true, Ordering::Release);
    if let Ok(rival) = rival_thread.join() {
        places.merge(&rival);
    }
    truth.set("functions", places.json());
    Ok(truth)
}

/// Takes the lock, sleeping until it is free.
#[inline(never)]
fn queue(lock: &AtomicU32) {
    while lock.swap(1, Ordering::Acquire) != 0 {
        sys::futex_wait(lock, 1);
    }
}

fn run_convoy(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    const NAMES: [&str; 4] = ["queue", "hold", "apart", "wake_next"];
    #[inline(never)]
    fn wake_next(lock: &AtomicU32) {
        lock.store(0, Ordering::Release);
        sys::futex_wake(lock, 1);
    }
    let mut places = Places::new(&NAMES);
    let per_ms = places.per_ms();
    let lock = Arc::new(AtomicU32::new(0));
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let members: Vec<_> = (0..options.threads_or(4))
        .map(|index| {
            let lock = Arc::clone(&lock);
            std::thread::Builder::new()
                .name(format!("convoy-{index}"))
                .spawn(move || {
                    let mut places = Places::with_rate(&NAMES, per_ms);
                    let (with, without) = (places.rounds(100), places.rounds(50));
                    while sys::monotonic_ns() < until_ns {
                        places.call(0, || queue(&lock));
                        places.work(1, with, hold);
                        places.call(3, || wake_next(&lock));
                        places.work(2, without, apart);
                    }
                    places
                })
        })
        .collect::<Result<_, _>>()?;
    for member in members {
        if let Ok(member) = member.join() {
            places.merge(&member);
        }
    }
    truth.set("functions", places.json());
    Ok(truth)
}
