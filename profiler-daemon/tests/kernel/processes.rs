//! Processes that begin and end: short-lived, forked, replaced by exec, renumbered. Each keeps its
//! own time and no other's.

use serde_json::Value;

use crate::daemon;
use crate::ledger;
use crate::reads::{
    self, Yardstick, assert_near, function, function_rows, number, rows, running_ns,
};
use crate::workload::{self, Finished, Workload};

/// The exited processes with these pids, once all of them are listed as such.
fn exited(daemon: &daemon::Daemon, finished: &Finished, pids: &[u64]) -> Vec<Value> {
    let found = |list: &Value| -> Vec<Value> {
        rows(list)
            .iter()
            .filter(|row| {
                row["state"] == "exited"
                    && row["pid"].as_u64().is_some_and(|pid| pids.contains(&pid))
            })
            .filter(|row| {
                reads::unix_ns(reads::text(row, "/started_at")) + 20_000_000
                    > finished.unix_ns - finished.wall_ns
            })
            .cloned()
            .collect()
    };
    let list = reads::until(daemon, "/processes?limit=0", finished.unix_ns, |list| {
        found(list).len() >= pids.len()
    });
    found(&list)
}

fn pids(truth: &Value) -> Vec<u64> {
    let list = truth["child_pids"]
        .as_array()
        .expect("the truth lists its children");
    list.iter().filter_map(Value::as_u64).collect()
}

#[test]
fn short_lived_children_are_all_seen() {
    // Check that 100 executed children of 20 ms are listed one by one, with the processor time that
    // their parent was told and with their function named, though they were gone before anyone
    // could look.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let yardstick = Yardstick::start();
    let finished = workload::run("children --count 100 --millis 20");
    let slack_ns = yardstick.slack_ns(&finished.truth);
    let children = exited(daemon, &finished, &pids(&finished.truth));
    assert_eq!(children.len(), 100);
    let found_ns: u64 = children.iter().map(running_ns).sum();
    assert_near(
        "processor time of 100 children",
        found_ns,
        number(&finished.truth, "/waited_cpu_ns"),
        0.02,
        slack_ns,
    );
    let mut named_ns = 0;
    for child in &children {
        let list = daemon.get(&format!(
            "/processes/{}.{}/functions?limit=0",
            child["pid"], child["start_ticks"]
        ));
        named_ns += function_rows(&list, "child_work")
            .iter()
            .map(|row| number(row, "/application/inclusive_ns"))
            .sum::<u64>();
    }
    // 20 of the 21 to 23 ms of a child are in that function.
    assert!(
        named_ns as f64 > found_ns as f64 * 0.75,
        "child_work has {named_ns} of {found_ns} ns"
    );
}

#[test]
fn stacks_are_whole_from_soon_after_an_exec_to_the_exit() {
    // Check that of each of 20 programs that run for 200 ms at least four walks in five are
    // complete, though each is a process that nobody had seen before. (What was written for a
    // program that has just begun could be lost until the next second.)
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let finished = workload::run("children --count 20 --millis 200");
    let children = exited(daemon, &finished, &pids(&finished.truth));
    assert_eq!(children.len(), 20);
    for child in &children {
        let path = format!("/processes/{}.{}", child["pid"], child["start_ticks"]);
        let stacks = &daemon.get(&path)["stacks"];
        let (walked, complete) = (number(stacks, "/walked"), number(stacks, "/complete"));
        assert!(walked >= 20 && complete * 5 >= walked * 4, "{stacks}");
    }
}

#[test]
fn a_fork_without_exec_is_its_own_process() {
    // Check that the child's work is the child's alone, and that the parent was blocked meanwhile.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let yardstick = Yardstick::start();
    let finished = workload::run("fork --millis 400");
    let slack_ns = yardstick.slack_ns(&finished.truth);
    let parent = reads::ended(daemon, &finished);
    let children = exited(daemon, &finished, &[number(&finished.truth, "/child_pid")]);
    let [child] = children.as_slice() else {
        panic!("one child, found {children:?}")
    };
    assert_eq!(child["ppid"], parent["pid"]);
    assert_near(
        "the child",
        running_ns(child),
        number(&finished.truth, "/child_cpu_ns"),
        0.01,
        slack_ns,
    );
    let own = daemon.get(&format!(
        "/processes/{}.{}/functions?limit=0",
        child["pid"], child["start_ticks"]
    ));
    function(&own, "forked_child_work");
    let parents = reads::table(daemon, &finished, "functions");
    assert!(
        function_rows(&parents, "forked_child_work").is_empty(),
        "the parent never was in the child's function"
    );
    let waiting = number(
        function(&parents, "wait_for_forked_child"),
        "/elapsed/inclusive_ns",
    );
    assert_near(
        "the parent's wait",
        waiting,
        number(&finished.truth, "/waited_ns"),
        0.01,
        slack_ns,
    );
}

#[test]
fn children_that_end_at_once_are_counted() {
    // Check that 200 children that live for microseconds are all in the session's ledger.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let finished = workload::run("vanish --count 200");
    let children = exited(daemon, &finished, &pids(&finished.truth));
    assert_eq!(children.len(), 200);
    assert!(
        children
            .iter()
            .all(|child| number(child, "/elapsed_ns") > 0),
        "each lived for some time"
    );
}

