//! Programs that end within milliseconds: before the daemon has told the walker what they have
//! mapped.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::{self, Daemon, Settings, say};

/// Walks so far: how many, and how many of these are complete.
fn walks(daemon: &Daemon) -> [f64; 2] {
    let of = |end| daemon.metric(&format!("profiler_stack_walks_total{{end=\"{end}\"}}"));
    let complete = of("complete");
    [complete + of("failed") + of("truncated"), complete]
}

/// Executes a program again and again, for so long.
fn execute(program: &Path, time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        let mut command = Command::new(program);
        let status = command.arg("--help").stdout(Stdio::null()).status();
        assert!(status.expect("it can be executed").success());
    }
}

#[test]
fn brief_programs_have_whole_stacks() {
    // Check that nearly all stacks of a program that lives for milliseconds are complete. Where the
    // walker knows only what it is told, one in six is, and status says so.
    let settings = Settings {
        top: "frequency_hz = 997",
        targets: "comms = [\"brief\"]",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let lacks = daemon.get("/status")["degraded"].to_string();
    if ["user stacks", "first milliseconds"]
        .iter()
        .any(|what| lacks.contains(what))
    {
        say("skipped: this kernel does not tell the walker what is mapped");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let program = folder.path().join("brief");
    symlink(daemon::daemon_exe(), &program).expect("a link can be made");
    // The tables of its files are made by then.
    let deadline = Instant::now() + Duration::from_secs(60);
    while walks(&daemon)[1] < 100.0 && Instant::now() < deadline {
        execute(&program, Duration::from_secs(1));
    }
    let before = walks(&daemon);
    execute(&program, Duration::from_secs(4));
    std::thread::sleep(Duration::from_millis(300));
    let [walked, complete] = {
        let after = walks(&daemon);
        [after[0] - before[0], after[1] - before[1]]
    };
    say(&format!(
        "{complete} of {walked} walks of brief programs are complete"
    ));
    assert!(walked >= 100.0, "only {walked} walks");
    assert!(
        complete >= 0.9 * walked,
        "{complete} of {walked} walks are complete: {}",
        daemon.get("/status")["unwinding"]["failures"]
    );
}
