//! `record`: a command, a process or everything, once, without a service.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::class_names::CLASSES;
use crate::daemon::{daemon_exe, heeds_signals, privileged};
use crate::reads::{self, assert_share, number, rows, text};
use crate::workload::{self, Workload};

const SPLIT: [(&str, f64); 3] = [
    ("split_sixty", 0.6),
    ("split_thirty", 0.3),
    ("split_ten", 0.1),
];
/// How long a recording may take beyond what it records.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn record(arguments: &[&str]) -> Command {
    let mut command = Command::new(daemon_exe());
    command.arg("record").args(arguments).stdin(Stdio::null());
    heeds_signals(&mut command);
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    record(arguments)
        .output()
        .expect("the program can be executed")
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a recording of a workload into a file of that name, checks the end, and answers the truth
/// and the file.
fn recorded_file(
    folder: &TempDir,
    name: &str,
    options: &[&str],
    work: &[&str],
) -> (Value, Vec<u8>) {
    let path = folder.path().join(name);
    let (path, exe) = (utf8(&path), utf8(workload::exe()));
    let output = run(&[options, &["-o", path, "--", exe], work].concat());
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        said(&output)
    );
    let truth =
        serde_json::from_slice(&output.stdout).expect("the workload's line, and nothing else");
    (truth, std::fs::read(path).expect("the file was written"))
}

pub(crate) fn utf8(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

pub(crate) fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}

pub(crate) fn names(folder: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).expect("the folder can be read");
    entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect()
}

/// Waits for a recording that should be ending.
pub(crate) fn ended(child: Child) -> Output {
    let pid = child.id();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(PATIENCE) {
        Ok(output) => output.expect("the recording is a child of this process"),
        Err(_) => {
            signal(pid, libc::SIGKILL);
            panic!("the recording did not end");
        }
    }
}

pub(crate) fn signal(pid: u32, signal: i32) {
    // SAFETY: plain numbers; the child was not waited for, so the number is its own.
    let sent = unsafe { libc::kill(pid.cast_signed(), signal) };
    assert_eq!(sent, 0, "the recording is running");
}

/// Samples of each part of the split, by the innermost function of folded stacks.
fn folded_samples(folded: &str) -> [u64; 3] {
    let mut found = [0; 3];
    for line in folded.lines() {
        let (stack, samples) = line.rsplit_once(' ').expect("a stack and a value");
        let innermost = stack.rsplit(';').next().unwrap_or_default();
        for ((name, _), found) in SPLIT.iter().zip(&mut found) {
            if reads::is_function(innermost, name) {
                *found += samples.parse::<u64>().expect("a number");
            }
        }
    }
    found
}

#[test]
fn a_command_as_folded_stacks() {
    // Check that the shares of a command's functions are found, that its output and exit code are
    // passed on, and that nothing but the file is left.
    if !privileged() {
        return;
    }
    let folder = TempDir::new().expect("a temporary directory");
    let (truth, file) = recorded_file(
        &folder,
        "split.folded",
        &["--frequency-hz", "999"],
        &["split", "--seconds", "2"],
    );
    let folded = String::from_utf8(file).expect("text");
    let found = folded_samples(&folded);
    let all: u64 = found.iter().sum();
    let expected = number(&truth, "/user_ns") as f64 / 1e9 * 999.0;
    assert!(
        all as f64 > expected / 2.0,
        "{all} samples of about {expected}:\n{folded}"
    );
    for ((name, share), found) in SPLIT.into_iter().zip(found) {
        assert_share(name, found as f64 / all as f64, share, all);
    }
    let process = format!("workload ({})", truth["pid"]);
    assert!(
        folded.lines().all(|line| line.starts_with(&process)),
        "only {process} was recorded:\n{folded}"
    );
    assert_eq!(names(&folder), ["split.folded"]);
}

#[test]
fn a_command_as_text() {
    // Check that what a person sees has the totals by class, the receipt and the shares, behind the
    // command's own output.
    if !privileged() {
        return;
    }
    let exe = utf8(workload::exe());
    let output = run(&[
        "--frequency-hz",
        "999",
        "--",
        exe,
        "split",
        "--seconds",
        "2",
    ]);
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).expect("text");
    let (truth, text) = text.split_once('\n').expect("the command's line first");
    assert!(json(truth.as_bytes()).get("truth").is_some(), "{truth}");
    let line = |begin: &str| {
        let found = text
            .lines()
            .find(|line| line.trim_start().starts_with(begin));
        found.unwrap_or_else(|| panic!("no line {begin}:\n{text}"))
    };
    for begin in [
        "# as of",
        "# complete: ",
        "processes  ",
        "user ",
        "syscall ",
        "blocked ",
        "runnable ",
    ] {
        line(begin);
    }
    let samples: u64 = line("samples")
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("a number");
    assert!(line("elapsed").ends_with("100.00%"), "{text}");
    for (name, share) in SPLIT {
        let row = text
            .lines()
            .find(|line| line.contains(&format!("::{name} ")));
        let row = row.unwrap_or_else(|| panic!("no row of {name}:\n{text}"));
        let percent = row
            .split_whitespace()
            .next()
            .and_then(|cell| cell.parse::<f64>().ok());
        assert_share(name, percent.expect("a percentage") / 100.0, share, samples);
    }
}

