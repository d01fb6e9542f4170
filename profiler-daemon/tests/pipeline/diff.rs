//! Comparisons: by share and absolute, of processes and of windows, with and without a threshold.

use profiler_daemon::{
    processes::ids::{ProcessKey, ThreadKey},
    profile::{input::ThreadState, limits::Limits, snapshot::Snapshot},
    report::{self, Diff, DiffQuery, DiffRow, DiffSide, ProcessSelector, ReportError, Window},
    units::BootNs,
};

use crate::{
    golden::check_table,
    machine::SECOND_NS,
    small::{self, ByName, PROCESS, Small, THREAD},
};

const OTHER: ProcessKey = ProcessKey {
    pid: 43,
    start_ns: BootNs::new(991 * SECOND_NS),
};

/// A process that changes after 20 s, and another that runs a third as long.
fn profile() -> (Snapshot, ByName) {
    let mut small = Small::new(Limits::default());
    let other = ThreadKey {
        tid: 43,
        start_ns: BootNs::new(991 * SECOND_NS),
    };
    let seconds = |user: u64| [user * SECOND_NS, 0, 0, 0, 0];
    for (second, stacks, of_other) in [
        (10, [("main;parse", 6), ("main;print", 4)], 0),
        (20, [("main;parse", 6), ("main;print", 4)], 1),
        (30, [("main;parse", 2), ("main;wait", 8)], 9),
    ] {
        let mut pass = small.pass(second);
        pass.processes.push(small::info(PROCESS));
        pass.processes.push(small::info(OTHER));
        let mut add = |process, thread, path: &str, samples: u64| {
            let path: Vec<&str> = path.split(';').collect();
            let mut delta = small.delta(&path, &[], samples, seconds(samples));
            (delta.process, delta.thread) = (process, thread);
            pass.stacks.push(delta);
        };
        for (path, samples) in stacks {
            add(PROCESS, THREAD, path, samples);
        }
        if of_other > 0 {
            add(OTHER, other, "main;lib:=evil()", of_other);
        }
        let so_far = if second == 30 { 10 } else { second / 20 };
        pass.threads.push(small::thread(
            PROCESS,
            THREAD,
            ThreadState::Running,
            seconds(second),
        ));
        pass.threads.push(small::thread(
            OTHER,
            other,
            ThreadState::Running,
            seconds(so_far),
        ));
        small.profile.apply(pass);
    }
    (small.profile.snapshot(), small.names)
}

fn process(pid: u32) -> DiffSide {
    DiffSide::Process(ProcessSelector {
        pid,
        start_ticks: None,
    })
}

fn window(seconds: u64) -> DiffSide {
    DiffSide::Window {
        window: Window::Last {
            duration_ns: seconds * SECOND_NS,
        },
        name: format!("{seconds}s"),
    }
}

fn query(base: DiffSide, other: DiffSide, threshold_percent: f64) -> DiffQuery {
    DiffQuery {
        base,
        other,
        threshold_percent,
        ..DiffQuery::default()
    }
}

fn row<'a>(diff: &'a Diff, function: &str) -> &'a DiffRow {
    diff.rows
        .iter()
        .find(|row| row.function == function)
        .unwrap()
}

// Check two processes of different length: shares of each side's own time, absolute differences,
// and the order.
#[test]
fn processes() {
    let (snapshot, names) = profile();
    let diff = report::diff(&snapshot, &query(process(42), process(43), 0.0), &names).unwrap();
    check_table("diff", &diff);
    let order: Vec<&str> = diff.rows.iter().map(|row| &*row.function).collect();
    assert_eq!(order, ["=evil()", "parse", "print", "wait", "main"]);
    let parse = row(&diff, "parse");
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
    close(
        parse.base.values.elapsed.exclusive_percent,
        100.0 * 14.0 / 30.0,
    );
    close(parse.change.elapsed.exclusive_percent, -100.0 * 14.0 / 30.0);
    assert_eq!(parse.change.elapsed.exclusive_ns, -14 * SECOND_NS as i64);
    assert_eq!(parse.change.samples.exclusive, -14);
    // The same share of both, though not the same time.
    let main = row(&diff, "main");
    assert_eq!(main.largest_change_percent, 0.0);
    assert_eq!(main.change.elapsed.inclusive_ns, -20 * SECOND_NS as i64);
    let back = report::diff(&snapshot, &query(process(43), process(42), 0.0), &names).unwrap();
    assert_eq!(
        row(&back, "parse").change.samples.exclusive_percent,
        -parse.change.samples.exclusive_percent
    );
    let same = report::diff(&snapshot, &query(process(42), process(42), 0.0), &names).unwrap();
    assert!(
        same.rows
            .iter()
            .all(|row| row.largest_change_percent == 0.0)
    );
}

// Check that a threshold leaves out what changed less, and says how many rows are left.
#[test]
fn threshold() {
    let (snapshot, names) = profile();
    for (threshold, count) in [(0.0, 5), (26.0, 4), (27.0, 2), (47.0, 1), (100.0, 1)] {
        let query = query(process(42), process(43), threshold);
        let diff = report::diff(&snapshot, &query, &names).unwrap();
        assert_eq!(
            (diff.rows.len(), diff.total_rows),
            (count, count),
            "{threshold}"
        );
    }
}

// Check that windows are compared by what passed in them, and that one that is not kept is refused.
#[test]
fn windows() {
    let (snapshot, names) = profile();
    let diff = report::diff(&snapshot, &query(window(30), window(10), 0.0), &names).unwrap();
    assert_eq!(diff.base.elapsed_ns, 40 * SECOND_NS);
    assert_eq!(diff.other.elapsed_ns, 19 * SECOND_NS);
    let print = row(&diff, "print");
    assert_eq!(print.other.values.elapsed.exclusive_ns, 0);
    assert_eq!(print.base.values.elapsed.exclusive_ns, 8 * SECOND_NS);
    let unknown = report::diff(&snapshot, &query(process(42), process(44), 0.0), &names);
    assert!(matches!(
        unknown.err(),
        Some(ReportError::UnknownProcess { .. })
    ));
}
