//! The ledger, checked from outside: on JSON answers only.

use profiler_common::kinds::NUMBERS;
use profiler_daemon::{
    profile::{
        Profile,
        budget::{CELL_BYTES, NODE_BYTES},
        limits::Limits,
        snapshot::Snapshot,
        tree::NodePlace,
    },
    report::names::Names,
    report::{
        self, FrameScope, ProcessSelector, ReportError, Scope, TableQuery, TreeQuery, ViewQuery,
        Window,
    },
};
use proptest::prelude::*;
use serde_json::Value;

use crate::{
    class_names::CLASSES,
    machine::{ByOffset, Machine, PassPlan, SECOND_NS, START_NS, START_UNIX_NS, plans},
    rules::{
        Total, cause, check_functions, check_table, check_threads, check_tree, classes, json,
        number, rows, sum,
    },
    sessions, timeline,
};

/// Totals that add up over processes.
const TOTALS: [&str; 18] = [
    "samples",
    "elapsed_ns",
    "application_ns",
    "fault_ns",
    "minor_faults",
    "major_faults",
    "switches_missed",
    "estimated_ns",
    "classes.user_ns",
    "classes.syscall_ns",
    "classes.blocked_ns",
    "classes.runnable_ns",
    "classes.kernel_ns",
    "not_sampled.user_ns",
    "not_sampled.syscall_ns",
    "not_sampled.blocked_ns",
    "not_sampled.runnable_ns",
    "not_sampled.kernel_ns",
];
fn check_scope(
    snapshot: &Snapshot,
    scope: &Scope,
    window: Window,
    names: &dyn Names,
    total: &Total,
) {
    let table = |frames| TableQuery {
        frames,
        window,
        ..TableQuery::default()
    };
    let functions = [FrameScope::User, FrameScope::All]
        .map(|frames| json(&report::functions(snapshot, scope, &table(frames), names).unwrap()));
    check_functions(&functions, total);
    for frames in [FrameScope::User, FrameScope::All] {
        let query = table(frames);
        let modules = json(&report::modules(snapshot, scope, &query, names).unwrap());
        check_table(&modules, total);
        if frames == FrameScope::User {
            assert_eq!(
                cause(&modules, "callers_folded_ns"),
                cause(&functions[0], "callers_folded_ns")
            );
        }
        for (depth, min_percent, idle_apart) in [
            (None, 0.0, false),
            (None, 0.0, true),
            (Some(1), 0.0, false),
            (None, 20.0, true),
        ] {
            let query = TreeQuery {
                depth,
                min_percent,
                idle_apart,
                frames,
                window,
                ..TreeQuery::default()
            };
            check_tree(
                &json(&report::calltree(snapshot, scope, &query, names).unwrap()),
                total,
            );
        }
    }
    check_threads(
        &json(&report::threads(snapshot, scope, &table(FrameScope::User), names).unwrap()),
        total,
    );
    let query = ViewQuery {
        frames: FrameScope::User,
        window,
    };
    let events = json(&report::os_events(snapshot, scope, &query, names).unwrap());
    assert_eq!(classes(&events), total.elapsed_ns);
    assert_eq!(
        cause(&events, "callers_folded_ns"),
        cause(&functions[0], "callers_folded_ns"),
        "an answer without functions says the same"
    );
}

/// The session counts those processes and threads that have rows, and over the whole session those
/// whose rows are gone.
fn check_counts(
    snapshot: &Snapshot,
    session: &Value,
    processes: &Value,
    (window, names): (Window, &dyn Names),
) {
    let table = TableQuery {
        window,
        ..TableQuery::default()
    };
    let list = json(&report::threads(snapshot, &Scope::Session, &table, names).unwrap());
    let retired = |field: &str| session["retired"][field].as_u64();
    assert_eq!(retired("processes").is_some(), window == Window::Session);
    let lived = rows(processes).iter().filter(|row| row["pid"].is_u64());
    let lived = lived.count() as u64;
    assert_eq!(
        number(session, "processes"),
        lived + retired("processes").unwrap_or_default(),
    );
    if window == Window::Session {
        let ended = rows(processes)
            .iter()
            .filter_map(|row| row["ended"].as_u64());
        assert_eq!(Some(ended.sum::<u64>()), retired("processes"));
    }
    let of_rows = rows(&list).iter().map(|row| {
        let is_known = number(row, "tid") > 0 || window == Window::Session;
        assert_eq!(row["threads"].is_u64(), is_known, "{row}");
        row["threads"].as_u64().unwrap_or_default()
    });
    assert_eq!(number(session, "threads"), of_rows.sum::<u64>());
    assert_eq!(number(session, "threads"), sum(processes, "threads"));
}

