//! USDT points and spans, against a program that knows its hits, its arguments and how far its
//! starts and ends are apart.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use object::{Object as _, ObjectSymbol as _};
use serde_json::Value;

use crate::daemon::daemon_exe;
use crate::exact_functions::{is_refused_here, run};
use crate::reads::{number, text};
use crate::workload::{self, Workload};

/// Records the workload that knows its marks, and answers its truth and what was measured.
fn followed(options: &[&str]) -> Option<(Value, Value)> {
    let exe = workload::exe().to_str().expect("the path is text");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.json");
    let path = path.to_str().expect("the path is text");
    let output = run(&[options, &["-o", path, "--", exe, "marked"]].concat());
    if is_refused_here(&output) {
        return None;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let truth = serde_json::from_slice(&output.stdout).expect("the workload's line alone");
    let report = fs::read(path).expect("the report was written");
    let mut report: Value = serde_json::from_slice(&report).expect("JSON");
    Some((truth, report["measured"].take()))
}

/// The row with this text.
pub(crate) fn row_of<'a>(measured: &'a Value, kind: &str, at: &str, wanted: &str) -> &'a Value {
    let mut rows = measured[kind].as_array().expect("rows").iter();
    let found = rows.find(|row| text(row, at) == wanted);
    found.unwrap_or_else(|| panic!("{wanted} is not in {measured:#}"))
}

// Check that each hit of a USDT point is counted, with the values of its arguments in a register
// and in memory, that its semaphore was raised once meanwhile, and that what was not asked for is
// not told.
#[test]
fn each_hit_is_counted() {
    let Some((truth, measured)) = followed(&[
        "--trace-usdt",
        "workload:workload:hit,arg0",
        "--trace-usdt",
        "workload:hit,arg2",
        "--trace-usdt",
        "workload:beg*",
        "--trace-budget=0%",
    ]) else {
        return;
    };
    assert_eq!(number(&truth, "/semaphore"), 1, "{truth:#}");
    let hits = number(&truth, "/hits");
    let all = measured["usdt"].as_array().expect("rows");
    assert_eq!(all.len(), 3, "{measured:#}");
    let greatest = i64::try_from(hits).expect("few") - 1;
    for (row, sum, extremes) in [
        (&all[0], "sum", (-100, greatest - 100)),
        (&all[1], "memory_sum", (0, greatest)),
    ] {
        assert_eq!(number(row, "/hits"), hits, "{row:#}");
        let argument = &row["argument"];
        assert_eq!(number(argument, "/values"), hits, "{row:#}");
        assert_eq!(argument["sum"], truth[sum], "{row:#}");
        assert_eq!(argument["min"], extremes.0, "{row:#}");
        assert_eq!(argument["max"], extremes.1, "{row:#}");
    }
    let begin = row_of(&measured, "usdt", "/name", "begin");
    assert_eq!(number(begin, "/hits"), number(&truth, "/pairs") + 4);
    assert!(begin["argument"].is_null());
    assert_eq!(begin["processes"].as_array().expect("rows").len(), 1);
    assert!(measured["functions"].as_array().expect("rows").is_empty());
}

/// The median of the pairs of `workload marked` is what the program says.
pub(crate) fn check_median(pair: &Value, truth: &Value) {
    let found = number(pair, "/p50_ns");
    let (least, most) = (
        number(truth, "/pair_p50_least_ns"),
        number(truth, "/pair_p50_most_ns"),
    );
    // It is the middle of a bucket, of which a power of two has 64.
    let apart = most / 128;
    assert!(
        (least - apart..=most + apart).contains(&found),
        "{found} of {least} to {most}"
    );
}

