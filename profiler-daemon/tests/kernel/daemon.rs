//! Starts the daemon with chosen settings, waits until it is ready, asks it, and makes sure that it
//! stops.
//!
//! Tests that need nothing special share one daemon; the others start their own. A daemon that
//! fails a test shows what it logged.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::http::{self, Answer};

/// The binary under test. `DAEMON_BIN` names one that is already built for release.
pub(crate) fn daemon_exe() -> &'static Path {
    static EXE: OnceLock<PathBuf> = OnceLock::new();
    EXE.get_or_init(|| {
        let built = || env!("CARGO_BIN_EXE_profiler-daemon").into();
        std::env::var_os("DAEMON_BIN").map_or_else(built, PathBuf::from)
    })
}

/// A command that heeds signals, whoever has these tests run: under `nohup`, or behind a shell,
/// some are ignored, and who is executed inherits that.
pub(crate) fn heeds_signals(command: &mut Command) {
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}

/// How long the daemon may take to be ready, and how long to stop. Under emulation the verifier of
/// Linux 7.2 alone takes 25 s.
const READY_WITHIN: Duration = Duration::from_secs(60);
const STOPPED_WITHIN: Duration = Duration::from_secs(5);

/// What differs from the defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// Lines at the top of the configuration file.
    pub(crate) top: &'static str,
    /// The lines of `[limits]`.
    pub(crate) limits: &'static str,
    /// What profiling costs is bounded, as it is by default.
    pub(crate) within_budget: bool,
    /// The lines of `[targets]`.
    pub(crate) targets: &'static str,
}

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Option<Child>,
    address: SocketAddr,
    directory: TempDir,
}

/// Whether the kernel can be used at all; says once why not.
pub(crate) fn privileged() -> bool {
    static SAID: OnceLock<bool> = OnceLock::new();
    *SAID.get_or_init(|| {
        // SAFETY: no arguments, cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        if !root {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "the kernel tests need root, and CI must run them"
            );
            say("skipped: the kernel tests need root");
        }
        root
    })
}

/// Tells the person who runs the tests something that is no failure, past the test harness, which
/// would keep it back.
pub(crate) fn say(sentence: &str) {
    // Nobody to tell is no failure either.
    writeln!(std::io::stderr(), "{sentence}").unwrap_or_default();
}

/// The daemon that most tests share: everything profiled, sampled often so that shares have small
/// errors.
pub(crate) fn shared() -> Option<&'static Daemon> {
    static SHARED: OnceLock<Daemon> = OnceLock::new();
    privileged().then(|| {
        SHARED.get_or_init(|| {
            Daemon::start(&Settings {
                top: "frequency_hz = 999",
                // So much that nothing is folded while the tests run, even if the machine compiles
                // beside them.
                limits: "profile_stack_bytes = \"512MiB\"",
                ..Settings::default()
            })
        })
    })
}

/// A daemon of one's own.
pub(crate) fn own(settings: &Settings) -> Option<Daemon> {
    privileged().then(|| Daemon::start(settings))
}

/// A port that was free a moment ago.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .expect("the loopback has a free port")
}

/// Starts a command from a thread that lives as long as the tests, so that the child can be told to
/// end with it: a shared daemon is never dropped.
fn spawn_for_the_whole_run(mut command: Command) -> std::io::Result<Child> {
    type Order = (Command, mpsc::Sender<std::io::Result<Child>>);
    static ORDERS: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    // SAFETY: between fork and exec only one system call is made.
    unsafe {
        command.pre_exec(|| {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
    let orders = ORDERS.get_or_init(|| {
        let (orders, ordered) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, reply) in ordered {
                reply
                    .send(command.spawn())
                    .expect("whoever ordered waits for the reply");
            }
        });
        orders
    });
    let (reply, replied) = mpsc::channel();
    orders
        .send((command, reply))
        .expect("the starting thread lives as long as the tests");
    replied
        .recv()
        .expect("the starting thread answers each order")
}

