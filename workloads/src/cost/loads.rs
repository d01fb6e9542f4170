//! What is slowed down: five loads, each giving nanoseconds per unit of its work.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::process::{self, Running};

/// Nanoseconds per unit, by load.
pub(crate) type Session = BTreeMap<&'static str, f64>;

/// Rounds of the loop from which its speed is found.
const TRIAL_ROUNDS: u64 = 20_000_000;

const LOADS: [&str; 5] = ["getppid", "pipe", "redis", "cpu", "compile"];

/// The loads, ready to run.
#[derive(Debug)]
pub(crate) struct Bench {
    loads: Vec<&'static str>,
    /// Loads that cannot be run here.
    pub(crate) missing: Vec<&'static str>,
    workload: PathBuf,
    source: PathBuf,
    redis: Option<(Running, u16)>,
    cpu_rounds: u64,
    scale: u64,
}

impl Bench {
    /// Finds out which loads can be run, starts the server and writes the source file that they need.
    pub(crate) fn prepare(workload: &Path, quick: bool, only: &[String]) -> anyhow::Result<Self> {
        if !workload.exists() {
            bail!("{} does not exist: build it first", workload.display());
        }
        let wanted = |load: &&str| only.is_empty() || only.iter().any(|name| name == load);
        let possible = |load: &&str| match *load {
            "pipe" => process::installed("perf"),
            "redis" => process::installed("redis-server") && process::installed("redis-benchmark"),
            "compile" => process::installed("gcc"),
            _ => true,
        };
        let (loads, missing): (Vec<_>, Vec<_>) =
            LOADS.into_iter().filter(wanted).partition(possible);
        let source = std::env::temp_dir().join(format!("cost-{}.c", std::process::id()));
        std::fs::write(&source, generated_source(250))
            .with_context(|| format!("writing {}", source.display()))?;
        let redis = if loads.contains(&"redis") {
            Some(start_redis()?)
        } else {
            None
        };
        let scale = if quick { 1 } else { 2 };
        let trial_ns = u64::try_from(timed(|| cpu_loop(TRIAL_ROUNDS)).as_nanos())?.max(1);
        let cpu_rounds = TRIAL_ROUNDS * 250_000_000 / trial_ns * scale;
        Ok(Self {
            loads,
            missing,
            workload: workload.to_owned(),
            source,
            redis,
            cpu_rounds,
            scale,
        })
    }

    /// Where the workload programs are.
    pub(crate) fn workload(&self) -> &Path {
        &self.workload
    }

    /// Runs every load once.
    pub(crate) fn session(&self) -> anyhow::Result<Session> {
        self.loads
            .iter()
            .map(|load| {
                Ok((
                    *load,
                    self.run(load).with_context(|| format!("running {load}"))?,
                ))
            })
            .collect()
    }

    /// Runs one load; nanoseconds per unit.
    pub(crate) fn run(&self, load: &str) -> anyhow::Result<f64> {
        match load {
            "getppid" => self.getppid(),
            "pipe" => self.pipe(),
            "redis" => self.requests(),
            "cpu" => Ok(per_unit(
                timed(|| cpu_loop(self.cpu_rounds)),
                self.cpu_rounds,
            )),
            "compile" => self.compile(),
            _ => bail!("no load {load}"),
        }
    }

    fn getppid(&self) -> anyhow::Result<f64> {
        let count = (1_000_000 * self.scale).to_string();
        let printed =
            process::output(Command::new(&self.workload).args(["storm", "--count", &count]))?;
        let truth: Value = serde_json::from_str(printed.trim())?;
        truth["ns_per_round"]
            .as_f64()
            .context("the truth says how long a call took")
    }

    /// Both sides on one processor: every round trip is two context switches.
    fn pipe(&self) -> anyhow::Result<f64> {
        let count = (50_000 * self.scale).to_string();
        let printed = process::output(
            Command::new("taskset")
                .args(["-c", "0", "perf", "bench", "sched", "pipe", "-l", &count]),
        )?;
        let us = printed.lines().find_map(|line| {
            line.trim()
                .strip_suffix("usecs/op")?
                .trim()
                .parse::<f64>()
                .ok()
        });
        Ok(us.with_context(|| format!("no usecs/op in: {printed}"))? * 1000.0)
    }

    fn requests(&self) -> anyhow::Result<f64> {
        let Some((_, port)) = &self.redis else {
            bail!("redis is not running")
        };
        let count = 60_000 * self.scale;
        let mut command = Command::new("redis-benchmark");
        command.args([
            "-q",
            "-c",
            "20",
            "-t",
            "get",
            "-p",
            &port.to_string(),
            "-n",
            &count.to_string(),
        ]);
        let start = Instant::now();
        process::output(&mut command)?;
        Ok(per_unit(start.elapsed(), count))
    }

    fn compile(&self) -> anyhow::Result<f64> {
        let start = Instant::now();
        for _ in 0..self.scale {
            process::output(
                Command::new("gcc")
                    .args(["-O2", "-c", "-o", "/dev/null"])
                    .arg(&self.source),
            )?;
        }
        Ok(per_unit(start.elapsed(), self.scale))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        std::fs::remove_file(&self.source).unwrap_or_default();
        if let Some((server, _)) = self.redis.take() {
            server
                .stop()
                .unwrap_or_else(|error| process::say(&format!("{error:#}")));
        }
    }
}

fn timed(work: impl FnOnce() -> u64) -> Duration {
    let start = Instant::now();
    black_box(work());
    start.elapsed()
}

fn per_unit(time: Duration, units: u64) -> f64 {
    time.as_nanos() as f64 / units.max(1) as f64
}

#[inline(never)]
fn cpu_loop(rounds: u64) -> u64 {
    let mut x = 1u64;
    for _ in 0..rounds {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        x ^= x >> 29;
    }
    black_box(x)
}

/// A server that keeps nothing, and its port.
pub(crate) fn start_redis() -> anyhow::Result<(Running, u16)> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    let mut command = Command::new("redis-server");
    command.args([
        "--port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
    ]);
    let mut server = Running::start(command, libc::SIGTERM)?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        server.check()?;
        if Instant::now() > deadline {
            bail!("redis-server does not answer");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((server, port))
}

/// A C file of so many functions; 250 take the compiler about half a second.
pub(crate) fn generated_source(functions: u32) -> String {
    let mut text = String::new();
    for index in 0..functions {
        writeln!(
            text,
            "int f{index}(int *a, int n) {{ int s = {index}; for (int i = 0; i < n; i++) {{ s += a[i] * {index}; \
             if (s % {m} == 1) s ^= a[(i + {index}) % n]; switch (s & 7) {{ case 1: s += i; break; case 2: s -= i; break; \
             case 5: s *= 3; }} }} return s; }}",
            m = index + 3
        )
        .expect("a string takes everything");
    }
    text
}
