//! Who used the time: shares between functions that are known by construction.

use serde_json::Value;

use crate::daemon;
use crate::ledger;
use crate::reads::{self, assert_near, assert_share, function, function_rows, number, rows, text};
use crate::workload;

const SPLIT: [(&str, f64); 3] = [
    ("split_sixty", 0.6),
    ("split_thirty", 0.3),
    ("split_ten", 0.1),
];
/// Two points: the bound on shares between phases that are separated by events.
const PHASE_SHARE: f64 = 0.02;

/// The share of each function in the sum over all of them, by one value.
fn shares<const N: usize>(functions: &Value, names: [&str; N], pointer: &str) -> [f64; N] {
    let values = names.map(|name| number(function(functions, name), pointer) as f64);
    let sum: f64 = values.iter().sum();
    values.map(|value| value / sum)
}

/// On how many samples the functions of that name are, each counted by itself: the most.
fn most_samples(functions: &Value, name: &str) -> u64 {
    function_rows(functions, name)
        .iter()
        .map(|row| number(row, "/samples/inclusive"))
        .max()
        .unwrap_or(0)
}

#[test]
fn processor_time_splits_as_the_work_does() {
    // Check that 60/30/10 by counted work is found so in samples, elapsed and application time,
    // within the error of the number of walks.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let finished = workload::run("split --seconds 3");
    let process = reads::ended(daemon, &finished);
    let functions = reads::table(daemon, &finished, "functions");
    let walks = SPLIT
        .iter()
        .map(|(name, _)| number(function(&functions, name), "/samples/exclusive"))
        .sum();
    // At 999 a second for the processor time it had, less what a busy host swallowed.
    let expected_walks = (number(&finished.truth, "/user_ns") as f64 / 1e9 * 999.0) as u64;
    assert!(
        walks > expected_walks / 2,
        "{walks} samples in the split, about {expected_walks} expected"
    );
    for pointer in [
        "/samples/exclusive",
        "/elapsed/exclusive_ns",
        "/application/exclusive_ns",
    ] {
        let found = shares(&functions, SPLIT.map(|(name, _)| name), pointer);
        for ((name, expected), found) in SPLIT.into_iter().zip(found) {
            assert_share(&format!("{name} {pointer}"), found, expected, walks);
        }
    }
    let stacks = &process["stacks"];
    let [walked, complete, truncated, failed] =
        ["/walked", "/complete", "/truncated", "/failed"].map(|field| number(stacks, field));
    assert_eq!(walked, complete + truncated + failed, "{stacks}");
    // The walk goes up to the C library, which need not have frame pointers.
    let samples = number(&process, "/samples");
    for name in ["run", "main"] {
        let on_stack = most_samples(&functions, name);
        assert!(
            on_stack as f64 >= samples as f64 * 0.97,
            "{name} is on {on_stack} of {samples} stacks: {stacks}"
        );
    }
}

#[test]
fn phases_that_end_in_sleeps_get_their_time() {
    // Check that two functions that work and then sleep get the elapsed time that their own clock
    // measured, to 2 points.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let finished = workload::run("wait-split --seconds 2 --kind sleep");
    let functions = reads::table(daemon, &finished, "functions");
    let [long_ns, short_ns] = ["phase_long", "phase_short"]
        .map(|name| number(&finished.truth, &format!("/elapsed_ns/{name}")));
    let [found, _] = shares(
        &functions,
        ["phase_long", "phase_short"],
        "/elapsed/inclusive_ns",
    );
    let expected = long_ns as f64 / (long_ns + short_ns) as f64;
    assert!(
        (found - expected).abs() <= PHASE_SHARE,
        "phase_long: found {found:.4}, expected {expected:.4}"
    );
    // The sleeps are the other way round than the work: application time must follow the work.
    let [found, _] = shares(
        &functions,
        ["phase_long", "phase_short"],
        "/application/inclusive_ns",
    );
    assert!(
        (found - 0.75).abs() <= PHASE_SHARE,
        "phase_long: {found:.4} of the application time, expected 0.75"
    );
}

#[test]
fn phases_that_end_in_system_calls_get_their_time() {
    // Check that a system call between two phases is enough to tell them apart, to 2 points,
    // without any sleep.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let finished = workload::run("wait-split --seconds 2 --kind syscall");
    let functions = reads::table(daemon, &finished, "functions");
    let [long_ns, short_ns] = ["phase_long", "phase_short"]
        .map(|name| number(&finished.truth, &format!("/elapsed_ns/{name}")));
    let expected = long_ns as f64 / (long_ns + short_ns) as f64;
    let [found, _] = shares(
        &functions,
        ["phase_long", "phase_short"],
        "/elapsed/inclusive_ns",
    );
    assert!(
        (found - expected).abs() <= PHASE_SHARE,
        "phase_long: found {found:.4}, expected {expected:.4}"
    );
}

