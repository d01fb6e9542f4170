//! One process, two programs: work, then exec without fork, from the leader or from another thread.

use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::{Value, json};

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;
use crate::work::{rounds_per_ms, workers};

pub(super) const PROGRAM: Program = Program {
    name: "exec",
    about: "works --millis (default 300) ms in before_exec_work, then executes itself and works as long in \
            after_exec_work [--kind leader|thread]",
    run,
};

pub(super) const AFTER: Program = Program {
    name: "exec-after",
    about: "what `exec` executes; prints the truth of both halves",
    run: run_after,
};

workers! {
    /// The first program.
    before_exec_work = 441;
    /// The second.
    after_exec_work = 442;
}

/// Is open while the next program begins.
#[inline(never)]
fn execute(command: &mut Command) -> std::io::Error {
    black_box(command.exec())
}

fn run(options: &Options, truth: Truth) -> anyhow::Result<Truth> {
    drop(truth);
    let exe = std::env::current_exe()?;
    let start_ns = sys::monotonic_ns();
    let millis = options.millis_or(300);
    let from_thread = options.kind == "thread";
    let hold = options.hold;
    let work_and_execute = move || -> std::io::Error {
        black_box(before_exec_work(rounds_per_ms() * millis));
        let usage = sys::usage(libc::RUSAGE_SELF);
        let carry = json!({
            "started_monotonic_ns": start_ns,
            "before_cpu_ns": usage.user_ns + usage.system_ns,
            "executed_ns": sys::monotonic_ns(),
        });
        let mut command = Command::new(&exe);
        command.args([
            "exec-after",
            "--millis",
            &millis.to_string(),
            "--carry",
            &carry.to_string(),
        ]);
        if hold {
            command.arg("--hold");
        }
        execute(&mut command)
    };
    let error = if from_thread {
        match std::thread::spawn(work_and_execute).join() {
            Ok(error) => error,
            Err(_) => std::io::Error::other("the executing thread died"),
        }
    } else {
        work_and_execute()
    };
    Err(error.into())
}

fn run_after(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    black_box(after_exec_work(rounds_per_ms() * options.millis_or(300)));
    let carried: Value = serde_json::from_str(&options.carry)?;
    if let Some(started_ns) = carried["started_monotonic_ns"].as_u64() {
        truth.set("whole_wall_ns", sys::monotonic_ns() - started_ns);
    }
    truth.set("before", carried);
    Ok(truth)
}
