//! Many short processes, each with its own share of the truth, which it tells its parent over a
//! pipe; and those whose time is in the calls that do not come back: execve and exit_group.

use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::Context;

use super::Program;
use crate::options::Options;
use crate::places::Places;
use crate::sys;
use crate::truth::Truth;
use crate::work::workers;

pub(super) const PROCESSES: Program = Program {
    name: "small-processes",
    about: "--count (default 2500) executed processes of --millis (default 3) ms: two thirds in dawn, a third in dusk; --kind mixed: \
            of 3 and 12 ms in turns, in morning and evening",
    run: run_processes,
};

pub(super) const SMALL: Program = Program {
    name: "small",
    about: "one such process; tells its times on standard output",
    run: run_small,
};

pub(super) const LEAVERS: Program = Program {
    name: "leavers",
    about: "--count (default 100) processes that touch 64 MiB, execute themselves in turn_into, touch again, end in leave; launch and \
            reap are their parent's",
    run: run_leavers,
};

pub(super) const LEAVER: Program = Program {
    name: "leaver",
    about: "one such process [--kind again: after the exec]",
    run: run_leaver,
};

workers! {
    /// Two thirds of a process.
    dawn = 361;
    /// The last third.
    dusk = 362;
    /// Two thirds of a process of a mixed lot.
    morning = 363;
    /// Its last third.
    evening = 364;
}

/// What a child tells: numbers as text, separated by spaces.
fn told(output: &[u8]) -> Vec<u64> {
    String::from_utf8_lossy(output)
        .split_whitespace()
        .filter_map(|number| number.parse().ok())
        .collect()
}

fn run_processes(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let exe = std::env::current_exe()?;
    let mixed = options.kind == "mixed";
    let mut places = Places::new(if mixed {
        &["morning", "evening"]
    } else {
        &["dawn", "dusk"]
    });
    let per_ms = places.per_ms();
    for index in 0..options.count_or(2500) {
        let millis = if mixed && index % 2 == 1 {
            12
        } else {
            options.millis_or(3)
        };
        let output = Command::new(&exe)
            .args(["small", "--kind", &options.kind])
            .args(["--count", &per_ms.to_string()])
            .args(["--millis", &millis.to_string()])
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("executing {}", exe.display()))?;
        for (place, told) in told(&output.stdout).chunks_exact(4).take(2).enumerate() {
            let times = places.of(place);
            times.rounds += told[0];
            times.work_ns += told[1];
            times.whole_rounds += told[2];
            times.whole_ns += told[3];
            times.readings += 6;
        }
    }
    truth.set("functions", places.json());
    truth.set("scope", "session");
    Ok(truth)
}

fn run_small(options: &Options, _truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::with_rate(&["", ""], options.count);
    let third = places.rounds(options.millis * 1000 / 3);
    let functions: [fn(u64) -> u64; 2] = if options.kind == "mixed" {
        [morning, evening]
    } else {
        [dawn, dusk]
    };
    let mut line = String::new();
    for (place, rounds) in [third * 2, third].into_iter().enumerate() {
        places.work(place, rounds, functions[place]);
        let times = places.of(place);
        line.push_str(&format!(
            "{} {} {} {} ",
            times.rounds, times.work_ns, times.whole_rounds, times.whole_ns
        ));
    }
    sys::write_all(1, line.as_bytes());
    sys::exit_now(0)
}

const LEAVER_BYTES: usize = 64 << 20;

/// Executes this program again, with `carry` as what it is to know.
#[inline(never)]
fn turn_into(again: &mut Command) -> std::io::Error {
    black_box(again.exec())
}

#[inline(never)]
fn leave() -> ! {
    sys::exit_group(black_box(0))
}

#[inline(never)]
fn touch_all(memory: &mut [u8]) {
    for page in memory.chunks_mut(4096) {
        page[0] = black_box(1);
    }
}

/// Starts a process and waits until it has executed.
#[inline(never)]
fn launch(command: &mut Command) -> std::io::Result<std::process::Child> {
    black_box(command.spawn())
}

/// Waits for a process; it has told all it knows.
#[inline(never)]
fn reap(child: &mut std::process::Child) -> std::io::Result<()> {
    sys::wait_child(black_box(child.id() as i32)).map(drop)
}

fn run_leavers(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    use std::io::Read;
    let exe = std::env::current_exe()?;
    let mut places = Places::new(&["launch", "reap", "touch_all", "turn_into", "leave"]);
    for _ in 0..options.count_or(100) {
        let mut command = Command::new(&exe);
        command.arg("leaver").stdout(Stdio::piped());
        let mut child = None;
        places.call(0, || child = Some(launch(&mut command)));
        // What the C library does around the calls.
        places.of(0).user_error_ns += 300_000;
        let mut child = child.context("it was launched")??;
        let mut text = Vec::new();
        let mut pipe = child.stdout.take().context("the output is a pipe")?;
        pipe.read_to_end(&mut text)?;
        let mut reaped = Ok(());
        places.call(1, || reaped = reap(&mut child));
        reaped?;
        // So short that the ways in and out, and a preemption there, are much of it.
        places.of(1).error_ns += 100_000;
        let ended_ns = sys::monotonic_ns();
        let [before, touched, asked, executed, again, left] = told(&text)[..] else {
            continue;
        };
        let times = places.of(2);
        times.fault_ns += touched - before + left - again;
        times.readings += 2;
        times.user_error_ns += (touched - before + left - again) / 20;
        // Until the new program's first reading: the loader is in it.
        let times = places.of(3);
        times.call_ns += executed - asked;
        times.error_ns += 1_500_000;
        times.user_error_ns += 1_500_000;
        let times = places.of(4);
        // From 6.16 on a thread's last event comes before its memory is given back: that it may be
        // in nobody's time is a known limit.
        times.call_ns += ended_ns - left;
        times.error_ns += ended_ns - left;
    }
    truth.set("functions", places.json());
    truth.set("scope", "session");
    Ok(truth)
}

fn run_leaver(options: &Options, _truth: Truth) -> anyhow::Result<Truth> {
    let here_ns = sys::monotonic_ns();
    let memory = sys::map(LEAVER_BYTES).context("mapping memory")?;
    sys::no_huge_pages(memory);
    let before_ns = sys::monotonic_ns();
    touch_all(memory);
    let touched_ns = sys::monotonic_ns();
    if options.kind == "again" {
        let line = format!("{} {here_ns} {before_ns} {touched_ns}", options.carry);
        sys::write_all(1, line.as_bytes());
        leave();
    }
    let mut again = Command::new(std::env::current_exe()?);
    again.args(["leaver", "--kind", "again", "--carry"]);
    again.arg(format!("{before_ns} {touched_ns} {}", sys::monotonic_ns()));
    Err(turn_into(&mut again)).context("executing itself")
}
