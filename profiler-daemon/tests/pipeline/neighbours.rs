//! Callers, callees and folded modules against the definition, computed stack by stack.

use std::collections::BTreeMap;

use profiler_common::ClassNs;
use profiler_daemon::{
    profile::{
        input::ThreadState,
        limits::Limits,
        snapshot::Snapshot,
        values::{add_classes, sum},
    },
    report::{
        self, CalledFrom, Fold, FunctionRow, NeighbourQuery, ProcessSelector, ReportError, Scope,
        TableQuery, TreeQuery,
    },
};
use proptest::prelude::*;
use serde_json::Value;

use crate::measured;
use crate::small::{self, ByName, PROCESS, Small, THREAD, ran_and_waited};

const NAMES: [&str; 6] = ["a", "b", "lib:c", "d", "lib:e", "f"];
const SCOPE: Scope = Scope::Process(ProcessSelector {
    pid: 42,
    start_ticks: None,
});

/// Functions from the outermost on, samples, nanoseconds of waiting.
type Stack = (Vec<usize>, u64, u64);
/// By function: inclusive and exclusive samples, elapsed and application time.
type Sums = BTreeMap<String, [u64; 6]>;

fn stacks() -> impl Strategy<Value = Vec<Stack>> {
    let stack = (
        prop::collection::vec(0..NAMES.len(), 1..8),
        0..5u64,
        1..1000u64,
    );
    prop::collection::vec(stack, 1..40)
}

fn profile(stacks: &[Stack]) -> (Snapshot, ByName) {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(10);
    let mut classes = ClassNs::default();
    for (path, samples, ns) in stacks {
        let path: Vec<&str> = path.iter().map(|index| NAMES[*index]).collect();
        let time = ran_and_waited(*samples, *ns);
        pass.stacks.push(small.delta(&path, &[], *samples, time));
        add_classes(&mut classes, &time);
    }
    pass.processes.push(small::info(PROCESS));
    pass.threads.push(small::thread(
        PROCESS,
        THREAD,
        ThreadState::Running,
        classes,
    ));
    small.profile.apply(pass);
    (small.profile.snapshot(), small.names)
}

fn plain(index: usize) -> String {
    NAMES[index].trim_start_matches("lib:").to_owned()
}

fn add(sums: &mut Sums, name: String, stack: &Stack, is_innermost: bool) {
    let sums = sums.entry(name).or_default();
    let (samples, time) = (stack.1, ran_and_waited(stack.1, stack.2));
    sums[0] += samples;
    sums[2] += sum(&time);
    sums[4] += time[0];
    if is_innermost {
        sums[1] += samples;
        sums[3] += sum(&time);
        sums[5] += time[0];
    }
}

fn found(rows: &[FunctionRow]) -> Sums {
    let values = |row: &FunctionRow| {
        let v = &row.values;
        [
            v.samples.inclusive,
            v.samples.exclusive,
            v.elapsed.inclusive_ns,
            v.elapsed.exclusive_ns,
            v.application.inclusive_ns,
            v.application.exclusive_ns,
        ]
    };
    rows.iter()
        .map(|row| (row.function.clone(), values(row)))
        .filter(|(_, values)| *values != [0; 6])
        .collect()
}

fn all() -> TableQuery {
    TableQuery::default()
}

fn hide() -> Fold {
    Fold {
        hide: vec!["lib*".to_owned()],
        ..Fold::default()
    }
}

proptest! {
    #![proptest_config(crate::ledger::config(256))]
    // Check that callers are those of the outermost call, callees those of the innermost, whatever
    // recursion there is, and that their sums are what the function itself has.
    #[test]
    fn neighbours_equal_the_definition(stacks in stacks(), target in 0..NAMES.len()) {
        let (snapshot, names) = profile(&stacks);
        let (mut callers, mut callees) = (Sums::new(), Sums::new());
        for stack in &stacks {
            let path = &stack.0;
            let last = path.len() - 1;
            if let Some(at) = path.iter().position(|index| *index == target) {
                let caller = if at == 0 { "[no caller]".to_owned() } else { plain(path[at - 1]) };
                add(&mut callers, caller, stack, path[last] == target);
            }
            if let Some(at) = path.iter().rposition(|index| *index == target) && at < last {
                add(&mut callees, plain(path[at + 1]), stack, at + 1 == last);
            }
        }
        let query = NeighbourQuery { function: plain(target), table: all(), ..NeighbourQuery::default() };
        let found_callers = report::callers(&snapshot, &SCOPE, &query, &names);
        let found_callees = report::callees(&snapshot, &SCOPE, &query, &names);
        if callers.is_empty() {
            let refused = matches!(found_callers, Err(ReportError::UnknownFunction { .. }));
            prop_assert!(refused);
            return Ok(());
        }
        let (found_callers, found_callees) = (found_callers.unwrap(), found_callees.unwrap());
        prop_assert_eq!(found(&found_callers.list.rows), callers);
        prop_assert_eq!(found(&found_callees.list.rows), callees.clone());
        let of = &found(&found_callers.of)[&plain(target)];
        let sum = |sums: Sums, column: usize| sums.values().map(|v| v[column]).sum::<u64>();
        let rows = || found(&found_callers.list.rows);
        for (column, own) in of.iter().enumerate() {
            prop_assert_eq!(sum(rows(), column), *own);
        }
        prop_assert_eq!(sum(callees.clone(), 2) + of[3], of[2]);
        prop_assert_eq!(sum(callees, 4) + of[5], of[4]);
    }

    // Check that functions of hidden modules count for their callers, and nothing else changes.
    #[test]
    fn folding_equals_the_definition(stacks in stacks()) {
        let (snapshot, names) = profile(&stacks);
        let mut functions = Sums::new();
        for stack in &stacks {
            let mut shown: Vec<String> = stack.0.iter().filter(|index| !NAMES[**index].starts_with("lib:")).map(|index| plain(*index)).collect();
            if shown.is_empty() {
                shown.push("[hidden]".to_owned());
            }
            let innermost = shown[shown.len() - 1].clone();
            shown.sort();
            shown.dedup();
            for name in shown {
                let is_innermost = name == innermost;
                add(&mut functions, name, stack, is_innermost);
            }
        }
        let only = Fold { modules: vec!["app".to_owned()], ..Fold::default() };
        // The library may be on no stack at all: then it is still a module of the session.
        for fold in [hide(), only] {
            let query = TableQuery { fold: fold.clone(), ..all() };
            let answer = report::functions(&snapshot, &SCOPE, &query, &names).unwrap();
            prop_assert_eq!(found(&answer.rows), functions.clone());
            let tree = TreeQuery { fold, ..TreeQuery::default() };
            let folded = report::calltree(&snapshot, &SCOPE, &tree, &names).unwrap();
            let whole = report::calltree(&snapshot, &SCOPE, &TreeQuery::default(), &names).unwrap();
            prop_assert_eq!(folded.root.values.elapsed.inclusive_ns, whole.root.values.elapsed.inclusive_ns);
            prop_assert_eq!(folded.root.values.samples.inclusive, whole.root.values.samples.inclusive);
        }
    }
}

