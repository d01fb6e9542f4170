//! `cost --shares`: real programs, and the share of their user time that each function has, by
//! `perf record` and by the daemon over the same seconds. perf takes samples at a fixed period and
//! the daemon's ticks are not perf's, so the two differ by chance as well; it judges nothing.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::loads;
use crate::postgres;
use crate::process::{self, Running};
use crate::profilers;
use crate::servers::{self, Server};

const FREQUENCY_HZ: &str = "997";
const SECONDS: &str = "10";
/// Until a program does what it does all the time.
const WARM_UP: Duration = Duration::from_secs(2);
/// Functions of one program that are shown.
const SHOWN: usize = 6;

/// perf's word for a function without a name.
const UNNAMED: &str = "[unknown]";

/// JSON of nested lists and dictionaries, for ever.
const PYTHON: &str = "import json\n\
    value = {str(i): [i, float(i), str(i) * 3, {'a': None, 'b': [True, False]}] for i in range(200)}\n\
    while True: json.dumps(value, indent=1); json.dumps(value)";

/// A server and its clients, in one process.
const GO: &str = include_str!("server.go");

/// A program that runs, and what belongs to it.
struct Loaded {
    name: &'static str,
    /// The process that is looked at.
    pid: u32,
    /// Stopped in this order.
    _running: Vec<Running>,
}

impl Loaded {
    fn alone(name: &'static str, program: Running) -> Self {
        Self {
            name,
            pid: program.pid(),
            _running: vec![program],
        }
    }
}