#[test]
fn a_reused_pid_is_another_process() {
    // Check that two processes with one pid are two rows, each with its own time and functions.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let yardstick = Yardstick::start();
    let finished = workload::run("pid-reuse --millis 200");
    let slack_ns = yardstick.slack_ns(&finished.truth);
    let pid = number(&finished.truth, "/reused_pid");
    let mut two = exited(daemon, &finished, &[pid]);
    if two.len() < 2 {
        let list = reads::until(daemon, "/processes?limit=0", finished.unix_ns, |list| {
            rows(list).iter().filter(|row| row["pid"] == pid).count() >= 2
        });
        two = rows(&list)
            .iter()
            .filter(|row| row["pid"] == pid)
            .cloned()
            .collect();
    }
    two.sort_by_key(|row| number(row, "/start_ticks"));
    let [first, second] = two.as_slice() else {
        panic!("two processes of pid {pid}, found {two:?}")
    };
    for (row, used, own, other) in [
        (
            first,
            "/first_cpu_ns",
            "reuse_first_work",
            "reuse_second_work",
        ),
        (
            second,
            "/second_cpu_ns",
            "reuse_second_work",
            "reuse_first_work",
        ),
    ] {
        assert_near(
            own,
            running_ns(row),
            number(&finished.truth, used),
            0.01,
            slack_ns,
        );
        let list = daemon.get(&format!(
            "/processes/{pid}.{}/functions?limit=0",
            row["start_ticks"]
        ));
        function(&list, own);
        assert!(
            function_rows(&list, other).is_empty(),
            "{other} ran in the other process of that pid"
        );
    }
    let newest = daemon.get(&format!("/processes/{pid}"));
    assert_eq!(
        newest["start_ticks"], second["start_ticks"],
        "a bare pid means the newest process"
    );
}

#[test]
fn an_exec_keeps_the_process_and_changes_the_program() {
    // Check that work before and after an exec, from the first thread or another, is one process
    // with both functions named, each from its own mapping.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    for kind in ["leader", "thread"] {
        let yardstick = Yardstick::start();
        // Long beside what it takes until the new program's mappings and tables are known, which
        // under emulation is a tenth of a second.
        let finished = workload::run(&format!("exec --millis 1000 --kind {kind}"));
        let slack_ns = yardstick.slack_ns(&finished.truth);
        let process = reads::ended(daemon, &finished);
        let used_ns = number(&finished.truth, "/user_ns") + number(&finished.truth, "/system_ns");
        assert_near(
            &format!("exec from the {kind}"),
            running_ns(&process),
            used_ns,
            0.01,
            slack_ns,
        );
        let functions = reads::table(daemon, &finished, "functions");
        // Each does half of the work. What it has of the time is what it has of the process's
        // ticks, but for the exec itself.
        let ticks = number(&process, "/samples");
        for name in ["before_exec_work", "after_exec_work"] {
            let work_ns = number(function(&functions, name), "/application/inclusive_ns");
            let share = work_ns as f64 / used_ns as f64;
            let deviation = (0.25 / ticks.max(1) as f64).sqrt();
            assert!(
                share > 0.4 - 4.0 * deviation,
                "{name} has {work_ns} of {used_ns} ns, by {ticks} ticks"
            );
        }
        assert!(
            ledger::check_process(daemon, &finished.selector),
            "the process has just ended"
        );
    }
}

#[test]
fn an_exec_from_another_thread_counts_nothing_twice() {
    // Check that when the second thread of a process executes a program, long after the first
    // report, the process has the time that both threads lived and no more, in two rows under the
    // process's number.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let yardstick = Yardstick::start();
    let workload = Workload::start("exec --millis 2500 --kind thread");
    let selector = workload.selector();
    // The thread that will execute is in a report under its own number.
    reads::until(
        daemon,
        &format!("/processes/{selector}/threads?limit=0"),
        workload.started_unix_ns,
        |list| {
            rows(list).iter().any(|row| {
                row["tid"] != row["pid"] && number(row, "/classes/user_ns") > 200_000_000
            })
        },
    );
    let finished = workload.finish();
    let slack_ns = yardstick.slack_ns(&finished.truth);
    let process = reads::ended(daemon, &finished);
    let before = |name: &str| number(&finished.truth, &format!("/before/{name}"));
    // The first thread lived until the exec; the second from about the start to the end.
    let first_ns = before("executed_ns") - before("started_monotonic_ns");
    let lived_ns = first_ns + number(&finished.truth, "/whole_wall_ns");
    assert_near(
        "elapsed of both threads",
        number(&process, "/elapsed_ns"),
        lived_ns,
        0.01,
        slack_ns,
    );
    let used_ns = number(&finished.truth, "/user_ns") + number(&finished.truth, "/system_ns");
    assert_near("running", running_ns(&process), used_ns, 0.01, slack_ns);
    let threads = reads::table(daemon, &finished, "threads");
    let of_process = rows(&threads)
        .iter()
        .filter(|row| row["tid"] == row["pid"])
        .count();
    assert_eq!((rows(&threads).len(), of_process), (2, 2), "{threads}");
    assert!(
        ledger::check_process(daemon, &finished.selector),
        "the process has just ended"
    );
}
