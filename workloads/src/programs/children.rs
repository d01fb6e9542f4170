//! Processes that come and go: executed children of milliseconds, a fork without exec, and children
//! that vanish at once.

use std::hint::black_box;
use std::process::{Command, Stdio};

use anyhow::Context;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;
use crate::work::{rounds_per_ms, workers};

pub(super) const PROGRAM: Program = Program {
    name: "children",
    about: "--count (default 100) executed children of --millis (default 20) ms each, --threads (default 2) at once",
    run,
};

pub(super) const CHILD: Program = Program {
    name: "child",
    about: "one such child: --millis ms of work in child_work, at --count rounds per ms if given",
    run: run_child,
};

pub(super) const FORK: Program = Program {
    name: "fork",
    about: "forks without exec; the child works --millis (default 500) ms in forked_child_work, the parent waits",
    run: run_fork,
};

pub(super) const VANISH: Program = Program {
    name: "vanish",
    about: "--count (default 300) forks whose child ends at once",
    run: run_vanish,
};

workers! {
    /// An executed child's work.
    child_work = 111;
    /// A forked child's work.
    forked_child_work = 222;
}

#[inline(never)]
fn wait_for_children(running: &mut u64, down_to: u64, cpu_ns: &mut u64) -> std::io::Result<()> {
    while *running > down_to {
        let (_, usage) = sys::wait_child(-1)?;
        *cpu_ns += usage.user_ns + usage.system_ns;
        *running -= 1;
    }
    Ok(())
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let exe = std::env::current_exe()?;
    let per_ms = rounds_per_ms().to_string();
    let millis = options.millis_or(20).to_string();
    let count = options.count_or(100);
    let at_once = options.threads_or(2) as u64;
    let (mut running, mut cpu_ns) = (0, 0);
    let mut pids = Vec::new();
    for _ in 0..count {
        wait_for_children(&mut running, at_once - 1, &mut cpu_ns)?;
        let child = Command::new(&exe)
            .args(["child", "--millis", &millis, "--count", &per_ms])
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("executing {}", exe.display()))?;
        pids.push(child.id());
        running += 1;
    }
    wait_for_children(&mut running, 0, &mut cpu_ns)?;
    truth.set("children", count);
    truth.set("child_pids", pids);
    truth.set("waited_cpu_ns", cpu_ns);
    Ok(truth)
}

fn run_child(options: &Options, truth: Truth) -> anyhow::Result<Truth> {
    let per_ms = if options.count == 0 {
        rounds_per_ms()
    } else {
        options.count
    };
    black_box(child_work(per_ms * options.millis_or(20)));
    Ok(truth)
}

#[inline(never)]
fn wait_for_forked_child(pid: i32) -> std::io::Result<(i32, sys::Usage)> {
    sys::wait_child(pid)
}

fn run_fork(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let rounds = rounds_per_ms() * options.millis_or(500);
    let pid = sys::fork(|| {
        black_box(forked_child_work(rounds));
    })?;
    let start_ns = sys::monotonic_ns();
    let (_, usage) = wait_for_forked_child(pid)?;
    truth.set("child_pid", pid);
    truth.set("waited_ns", sys::monotonic_ns() - start_ns);
    truth.set("child_cpu_ns", usage.user_ns + usage.system_ns);
    Ok(truth)
}

fn run_vanish(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let count = options.count_or(300);
    let mut pids = Vec::new();
    for _ in 0..count {
        let pid = sys::fork(|| ())?;
        sys::wait_child(pid)?;
        pids.push(pid);
    }
    truth.set("children", count);
    truth.set("child_pids", pids);
    Ok(truth)
}
