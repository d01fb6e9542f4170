//! Profiles that are saved, by a recording and by a running daemon, and served again by somebody
//! without privileges; and recordings over a running daemon.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::daemon::{self, Daemon, Settings, daemon_exe, privileged};
use crate::http;
use crate::reads::{assert_share, function, number, rows, text};
use crate::workload::{self, Workload};

/// The user and group of nobody.
const NOBODY: u32 = 65_534;
const SPLIT: [(&str, f64); 3] = [
    ("split_sixty", 0.6),
    ("split_thirty", 0.3),
    ("split_ten", 0.1),
];

/// A copy of the program in a folder, both of which everybody may read: where it was built may be
/// closed to nobody.
fn open_copy(folder: &TempDir) -> PathBuf {
    let copy = folder.path().join("profiler-daemon");
    std::fs::copy(daemon_exe(), &copy).expect("the program can be copied");
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), everybody).expect("the folder is this test's");
    copy
}

fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
    command
}

/// A program that serves a file, as nobody. Ended when dropped.
struct Replay {
    child: Child,
    address: SocketAddr,
}

impl Replay {
    fn start(program: &Path, file: &Path) -> Self {
        let mut child = as_nobody(program)
            .args(["--listen", "127.0.0.1:0", "--replay"])
            .arg(file)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be executed");
        let stderr = child.stderr.take().expect("it was piped");
        let mut line = String::new();
        BufReader::new(stderr)
            .read_line(&mut line)
            .expect("it says where it serves");
        let address = line
            .rsplit_once("http://")
            .and_then(|(_, rest)| rest.trim().trim_end_matches('/').parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address in {line}"));
        Self { child, address }
    }

    fn get(&self, path: &str) -> http::Answer {
        http::request(self.address, "GET", path, &self.address.to_string(), None)
            .unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.text());
        answer.json()
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is a child of this process");
    }
}

/// Samples of the parts of the split, each near its share.
fn assert_split(functions: &Value) {
    let samples = |name| number(function(functions, name), "/samples/exclusive");
    let all: u64 = SPLIT.iter().map(|(name, _)| samples(name)).sum();
    for (name, share) in SPLIT {
        assert_share(name, samples(name) as f64 / all as f64, share, all);
    }
}

#[test]
fn a_recording_served_again() {
    // Check that a recorded command is served again by nobody with its names and shares, and that
    // the same file comes out.
    if !privileged() {
        return;
    }
    let folder = TempDir::new().expect("a temporary directory");
    let program = open_copy(&folder);
    let file = folder.path().join("split.profile");
    let status = Command::new(daemon_exe())
        .args(["record", "--frequency-hz", "999", "-o"])
        .arg(&file)
        .arg("--")
        .arg(workload::exe())
        .args(["split", "--seconds", "2"])
        .stdout(Stdio::null())
        .status()
        .expect("the program can be executed");
    assert!(status.success(), "{status}");
    let replay = Replay::start(&program, &file);
    let processes = replay.json("/api/v1/processes?q=workload");
    let [process] = rows(&processes) else {
        panic!("one process was recorded: {processes}");
    };
    let pid = number(process, "/pid");
    assert_split(&replay.json(&format!("/api/v1/processes/{pid}/functions?limit=0")));
    assert_eq!(
        replay.json("/api/v1/status")["settings"]["frequency_hz"],
        999
    );
    assert_eq!(
        replay.json("/api/v1/targets")["pids"],
        serde_json::json!([pid])
    );
    let ready = replay.get("/readyz").text();
    assert!(
        ready.starts_with("replay of split.profile, saved at "),
        "{ready}"
    );
    let again = replay.get("/api/v1/profile").body;
    assert!(again == std::fs::read(&file).expect("it was written"));
}

#[test]
fn a_running_daemon_served_again() {
    // Check that what a running daemon gives away answers as the daemon itself did about a process
    // that ended before.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let finished = workload::run("split --seconds 2");
    crate::reads::ended(daemon, &finished);
    let folder = TempDir::new().expect("a temporary directory");
    let program = open_copy(&folder);
    let file = folder.path().join("daemon.profile");
    let saved = daemon.try_get("/api/v1/profile");
    assert_eq!(saved.status, 200, "{}", saved.text());
    std::fs::write(&file, &saved.body).expect("the folder is this test's");
    let replay = Replay::start(&program, &file);
    for table in ["functions", "threads", "modules"] {
        let path = format!("/api/v1/processes/{}/{table}?limit=0", finished.selector);
        let (there, here) = (daemon.try_get(&path).json(), replay.json(&path));
        assert_eq!(rows(&there).len(), rows(&here).len(), "{table}");
        // Shares of the session go on changing there.
        for (there, here) in rows(&there).iter().zip(rows(&here)) {
            for value in [
                "/samples/exclusive",
                "/elapsed/inclusive_ns",
                "/application/exclusive_ns",
            ] {
                assert_eq!(number(there, value), number(here, value), "{table} {value}");
            }
        }
    }
    let path = format!("/api/v1/processes/{}/functions?limit=0", finished.selector);
    assert_split(&replay.json(&path));
}

