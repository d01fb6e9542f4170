//! What must hold in one answer: its rows against each other, and against its totals.

use serde::Serialize;
use serde_json::Value;

use crate::class_names::CLASSES;

const GROUPS: [(&str, &str); 3] = [("samples", ""), ("elapsed", "_ns"), ("application", "_ns")];

pub(crate) fn json(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap()
}

pub(crate) fn number(value: &Value, path: &str) -> u64 {
    let found = path.split('.').fold(value, |value, name| &value[name]);
    found
        .as_u64()
        .unwrap_or_else(|| panic!("{path} is a count in {value}"))
}

pub(crate) fn rows(list: &Value) -> &Vec<Value> {
    list["rows"].as_array().unwrap()
}

pub(crate) fn sum(list: &Value, path: &str) -> u64 {
    rows(list).iter().map(|row| number(row, path)).sum()
}

pub(crate) fn of_classes(value: &Value) -> u64 {
    CLASSES.iter().map(|class| number(value, class)).sum()
}

pub(crate) fn classes(value: &Value) -> u64 {
    of_classes(&value["classes"])
}

/// Totals of what the rows are about.
pub(crate) struct Total {
    samples: u64,
    pub(crate) elapsed_ns: u64,
    application_ns: u64,
    fault_ns: u64,
    estimated_ns: u64,
    not_sampled_ns: u64,
    /// All that may be application time: user mode or not, and of system calls what was not
    /// measured.
    user_at_most_ns: u64,
}

impl Total {
    pub(crate) fn of(value: &Value) -> Self {
        let total = Self {
            samples: number(value, "samples"),
            elapsed_ns: number(value, "elapsed_ns"),
            application_ns: number(value, "application_ns"),
            fault_ns: number(value, "fault_ns"),
            estimated_ns: number(value, "estimated_ns"),
            not_sampled_ns: of_classes(&value["not_sampled"]),
            user_at_most_ns: number(value, "classes.user_ns") + number(value, "estimated_ns"),
        };
        assert_eq!(classes(value), total.elapsed_ns, "classes sum to elapsed");
        let user_ns = number(value, "classes.user_ns");
        assert_eq!(total.application_ns + total.fault_ns, user_ns);
        if let Some(low_ns) = value["application_low_ns"].as_u64() {
            let high_ns = number(value, "application_high_ns");
            let known = low_ns..=high_ns;
            assert!(known.contains(&total.application_ns), "{value}");
        }
        total
    }

