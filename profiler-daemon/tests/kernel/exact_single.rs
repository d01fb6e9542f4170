//! Functions that are measured where each point has a probe of its own: on kernels before 6.6. On a
//! later one a library that is loaded before the profiler makes the kernel answer as they do, so
//! that all the rest is the same.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::daemon::{daemon_exe, say};
use crate::exact_functions::{is_refused_here, kernel_version, row};
use crate::exact_survival::compile;
use crate::reads::number;
use crate::spans::row_of;
use crate::workload;

const OLDER: &str = include_str!("exact_single/older.c");

/// A kernel without links of many probes, be it this one.
struct Older {
    folder: tempfile::TempDir,
    /// `None`: it is this one.
    library: Option<std::path::PathBuf>,
}

impl Older {
    /// `None`: there is no compiler (said).
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut library = None;
        if kernel_version() >= (6, 6) {
            let file = folder.path().join("libolder.so");
            let options = ["-O1", "-shared", "-fPIC"];
            if !compile(folder.path(), "cc", ("older.c", OLDER), &options, &file) {
                return None;
            }
            library = Some(file);
        }
        Some(Self { folder, library })
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(daemon_exe());
        command.arg("record").args(arguments).stdin(Stdio::null());
        if let Some(library) = &self.library {
            command.env("LD_PRELOAD", library);
        }
        command.output().expect("the program can be executed")
    }

    /// Records a workload that knows the truth, and answers this and what was measured. `None`:
    /// not on this kernel.
    fn measured(&self, options: &[&str], workload: &str) -> Option<(Value, Value)> {
        let path = self.folder.path().join("report.json");
        let path = path.to_str().expect("the path is text");
        let exe = workload::exe().to_str().expect("the path is text");
        let output = self.run(&[options, &["-o", path, "--", exe, workload]].concat());
        if is_refused_here(&output) {
            return None;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        let truth = serde_json::from_slice(&output.stdout).expect("the workload's line alone");
        let report = std::fs::read(path).expect("the report was written");
        Some((truth, serde_json::from_slice(&report).expect("JSON")))
    }
}

// Check that calls are counted and timed, and those of callees told apart, where each point has a
// probe of its own.
#[test]
fn functions_are_measured_by_single_probes() {
    let Some(older) = Older::new() else { return };
    let options = [
        "--trace",
        "workload:*measured_outer",
        "--trace",
        "workload:*measured_inner",
        "--trace",
        "workload:*measured_recursive",
        "--trace-budget=0%",
    ];
    let Some((truth, report)) = older.measured(&options, "measured") else {
        return;
    };
    let outer = row(&report, "measured_outer");
    let inner = row(&report, "measured_inner");
    assert_eq!(number(outer, "/calls"), number(&truth, "/outer_calls"));
    assert_eq!(number(inner, "/calls"), number(&truth, "/inner_calls"));
    let recursive = row(&report, "measured_recursive");
    assert_eq!(number(recursive, "/calls"), number(&truth, "/depth"));
    assert_eq!(number(recursive, "/outermost"), 1, "{recursive:#}");
    let (found, expected) = (
        number(outer, "/elapsed/inclusive_ns"),
        number(&truth, "/outer_elapsed_ns"),
    );
    assert!(
        50 * found.abs_diff(expected) <= expected,
        "{found} of {expected}"
    );
}

// Check that hits of a USDT point are counted by a probe of its own, with the semaphore raised
// meanwhile, and that a span has as many ends as the program knows.
#[test]
fn points_and_spans_are_followed_by_single_probes() {
    let Some(older) = Older::new() else { return };
    let options = [
        "--trace-usdt",
        "workload:workload:hit,arg0",
        "--trace-span",
        "calls=workload:*marked_first,workload:*marked_second,arg0",
        "--trace-budget=0%",
    ];
    let Some((truth, report)) = older.measured(&options, "marked") else {
        return;
    };
    assert_eq!(number(&truth, "/semaphore"), 1, "{truth:#}");
    let measured = &report["measured"];
    let hit = row_of(measured, "usdt", "/name", "hit");
    assert_eq!(number(hit, "/hits"), number(&truth, "/hits"), "{hit:#}");
    assert_eq!(hit["argument"]["sum"], truth["sum"], "{hit:#}");
    let calls = row_of(measured, "spans", "/name", "calls");
    assert_eq!(
        number(calls, "/count"),
        number(&truth, "/calls"),
        "{calls:#}"
    );
}

// Check that more points than are bearable there are refused before anything runs, with the bound,
// the kernel that has none, and what to do.
#[test]
fn more_than_bearable_are_refused() {
    let Some(older) = Older::new() else { return };
    let exe = workload::exe().to_str().expect("the path is text");
    let trace = format!("{exe}:*workload::programs::m*");
    let output = older.run(&["--trace", &trace, "--", exe, "measured"]);
    if is_refused_here(&output) {
        return;
    }
    assert!(!output.status.success());
    assert!(output.stdout.is_empty(), "it ran");
    let refused = String::from_utf8_lossy(&output.stderr);
    say(&format!("refused: {}", refused.trim()));
    for said in [
        "points would be probed at a time",
        "(Linux 6.6)",
        "at most 32 can be",
        "choose fewer functions",
    ] {
        assert!(refused.contains(said), "{said}: {refused}");
    }
}