/// Every rule, on every answer, for one window.
pub(crate) fn check_all(snapshot: &Snapshot, window: Window, names: &dyn Names) {
    let query = ViewQuery {
        frames: FrameScope::User,
        window,
    };
    let session = json(&report::session(snapshot, &query, names).unwrap());
    let total = Total::of(&session);
    check_scope(snapshot, &Scope::Session, window, names, &total);
    let table = TableQuery {
        window,
        ..TableQuery::default()
    };
    let processes = json(&report::processes(snapshot, &table, names).unwrap());
    let ended = rows(&processes).iter().filter(|row| row["pid"].is_null());
    let ended: Vec<&Value> = ended.collect();
    for field in TOTALS {
        let whole = number(&session, field);
        assert_eq!(sum(&processes, field), whole, "rule 2: processes, {field}");
        let of_images: u64 = ended.iter().map(|row| number(row, field)).sum();
        let retired = number(&session["retired"], field);
        assert_eq!(of_images, retired, "those that ended, {field}");
    }
    check_counts(snapshot, &session, &processes, (window, names));
    if window == Window::Session {
        timeline::check(snapshot, Window::Kept, names);
    } else {
        timeline::check(snapshot, window, names);
    }
    for row in rows(&processes) {
        let scope = match row["image_id"].as_str() {
            Some(id) => Scope::Image(id.parse().unwrap()),
            None => Scope::Process(ProcessSelector {
                pid: number(row, "pid") as u32,
                start_ticks: Some(number(row, "start_ticks")),
            }),
        };
        let process = json(&report::process(snapshot, &scope, &query, names).unwrap());
        for field in [
            "samples",
            "elapsed_ns",
            "stacks",
            "threads",
            "minor_faults",
            "major_faults",
            "switches_missed",
        ] {
            assert_eq!(process[field], row[field]);
        }
        // What is estimated of a small process may be another's in its row, which is divided
        // together with its image.
        for class in ["blocked_ns", "runnable_ns", "kernel_ns"] {
            assert_eq!(process["classes"][class], row["classes"][class]);
        }
        let stacks = &row["stacks"];
        let ends: u64 = ["complete", "truncated", "failed"]
            .iter()
            .map(|end| number(stacks, end))
            .sum();
        assert_eq!(number(stacks, "walked"), ends);
        check_scope(snapshot, &scope, window, names, &Total::of(&process));
    }
}

/// Bounds so tight that everything is dropped, cut and folded all the time.
pub(crate) fn tight() -> Limits {
    Limits {
        tree_bytes: 24 * NODE_BYTES,
        exited_processes: 1,
        exited_threads: 1,
        recent_past_ns: 30 * SECOND_NS,
        sessions: 3,
        session_spans: 8,
        groups: 1,
        ..Limits::default()
    }
}

/// The trees stay within their bytes but for the rows of lost stacks, and what was folded is in the
/// receipt.
fn check_room(snapshot: &Snapshot, session: &Value, tree_bytes: usize, names: &dyn Names) {
    let kept = snapshot.processes().values().map(|view| &view.aggregate);
    let lost = kept
        .chain(snapshot.images().iter().map(|image| &image.aggregate))
        .flat_map(|aggregate| aggregate.nodes().iter().skip(1))
        .filter(|node| matches!(node.place, NodePlace::Lost(_)))
        .count();
    assert!(
        snapshot.stack_bytes() <= (tree_bytes + lost * (NODE_BYTES + NUMBERS * CELL_BYTES)) as u64,
        "{} bytes, {lost} rows of lost stacks",
        snapshot.stack_bytes()
    );
    let cause = |name: &str| cause(session, name);
    let query = TableQuery {
        frames: FrameScope::All,
        ..TableQuery::default()
    };
    let functions = json(&report::functions(snapshot, &Scope::Session, &query, names).unwrap());
    let named = |part: &str| -> u64 {
        let named = |row: &&Value| row["function"].as_str().unwrap().contains(part);
        let rows = rows(&functions).iter().filter(named);
        rows.map(|row| number(row, "elapsed.exclusive_ns")).sum()
    };
    let folded_ns = named("folded]");
    assert_eq!(folded_ns, cause("folded_ns"), "rows and receipt");
    // What was folded was counted; its time then only roughly, by the marks of that moment.
    let counted = ["retired", "exited", "living"].map(|of| cause(&format!("folded_{of}_nodes")));
    assert!(
        folded_ns == 0 || counted != [0; 3],
        "counted {counted:?}, shown {folded_ns}"
    );
}

