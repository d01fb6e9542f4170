//! `record` and signals: what ends a recording, and what of it is then there.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::daemon::privileged;
use crate::reads::{number, rows};
use crate::record::{PATIENCE, ended, json, names, record, run, said, signal, utf8};
use crate::workload;

/// The process of a command that says its number first.
fn command_of(recording: &mut Child) -> u32 {
    let mut line = String::new();
    BufReader::new(recording.stdout.take().expect("a pipe"))
        .read_line(&mut line)
        .expect("the command says its number");
    line.trim().parse().expect("a number")
}

#[test]
fn a_signal_ends_it_with_what_there_is() {
    // Check that Ctrl-C, a terminal that goes away, which says so again and again, and Ctrl-\ end a
    // recording long before its command would, that the report is written and nothing else left,
    // and that the command is ended as well.
    if !privileged() {
        return;
    }
    let script = format!(
        "echo $$; exec {} split --seconds 300",
        utf8(workload::exe())
    );
    for (number_of, again) in [
        (libc::SIGINT, false),
        (libc::SIGHUP, true),
        (libc::SIGQUIT, false),
    ] {
        let folder = TempDir::new().expect("a temporary directory");
        let path = folder.path().join("a.json");
        let mut child = record(&["-o", utf8(&path), "--", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be executed");
        let command = command_of(&mut child);
        signal(child.id(), number_of);
        if again {
            std::thread::sleep(Duration::from_millis(20));
            signal(child.id(), number_of);
        }
        let output = ended(child);
        // 128 and SIGTERM: how the command ended.
        assert_eq!(output.status.code(), Some(143), "{}", said(&output));
        let report = json(&std::fs::read(&path).expect("the file was written"));
        assert!(number(&report, "/session/elapsed_ns") > 0);
        assert_eq!(rows(&report["processes"])[0]["pid"], command);
        assert_eq!(names(&folder), ["a.json"]);
        assert!(
            !Path::new(&format!("/proc/{command}")).exists(),
            "it has ended"
        );
    }
}

#[test]
fn nohup_outlives_its_terminal() {
    // Check that SIGHUP does not end a recording that was started with it ignored, as by nohup.
    if !privileged() {
        return;
    }
    let folder = TempDir::new().expect("a temporary directory");
    let path = folder.path().join("a.json");
    let mut recording = record(&[
        "-o",
        utf8(&path),
        "--",
        "sh",
        "-c",
        "echo $$; sleep 1; exit 7",
    ]);
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        recording.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            Ok(())
        });
    }
    let mut child = recording
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be executed");
    command_of(&mut child);
    signal(child.id(), libc::SIGHUP);
    let output = ended(child);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert_eq!(names(&folder), ["a.json"]);
}

#[test]
fn a_command_that_outlives_its_time_is_told_of() {
    // Check that a recording whose time is over says for which process it waits, with the report
    // written; that SIGTERM ends the wait and not the command; and that nothing of it is said of a
    // command that ended in time.
    if !privileged() {
        return;
    }
    let folder = TempDir::new().expect("a temporary directory");
    let path = folder.path().join("a.json");
    let options = ["--duration", "1s", "-o", utf8(&path), "--"];
    let script = ["sh", "-c", "echo $$; exec sleep 300"];
    let mut child = record(&[&options[..], &script].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be executed");
    let command = command_of(&mut child);
    let (sender, receiver) = std::sync::mpsc::channel();
    let words = BufReader::new(child.stderr.take().expect("a pipe"));
    std::thread::spawn(move || {
        let mut lines = words.lines().map_while(Result::ok);
        // Whoever receives may have given up.
        lines.try_for_each(|line| sender.send(line))
    });
    let begin = format!("process {command} still runs");
    let deadline = Instant::now() + PATIENCE;
    let sentence = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left) {
            Ok(line) if line.contains(&begin) => break line,
            Ok(_) => {}
            Err(_) => {
                signal(child.id(), libc::SIGKILL);
                signal(command, libc::SIGKILL);
                panic!("nothing was said of process {command}");
            }
        }
    };
    let written = json(&std::fs::read(&path).expect("the file was written"));
    assert_eq!(rows(&written["processes"])[0]["pid"], command);
    let alone = format!("`kill {}` ends the wait alone", child.id());
    assert!(sentence.contains(&alone), "{sentence}");
    signal(child.id(), libc::SIGTERM);
    let output = ended(child);
    let runs = Path::new(&format!("/proc/{command}")).exists();
    signal(command, libc::SIGKILL);
    assert!(runs, "the command goes on");
    assert_eq!(output.status.code(), Some(143));

    let output = run(&[&options[..], &["sleep", "0.1"]].concat());
    assert!(output.status.success() && !said(&output).contains("still runs"));
}