// Check that a name that is none is refused with those that hold it, and a module that is none with
// its parameter.
#[test]
fn refusals() {
    let (snapshot, names) = profile(&[(vec![0, 1], 1, 1)]);
    let mut query = NeighbourQuery {
        function: "B".to_owned(),
        table: all(),
        ..NeighbourQuery::default()
    };
    let refused = report::callers(&snapshot, &SCOPE, &query, &names);
    let similar = vec!["b".to_owned()];
    let given = "B".to_owned();
    assert_eq!(
        refused.err(),
        Some(ReportError::UnknownFunction { given, similar })
    );
    query.function = "b".to_owned();
    query.module = Some("lib.so.1".to_owned());
    assert!(report::callees(&snapshot, &SCOPE, &query, &names).is_err());
    query.module = Some("app".to_owned());
    assert!(report::callees(&snapshot, &SCOPE, &query, &names).is_ok());
    query.table.fold.hide = vec!["libx".to_owned()];
    let refused = report::callees(&snapshot, &SCOPE, &query, &names);
    assert_eq!(
        refused.err(),
        Some(ReportError::UnknownModule {
            parameter: "hide",
            given: "libx".to_owned()
        })
    );
}

// Check that every column of a CSV header is a field of the JSON, and every value of the JSON has a
// column.
#[test]
fn csv_columns_are_the_fields() {
    fn leaves(prefix: &str, value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let path = if prefix.is_empty() {
                        name.clone()
                    } else {
                        format!("{prefix}.{name}")
                    };
                    leaves(&path, value, found);
                }
            }
            // A column has one value.
            Value::Array(_) => {}
            _ => found.push(prefix.to_owned()),
        }
    }
    fn check<R: report::Columns + serde::Serialize>(rows: &[R], sometimes: &[&str]) {
        let mut fields = Vec::new();
        leaves("", &serde_json::to_value(&rows[0]).unwrap(), &mut fields);
        fields.extend(sometimes.iter().map(|name| (*name).to_owned()));
        let mut columns: Vec<_> = R::COLUMNS.to_vec();
        fields.sort();
        columns.sort_unstable();
        assert_eq!(columns, fields);
    }
    let (snapshot, names) = profile(&[(vec![0, 1], 1, 1)]);
    let query = all();
    let mut functions = measured::rows();
    functions[0].called_from = Some(CalledFrom {
        function: "f".to_owned(),
        module: "m".to_owned(),
        percent: 1.0,
    });
    check(&functions, &[]);
    check(
        &report::modules(&snapshot, &SCOPE, &query, &names)
            .unwrap()
            .rows,
        &[],
    );
    check(
        &report::threads(&snapshot, &SCOPE, &query, &names)
            .unwrap()
            .rows,
        // What is measured has no interval, and rests on no marks.
        &[
            "application.exclusive_high_ns",
            "application.exclusive_low_ns",
            "application.inclusive_high_ns",
            "application.inclusive_low_ns",
            "elapsed.exclusive_high_ns",
            "elapsed.exclusive_low_ns",
            "elapsed.inclusive_high_ns",
            "elapsed.inclusive_low_ns",
            "marks.gaps",
            "marks.ticks",
            "marks.waits",
        ],
    );
    let query = report::DiffQuery::default();
    check(&report::diff(&snapshot, &query, &names).unwrap().rows, &[]);
    let query = all();
    let processes = report::processes(&snapshot, &query, &names).unwrap();
    check(
        &processes.rows,
        &["application_high_ns", "application_low_ns", "command_line"],
    );
}