#[test]
fn recursion_counts_once() {
    // Check that a function 60 or 120 times on the stack is counted once, that the work is at the
    // bottom, and that the call tree is that deep.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    for depth in [60, 120] {
        let finished = workload::run(&format!("recursion --seconds 1 --depth {depth}"));
        let process = reads::ended(daemon, &finished);
        let functions = reads::table(daemon, &finished, "functions");
        let recurse = function(&functions, "recurse");
        let bottom = function(&functions, "recursion_bottom");
        assert!(
            number(recurse, "/samples/inclusive") <= number(&process, "/samples"),
            "more samples than there are"
        );
        assert!(
            number(recurse, "/elapsed/inclusive_ns") <= number(&process, "/elapsed_ns"),
            "more time than there is"
        );
        assert_near(
            &format!("recurse at depth {depth}"),
            number(recurse, "/elapsed/inclusive_ns"),
            number(&finished.truth, "/recursing_ns"),
            0.02,
            20_000_000,
        );
        let exclusive_ns = number(bottom, "/elapsed/exclusive_ns");
        assert!(
            exclusive_ns as f64 >= number(recurse, "/elapsed/inclusive_ns") as f64 * 0.97,
            "the work is at the bottom"
        );
        let [tree] = ledger::at_one_moment(
            daemon,
            [&format!("/processes/{}/calltree", finished.selector)],
        )
        .expect("the process has just ended");
        assert_eq!(
            deepest(&tree["root"], "recurse"),
            depth,
            "nested calls of recurse in the call tree"
        );
    }
}

/// The largest number of nodes of this function on one path.
fn deepest(node: &Value, name: &str) -> u32 {
    let own = u32::from(
        node["function"]
            .as_str()
            .is_some_and(|function| reads::is_function(function, name)),
    );
    let children: &[Value] = node["children"].as_array().map_or(&[], Vec::as_slice);
    own + children
        .iter()
        .map(|child| deepest(child, name))
        .max()
        .unwrap_or(0)
}

#[test]
fn a_signal_handler_gets_its_own_time() {
    // Check that the time of a handler is the handler's, not that of the function it interrupted.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let finished = workload::run("signal --seconds 3");
    let functions = reads::table(daemon, &finished, "functions");
    let names = ["on_alarm", "signal_main_work"];
    let walks = names
        .iter()
        .map(|name| number(function(&functions, name), "/samples/exclusive"))
        .sum();
    let expected = number(&finished.truth, "/handler_ns") as f64
        / number(&finished.truth, "/working_ns") as f64;
    let [found, _] = shares(&functions, names, "/elapsed/exclusive_ns");
    assert_share("on_alarm", found, expected, walks);
}

#[test]
fn code_without_symbols_stays_visible() {
    // Check that machine code in anonymous memory and in a mapped file without symbols keeps its
    // time under its module.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().display();
    for (kind, module) in [
        ("anonymous", "[jit]".to_owned()),
        ("file", format!("{path}/workload-mapped-")),
    ] {
        let finished = workload::run(&format!("jit --seconds 1 --kind {kind} --path {path}"));
        let process = reads::ended(daemon, &finished);
        let modules = reads::table(daemon, &finished, "modules");
        let found = rows(&modules)
            .iter()
            .find(|row| text(row, "/module").starts_with(&module));
        let row = found.unwrap_or_else(|| panic!("no module {module}: {modules}"));
        let share = number(row, "/samples/exclusive") as f64 / number(&process, "/samples") as f64;
        assert!(share > 0.9, "{module}: {share:.3} of the samples");
        let functions = reads::table(daemon, &finished, "functions");
        assert_eq!(
            function_rows(&functions, "call_unknown_code").len(),
            1,
            "its caller is on the stack"
        );
    }
}

#[test]
fn a_deleted_program_keeps_its_names() {
    // Check that a running program whose file was deleted is still named.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let finished = workload::run(&format!(
        "deleted --seconds 2 --path {}",
        directory.path().display()
    ));
    let process = reads::ended(daemon, &finished);
    let functions = reads::table(daemon, &finished, "functions");
    let row = function(&functions, "deleted_work");
    // It is a copy, and what has one build ID is one module, under the path that was seen first.
    let module = text(row, "/module");
    assert!(
        module.contains("workload-deleted-") || module == workload::exe().to_string_lossy(),
        "the module has a path of that program: {row}"
    );
    let share = number(row, "/samples/exclusive") as f64 / number(&process, "/samples") as f64;
    assert!(share > 0.9, "deleted_work: {share:.3} of the samples");
}
