//! Comparisons of two times: which processes changed, and what changed within one process or those
//! of one name, by every value.

use profiler_daemon::{
    processes::ids::{ProcessKey, ThreadKey},
    profile::{
        input::{CommName, ThreadState},
        limits::Limits,
        snapshot::Snapshot,
    },
    report::{
        self, ComparedWindow, Diff, DiffQuery, DiffSide, Grouping, Moment, ProcessDiff,
        ProcessDiffQuery, ProcessSelector, ReportError, Scope, StackValue, TableQuery, Whole,
        Window,
    },
    units::BootNs,
};

use crate::{
    golden::check_table,
    machine::{SECOND_NS, START_UNIX_NS},
    small::{self, ByName, Small},
};

const fn process(pid: u32, start_s: u64) -> ProcessKey {
    ProcessKey {
        pid,
        start_ns: BootNs::new(start_s * SECOND_NS),
    }
}

const WEB: ProcessKey = process(50, 990);
const WEB_AGAIN: ProcessKey = process(51, 1020);
const DB: ProcessKey = process(60, 991);

/// Seconds of each class that a process received in a stack.
type Received = (ProcessKey, &'static str, u64, [u64; 5]);

/// A service that is restarted after 20 s and then has more to do, beside a database that waits for
/// a processor from then on.
fn profile() -> (Snapshot, ByName) {
    let mut small = Small::new(Limits::default());
    let passes: [(u64, &[Received]); 3] = [
        (
            10,
            &[
                (WEB, "serve", 8, [8, 0, 0, 0, 0]),
                (WEB, "wait", 0, [0, 0, 2, 0, 0]),
                (DB, "query", 1, [1, 0, 0, 0, 0]),
                (DB, "lock", 0, [0, 0, 9, 0, 0]),
            ],
        ),
        (
            20,
            &[
                (WEB, "serve", 2, [2, 0, 0, 0, 0]),
                (WEB, "wait", 0, [0, 0, 8, 0, 0]),
                (DB, "query", 2, [1, 1, 0, 0, 0]),
                (DB, "lock", 0, [0, 0, 8, 0, 0]),
            ],
        ),
        (
            30,
            &[
                (WEB_AGAIN, "serve", 9, [9, 0, 0, 1, 0]),
                (DB, "lock", 0, [0, 0, 2, 8, 0]),
            ],
        ),
    ];
    let mut so_far = [[0; 5]; 3];
    for (second, stacks) in passes {
        let mut pass = small.pass(second);
        for (index, key) in [WEB, WEB_AGAIN, DB].into_iter().enumerate() {
            let of_pass = stacks.iter().filter(|(process, ..)| *process == key);
            for (_, function, samples, classes) in of_pass {
                let classes = classes.map(|seconds| seconds * SECOND_NS);
                let mut delta = small.delta(&["main", function], &[], *samples, classes);
                delta.process = key;
                delta.thread = thread(key);
                pass.stacks.push(delta);
                for (sum, ns) in so_far[index].iter_mut().zip(classes) {
                    *sum += ns;
                }
            }
            if key == WEB_AGAIN && second < 30 || key == WEB && second > 20 {
                continue;
            }
            let mut info = small::info(key);
            info.comm = CommName::new(if key == DB { "db" } else { "web" });
            info.started_at_unix_ns = START_UNIX_NS + key.start_ns.ns() - 1000 * SECOND_NS;
            let ends = key == WEB && second == 20;
            info.exited_at_unix_ns = ends.then_some(START_UNIX_NS + 20 * SECOND_NS);
            pass.processes.push(info);
            let state = if ends {
                ThreadState::Exited
            } else {
                ThreadState::Blocked
            };
            let update = small::thread(key, thread(key), state, so_far[index]);
            pass.threads.push(update);
        }
        small.profile.apply(pass);
    }
    (small.profile.snapshot(), small.names)
}

const fn thread(of: ProcessKey) -> ThreadKey {
    ThreadKey {
        tid: of.pid,
        start_ns: of.start_ns,
    }
}

/// The ten seconds before the restart, and the ten after it.
fn before() -> Window {
    let ago = |seconds: u64| Moment::Ago {
        ns: seconds * SECOND_NS,
    };
    Window::Between {
        from: ago(20),
        to: Some(ago(10)),
    }
}

const AFTER: Window = Window::Last {
    duration_ns: 10 * SECOND_NS,
};

fn processes(by: Grouping, value: Option<StackValue>, threshold_percent: f64) -> ProcessDiff {
    let (snapshot, names) = profile();
    let compared = |window, name: &str| ComparedWindow {
        window,
        name: name.to_owned(),
    };
    let query = ProcessDiffQuery {
        base: compared(before(), "-20s..-10s"),
        other: compared(AFTER, "10s"),
        by,
        value,
        threshold_percent,
        table: TableQuery::default(),
    };
    report::process_diff(&snapshot, &query, &names).unwrap()
}

fn functions(of: Scope, value: Option<StackValue>) -> Diff {
    let (snapshot, names) = profile();
    report::diff(&snapshot, &question(of, value), &names).unwrap()
}

fn question(of: Scope, value: Option<StackValue>) -> DiffQuery {
    let side = |window, name: &str| DiffSide::Window {
        window,
        name: name.to_owned(),
    };
    DiffQuery {
        base: side(before(), "-20s..-10s"),
        other: side(AFTER, "10s"),
        of,
        value,
        ..DiffQuery::default()
    }
}

fn shares(diff: &ProcessDiff) -> Vec<(&str, Option<u32>, f64, f64)> {
    let share = |side: &report::ProcessSide| side.of(diff.value).percent;
    let rows = diff.rows.iter();
    rows.map(|row| (&*row.comm, row.pid, share(&row.base), share(&row.other)))
        .collect()
}

// Check that a service that began anew is one row by name, that running time is a share of all
// processors, and the order.
#[test]
fn by_name() {
    let diff = processes(Grouping::Name, None, 0.0);
    check_table("process-diff", &diff);
    assert_eq!(
        (diff.value, diff.percent_of),
        (StackValue::Running, Whole::Processors)
    );
    assert_eq!(
        shares(&diff),
        [("web", None, 10.0, 45.0), ("db", None, 10.0, 0.0)]
    );
    assert_eq!(diff.rows[0].largest_change_percent, 35.0);
    assert_eq!(diff.rows[0].change.running.ns, 7 * SECOND_NS as i64);
    for row in &diff.rows {
        assert_eq!(
            (row.base.processes, row.other.processes),
            (Some(1), Some(1))
        );
    }
    assert_eq!(diff.base.process_count, Some(2));
    assert!(diff.base.processes.is_empty());
}

// Check that each process has a row of its own where that is asked for, and that a threshold is
// about the value compared.
#[test]
fn by_process() {
    let diff = processes(Grouping::Process, None, 0.0);
    check_table("process-diff-each", &diff);
    assert_eq!(
        shares(&diff),
        [
            ("web", Some(51), 0.0, 45.0),
            ("db", Some(60), 10.0, 0.0),
            ("web", Some(50), 10.0, 0.0),
        ]
    );
    let counts = |row: &report::ProcessDiffRow| (row.base.processes, row.other.processes);
    assert_eq!(counts(&diff.rows[0]), (Some(0), Some(1)));
    assert_eq!(counts(&diff.rows[2]), (Some(1), Some(0)));
    let few = processes(Grouping::Process, None, 20.0);
    assert_eq!((few.rows.len(), few.total_rows), (1, 1));
    assert_eq!(
        processes(Grouping::Process, Some(StackValue::Blocked), 70.0).rows[0].pid,
        Some(50)
    );
}

// Check that waiting is a share of the time covered and samples one of the samples, and that rows
// are in order of the value asked for.
#[test]
fn by_value() {
    let by = |value| processes(Grouping::Name, Some(value), 0.0);
    let blocked = by(StackValue::Blocked);
    assert_eq!(blocked.percent_of, Whole::Duration);
    assert_eq!(
        shares(&blocked),
        [("web", None, 80.0, 0.0), ("db", None, 80.0, 20.0)]
    );
    let runnable = by(StackValue::Runnable);
    assert_eq!(
        shares(&runnable),
        [("db", None, 0.0, 80.0), ("web", None, 0.0, 10.0)]
    );
    let syscall = by(StackValue::Syscall);
    assert_eq!(
        shares(&syscall),
        [("db", None, 5.0, 0.0), ("web", None, 0.0, 0.0)]
    );
    let samples = by(StackValue::Samples);
    assert_eq!(samples.percent_of, Whole::Samples);
    assert_eq!(
        shares(&samples),
        [("db", None, 50.0, 0.0), ("web", None, 50.0, 100.0)]
    );
}

fn changes(diff: &Diff) -> Vec<(&str, f64, [f64; 2])> {
    let rows = diff.rows.iter();
    let change = |row: &report::DiffRow| row.change.points(diff.value);
    rows.map(|row| (&*row.function, row.largest_change_percent, change(row)))
        .collect()
}

// Check one process over two times by each value: the largest change is that of the value, rows are
// in its order, and the table.
#[test]
fn functions_of_one_process() {
    let db = Scope::Process(ProcessSelector {
        pid: DB.pid,
        start_ticks: None,
    });
    let elapsed = functions(db, None);
    assert_eq!(
        changes(&elapsed),
        [
            ("lock", 20.0, [20.0, 20.0]),
            ("query", 20.0, [-20.0, -20.0]),
            ("main", 0.0, [0.0, 0.0]),
        ]
    );
    let runnable = functions(db, Some(StackValue::Runnable));
    check_table("diff-runnable", &runnable);
    assert_eq!(
        changes(&runnable),
        [
            ("lock", 100.0, [100.0, 100.0]),
            ("main", 100.0, [0.0, 100.0]),
            ("query", 0.0, [0.0, 0.0]),
        ]
    );
    assert_eq!(
        runnable.rows[0].change.runnable.exclusive_ns,
        8 * SECOND_NS as i64
    );
    let blocked = functions(db, Some(StackValue::Blocked));
    assert!(
        blocked
            .rows
            .iter()
            .all(|row| row.largest_change_percent == 0.0)
    );
    let syscall = functions(db, Some(StackValue::Syscall));
    assert_eq!(changes(&syscall)[0].0, "main");
    assert_eq!(changes(&syscall)[1], ("query", 100.0, [-100.0, -100.0]));
    assert_eq!(elapsed.base.processes, ["60.99100"]);
    assert_eq!(elapsed.base.elapsed_ns, 10 * SECOND_NS);
}

// Check that processes of one name are compared though they have other numbers on each side, and
// that a name nobody has is refused.
#[test]
fn functions_of_one_name() {
    let diff = functions(Scope::Named("web".parse().unwrap()), None);
    assert_eq!(diff.base.processes, ["50.99000"]);
    assert_eq!(diff.other.processes, ["51.102000"]);
    assert_eq!(diff.other.process_count, Some(1));
    assert_eq!(
        changes(&diff),
        [
            ("serve", 80.0, [80.0, 80.0]),
            ("wait", 80.0, [-80.0, -80.0]),
            ("main", 0.0, [0.0, 0.0]),
        ]
    );
    let (snapshot, names) = profile();
    let nobody = question(Scope::Named("we".parse().unwrap()), None);
    assert!(matches!(
        report::diff(&snapshot, &nobody, &names).err(),
        Some(ReportError::UnknownName { .. })
    ));
}

// Check that the columns that can be sorted by are those that the JSON has, on both sides and of
// the change.
#[test]
fn every_column_is_there() {
    let rows = serde_json::to_value(&processes(Grouping::Process, None, 0.0).rows).unwrap();
    for column in <report::ProcessDiffRow as report::Columns>::COLUMNS {
        let cell = column
            .split('.')
            .try_fold(&rows[0], |value, part| value.get(part));
        assert!(cell.is_some(), "{column}");
    }
    let (snapshot, names) = profile();
    for column in <report::DiffRow as report::Columns>::COLUMNS {
        let mut query = question(Scope::Session, None);
        query.table.sort = Some((*column).to_owned());
        let diff = report::diff(&snapshot, &query, &names).unwrap();
        let rows = serde_json::to_value(&diff.rows).unwrap();
        let cells = rows.as_array().unwrap().iter().map(|row| {
            let cell = column
                .split('.')
                .try_fold(row, |value, part| value.get(part));
            cell.and_then(serde_json::Value::as_f64)
        });
        let found: Vec<f64> = cells.flatten().collect();
        assert!(found.is_sorted_by(|a, b| a >= b), "{column}: {found:?}");
    }
}