#[test]
fn a_command_from_its_first_instruction_with_all_it_starts() {
    // Check that the execution of the command itself is recorded, that what it starts is, that the
    // time of every class adds up, and that its exit code is passed on.
    if !privileged() {
        return;
    }
    let folder = TempDir::new().expect("a temporary directory");
    let path = folder.path().join("all.json");
    let script = format!("{} split --seconds 1; exit 3", utf8(workload::exe()));
    let output = run(&["-o", utf8(&path), "--", "/bin/sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let truth = json(&output.stdout);
    let report = json(&std::fs::read(&path).expect("the file was written"));
    let processes = rows(&report["processes"]);
    let comms: Vec<&str> = processes.iter().map(|row| text(row, "/comm")).collect();
    assert_eq!(processes.len(), 2, "{comms:?}");
    let of = |comm: &str| processes.iter().find(|row| row["comm"] == comm);
    let worker = of("workload").unwrap_or_else(|| panic!("no workload in {comms:?}"));
    assert!(number(worker, "/elapsed_ns") >= number(&truth, "/wall_ns"));
    assert!(of("sh").is_some(), "{comms:?}");
    let calls = report["os_events"]["syscalls"].as_array().expect("a list");
    let executed = calls
        .iter()
        .find(|row| row["name"] == "execve")
        .expect("execve");
    assert_eq!(
        number(executed, "/count"),
        2,
        "the command's own, and that of its child"
    );
    let session = &report["session"];
    let classes: u64 = CLASSES
        .iter()
        .map(|class| number(session, &format!("/classes/{class}")))
        .sum();
    assert_eq!(classes, number(session, "/elapsed_ns"));
}

#[test]
fn a_command_that_sleeps_at_once_is_found_where_it_sleeps() {
    // Check that a command that waits a millisecond after it was executed, and does nothing else,
    // waits in a function with a name: what it mapped is known before its only stack is looked at.
    if !privileged() {
        return;
    }
    let folder = TempDir::new().expect("a temporary directory");
    let path = folder.path().join("sleep.json");
    let output = run(&["-o", utf8(&path), "--", "sleep", "1"]);
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&std::fs::read(&path).expect("the file was written"));
    let slept = reads::function(&report["functions"], "clock_nanosleep");
    let slept_ns = number(slept, "/elapsed/exclusive_ns");
    assert!(slept_ns >= 900_000_000, "{slept_ns} ns");
}

#[test]
fn long_sleeps_that_begin_at_once_get_their_callers() {
    // Check that programs which fall asleep before it is known what they have mapped, and go on
    // sleeping, are found where they sleep with all callers: the walk as they fell asleep could not
    // say.
    if !privileged() {
        return;
    }
    let folder = TempDir::new().expect("a temporary directory");
    let path = folder.path().join("a.folded");
    let script = "for number in 1 2 3 4 5 6 7 8; do sleep 9 & done; wait";
    let options = ["--duration", "8s", "--value", "blocked", "-o", utf8(&path)];
    let output = run(&[&options[..], &["--", "sh", "-c", script]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let folded = std::fs::read_to_string(&path).expect("the file was written");
    let slept = |wanted: fn(&str) -> bool| -> u64 {
        let stacks = folded.lines().filter_map(|line| line.rsplit_once(' '));
        let of_sleep = stacks.filter(|(stack, _)| stack.starts_with("sleep (") && wanted(stack));
        of_sleep
            .map(|(_, ns)| ns.parse::<u64>().expect("a number"))
            .sum()
    };
    let (all_ns, cut_short_ns) = (
        slept(|_| true),
        slept(|stack| stack.contains("[incomplete")),
    );
    assert!(all_ns > 8 * 7_000_000_000, "{folded}");
    assert!(cut_short_ns * 100 < all_ns, "{folded}");
}

#[test]
fn the_end_of_a_command_is_passed_on() {
    // Check that exit codes and signals are passed on, and that a command that cannot run leaves a
    // file as it was.
    if !privileged() {
        return;
    }
    for (script, code) in [("exit 7", 7), ("kill -KILL $$", 137)] {
        let output = run(&["--format=csv", "--", "sh", "-c", script]);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{script}: {}",
            said(&output)
        );
        assert!(output.stdout.starts_with(b"function,module,"), "{script}");
    }
    let folder = TempDir::new().expect("a temporary directory");
    let path = folder.path().join("a.txt");
    std::fs::write(&path, "before").expect("the folder can be written to");
    for (command, code) in [("/nonexistent/program", 127), (utf8(folder.path()), 126)] {
        let output = run(&["-o", utf8(&path), "--", command]);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{command}: {}",
            said(&output)
        );
        assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    }
    assert_eq!(
        std::fs::read_to_string(&path).expect("it is there"),
        "before"
    );
    assert_eq!(names(&folder), ["a.txt"]);
}

#[test]
fn every_format_is_valid() {
    // Check that each ending of a name gives a file of its format, with the work in it.
    if !privileged() {
        return;
    }
    let folder = TempDir::new().expect("a temporary directory");
    for name in [
        "a.svg",
        "a.speedscope.json",
        "a.firefox.json",
        "a.pb.gz",
        "a.csv",
        "a.txt",
    ] {
        let work = ["split", "--seconds", "0.5"];
        let (_, file) = recorded_file(&folder, name, &["--frequency-hz", "999"], &work);
        let shown = String::from_utf8_lossy(&file);
        let parsed = name.ends_with(".json").then(|| json(&file));
        match name {
            "a.svg" => assert!(shown.contains("<svg") && shown.trim_end().ends_with("</svg>")),
            "a.speedscope.json" => {
                let schema = parsed.expect("parsed")["$schema"].to_string();
                assert!(schema.contains("speedscope"), "{schema}");
            }
            "a.firefox.json" => assert!(parsed.expect("parsed")["meta"].is_object()),
            "a.pb.gz" => {
                assert_eq!(file[..2], [0x1f, 0x8b], "compressed");
                continue;
            }
            "a.csv" => assert!(shown.starts_with("function,module,")),
            _ => assert!(shown.starts_with("# as of ")),
        }
        assert!(shown.contains("split_sixty"), "{name}: {shown}");
    }
}

#[test]
fn a_running_process_for_a_time() {
    // Check that a process that runs already is recorded alone, for the time that was asked for,
    // with the right shares.
    if !privileged() {
        return;
    }
    let running = Workload::start("split --seconds 300");
    let pid = running.pid().to_string();
    let options = [
        "--pid",
        &pid,
        "--duration",
        "2s",
        "--frequency-hz",
        "999",
        "--format",
        "json",
    ];
    let output = run(&options);
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&output.stdout);
    assert_eq!(rows(&report["processes"]).len(), 1);
    assert_eq!(report["processes"]["rows"][0]["pid"], running.pid());
    let elapsed_ns = number(&report, "/session/elapsed_ns");
    assert!(
        (2_000_000_000..4_000_000_000).contains(&elapsed_ns),
        "{elapsed_ns} ns for 2 s"
    );
    let samples = SPLIT.map(|(name, _)| {
        number(
            reads::function(&report["functions"], name),
            "/samples/exclusive",
        )
    });
    let all = samples.iter().sum();
    for ((name, share), found) in SPLIT.into_iter().zip(samples) {
        assert_share(name, found as f64 / all as f64, share, all);
    }
}

