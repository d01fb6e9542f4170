//! Runs the workload programs: builds them once, waits for their `ready` line, collects their
//! truth.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use serde_json::Value;

use crate::observed::stolen_ns;
use crate::reads::{self, unix_now_ns};

const LINE_WITHIN: Duration = Duration::from_secs(60);

/// The workload binary, with optimisation and frame pointers. `WORKLOAD_BIN` names one that is
/// already built.
pub(crate) fn exe() -> &'static PathBuf {
    static EXE: OnceLock<PathBuf> = OnceLock::new();
    EXE.get_or_init(|| {
        if let Some(path) = std::env::var_os("WORKLOAD_BIN") {
            return path.into();
        }
        let output = Command::new(env!("CARGO"))
            .args([
                "build",
                "--release",
                "--package",
                "workloads",
                "--bin",
                "workload",
                "--message-format=json",
            ])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .output()
            .expect("cargo can be executed");
        assert!(
            output.status.success(),
            "building the workloads: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output
            .stdout
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
            .find_map(|message| message["executable"].as_str().map(PathBuf::from))
            .expect("cargo names the executable that it built")
    })
}

/// A running workload.
#[derive(Debug)]
pub(crate) struct Workload {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<Value>,
    /// When it was started, nanoseconds since 1970.
    pub(crate) started_unix_ns: u64,
    /// What the host had taken then.
    stolen_before_ns: u64,
    /// Field 22 of its stat file.
    pub(crate) start_ticks: u64,
}

/// The end of a workload.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The line it printed.
    pub(crate) truth: Value,
    /// Its process, as `pid.start_ticks`.
    pub(crate) selector: String,
    /// From before its start to after its end by this process's clock.
    pub(crate) wall_ns: u64,
    /// What the host took meanwhile from this machine's processors: in that time nobody runs,
    /// whatever the clocks say.
    pub(crate) stolen_ns: u64,
    /// When the truth was read (held: it still sleeps) or the end was seen, nanoseconds since 1970.
    pub(crate) unix_ns: u64,
}

impl Workload {
    /// Starts a program. The command line is split at spaces.
    pub(crate) fn start(command_line: &str) -> Self {
        let arguments: Vec<&str> = command_line.split(' ').collect();
        Self::start_with(&arguments)
    }

    /// Starts a program with these arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let exe = exe();
        let started_unix_ns = unix_now_ns();
        let stolen_before_ns = stolen_ns();
        let mut child = Command::new(exe)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("executing {}: {error}", exe.display()));
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("the standard output is a pipe");
        let start_ticks = reads::start_ticks(child.id());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            stdin,
            lines,
            started_unix_ns,
            stolen_before_ns,
            start_ticks,
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its process, as `pid.start_ticks`.
    pub(crate) fn selector(&self) -> String {
        format!("{}.{}", self.pid(), self.start_ticks)
    }

    /// The next line that it prints.
    pub(crate) fn line(&self) -> Value {
        self.lines
            .recv_timeout(LINE_WITHIN)
            .unwrap_or_else(|error| panic!("workload {} printed nothing: {error}", self.pid()))
    }

    /// Waits for the `ready` line and returns its facts.
    pub(crate) fn ready(&self) -> Value {
        let mut line = self.line();
        assert!(line.get("ready").is_some(), "not a ready line: {line}");
        line["facts"].take()
    }

    /// Sends it a line, for which `--wait` and the sleeper wait.
    pub(crate) fn go(&mut self) {
        let stdin = self.stdin.as_mut().expect("the standard input is open");
        stdin
            .write_all(b"go\n")
            .expect("the workload reads its standard input");
    }

    /// Waits for the truth of a workload that is held alive.
    pub(crate) fn truth(&self) -> Finished {
        let truth = self.line();
        assert!(truth.get("truth").is_some(), "not a truth line: {truth}");
        let unix_ns = unix_now_ns();
        Finished {
            truth,
            selector: self.selector(),
            wall_ns: unix_ns - self.started_unix_ns,
            stolen_ns: stolen_ns().saturating_sub(self.stolen_before_ns),
            unix_ns,
        }
    }

    /// Ends it, whatever it is at.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.child.kill().expect("it was not waited for yet");
        self.child
            .wait()
            .expect("the workload is a child of this process")
    }

    /// Lets it end, and waits until it has.
    pub(crate) fn finish(mut self) -> Finished {
        let mut finished = self.truth();
        self.stdin = None;
        let status = self
            .child
            .wait()
            .expect("the workload is a child of this process");
        assert!(status.success(), "the workload ended with {status}");
        finished.unix_ns = unix_now_ns();
        finished.wall_ns = finished.unix_ns - self.started_unix_ns;
        finished.stolen_ns = stolen_ns().saturating_sub(self.stolen_before_ns);
        finished
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.stdin = None;
        // An error means that it has ended and was waited for, which is what is wanted here.
        if self.child.kill().is_ok() {
            self.child.wait().map(drop).unwrap_or_default();
        }
    }
}

/// Runs a program to its end.
pub(crate) fn run(command_line: &str) -> Finished {
    Workload::start(command_line).finish()
}
