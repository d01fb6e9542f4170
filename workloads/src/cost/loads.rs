//! What is slowed down: loads that each give nanoseconds per unit of their work.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::postgres;
use crate::process::{self, Running};
use crate::servers::{self, Server};

/// Nanoseconds per unit, by load.
pub(crate) type Session = BTreeMap<&'static str, f64>;

/// Rounds of the loop from which its speed is found.
const TRIAL_ROUNDS: u64 = 20_000_000;
/// How long a load runs before it is measured under a profiler that adapts to it.
const WARM_UP: Duration = Duration::from_secs(6);
const CLIENTS: u32 = 20;

/// A load: its name, whether it can be run here, and one run of it.
struct Load {
    name: &'static str,
    is_possible: fn() -> bool,
    run: fn(&Bench) -> anyhow::Result<f64>,
}

const LOADS: [Load; 9] = [
    Load {
        name: "getppid",
        is_possible: || true,
        run: Bench::getppid,
    },
    Load {
        name: "getppid on all processors",
        is_possible: || true,
        run: Bench::getppid_everywhere,
    },
    Load {
        name: "pipe",
        is_possible: || process::installed("perf"),
        run: Bench::pipe,
    },
    Load {
        name: "messaging",
        is_possible: || process::installed("perf"),
        run: Bench::messaging,
    },
    Load {
        name: REDIS,
        is_possible: || process::installed("redis-server") && process::installed("redis-benchmark"),
        run: Bench::redis,
    },
    Load {
        name: NGINX,
        is_possible: || process::installed(servers::NGINX) && process::installed("wrk"),
        run: Bench::nginx,
    },
    Load {
        name: POSTGRES,
        is_possible: || postgres::programs().is_some(),
        run: Bench::pgbench,
    },
    Load {
        name: "cpu",
        is_possible: || true,
        run: Bench::cpu,
    },
    Load {
        name: "compile",
        is_possible: || process::installed("gcc"),
        run: Bench::compile,
    },
];
const REDIS: &str = "redis";
const NGINX: &str = "nginx";
const POSTGRES: &str = "pgbench -S";

/// The loads, ready to run.
pub(crate) struct Bench {
    loads: Vec<Load>,
    /// Loads that cannot be run here.
    pub(crate) missing: Vec<&'static str>,
    workload: PathBuf,
    directory: PathBuf,
    redis: Option<Server>,
    nginx: Option<Server>,
    postgres: Option<postgres::Server>,
    cpu_rounds: u64,
    scale: u64,
}

