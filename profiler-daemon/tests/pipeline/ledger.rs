//! The ledger, checked from outside: on JSON answers only.

use profiler_daemon::{
    profile::{Profile, budget::NODE_BYTES, limits::Limits, snapshot::Snapshot, tree::Place},
    report::names::Names,
    report::{
        self, Frames, ProcessSelector, ReportError, Scope, TableQuery, TreeQuery, ViewQuery, Window,
    },
};
use proptest::prelude::*;
use serde::Serialize;
use serde_json::Value;

use crate::{
    machine::{ByOffset, Machine, PassPlan, SECOND_NS, START_NS, START_UNIX_NS, plans},
    sessions, timeline,
};

const CLASSES: [&str; 5] = [
    "user_ns",
    "syscall_ns",
    "blocked_ns",
    "runnable_ns",
    "kernel_ns",
];
const GROUPS: [(&str, &str); 3] = [("samples", ""), ("elapsed", "_ns"), ("application", "_ns")];

fn json(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap()
}

fn number(value: &Value, path: &str) -> u64 {
    let found = path.split('.').fold(value, |value, name| &value[name]);
    found
        .as_u64()
        .unwrap_or_else(|| panic!("{path} is a count in {value}"))
}

fn rows(list: &Value) -> &Vec<Value> {
    list["rows"].as_array().unwrap()
}

fn sum(list: &Value, path: &str) -> u64 {
    rows(list).iter().map(|row| number(row, path)).sum()
}

fn classes(value: &Value) -> u64 {
    CLASSES
        .iter()
        .map(|class| number(&value["classes"], class))
        .sum()
}

/// Totals of what the rows are about.
struct Total {
    samples: u64,
    elapsed_ns: u64,
    application_ns: u64,
}

impl Total {
    fn of(value: &Value) -> Self {
        let total = Self {
            samples: number(value, "samples"),
            elapsed_ns: number(value, "elapsed_ns"),
            application_ns: number(value, "application_ns"),
        };
        assert_eq!(classes(value), total.elapsed_ns, "classes sum to elapsed");
        total
    }

    fn get(&self, group: &str) -> u64 {
        match group {
            "samples" => self.samples,
            "elapsed" => self.elapsed_ns,
            _ => self.application_ns,
        }
    }
}

/// Rule 5, and that every percentage is one.
fn check_row(row: &Value, total: &Total) {
    for (group, unit) in GROUPS {
        let (inclusive, exclusive) = (
            format!("{group}.inclusive{unit}"),
            format!("{group}.exclusive{unit}"),
        );
        assert!(
            number(row, &exclusive) <= number(row, &inclusive),
            "exclusive <= inclusive: {row}"
        );
        assert!(
            number(row, &inclusive) <= total.get(group),
            "inclusive <= total: {row}"
        );
        for (name, value) in row[group].as_object().unwrap() {
            if name.contains("percent") {
                assert!(
                    (0.0..=100.0 + 1e-9).contains(&value.as_f64().unwrap()),
                    "{name} in {row}"
                );
            }
        }
    }
    for kind in ["inclusive_ns", "exclusive_ns"] {
        assert!(
            number(&row["application"], kind) <= number(&row["elapsed"], kind),
            "application <= elapsed: {row}"
        );
    }
}

/// Rule 3, and rule 5 on every row.
fn check_table(list: &Value, total: &Total) {
    let missing_ns = number(list, "completeness.elapsed_unattributed_ns");
    assert_eq!(
        sum(list, "elapsed.exclusive_ns") + missing_ns,
        total.elapsed_ns,
        "rows + missing = elapsed"
    );
    assert_eq!(
        sum(list, "samples.exclusive"),
        total.samples,
        "every sample has a row"
    );
    assert!(sum(list, "application.exclusive_ns") <= total.application_ns);
    assert!(total.application_ns - sum(list, "application.exclusive_ns") <= missing_ns);
    rows(list).iter().for_each(|row| check_row(row, total));
}

/// Rule 4 on every node.
fn check_node(node: &Value, total: &Total) {
    check_row(node, total);
    let children = node["children"].as_array().unwrap();
    for (group, unit) in GROUPS {
        let (inclusive, exclusive) = (
            format!("{group}.inclusive{unit}"),
            format!("{group}.exclusive{unit}"),
        );
        let below: u64 = children.iter().map(|child| number(child, &inclusive)).sum();
        assert_eq!(
            number(node, &inclusive),
            number(node, &exclusive) + below,
            "{group} of {node}"
        );
    }
    children.iter().for_each(|child| check_node(child, total));
}

fn check_tree(tree: &Value, total: &Total) {
    check_node(&tree["root"], total);
    let missing_ns = number(tree, "completeness.elapsed_unattributed_ns");
    assert_eq!(
        number(&tree["root"], "elapsed.inclusive_ns") + missing_ns,
        total.elapsed_ns
    );
    assert_eq!(number(&tree["root"], "samples.inclusive"), total.samples);
    assert_eq!(
        tree["truncated"].as_bool().unwrap(),
        number(tree, "cut_nodes") > 0
    );
}

