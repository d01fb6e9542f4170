//! Functions that are measured exactly, against programs that count and time their own calls.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::daemon::{daemon_exe, say};
use crate::reads::{number, text};
use crate::workload;

/// Records the workload that knows its calls, and answers its truth and the report.
fn measured(options: &[&str]) -> Option<(Value, Value)> {
    let exe = workload::exe().to_str().expect("the path is text");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.json");
    let path = path.to_str().expect("the path is text");
    let output = run(&[options, &["-o", path, "--", exe, "measured"]].concat());
    if is_refused_here(&output) {
        return None;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let truth = serde_json::from_slice(&output.stdout).expect("the workload's line alone");
    let report = std::fs::read(path).expect("the report was written");
    Some((truth, serde_json::from_slice(&report).expect("JSON")))
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(daemon_exe());
    command.arg("record").args(arguments).stdin(Stdio::null());
    command.output().expect("the program can be executed")
}

/// The version of the running kernel.
pub(crate) fn kernel_version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let numbers: Vec<u32> = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok())
        .collect();
    let [major, minor, ..] = numbers[..] else {
        panic!("{release} has no two numbers");
    };
    (major, minor)
}

/// Kernels on which nothing is measured say so, by the version that it takes, and run nothing.
pub(crate) fn is_refused_here(output: &Output) -> bool {
    if kernel_version() >= (5, 15) {
        return false;
    }
    let why = "this kernel has no attach cookies (Linux 5.15): functions cannot be told apart";
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains(why), "{said}");
    true
}

/// The row of a function by the last part of its name.
pub(crate) fn row<'a>(report: &'a Value, function: &str) -> &'a Value {
    let rows = report["measured"]["functions"].as_array().expect("rows");
    let mut rows = rows.iter();
    let found = rows.find(|row| text(row, "/function").ends_with(function));
    found.unwrap_or_else(|| panic!("{function} is not in {report:#}"))
}

// Check that every call is counted, on several threads, recursive ones and those that a panic ends;
// that recursion is timed once; that panics through probed functions are caught as ever; and that
// what probes cost is known of each kind, but for those of goroutines, of which none is measured.
#[test]
fn each_call_is_counted() {
    let options = [
        "--trace",
        "workload:*measured_empty",
        "--trace",
        "workload:*measured_recursive",
        "--trace",
        "workload:*measured_thrower",
        "--trace-budget=0%",
    ];
    let Some((truth, report)) = measured(&options) else {
        return;
    };
    // What it waited for the probes, before it was this program, is no time of it.
    let rows = report["functions"]["rows"].as_array().expect("rows");
    let before = rows
        .iter()
        .filter(|row| text(row, "/module").ends_with("profiler-daemon"));
    let before_ns: u64 = before.map(|row| number(row, "/elapsed/exclusive_ns")).sum();
    assert!(before_ns < 100_000_000, "{before_ns}");
    let empty = row(&report, "measured_empty");
    assert_eq!(number(empty, "/calls"), number(&truth, "/empty_calls"));
    let outermost = number(empty, "/outermost") + number(empty, "/counted_only");
    let unseen = number(empty, "/left_unseen");
    assert_eq!(
        outermost + unseen,
        number(&truth, "/empty_calls"),
        "{empty:#}"
    );
    let recursive = row(&report, "measured_recursive");
    assert_eq!(number(recursive, "/calls"), number(&truth, "/depth"));
    assert_eq!(number(recursive, "/outermost"), 1, "{recursive:#}");
    let thrower = row(&report, "measured_thrower");
    assert_eq!(number(thrower, "/calls"), number(&truth, "/thrower_calls"));
    assert_eq!(
        number(&truth, "/caught"),
        number(&truth, "/thrower_calls") / 2
    );
    let seen = number(thrower, "/outermost") + number(thrower, "/counted_only");
    let ended = number(thrower, "/left_unseen") + number(thrower, "/open");
    assert_eq!(
        seen + ended,
        number(&truth, "/thrower_calls"),
        "{thrower:#}"
    );
    assert!(ended >= number(&truth, "/caught"), "{thrower:#}");
    let costs = report["measured"]["probe_costs"].as_array();
    for cost in costs.expect("costs") {
        assert!(cost["outside_ns"].as_f64() > Some(0.0), "{cost:#}");
        assert_eq!(cost["goroutines"], false, "{cost:#}");
    }
}

