//! Programs that end within milliseconds: before the daemon has told the walker what they have
//! mapped.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{self, Daemon, Settings, say};
use crate::exact_overlays::Overlay;

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

/// A daemon that follows the programs called `brief`; `None`, said once, where it tells that their
/// stacks are not whole.
fn daemon_of_brief() -> Option<Daemon> {
    let settings = Settings {
        top: "frequency_hz = 997",
        targets: "comms = [\"brief\"]",
        ..Settings::default()
    };
    let daemon = daemon::own(&settings)?;
    let lacks = daemon.get("/status")["degraded"].to_string();
    if ["user stacks", "first milliseconds"]
        .iter()
        .any(|what| lacks.contains(what))
    {
        say("skipped: this kernel does not tell the walker what is mapped");
        return None;
    }
    Some(daemon)
}

/// Checks that nearly all stacks of a program that lives for milliseconds are complete, once the
/// tables of its files are made.
fn check(daemon: &Daemon, program: &Path) {
    let begun = walks(daemon)[1];
    let deadline = Instant::now() + Duration::from_secs(60);
    while walks(daemon)[1] < begun + 100.0 && Instant::now() < deadline {
        execute(program, Duration::from_secs(1));
    }
    let before = walks(daemon);
    execute(program, Duration::from_secs(4));
    std::thread::sleep(Duration::from_millis(300));
    let after = walks(daemon);
    let [walked, complete] = [after[0] - before[0], after[1] - before[1]];
    let of = program.display();
    say(&format!(
        "{complete} of {walked} walks of {of} are complete"
    ));
    assert!(walked >= 100.0, "only {walked} walks of {of}");
    assert!(
        complete >= 0.9 * walked,
        "{complete} of {walked} walks of {of} are complete: {}",
        daemon.get("/status")["unwinding"]["failures"]
    );
}

#[test]
fn brief_programs_have_whole_stacks() {
    // Check that nearly all stacks of a program that lives for milliseconds are complete. Where the
    // walker knows only what it is told, one in six is, and status says so.
    let Some(daemon) = daemon_of_brief() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let program = folder.path().join("brief");
    symlink(daemon::daemon_exe(), &program).expect("a link can be made");
    check(&daemon, &program);
}

#[test]
fn brief_programs_of_overlays_have_whole_stacks() {
    // Check the same of a program in an overlay mount, as those of containers are: its file is told
    // by the overlay's inode, and is a copy of one that is known.
    let Some(daemon) = daemon_of_brief() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let below = folder.path().join("below");
    std::fs::create_dir(&below).expect("a folder can be made");
    std::fs::copy(daemon::daemon_exe(), below.join("brief")).expect("it can be copied");
    let at = folder.path().join("overlay");
    let Some(_mounted) = Overlay::new(&below, at.clone()) else {
        return;
    };
    check(&daemon, &at.join("brief"));
}

#[test]
fn a_command_that_was_never_met_has_whole_stacks() {
    // Check that the stacks of a program that is new on this machine, and runs for less than making
    // its table takes, are whole where it is recorded: the table is made before the program runs.
    // They are where others are, see above.
    if daemon_of_brief().is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut whole = 0.0;
    for number in 0..5 {
        let program = folder.path().join(format!("bash-{number}"));
        std::fs::copy("/bin/bash", &program).expect("a copy");
        let output = Command::new(daemon::daemon_exe())
            .args(["record", "--frequency-hz", "997", "--format", "json", "--"])
            .arg(&program)
            .args(["-c", "i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done"])
            .output()
            .expect("it can be executed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let completeness = &report["session"]["completeness"];
        let percent = completeness["stacks_complete_percent"].as_f64();
        whole += percent.expect("a percentage") / 5.0;
    }
    assert!(whole >= 80.0, "{whole} % of the stacks of a program");
}
