//! One byte to and fro over two pipes: a storm of context switches with a known count.

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::{self, Truth};

pub(super) const PROGRAM: Program = Program {
    name: "pingpong",
    about: "--count (default 20000) round trips in ping and pong [--kind processes|threads, --cpu to pin both]",
    run,
};

#[inline(never)]
fn ping(rounds: u64, reading: i32, writing: i32) {
    let mut byte = [0u8];
    for _ in 0..rounds {
        sys::write(writing, &byte);
        sys::read(reading, &mut byte);
    }
}

#[inline(never)]
fn pong(reading: i32, writing: i32) -> u64 {
    let mut byte = [0u8];
    let mut answered = 0;
    while sys::read(reading, &mut byte) == 1 {
        sys::write(writing, &byte);
        answered += 1;
    }
    answered
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let rounds = options.count_or(20_000);
    let (to_pong, from_ping) = sys::pipe()?;
    let (to_ping, from_pong) = sys::pipe()?;
    if let Some(cpu) = options.cpu {
        sys::pin(cpu)?;
    }
    if options.kind == "threads" {
        let other = std::thread::Builder::new()
            .name("pong".to_owned())
            .spawn(move || {
                let start_ns = sys::monotonic_ns();
                pong(to_pong, from_pong);
                truth::thread("pong", start_ns)
            })?;
        let start_ns = sys::monotonic_ns();
        ping(rounds, to_ping, from_ping);
        let own = truth::thread("ping", start_ns);
        sys::close(from_ping);
        let threads: Vec<_> = other.join().into_iter().chain([own]).collect();
        truth.set("threads", threads);
    } else {
        let child = sys::fork(|| {
            sys::close(from_ping);
            pong(to_pong, from_pong);
        })?;
        ping(rounds, to_ping, from_ping);
        sys::close(from_ping);
        let (_, usage) = sys::wait_child(child)?;
        truth.set("child_pid", child);
        truth.set("child_cpu_ns", usage.user_ns + usage.system_ns);
    }
    truth.set("rounds", rounds);
    Ok(truth)
}