// Check that times are those of the thread's own clocks: all of it by the wall clock, application
// time by that of the processor, the sleep in neither; and that what a function called is not its
// own, to the nanosecond.
#[test]
fn times_agree_with_the_programs_own_clocks() {
    let Some((truth, report)) = measured(&[
        "--trace",
        "workload:*measured_outer",
        "--trace",
        "workload:*measured_inner",
    ]) else {
        return;
    };
    let (outer, inner) = (
        row(&report, "measured_outer"),
        row(&report, "measured_inner"),
    );
    assert_eq!(number(outer, "/outermost"), number(&truth, "/outer_calls"));
    assert_eq!(number(inner, "/outermost"), number(&truth, "/inner_calls"));
    let near = |what: &str, found: u64, expected: u64, percent: u64| {
        let off = found.abs_diff(expected);
        assert!(
            100 * off <= percent * expected,
            "{what}: {found} of {expected}"
        );
    };
    let elapsed = number(outer, "/elapsed/inclusive_ns");
    near("elapsed", elapsed, number(&truth, "/outer_elapsed_ns"), 1);
    // The sleep's own call runs in the kernel.
    let running = number(outer, "/classes/user_ns") + number(outer, "/classes/syscall_ns");
    near("running", running, number(&truth, "/outer_cpu_ns"), 2);
    let application = number(outer, "/application/inclusive_ns");
    assert_eq!(application, number(outer, "/classes/user_ns"));
    assert!(number(outer, "/classes/blocked_ns") > 9_000_000 * number(&truth, "/outer_calls"));
    // Before probes are subtracted own time is all less the callee's, and these differ by no more
    // than the probes of either.
    let own = number(outer, "/elapsed/exclusive_ns");
    let probes = number(outer, "/probe_ns") + number(inner, "/probe_ns");
    let parts = own + number(inner, "/elapsed/inclusive_ns");
    assert!(
        parts.abs_diff(elapsed) <= probes,
        "{parts} of {elapsed}, probes {probes}"
    );
    // The same stands beside what was sampled.
    let rows = report["functions"]["rows"].as_array().expect("rows");
    let merged = rows
        .iter()
        .find(|row| text(row, "/function").ends_with("measured_outer"));
    let merged = merged.expect("a row, sampled or not");
    for value in ["/outermost", "/elapsed/inclusive_ns", "/probe_ns"] {
        let beside = number(merged, &format!("/measured{value}"));
        assert_eq!(beside, number(outer, value), "{merged:#}");
    }
    let mean = number(outer, "/elapsed/mean_ns");
    let (least, most) = (
        number(outer, "/elapsed/min_ns"),
        number(outer, "/elapsed/max_ns"),
    );
    assert!(least <= mean && mean <= most, "{outer:#}");
    let tail = number(outer, "/elapsed/p99_ns");
    assert!((least..=most).contains(&tail), "{outer:#}");
}

// Check that calls are told apart by the function that made them, with the time of each; and that
// those from more places than are told apart are together.
#[test]
fn callers_are_told_apart() {
    let Some((truth, report)) = measured(&["--trace", "workload:*called_function"]) else {
        return;
    };
    let called = row(&report, "called_function");
    let places = number(&truth, "/places");
    let (often, seldom) = (
        number(&truth, "/often_calls"),
        number(&truth, "/seldom_calls"),
    );
    assert_eq!(number(called, "/calls"), often + seldom + places);
    let callers = called["callers"].as_array().expect("callers");
    let of = |function: &str| {
        let mut callers = callers.iter();
        let found = callers.find(|row| text(row, "/function").ends_with(function));
        found.unwrap_or_else(|| panic!("{function} is not in {called:#}"))
    };
    assert_eq!(callers.len(), 4, "{called:#}");
    assert_eq!(number(of("measured_often"), "/calls"), often);
    assert_eq!(number(of("measured_seldom"), "/calls"), seldom);
    let many = number(of("measured_many_places"), "/calls");
    let others = number(of("[other callers]"), "/calls");
    assert_eq!(many + others, places, "{called:#}");
    // Two places are those of the other functions.
    assert_eq!(many, 62, "{called:#}");
    let sum = |value: &str| -> u64 { callers.iter().map(|row| number(row, value)).sum() };
    assert_eq!(sum("/outermost"), number(called, "/outermost"));
    // Each is rounded once.
    let elapsed = number(called, "/elapsed/inclusive_ns");
    assert!(
        sum("/elapsed_ns").abs_diff(elapsed) <= 8,
        "{} of {elapsed}",
        sum("/elapsed_ns")
    );
    // What the program says is between these calls too: the loop, and probes.
    for (function, elapsed) in [
        ("measured_often", "/often_elapsed_ns"),
        ("measured_seldom", "/seldom_elapsed_ns"),
    ] {
        let (found, all) = (
            number(of(function), "/elapsed_ns") as f64,
            number(&truth, elapsed) as f64,
        );
        say(&format!(
            "{function}: {:.3} of its time in its calls",
            found / all
        ));
        assert!(
            found > 0.7 * all && found < 1.01 * all,
            "{found} of {all} ns"
        );
    }
    assert!(
        callers
            .iter()
            .filter(|row| !text(row, "/module").is_empty())
            .all(|row| { text(row, "/module").ends_with("/workload") })
    );
}

// Check that a function whose probes take more than they may is given up, that the report says so,
// and that a pattern that means nothing is refused before anything runs.
#[test]
fn what_costs_too_much_is_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.json");
    let path = path.to_str().expect("the path is text");
    let exe = workload::exe().to_str().expect("the path is text");
    let trace = format!("{exe}:*recursion::recurse");
    let none = format!("{exe}:no_such_function");
    let output = run(&["--trace", &none, "--", exe, "measured"]);
    if is_refused_here(&output) {
        return;
    }
    assert!(!output.status.success());
    assert!(output.stdout.is_empty(), "it ran");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("there is no such function"), "{said}");
    let arguments = [
        "--trace",
        &trace,
        "--trace-budget=0.5%",
        "-o",
        path,
        "--",
        exe,
        "recursion",
    ];
    // So many calls that they are over it however little of a processor they get.
    let output = run(&[&arguments[..], &["--depth", "500", "--seconds", "3"]].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report = std::fs::read(path).expect("the report was written");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let row = row(&report, "recursion::recurse");
    assert!(text(row, "/why").contains("given up: "), "{row:#}");
    assert!(number(row, "/calls") > 0);
}