    fn at_most(&self, group: &str) -> u64 {
        match group {
            "elapsed" => self.elapsed_ns,
            _ => self.user_at_most_ns,
        }
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
    for (group, kind) in [
        ("elapsed", "inclusive"),
        ("elapsed", "exclusive"),
        ("application", "inclusive"),
        ("application", "exclusive"),
    ] {
        let value_ns = number(&row[group], &format!("{kind}_ns"));
        let end = |name: &str| row[group][format!("{kind}_{name}_ns")].as_u64();
        let (low_ns, high_ns) = (end("low"), end("high"));
        assert_eq!(low_ns.is_some(), high_ns.is_some());
        assert_eq!(low_ns.is_some(), row["marks"].is_object());
        if let (Some(low_ns), Some(high_ns)) = (low_ns, high_ns) {
            assert!((low_ns..=high_ns).contains(&value_ns), "{group}: {row}");
            assert!(high_ns <= total.at_most(group), "{group}: {row}");
        }
    }
    let user_ns = number(row, "application.inclusive_ns") + number(row, "fault_ns");
    assert!(user_ns <= number(row, "elapsed.inclusive_ns"), "{row}");
    assert!(number(row, "estimated_ns") <= number(row, "elapsed.inclusive_ns"));
    for kind in ["inclusive_ns", "exclusive_ns"] {
        assert!(
            number(&row["application"], kind) <= number(&row["elapsed"], kind),
            "application <= elapsed: {row}"
        );
    }
}

/// Rule 3, and rule 5 on every row.
pub(crate) fn check_table(list: &Value, total: &Total) {
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
    assert_eq!(sum(list, "application.exclusive_ns"), total.application_ns);
    rows(list).iter().for_each(|row| check_row(row, total));
}

/// What has no function is what no row of user functions has, and what is in rows of no function.
fn check_verdict(list: &Value, total: &Total) {
    let of_no_function = rows(list).iter().filter(|row| {
        let name = row["function"].as_str().unwrap();
        ["[not sampled]", "[folded]", "[dropped]"].contains(&name) || name.starts_with("[unknown: ")
    });
    let unknown_ns = of_no_function.map(|row| number(row, "elapsed.exclusive_ns"));
    let unknown_ns: u64 = unknown_ns.sum();
    assert_eq!(number(list, "completeness.elapsed_unknown_ns"), unknown_ns);
    let lacking_ns = unknown_ns + number(list, "completeness.elapsed_unattributed_ns");
    let percent = list["completeness"]["elapsed_attributed_percent"].as_f64();
    let has_function = 1.0 - lacking_ns as f64 / (total.elapsed_ns.max(1)) as f64;
    assert!((percent.unwrap() / 100.0 - has_function).abs() < 1e-9);
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

pub(crate) fn check_tree(tree: &Value, total: &Total) {
    check_node(&tree["root"], total);
    let missing_ns = number(tree, "completeness.elapsed_unattributed_ns");
    assert_eq!(
        number(&tree["root"], "elapsed.inclusive_ns") + missing_ns,
        total.elapsed_ns
    );
    assert_eq!(number(&tree["root"], "samples.inclusive"), total.samples);
    assert_eq!(
        number(&tree["root"], "application.inclusive_ns"),
        total.application_ns
    );
    assert_eq!(number(&tree["root"], "fault_ns"), total.fault_ns);
    assert_eq!(number(&tree["root"], "estimated_ns"), total.estimated_ns);
    let is_cut = number(tree, "cut_nodes") > 0;
    assert_eq!(tree["truncated"].as_bool().unwrap(), is_cut);
    if !is_cut {
        let without_callers_ns = time_without_callers(&tree["root"], false);
        assert_eq!(
            cause(tree, "callers_folded_ns"),
            without_callers_ns,
            "{tree}"
        );
    }
}

/// What a cause of an answer's receipt counts.
pub(crate) fn cause(answer: &Value, name: &str) -> u64 {
    answer["completeness"]["causes"][name].as_u64().unwrap_or(0)
}

/// The time of functions in a tree that are below what was folded.
fn time_without_callers(node: &Value, below: bool) -> u64 {
    let is_folded = ["[folded]", "[unknown: folded]"].contains(&node["function"].as_str().unwrap());
    let own_ns = if below && !is_folded {
        number(node, "elapsed.exclusive_ns")
    } else {
        0
    };
    let children = node["children"].as_array().into_iter().flatten();
    children.fold(own_ns, |sum, child| {
        sum + time_without_callers(child, below || is_folded)
    })
}

/// Rule 1 on every thread, and rule 2: the process is the sum of its threads.
pub(crate) fn check_threads(list: &Value, total: &Total) {
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

/// Both tables of functions, with user frames and with all: what has no mark has a row, what was
/// folded is in the receipt, and rows of user functions are the same in both.
pub(crate) fn check_functions([user, all]: &[Value; 2], total: &Total) {
    check_verdict(user, total);
    for list in [user, all] {
        check_table(list, total);
        let of_name = |name: &str| -> u64 {
            let named = rows(list).iter().filter(|row| row["function"] == name);
            named.map(|row| number(row, "elapsed.exclusive_ns")).sum()
        };
        assert_eq!(of_name("[not sampled]"), total.not_sampled_ns);
        let of_kernel = rows(list).iter().filter(|row| row["module"] == "[kernel]");
        let user_ns: u64 = of_kernel
            .map(|row| number(row, "application.inclusive_ns"))
            .sum();
        assert_eq!(user_ns, 0, "the kernel has no application time");
    }
    let folded_ns: u64 = rows(all)
        .iter()
        .filter(|row| row["function"].as_str().unwrap().contains("folded]"))
        .map(|row| number(row, "elapsed.exclusive_ns"))
        .sum();
    for list in [user, all] {
        assert_eq!(cause(list, "folded_ns"), folded_ns, "rows and receipt");
    }
    let inclusive = |list: &Value| -> Vec<Value> {
        let of_user = |row: &&Value| {
            let name = row["function"].as_str().unwrap();
            row["module"] != "[kernel]" && !name.starts_with('[')
        };
        let mut shown: Vec<Value> = rows(list)
            .iter()
            .filter(of_user)
            .map(|row| {
                let field = |path: &str| number(row, path);
                serde_json::json!([
                    row["module"],
                    row["function"],
                    row["marks"],
                    field("samples.inclusive"),
                    field("elapsed.inclusive_ns"),
                    field("elapsed.inclusive_low_ns"),
                    field("elapsed.inclusive_high_ns"),
                    field("application.inclusive_ns"),
                    field("application.exclusive_ns"),
                    field("fault_ns"),
                    field("estimated_ns"),
                ])
            })
            .collect();
        shown.sort_by_key(Value::to_string);
        shown
    };
    assert_eq!(inclusive(user), inclusive(all), "the same in both views");
}