// Check that the time from a start to an end in another thread is what the program's own clock
// says, to half of a bucket; that starts which are replaced and those that never end are told; and
// that the entries of functions are starts and ends too.
#[test]
fn spans_last_as_long_as_by_the_programs_own_clock() {
    let Some((truth, measured)) = followed(&[
        "--trace-span",
        "pair=usdt:workload:workload:begin,usdt:workload:workload:end,arg0",
        "--trace-span",
        "calls=workload:*marked_first,workload:*marked_second,arg0",
        "--trace-span",
        "next=usdt:workload:workload:hit,usdt:workload:workload:hit,tid",
        "--trace-budget=0%",
    ]) else {
        return;
    };
    let pair = row_of(&measured, "spans", "/name", "pair");
    let pairs = number(&truth, "/pairs");
    assert_eq!(number(pair, "/count"), pairs, "{pair:#}");
    assert_eq!(number(pair, "/starts"), pairs + 4, "{pair:#}");
    assert_eq!(number(pair, "/replaced"), 2, "{pair:#}");
    // The program has exited by now.
    assert_eq!(
        number(pair, "/open") + number(pair, "/left_exit"),
        2,
        "{pair:#}"
    );
    check_median(pair, &truth);
    assert!(number(pair, "/max_ns") <= number(&truth, "/pair_max_ns"));
    assert!(number(pair, "/min_ns") >= 10_000_000, "{pair:#}");
    let calls = row_of(&measured, "spans", "/name", "calls");
    assert_eq!(
        number(calls, "/count"),
        number(&truth, "/calls"),
        "{calls:#}"
    );
    assert_eq!(number(calls, "/unmatched_ends"), 0, "{calls:#}");
    assert_eq!(calls["mostly_probe"], true, "{calls:#}");
    // From each hit to the next: the first has no start, the last no end.
    let next = row_of(&measured, "spans", "/name", "next");
    assert_eq!(number(next, "/count"), number(&truth, "/hits") - 1);
    assert_eq!(number(next, "/unmatched_ends"), 1, "{next:#}");
}

/// A counter in the memory of a running workload.
struct Semaphore {
    memory: fs::File,
    address: u64,
}

impl Semaphore {
    fn of(pid: u32, exe: &Path) -> Self {
        let bytes = fs::read(exe).expect("the workload can be read");
        let file = object::File::parse(&*bytes).expect("the workload is an ELF file");
        let symbol = file.symbol_by_name("WORKLOAD_HIT_SEMAPHORE");
        let symbol = symbol.expect("it is there").address();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("mappings");
        let exe = fs::canonicalize(exe).expect("a path");
        let first = maps
            .lines()
            .find(|line| line.ends_with(exe.to_str().expect("text")));
        let start = first
            .and_then(|line| line.split('-').next())
            .expect("it is mapped");
        let start = u64::from_str_radix(start, 16).expect("an address");
        Self {
            memory: fs::File::open(format!("/proc/{pid}/mem")).expect("its memory"),
            address: start + symbol,
        }
    }

    fn value(&self) -> u16 {
        let mut value = [0; 2];
        let read = self.memory.read_exact_at(&mut value, self.address);
        read.expect("it is mapped");
        u16::from_le_bytes(value)
    }

    /// Waits until it has that value.
    fn becomes(&self, wanted: u16) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.value() != wanted {
            assert!(Instant::now() < deadline, "it stays {}", self.value());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Follows the marks of a running process.
fn follow(pid: u32) -> Child {
    Command::new(daemon_exe())
        .args(["record", "--pid", &pid.to_string()])
        .args(["--trace-usdt", "workload:workload:hit"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program can be executed")
}

// Check that the semaphore of a USDT point is raised in a process that runs while it is followed,
// and lowered when that ends, be it as it should or by kill -9.
#[test]
fn semaphores_are_lowered_in_any_case() {
    let exe = workload::exe().to_str().expect("the path is text");
    let probe = run(&["--trace-usdt", "workload:hit", "--", exe, "marked"]);
    if is_refused_here(&probe) {
        return;
    }
    let workload = Workload::start("marked --wait");
    workload.ready();
    let semaphore = Semaphore::of(workload.pid(), workload::exe());
    assert_eq!(semaphore.value(), 0);
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let mut recorder = follow(workload.pid());
        semaphore.becomes(1);
        // SAFETY: a child that was not waited for yet.
        unsafe { libc::kill(recorder.id().cast_signed(), signal) };
        recorder.wait().expect("it ends");
        semaphore.becomes(0);
    }
}

// Check that a USDT point that is not there is refused before anything runs, by its name.
#[test]
fn what_is_not_there_is_refused() {
    let exe = workload::exe().to_str().expect("the path is text");
    let usdt = format!("{exe}:workload:nothing");
    let output = run(&["--trace-usdt", &usdt, "--", exe, "marked"]);
    if is_refused_here(&output) {
        return;
    }
    assert!(!output.status.success());
    assert!(output.stdout.is_empty(), "it ran");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("workload:nothing: there is nothing of that name"),
        "{said}"
    );
}