/// Rule 1 on every thread, and rule 2: the process is the sum of its threads.
fn check_threads(list: &Value, total: &Total) {
    for row in rows(list) {
        let life_ns = number(row, "last_event_ns")
            - number(row, "first_event_ns")
            - number(row, "unobserved_ns");
        assert_eq!(classes(row), life_ns, "rule 1: {row}");
        assert_eq!(number(row, "elapsed.inclusive_ns"), life_ns);
        check_row(row, total);
    }
    assert_eq!(
        sum(list, "elapsed.inclusive_ns"),
        total.elapsed_ns,
        "rule 2: threads"
    );
    assert_eq!(sum(list, "samples.inclusive"), total.samples);
    assert_eq!(sum(list, "application.inclusive_ns"), total.application_ns);
}

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
    for frames in [Frames::User, Frames::All] {
        let query = table(frames);
        check_table(
            &json(&report::functions(snapshot, scope, &query, names).unwrap()),
            total,
        );
        check_table(
            &json(&report::modules(snapshot, scope, &query, names).unwrap()),
            total,
        );
        for (depth, min_percent) in [(None, 0.0), (Some(1), 0.0), (None, 20.0)] {
            let query = TreeQuery {
                depth,
                min_percent,
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
        &json(&report::threads(snapshot, scope, &table(Frames::User), names).unwrap()),
        total,
    );
    let query = ViewQuery {
        frames: Frames::User,
        window,
    };
    let events = json(&report::os_events(snapshot, scope, &query, names).unwrap());
    assert_eq!(classes(&events), total.elapsed_ns);
}

/// The session counts those processes and threads that have rows, and over the whole session those whose rows are gone.
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
    assert_eq!(
        number(session, "processes"),
        number(processes, "total_rows") + retired("processes").unwrap_or_default(),
    );
    let of_rows = rows(&list).iter().map(|row| {
        let is_known = number(row, "tid") > 0 || window == Window::Session;
        assert_eq!(row["threads"].is_u64(), is_known, "{row}");
        row["threads"].as_u64().unwrap_or_default()
    });
    assert_eq!(number(session, "threads"), of_rows.sum::<u64>());
    assert_eq!(
        number(session, "threads"),
        sum(processes, "threads") + retired("threads").unwrap_or_default(),
    );
}

/// Every rule, on every answer, for one window.
pub(crate) fn check_all(snapshot: &Snapshot, window: Window, names: &dyn Names) {
    let query = ViewQuery {
        frames: Frames::User,
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
    for field in ["samples", "elapsed_ns", "application_ns"] {
        let retired = number(&session["retired"], field);
        assert_eq!(
            sum(&processes, field) + retired,
            number(&session, field),
            "rule 2: processes, {field}"
        );
    }
    check_counts(snapshot, &session, &processes, (window, names));
    if window == Window::Session {
        timeline::check(snapshot, Window::Kept, names);
    } else {
        timeline::check(snapshot, window, names);
    }
    for row in rows(&processes) {
        let selector = ProcessSelector {
            pid: number(row, "pid") as u32,
            start_ticks: Some(number(row, "start_ticks")),
        };
        let process = json(&report::process(snapshot, &selector, &query, names).unwrap());
        for field in ["samples", "elapsed_ns", "classes", "stacks", "threads"] {
            assert_eq!(process[field], row[field]);
        }
        let stacks = &row["stacks"];
        let ends: u64 = ["complete", "truncated", "failed"]
            .iter()
            .map(|end| number(stacks, end))
            .sum();
        assert_eq!(number(stacks, "walked"), ends);
        check_scope(
            snapshot,
            &Scope::Process(selector),
            window,
            names,
            &Total::of(row),
        );
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

/// The trees stay within their bytes but for the rows of lost stacks, and what was folded is in the receipt.
fn check_room(snapshot: &Snapshot, session: &Value, tree_bytes: usize, names: &dyn Names) {
    let retired = snapshot.retired();
    let kept = snapshot.processes().values().map(|view| &view.account);
    let lost = kept
        .chain([&retired.user, &retired.kernel])
        .flat_map(|account| account.nodes().iter().skip(1))
        .filter(|node| matches!(node.place, Place::Lost(_)))
        .count();
    assert!(
        snapshot.stack_bytes() <= (tree_bytes + lost * NODE_BYTES) as u64,
        "{} bytes, {lost} rows of lost stacks",
        snapshot.stack_bytes()
    );
    let cause = |name: &str| {
        session["completeness"]["causes"][name]
            .as_u64()
            .unwrap_or(0)
    };
    let query = TableQuery {
        frames: Frames::All,
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
    let counted = ["retired", "exited", "living"].map(|of| cause(&format!("folded_{of}_ns")));
    // A dropped process's remainder that finds no room among the dropped is cut there.
    let cut_ns = named("[dropped]") + named("tree_full]");
    assert!(
        counted.iter().sum::<u64>() <= folded_ns + cut_ns,
        "counted {counted:?}, shown {folded_ns} and {cut_ns}"
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
                    frames: Frames::User,
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
        // Nothing is lost by dropping, cutting and folding: the session is what the machine reported.
        let session = json(&report::session(&snapshot, &ViewQuery::default(), &names).unwrap());
        for (index, class) in CLASSES.iter().enumerate() {
            let reported: u64 = machine
                .reported
                .values()
                .map(|classes| classes[index])
                .sum();
            assert_eq!(number(&session["classes"], class), reported, "{class}");
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

    // Check that every ledger rule holds after every pass of a random machine, with room for everything.
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

    // Check that every ledger rule holds while trees, threads, processes, segments and groups overflow all the time.
    #[test]
    fn ledger_holds_without_room(plans in plans()) {
        run(tight(), &plans);
    }
}