impl Bench {
    /// Finds out which loads can be run, starts the servers and writes the source file that they
    /// need.
    pub(crate) fn prepare(workload: &Path, quick: bool, only: &[String]) -> anyhow::Result<Self> {
        if !workload.exists() {
            bail!("{} does not exist: build it first", workload.display());
        }
        let wanted = |load: &Load| only.is_empty() || only.iter().any(|name| name == load.name);
        let (loads, missing): (Vec<_>, Vec<_>) = LOADS
            .into_iter()
            .filter(wanted)
            .partition(|load| (load.is_possible)());
        let scale = if quick { 1 } else { 2 };
        let trial_ns = u64::try_from(timed(|| cpu_loop(TRIAL_ROUNDS)).as_nanos())?.max(1);
        let directory = std::env::temp_dir().join(format!("cost-{}", std::process::id()));
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("making {}", directory.display()))?;
        let mut bench = Self {
            missing: missing.iter().map(|load| load.name).collect(),
            loads,
            workload: workload.to_owned(),
            directory,
            redis: None,
            nginx: None,
            postgres: None,
            cpu_rounds: TRIAL_ROUNDS * 250_000_000 / trial_ns * scale,
            scale,
        };
        std::fs::write(bench.source(), generated_source(250))
            .with_context(|| format!("writing {}", bench.source().display()))?;
        let runs = |name| bench.loads.iter().any(|load: &Load| load.name == name);
        let [redis, nginx, postgres] = [REDIS, NGINX, POSTGRES].map(runs);
        if redis {
            bench.redis = Some(servers::redis()?);
        }
        if nginx {
            bench.nginx = Some(servers::nginx(&bench.directory)?);
        }
        if postgres {
            bench.postgres = Some(postgres::serve(&bench.directory)?);
        }
        Ok(bench)
    }

    /// Where the workload programs are.
    pub(crate) fn workload(&self) -> &Path {
        &self.workload
    }

    /// Runs every load once; each for a while before, if the profiler adapts to it.
    pub(crate) fn session(&self, adapts: bool) -> anyhow::Result<Session> {
        let mut session = Session::new();
        for load in &self.loads {
            let begun = Instant::now();
            let run = || (load.run)(self).with_context(|| format!("running {}", load.name));
            while adapts && begun.elapsed() < WARM_UP {
                run()?;
            }
            session.insert(load.name, run()?);
        }
        Ok(session)
    }

    fn source(&self) -> PathBuf {
        self.directory.join("source.c")
    }

    fn cpu(&self) -> anyhow::Result<f64> {
        Ok(per_unit(
            timed(|| cpu_loop(self.cpu_rounds)),
            self.cpu_rounds,
        ))
    }

    fn storm(&self) -> Command {
        let count = (1_000_000 * self.scale).to_string();
        let mut command = Command::new(&self.workload);
        command.args(["storm", "--count", &count]);
        command
    }

    fn getppid(&self) -> anyhow::Result<f64> {
        per_call(&process::output(&mut self.storm())?)
    }

    fn getppid_everywhere(&self) -> anyhow::Result<f64> {
        let processors = std::thread::available_parallelism()?.get();
        let each = std::thread::scope(|scope| {
            let all: Vec<_> = (0..processors)
                .map(|_| scope.spawn(|| per_call(&process::output(&mut self.storm())?)))
                .collect();
            let each = all.into_iter().map(|one| match one.join() {
                Ok(measured) => measured,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            each.collect::<anyhow::Result<Vec<f64>>>()
        })?;
        Ok(each.iter().sum::<f64>() / processors as f64)
    }

    /// Both sides on one processor: every round trip is two context switches.
    fn pipe(&self) -> anyhow::Result<f64> {
        let count = (50_000 * self.scale).to_string();
        let mut command = Command::new("taskset");
        command.args(["-c", "0", "perf", "bench", "sched", "pipe", "-l", &count]);
        let printed = process::output(&mut command)?;
        let us = printed.lines().find_map(|line| {
            let number = line.trim().strip_suffix("usecs/op")?;
            number.trim().parse::<f64>().ok()
        });
        Ok(us.with_context(|| format!("no usecs/op in: {printed}"))? * 1000.0)
    }

    /// 400 processes that send messages to each other, 40 at a time.
    fn messaging(&self) -> anyhow::Result<f64> {
        const GROUPS: u64 = 10;
        let loops = 100 * self.scale;
        let mut command = Command::new("perf");
        command.args(["bench", "sched", "messaging"]);
        command.args(["-g", &GROUPS.to_string(), "-l", &loops.to_string()]);
        let printed = process::output(&mut command)?;
        let seconds = printed.lines().find_map(|line| {
            let rest = line.trim().strip_prefix("Total time:")?;
            rest.trim()
                .strip_suffix("[sec]")?
                .trim()
                .parse::<f64>()
                .ok()
        });
        let seconds = seconds.with_context(|| format!("no total time in: {printed}"))?;
        // Of each group, 20 send to 20.
        let messages = GROUPS * 20 * 20 * loops;
        Ok(seconds * 1e9 / messages as f64)
    }

    fn redis(&self) -> anyhow::Result<f64> {
        let server = self.redis.as_ref().context("redis is not running")?;
        let count = 40_000 * self.scale;
        let mut command = Command::new("redis-benchmark");
        command.args(["-q", "-c", &CLIENTS.to_string(), "-t", "set,get"]);
        command.args(["-p", &server.port.to_string(), "-n", &count.to_string()]);
        let start = Instant::now();
        process::output(&mut command)?;
        Ok(per_unit(start.elapsed(), 2 * count))
    }

    fn nginx(&self) -> anyhow::Result<f64> {
        let server = self.nginx.as_ref().context("nginx is not running")?;
        let mut command = Command::new("wrk");
        command.args(["-t", "1", "-c", &CLIENTS.to_string()]);
        command.args(["-d", &format!("{}s", self.scale)]);
        command.arg(format!("http://127.0.0.1:{}/", server.port));
        let printed = process::output(&mut command)?;
        let a_second = printed.lines().find_map(|line| {
            let number = line.strip_prefix("Requests/sec:")?;
            number.trim().parse::<f64>().ok()
        });
        Ok(1e9 / a_second.with_context(|| format!("no Requests/sec in: {printed}"))?)
    }

    fn pgbench(&self) -> anyhow::Result<f64> {
        let server = self.postgres.as_ref().context("postgres is not running")?;
        server.read_only(4, self.scale)
    }

    fn compile(&self) -> anyhow::Result<f64> {
        let start = Instant::now();
        for _ in 0..self.scale {
            process::output(
                Command::new("gcc")
                    .args(["-O2", "-c", "-o", "/dev/null"])
                    .arg(self.source()),
            )?;
        }
        Ok(per_unit(start.elapsed(), self.scale))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let servers = [self.redis.take(), self.nginx.take()];
        let servers = servers.into_iter().flatten().map(|server| server.running);
        let postgres = self.postgres.take().map(|server| server.running);
        for result in servers.chain(postgres).map(Running::stop) {
            if let Err(error) = result {
                process::say(&format!("{error:#}"));
            }
        }
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            process::say(&format!("removing {}: {error}", self.directory.display()));
        }
    }
}

/// How long a call took, by what `workload storm` printed.
fn per_call(printed: &str) -> anyhow::Result<f64> {
    let truth: Value = serde_json::from_str(printed.trim())?;
    truth["ns_per_round"]
        .as_f64()
        .context("the truth says how long a call took")
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
