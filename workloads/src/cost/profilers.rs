//! What slows it down: our daemon in three settings, hooks on system calls that do nothing or next
//! to nothing, and the usual tools for a part of what it does.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::hooks::{Hooked, Hooks};
use crate::process::{self, Running};

/// Tools that cannot be asked whether they are ready get this long.
const SETTLE: Duration = Duration::from_secs(2);
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A profiler, or none.
#[derive(Debug)]
pub(crate) struct Profiler {
    /// As shown.
    pub(crate) name: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    None,
    /// The daemon with these lines of configuration.
    Daemon(PathBuf, &'static str),
    /// Nothing but two hooks on every system call, or on every switch and wake.
    Hooks {
        hooked: Hooked,
        read_clock: bool,
    },
    /// A tool and its arguments.
    Tool(Vec<&'static str>),
}

/// One that runs.
#[derive(Debug)]
pub(crate) enum Started {
    /// None.
    Nothing,
    /// In the kernel alone.
    Hooks(Hooks),
    /// A process.
    Process(Running),
}

impl Started {
    /// Stops it. An error when it had ended before, or would not end.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Nothing => {}
            Self::Hooks(hooks) => drop(hooks),
            Self::Process(running) => running.stop()?,
        }
        Ok(())
    }
}

/// Those that are installed, in the order in which they take their turns.
pub(crate) fn available(daemon: &Path, only: &[String]) -> Vec<Profiler> {
    let of = |name: &str, kind| Profiler {
        name: name.to_owned(),
        kind,
    };
    let hooks = |name, hooked, read_clock| of(name, Kind::Hooks { hooked, read_clock });
    let all = [
        of("none again", Kind::None),
        of("profiler-daemon", Kind::Daemon(daemon.to_owned(), "")),
        of(
            "profiler-daemon, system calls off",
            Kind::Daemon(daemon.to_owned(), "system_calls = \"off\"\n"),
        ),
        of(
            "profiler-daemon, every system call",
            Kind::Daemon(daemon.to_owned(), "system_calls = \"all\"\n"),
        ),
        hooks("two empty hooks", Hooked::Calls, false),
        hooks("two hooks that read the clock", Hooked::Calls, true),
        hooks("two empty hooks at switches", Hooked::Switches, false),
        hooks(
            "two hooks at switches that read the clock",
            Hooked::Switches,
            true,
        ),
        of(
            "perf record -a -g -F 99",
            Kind::Tool(vec![
                "perf",
                "record",
                "-q",
                "-a",
                "-g",
                "-F",
                "99",
                "-e",
                "cpu-clock",
                "-o",
                "/dev/null",
            ]),
        ),
        of(
            "offcputime (libbpf-tools)",
            Kind::Tool(vec!["/usr/sbin/offcputime"]),
        ),
        of(
            "syscount -L (libbpf-tools)",
            Kind::Tool(vec!["/usr/sbin/syscount", "-L"]),
        ),
    ];
    let wanted = |profiler: &Profiler| {
        only.is_empty()
            || only
                .iter()
                .any(|name| profiler.name.contains(name.as_str()))
    };
    let (there, missing): (Vec<_>, Vec<_>) = all
        .into_iter()
        .filter(wanted)
        .partition(Profiler::installed);
    for profiler in missing {
        process::say(&format!("not installed, left out: {}", profiler.name));
    }
    there
}

impl Profiler {
    /// Whether it is ours.
    pub(crate) fn is_daemon(&self) -> bool {
        matches!(self.kind, Kind::Daemon(..))
    }

    /// Whether it gives way to loads that it would slow down too much, after a while.
    pub(crate) fn adapts(&self) -> bool {
        matches!(self.kind, Kind::Daemon(_, ""))
    }

    fn installed(&self) -> bool {
        match &self.kind {
            Kind::None | Kind::Hooks { .. } => true,
            Kind::Daemon(path, _) => path.exists(),
            Kind::Tool(command) => process::installed(command[0]),
        }
    }

    /// Starts it and waits until it measures.
    pub(crate) fn start(&self) -> anyhow::Result<Started> {
        match &self.kind {
            Kind::None => Ok(Started::Nothing),
            Kind::Hooks { hooked, read_clock } => {
                Hooks::attach(*hooked, *read_clock).map(Started::Hooks)
            }
            Kind::Daemon(path, lines) => start_daemon(path, lines).map(Started::Process),
            Kind::Tool(arguments) => {
                let command = with_tracefs(arguments);
                let mut running = Running::start(command, libc::SIGINT)?;
                std::thread::sleep(SETTLE);
                running.check()?;
                Ok(Started::Process(running))
            }
        }
    }
}

/// The tool's command; where the tracing file system is not mounted, in a mount namespace of its
/// own in which it is.
fn with_tracefs(arguments: &[&str]) -> Command {
    const SCRIPT: &str = "mount -t tracefs none /sys/kernel/tracing && exec \"$@\"";
    if Path::new("/sys/kernel/tracing/events").exists() {
        let mut command = Command::new(arguments[0]);
        command.args(&arguments[1..]);
        return command;
    }
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", SCRIPT, "sh"])
        .args(arguments);
    command
}

/// Starts the daemon with these lines of configuration, on a free port, and waits until it is
/// ready.
pub(crate) fn start_daemon(path: &Path, lines: &str) -> anyhow::Result<Running> {
    start_daemon_at(path, lines).map(|(running, _)| running)
}

/// As above; says also where it answers.
pub(crate) fn start_daemon_at(path: &Path, lines: &str) -> anyhow::Result<(Running, SocketAddr)> {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let config = std::env::temp_dir().join(format!("cost-{}.toml", std::process::id()));
    std::fs::write(&config, lines)?;
    let mut command = Command::new(path);
    command
        .arg("--config")
        .arg(&config)
        .args(["--listen", &address.to_string()]);
    let mut running = Running::start(command, libc::SIGTERM)?;
    let deadline = Instant::now() + READY_WITHIN;
    while !ready(address) {
        running.check()?;
        if Instant::now() > deadline {
            bail!("{} was not ready in {READY_WITHIN:?}", path.display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::remove_file(&config)?;
    // The first pass has just ended; what start-up left to do (reading symbols) is not the cost of
    // running.
    std::thread::sleep(SETTLE);
    Ok((running, address))
}

fn ready(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(
            stream,
            "GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    };
    ask().unwrap_or(false)
}