#[test]
fn a_command_recorded_over_a_daemon() {
    // Check that nobody records a command over a running daemon, from its first instruction to its
    // end, that its output and exit code are passed on, and that only it is in the report.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let folder = TempDir::new().expect("a temporary directory");
    let program = open_copy(&folder);
    let url = format!("http://{}", daemon.address());
    let output = as_nobody(&program)
        .args([
            "record",
            "--connect",
            &url,
            "--format",
            "json",
            "--",
            "sh",
            "-c",
        ])
        .arg("i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; exit 3")
        .stderr(Stdio::piped())
        .output()
        .expect("the program can be executed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let [process] = rows(&report["processes"]) else {
        panic!("only the command: {}", report["processes"]);
    };
    assert_eq!(text(process, "/comm"), "sh");
    assert_eq!(text(process, "/state"), "exited");
    assert_eq!(
        number(&report["session"], "/elapsed_ns"),
        number(process, "/elapsed_ns")
    );
    assert!(number(process, "/application_ns") > 0);
}

#[test]
fn a_process_recorded_over_a_daemon() {
    // Check that a running process is recorded over a daemon for a while, in the format that the
    // file's name asks for, and that what cannot be recorded is told in a sentence and leaves no
    // file.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let workload = Workload::start("split --seconds 30");
    let folder = TempDir::new().expect("a temporary directory");
    let url = format!("http://{}", daemon.address());
    let record = |arguments: &[&str]| {
        let output = Command::new(daemon_exe())
            .args(["record", "--connect"])
            .args(arguments)
            .stdin(Stdio::null())
            .output();
        output.expect("the program can be executed")
    };
    let file = folder.path().join("a.folded");
    let path = file.to_str().expect("paths of tests are text");
    let pid = workload.pid().to_string();
    let output = record(&[&url, "--pid", &pid, "--duration", "2s", "-o", path]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let folded = std::fs::read_to_string(&file).expect("the file was written");
    assert!(folded.contains("split_sixty"), "{folded}");
    let before = std::fs::read_dir(folder.path()).expect("a folder").count();
    let other = folder.path().join("b.txt");
    let other = other.to_str().expect("paths of tests are text");
    let nobody = format!("http://{}", daemon::free_address());
    for (arguments, part) in [
        (
            &[nobody.as_str(), "--duration=1s", "-o", other][..],
            "cannot be asked",
        ),
        (
            &[&url, "--comm=not-there", "--duration=1s", "-o", other],
            "no process named not-there",
        ),
        (
            &["https://a:1", "-o", other],
            "must be the address of a daemon",
        ),
    ] {
        let output = record(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(part), "{said}");
    }
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        before
    );
}

/// A shell's loop of sixty short programs.
const SHORT_PROGRAMS: &str = "i=0; while [ $i -lt 60 ]; do /bin/true; i=$((i+1)); done; sleep 4";

/// Records that loop over the daemon: what was said, and the report.
fn recorded_short_programs(daemon: &Daemon) -> (String, Value) {
    let url = format!("http://{}", daemon.address());
    let began = Instant::now();
    let output = Command::new(daemon_exe())
        .args(["record", "--connect", &url, "--format", "json", "--"])
        .args(["sh", "-c", SHORT_PROGRAMS])
        .stdin(Stdio::null())
        .output()
        .expect("the program can be executed");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let report = serde_json::from_slice(&output.stdout).expect("JSON");
    // The command's time, and a piece of the recent past before it: not the daemon's life.
    let covered = Duration::from_nanos(number(&report, "/session/window/duration_ns"));
    assert!(
        covered <= began.elapsed() + Duration::from_secs(2),
        "{covered:?}"
    );
    (said, report)
}

#[test]
fn what_a_daemon_keeps_by_image_is_recorded() {
    // Check that a command's processes that ended, and that the daemon it is recorded over keeps
    // only by their image, are one row of that image; and that those whose image others have too
    // are counted in what the report lacks, with their time, and told in a sentence.
    let settings = Settings {
        limits: "exited_processes = 5",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let (_, report) = recorded_short_programs(&daemon);
    let of_image = |report: &Value| -> u64 {
        let rows = rows(&report["processes"]).iter();
        rows.filter(|row| row["comm"] == "true" && row["pid"].is_null())
            .map(|row| number(row, "/ended"))
            .sum()
    };
    let ended = of_image(&report);
    assert!((50..=60).contains(&ended), "{ended}: {report}");

    let mut other = Command::new("sh")
        .args(["-c", SHORT_PROGRAMS])
        .stdin(Stdio::null())
        .spawn()
        .expect("a shell");
    let (said, report) = recorded_short_programs(&daemon);
    assert!(other.wait().expect("the shell ends").success());
    assert!(said.contains("were no longer kept by the daemon"), "{said}");
    assert_eq!(of_image(&report), 0, "whose they were is not known");
    let session = &report["session"];
    let dropped = number(session, "/completeness/causes/dropped_processes");
    assert!(dropped >= 40, "{dropped}: {session}");
    assert!(number(session, "/completeness/causes/dropped_ns") > 0);
}
