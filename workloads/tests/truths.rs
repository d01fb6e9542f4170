//! The programs by themselves: what they print must be true before a profiler can be measured by
//! it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

fn workload(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_workload"));
    command.args(arguments.split(' ')).stdin(Stdio::null());
    command
}

fn truth(arguments: &str) -> Value {
    let output = workload(arguments)
        .output()
        .expect("the workload can be executed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "workload {arguments}: {} {errors}",
        output.status
    );
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("workload {arguments}: {error}"))
}

fn number(truth: &Value, key: &str) -> u64 {
    truth[key]
        .as_u64()
        .unwrap_or_else(|| panic!("no {key} in {truth}"))
}

#[test]
fn a_program_lasts_as_long_as_it_says() {
    // Check that a program told to work for a time does so, and uses no more processor time than
    // there was.
    for program in ["split", "signal", "recursion", "comm"] {
        let truth = truth(&format!("{program} --seconds 0.5"));
        let wall_ns = number(&truth, "wall_ns");
        assert!(wall_ns >= 500_000_000, "{program}: {wall_ns} ns");
        assert!(
            number(&truth, "user_ns") + number(&truth, "system_ns") <= wall_ns + 20_000_000,
            "{truth}"
        );
    }
}

#[test]
fn the_times_of_the_functions_are_those_of_the_program() {
    // Check that a program with one thread that times its own functions misses next to nothing of
    // its own wall time, and claims no more than there was; and no more user code than the kernel
    // charged.
    for program in [
        "nothing",
        "plain",
        "turns",
        "depths",
        "exactly",
        "bucket",
        "frames",
        "server",
        "restarts",
        "sigreturns",
        "minor-faults",
        "leaves",
    ] {
        let truth = truth(&format!("{program} --seconds 0.5"));
        let functions = truth["functions"]
            .as_object()
            .unwrap_or_else(|| panic!("no functions in {truth}"));
        let sum = |key: &str| -> u64 {
            functions
                .values()
                .map(|function| number(function, key))
                .sum()
        };
        let (elapsed_ns, wall_ns) = (sum("elapsed_ns"), number(&truth, "wall_ns"));
        assert!(
            elapsed_ns <= wall_ns && elapsed_ns >= 400_000_000,
            "{program}: {elapsed_ns} of {wall_ns} ns"
        );
        let running_ns = number(&truth, "user_ns") + number(&truth, "system_ns");
        assert!(
            sum("application_ns") <= running_ns + running_ns / 10 + 20_000_000,
            "{truth}"
        );
    }
}

#[test]
fn children_tell_their_parent_what_they_did() {
    // Check that processes that are executed, killed, stopped or end in a call of their own are in
    // the truth of their parent.
    for (program, names) in [
        ("small-processes --count 10", vec!["dawn", "dusk"]),
        (
            "small-processes --count 4 --kind mixed",
            vec!["morning", "evening"],
        ),
        ("leavers --count 3", vec!["touch_all", "turn_into", "leave"]),
        ("killed --count 3", vec!["doomed_call", "doomed_code"]),
        ("stops --seconds 0.2", vec!["trudge", "doze"]),
    ] {
        let truth = truth(program);
        for name in names {
            let function = &truth["functions"][name];
            assert!(
                number(function, "elapsed_ns") > 1_000_000,
                "{program}: {truth}"
            );
        }
        assert_eq!(truth["scope"], "session", "{program}");
    }
}

#[test]
fn waiters_wait_while_the_gate_is_held() {
    // Check that each waiter waited about as long as the holder held, so that one is the answer for
    // the other.
    let truth = truth("contention --millis 10 --count 20");
    let held_ns = number(&truth, "held_ns");
    assert!(held_ns >= 200_000_000, "20 sleeps of 10 ms: {held_ns}");
    for waiter in truth["threads"]
        .as_array()
        .expect("the truth lists its threads")
    {
        let waited_ns = number(waiter, "waited_ns");
        assert!(
            waited_ns.abs_diff(held_ns) < held_ns / 4,
            "{waiter} while held {held_ns}"
        );
    }
}

#[test]
fn an_exec_carries_the_truth_of_the_first_half() {
    // Check that the program after an exec, from either thread, knows what was used before it and
    // is the same process.
    for kind in ["leader", "thread"] {
        let truth = truth(&format!("exec --millis 50 --kind {kind}"));
        let before_ns = number(&truth["before"], "before_cpu_ns");
        assert!(
            before_ns >= 40_000_000,
            "{kind}: {before_ns} ns before the exec"
        );
        assert!(
            number(&truth, "user_ns") + number(&truth, "system_ns") > before_ns,
            "{kind}: usage goes on: {truth}"
        );
        assert!(
            number(&truth, "whole_wall_ns") > number(&truth, "wall_ns"),
            "{kind}: {truth}"
        );
    }
}

#[test]
fn children_are_what_their_parent_waited_for() {
    // Check that executed, forked and vanishing children are as many as asked for, each another
    // process.
    for (program, count) in [
        ("children --count 10 --millis 5", 10),
        ("vanish --count 20", 20),
    ] {
        let truth = truth(program);
        let mut pids: Vec<_> = truth["child_pids"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_u64)
            .collect();
        pids.sort_unstable();
        pids.dedup();
        assert_eq!(pids.len(), count, "{program}: {truth}");
    }
    let truth = truth("fork --millis 50");
    assert!(number(&truth, "waited_ns") >= 40_000_000, "{truth}");
}

#[test]
fn code_of_its_own_making_runs() {
    // Check that the machine code that belongs to no symbol table runs from anonymous memory and
    // from a file.
    if cfg!(target_arch = "x86_64") {
        let directory = std::env::temp_dir();
        for kind in ["anonymous", "file"] {
            let truth = truth(&format!(
                "jit --seconds 0.1 --kind {kind} --path {}",
                directory.display()
            ));
            assert!(number(&truth, "calls") > 0, "{truth}");
            if let Some(path) = truth["mapped"].as_str() {
                std::fs::remove_file(path).expect("the program wrote this file");
            }
        }
    }
}

#[test]
fn a_sleeper_sleeps_until_it_is_told() {
    // Check that the sleeper's threads are asleep, by the kernel's word, when it says so, and that
    // a line ends it.
    let mut child = workload("sleeper")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the workload can be executed");
    let mut lines = BufReader::new(child.stdout.take().expect("the output is a pipe")).lines();
    let line = lines
        .next()
        .expect("a ready line")
        .expect("the line is text");
    let ready: Value = serde_json::from_str(&line).expect("the line is JSON");
    let threads = ready["facts"]["threads"]
        .as_array()
        .expect("the sleeper lists its threads");
    assert_eq!(threads.len(), 4);
    for thread in threads {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/task/{}/stat", child.id(), thread["tid"]));
        let stat = stat.expect("the thread is alive");
        let state = stat.rsplit_once(") ").map(|(_, rest)| &rest[..1]);
        assert_eq!(state, Some("S"), "{thread}");
    }
    child
        .stdin
        .take()
        .expect("the input is a pipe")
        .write_all(b"\n")
        .expect("the sleeper reads its input");
    assert!(
        child
            .wait()
            .expect("the workload is a child of this process")
            .success()
    );
}

#[test]
fn what_is_unknown_is_refused() {
    // Check that an unknown program or option ends with a sentence and not with a default.
    for arguments in ["no-such-program", "split --second 1", "split --seconds x"] {
        let output = workload(arguments)
            .output()
            .expect("the workload can be executed");
        assert!(
            !output.status.success() && !output.stderr.is_empty(),
            "workload {arguments}"
        );
    }
}