/// Whether a recording has come so far that it holds events of the kernel.
fn is_attached(pid: u32) -> bool {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let links = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links
        .into_iter()
        .any(|link| link.to_string_lossy().contains("perf_event"))
}

#[test]
fn the_end_of_a_process_is_the_end_of_its_recording() {
    // Check that a recording of a process without a time ends when the process does.
    if !privileged() {
        return;
    }
    let mut running = Workload::start("split --seconds 3 --wait");
    running.ready();
    let pid = running.pid().to_string();
    let folder = TempDir::new().expect("a temporary directory");
    let path = folder.path().join("a.json");
    let child = record(&["--pid", &pid, "-o", utf8(&path)])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be executed");
    let deadline = Instant::now() + PATIENCE;
    while !is_attached(child.id()) {
        assert!(Instant::now() < deadline, "it does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    running.go();
    running.finish();
    let output = ended(child);
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&std::fs::read(&path).expect("the file was written"));
    assert_eq!(rows(&report["processes"]).len(), 1);
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_recorded() {
    // Check that a folder, a device, a name without a known ending, a missing process and a value
    // without a meaning are refused in one sentence, at once, without anything being left.
    let folder = TempDir::new().expect("a temporary directory");
    let path = folder.path().join("a");
    let (path, svg) = (
        utf8(&path).to_owned(),
        utf8(&folder.path().join("a.svg")).to_owned(),
    );
    for (arguments, part) in [
        (
            &["-o", utf8(folder.path()), "--format=csv"][..],
            "it is a folder",
        ),
        (&["-o", "/dev/null", "--format=csv"], "no plain file"),
        (&["-o", &path], "does not tell the format"),
        (
            &["-o", &svg, "--pid=4194304"],
            "there is no process 4194304",
        ),
        (&["--value=off_processor"], "folded, svg"),
        (&["--frequency-hz=0"], "--frequency-hz"),
    ] {
        let output = run(arguments);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{arguments:?}: {}",
            said(&output)
        );
        let sentence = said(&output);
        assert!(
            sentence.contains(part) && sentence.lines().count() == 1,
            "{sentence}"
        );
        assert_eq!(names(&folder), [""; 0], "{arguments:?}");
    }
}
