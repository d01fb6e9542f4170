//! What the daemon itself takes: processor time and memory, idle and among sleepers; nanoseconds
//! per event of each of its kernel programs, by the kernel's own statistics.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::loads::Bench;
use crate::process;
use crate::profilers::start_daemon;
use crate::results::{Own, ProgramCost, Results};

const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const SLEEPERS: [(u32, &str); 4] = [
    (100, "processes"),
    (500, "processes"),
    (5_000, "processes"),
    (20_000, "threads"),
];
/// One process cannot have more mappings than threads of this number have stacks.
const MOST_OF_ONE: u32 = 5_000;
const SETTLE: Duration = Duration::from_secs(5);

/// Measures all of it and adds it to the results.
pub(crate) fn measure(
    bench: &Bench,
    daemon: &Path,
    quick: bool,
    results: &mut Results,
) -> anyhow::Result<()> {
    let span = Duration::from_secs(if quick { 5 } else { 15 });
    process::say("the daemon by itself");
    let running = start_daemon(daemon, "")?;
    results.own.push(watch("idle", running.pid(), span)?);
    for (count, kind) in SLEEPERS {
        let what = format!("with {count} more {kind}, asleep");
        process::say(&what);
        let mut sleepers = Vec::new();
        for from in (0..count).step_by(MOST_OF_ONE as usize) {
            let several = Sleepers::start(bench, MOST_OF_ONE.min(count - from), kind);
            sleepers.push(several.with_context(|| what.clone())?);
        }
        // What it costs to meet them is not what they cost.
        std::thread::sleep(SETTLE);
        results.own.push(watch(&what, running.pid(), span)?);
        for several in sleepers {
            several.end()?;
        }
    }
    running.stop()?;

    if !process::installed("bpftool") {
        process::say("not installed, left out: bpftool, which tells what the kernel programs take");
        return Ok(());
    }
    process::say("the daemon's kernel programs");
    let before = programs()?;
    let was = std::fs::read_to_string(STATISTICS)
        .context("reading the kernel's switch for program statistics")?;
    let running = start_daemon(daemon, "")?;
    std::fs::write(STATISTICS, "1").context("switching on the kernel's program statistics")?;
    let session = bench.session(true);
    let after = programs();
    std::fs::write(STATISTICS, was.trim()).context("restoring the kernel's program statistics")?;
    running.stop()?;
    session?;
    for (id, (name, runs, run_ns)) in after? {
        if !before.contains_key(&id) && runs > 0 {
            results.programs.push(ProgramCost {
                name,
                runs,
                ns_per_run: run_ns as f64 / runs as f64,
            });
        }
    }
    Ok(())
}

/// Many that do nothing.
struct Sleepers(Child);

impl Sleepers {
    /// Starts them and waits until all are there.
    fn start(bench: &Bench, count: u32, kind: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(bench.workload());
        command.args(["many", "--kind", kind, "--threads", &count.to_string()]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().context("the output is a pipe")?;
        let sleepers = Self(child);
        if BufReader::new(stdout).read_line(&mut String::new())? == 0 {
            bail!("the sleepers ended before they slept");
        }
        Ok(sleepers)
    }

    /// Wakes them for their end.
    fn end(mut self) -> anyhow::Result<()> {
        drop(self.0.stdin.take());
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        // They end by themselves without their standard input, after `end` there is none to be had.
        drop(self.0.stdin.take());
    }
}

fn watch(what: &str, pid: u32, span: Duration) -> anyhow::Result<Own> {
    let before = cpu_seconds(pid)?;
    std::thread::sleep(span);
    let used = cpu_seconds(pid)? - before;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mib = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| {
            line.trim_start_matches(':')
                .trim()
                .trim_end_matches(" kB")
                .parse::<f64>()
                .ok()
        })
        .map_or(0.0, |kib| kib / 1024.0)
    };
    Ok(Own {
        what: what.to_owned(),
        cpu_seconds_per_second: used / span.as_secs_f64(),
        rss_mib: mib("VmRSS"),
        peak_rss_mib: mib("VmHWM"),
    })
}

/// Processor time of all its threads, by the scheduler's own account: ticks of 10 ms would be too
/// coarse.
fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let mut sum_ns = 0;
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(entry?.path().join("schedstat"))?;
        sum_ns += text
            .split_whitespace()
            .next()
            .and_then(|field| field.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(sum_ns as f64 / 1e9)
}

/// Every loaded program: id to (name, runs, nanoseconds).
fn programs() -> anyhow::Result<BTreeMap<u64, (String, u64, u64)>> {
    let printed = process::output(Command::new("bpftool").args(["--json", "prog", "show"]))?;
    let list: Value =
        serde_json::from_str(printed.trim()).context("reading bpftool's list of programs")?;
    let number = |program: &Value, key: &str| program[key].as_u64().unwrap_or(0);
    Ok(list
        .as_array()
        .into_iter()
        .flatten()
        .map(|program| {
            let name = program["name"].as_str().unwrap_or("?").to_owned();
            (
                number(program, "id"),
                (
                    name,
                    number(program, "run_cnt"),
                    number(program, "run_time_ns"),
                ),
            )
        })
        .collect())
}