/// Measures each program that is installed and returns the table.
pub(crate) fn measure(daemon: &Path) -> anyhow::Result<String> {
    if !process::installed("perf") {
        bail!("perf is not installed (linux-perf)");
    }
    let directory = std::env::temp_dir().join(format!("cost-shares-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let (profiler, address) =
        profilers::start_daemon_at(daemon, &format!("frequency_hz = {FREQUENCY_HZ}\n"))?;
    let mut text = format!(
        "Share of the process's user time by function, over the same {SECONDS} s, samples in brackets.\n\n\
         | program | function | perf record -F {FREQUENCY_HZ} | profiler-daemon at {FREQUENCY_HZ} Hz |\n|---|---|---|---|\n"
    );
    type Start = fn(&Path) -> anyhow::Result<Loaded>;
    let programs: [(&str, bool, Start); 5] = [
        ("python3", process::installed("python3"), python),
        ("redis-server", process::installed("redis-server"), redis),
        (
            "postgresql",
            postgres::programs().is_some(),
            postgres_backend,
        ),
        ("gcc", process::installed("gcc"), compiler),
        ("go", process::installed("go"), go_server),
    ];
    for (needed, installed, start) in programs {
        if !installed {
            process::say(&format!("not installed, left out: {needed}"));
            continue;
        }
        process::say(needed);
        let loaded = start(&directory).with_context(|| format!("starting {needed}"))?;
        compare(&loaded, address, &directory, &mut text)
            .with_context(|| format!("measuring {needed}"))?;
    }
    profiler.stop()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(text)
}

fn python(_: &Path) -> anyhow::Result<Loaded> {
    let mut command = Command::new("python3");
    command.args(["-c", PYTHON]);
    let program = Running::start(command, libc::SIGKILL)?;
    Ok(Loaded::alone("python3, json", program))
}

fn redis(_: &Path) -> anyhow::Result<Loaded> {
    let Server {
        running: server,
        port,
    } = servers::redis()?;
    let mut command = Command::new("redis-benchmark");
    command.args(["-q", "-l", "-c", "20", "-t", "set,get", "-p"]);
    command.arg(port.to_string());
    Ok(Loaded {
        name: "redis-server",
        pid: server.pid(),
        _running: vec![Running::start(command, libc::SIGKILL)?, server],
    })
}

fn postgres_backend(directory: &Path) -> anyhow::Result<Loaded> {
    let postgres = postgres::start(directory)?;
    Ok(Loaded {
        name: "postgres, pgbench -S",
        pid: postgres.backend,
        _running: vec![postgres.client, postgres.server],
    })
}

fn compiler(directory: &Path) -> anyhow::Result<Loaded> {
    let source = directory.join("large.c");
    std::fs::write(&source, loads::generated_source(20_000))?;
    let cc1 = process::output(Command::new("gcc").arg("-print-prog-name=cc1"))?;
    let mut command = Command::new(cc1.trim());
    command
        .args(["-quiet", "-O2", "-o", "/dev/null"])
        .arg(&source);
    let program = Running::start(command, libc::SIGKILL)?;
    Ok(Loaded::alone("cc1 -O2", program))
}

fn go_server(directory: &Path) -> anyhow::Result<Loaded> {
    let source = directory.join("server.go");
    std::fs::write(&source, GO)?;
    let built: PathBuf = directory.join("server");
    process::output(
        Command::new("go")
            .env("GOFLAGS", "-mod=mod")
            .args(["build", "-o"])
            .arg(&built)
            .arg(&source),
    )?;
    let program = Running::start(Command::new(&built), libc::SIGKILL)?;
    Ok(Loaded::alone("Go, net/http and encoding/json", program))
}

/// Lets both look at the program for the same seconds and adds its rows.
fn compare(
    loaded: &Loaded,
    address: SocketAddr,
    directory: &Path,
    text: &mut String,
) -> anyhow::Result<()> {
    std::thread::sleep(WARM_UP);
    let pid = loaded.pid;
    let data = directory.join("perf.data");
    process::output(
        Command::new("perf")
            .args(["record", "-q", "-e", "cpu-clock:u", "-F", FREQUENCY_HZ])
            .args(["-p", &pid.to_string(), "-o"])
            .arg(&data)
            .args(["--", "sleep", SECONDS]),
    )?;
    let window = format!("/api/v1/processes/{pid}/functions?limit=0&window={SECONDS}s");
    let report = ask(address, &window)?;
    let listed = process::output(
        Command::new("perf")
            .args(["script", "--no-inline", "-F", "ip,sym", "-i"])
            .arg(&data),
    )?;
    let mut perf: HashMap<&str, u64> = HashMap::new();
    for line in listed.lines() {
        if let Some((_, name)) = line.trim().split_once(' ') {
            *perf.entry(name.trim()).or_default() += 1;
        }
    }
    let samples: u64 = perf.values().sum();
    let mut ours: HashMap<&str, (u64, f64)> = HashMap::new();
    for row in report["rows"].as_array().context("the report has rows")? {
        let name = row["function"].as_str().unwrap_or_default();
        // What has no name has an address here, and nothing at perf.
        let named = !name.contains("+0x");
        let entry = ours.entry(if named { name } else { UNNAMED }).or_default();
        entry.0 += row["samples"]["exclusive"].as_u64().unwrap_or(0);
        entry.1 += row["application"]["exclusive_percent_of_process"]
            .as_f64()
            .unwrap_or(0.0);
    }
    let mut functions: Vec<_> = perf.into_iter().collect();
    functions.sort_unstable_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    for (index, (name, count)) in functions.into_iter().take(SHOWN).enumerate() {
        let title = if index == 0 { loaded.name } else { "" };
        let (own, percent) = ours.get(name).copied().unwrap_or_default();
        writeln!(
            text,
            "| {title} | `{name}` | {:.1} % ({count}) | {percent:.1} % ({own}) |",
            100.0 * count as f64 / samples.max(1) as f64,
        )?;
    }
    // What has most time by the daemon and none of perf's first places would not show above.
    let most = ours
        .into_iter()
        .max_by(|(_, (_, one)), (_, (_, other))| one.total_cmp(other));
    if let Some((name, (own, percent))) = most {
        writeln!(
            text,
            "| | most by the daemon: `{name}` | | {percent:.1} % ({own}) |"
        )?;
    }
    Ok(())
}

/// One GET; the answer is JSON.
fn ask(address: SocketAddr, path: &str) -> anyhow::Result<Value> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an HTTP answer")?;
    if !head.contains(" 200 ") {
        bail!("GET {path}: {body}");
    }
    Ok(serde_json::from_str(body)?)
}