/// Runs the plans and checks every rule after each pass.
fn run(limits: Limits, plans: &[PassPlan]) {
    let tree_bytes = limits.tree_bytes;
    let mut profile = Profile::new(limits, START_NS, START_UNIX_NS);
    let mut machine = Machine::new(&mut profile);
    let names = ByOffset::new(&mut profile);
    let mut groups = profile.snapshot().groups().clone();
    let mut named = sessions::Expected::default();
    for plan in plans {
        let pass = machine.pass(plan);
        profile.apply(pass);
        let snapshot = profile.snapshot();
        check_all(&snapshot, Window::Session, &names);
        for seconds in [1, 15, 60] {
            let window = Window::Last {
                duration_ns: seconds * SECOND_NS,
            };
            match report::session(
                &snapshot,
                &ViewQuery {
                    frames: FrameScope::User,
                    window,
                },
                &names,
            ) {
                Ok(_) => check_all(&snapshot, window, &names),
                Err(error) => assert!(matches!(error, ReportError::WindowTooLong { .. })),
            }
        }
        let reported: u64 = machine.reported.values().flatten().sum();
        let samples: u64 = machine.samples.values().sum();
        named.step(&mut profile, plan.dice(), [reported, samples]);
        if let Some(window) = named.check(&profile.snapshot(), &names) {
            check_all(&profile.snapshot(), window, &names);
        }
        // Nothing is lost by dropping, cutting and folding: the session is what the machine
        // reported.
        let session = json(&report::session(&snapshot, &ViewQuery::default(), &names).unwrap());
        let reported = |index: usize| -> u64 {
            let of_class = machine.reported.values().map(|classes| classes[index]);
            of_class.sum()
        };
        // What the clock has for user time, where calls are not traced, ticks may find in calls.
        let shown = CLASSES.map(|class| number(&session["classes"], class));
        let calls_ns = reported(0).checked_sub(shown[0]).unwrap();
        assert!(calls_ns <= number(&session, "estimated_ns"));
        assert_eq!(shown[1], reported(1) + calls_ns);
        for index in 2..CLASSES.len() {
            assert_eq!(shown[index], reported(index), "{}", CLASSES[index]);
        }
        assert_eq!(
            number(&session, "samples"),
            machine.samples.values().sum::<u64>()
        );
        check_room(&snapshot, &session, tree_bytes, &names);
        // Counters of groups never fall.
        for (name, now) in &snapshot.groups().groups {
            let before = groups.groups.get(name).copied().unwrap_or_default();
            assert!(now.samples >= before.samples);
            assert!(
                now.classes
                    .iter()
                    .zip(before.classes)
                    .all(|(now, before)| *now >= before)
            );
        }
        groups = snapshot.groups().clone();
    }
}

/// `PROPTEST_CASES` asks for more cases than a test's own number.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: if asked { default.cases } else { cases },
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(config(48))]

    // Check that every ledger rule holds after every pass of a random machine, with room for
    // everything.
    #[test]
    fn ledger_holds_with_room(plans in plans()) {
        run(Limits::default(), &plans);
    }

    // Check that every ledger rule holds while the call trees are folded now and then.
    #[test]
    fn ledger_holds_with_little_room(plans in plans()) {
        let limits = Limits {
            tree_bytes: 70 * NODE_BYTES,
            exited_processes: 2,
            ..Limits::default()
        };
        run(limits, &plans);
    }

    // Check that every ledger rule holds while trees, threads, processes, segments and groups
    // overflow all the time.
    #[test]
    fn ledger_holds_without_room(plans in plans()) {
        run(tight(), &plans);
    }
}