impl Daemon {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(settings: &Settings) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let address = free_address();
        let mut text = format!("listen = \"{address}\"\n{}\n", settings.top);
        if !settings.within_budget {
            // What tests check is exact, whatever it costs.
            text += "budget = \"off\"\nbudget_process = \"off\"\n";
        }
        for (table, lines) in [("limits", settings.limits), ("targets", settings.targets)] {
            if !lines.is_empty() {
                writeln!(text, "[{table}]\n{lines}").expect("a string takes everything");
            }
        }
        let config = directory.path().join("profiler.toml");
        std::fs::write(&config, text).expect("the configuration can be written");
        let log =
            std::fs::File::create(directory.path().join("log")).expect("the log can be written");
        let mut command = Command::new(daemon_exe());
        command
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        heeds_signals(&mut command);
        let child = spawn_for_the_whole_run(command).expect("the daemon's file can be executed");
        let mut daemon = Self {
            child: Some(child),
            address,
            directory,
        };
        daemon.wait_until_ready();
        daemon
    }

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if let Some(status) = self
                .child
                .as_mut()
                .and_then(|child| child.try_wait().ok().flatten())
            {
                self.child = None;
                panic!(
                    "the daemon ended before it was ready ({status}):\n{}",
                    self.log()
                );
            }
            let ready = http::request(
                self.address,
                "GET",
                "/readyz",
                &self.address.to_string(),
                None,
            );
            if ready.as_ref().is_ok_and(|answer| answer.status == 200) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "not ready in {READY_WITHIN:?}: {ready:?}\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Where it serves.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// What it logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Any request.
    pub(crate) fn request(&self, method: &str, path: &str, body: Option<&str>) -> Answer {
        http::request(self.address, method, path, &self.address.to_string(), body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}\n{}", self.log()))
    }

    /// A GET that may fail.
    pub(crate) fn try_get(&self, path: &str) -> Answer {
        self.request("GET", path, None)
    }

    /// A GET that must answer 200 with JSON. `path` is below `/api/v1`.
    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.try_get(&format!("/api/v1{path}"));
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.text());
        answer.json()
    }

    /// The value of one of its metrics: a name, with its labels where there are any.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let metrics = self.try_get("/metrics").text().to_string();
        let mut lines = metrics.lines().filter_map(|line| line.rsplit_once(' '));
        let value = lines.find(|(found, _)| *found == series);
        let value = value.and_then(|(_, value)| value.parse().ok());
        value.unwrap_or_else(|| panic!("no value of {series} in {metrics}"))
    }

    /// Sends a signal to it.
    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: plain numbers; the child was not reaped, so the pid is its own.
        let sent = unsafe { libc::kill(self.pid().cast_signed(), signal) };
        assert_eq!(sent, 0, "the daemon is running");
    }

    /// Asks it to stop with `signal` and waits; a daemon that takes longer than it may fails the
    /// test.
    pub(crate) fn stop(&mut self, signal: i32) -> ExitStatus {
        self.signal(signal);
        let mut child = self.child.take().expect("a daemon is stopped once");
        let deadline = Instant::now() + STOPPED_WITHIN;
        loop {
            if let Some(status) = child
                .try_wait()
                .expect("the daemon is a child of this process")
            {
                return status;
            }
            if Instant::now() >= deadline {
                child.kill().expect("the daemon is still running");
                child.wait().expect("a killed child can be waited for");
                panic!(
                    "the daemon did not stop in {STOPPED_WITHIN:?} after signal {signal}:\n{}",
                    self.log()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say(&format!("the daemon's log:\n{}", self.log()));
            if let Some(mut child) = self.child.take() {
                child
                    .kill()
                    .and_then(|()| child.wait().map(drop))
                    .unwrap_or_else(|error| say(&format!("{error}")));
            }
        } else if self.child.is_some() {
            let status = self.stop(libc::SIGTERM);
            assert!(
                status.success(),
                "the daemon ended with {status} after SIGTERM:\n{}",
                self.log()
            );
        }
    }
}
