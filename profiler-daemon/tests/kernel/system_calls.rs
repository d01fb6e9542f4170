//! System calls: every one is counted, and its time is where the caller felt it.

use crate::daemon::{self, Settings};
use crate::ledger;
use crate::reads::{self, assert_near, number, system_call};
use crate::workload;

#[test]
fn every_system_call_is_counted() {
    // Check that N calls are N calls, for one kind and for three in turn, and that average and maximum fit the total.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    for (kind, slack) in [("getppid", 0), ("mix", 300)] {
        let finished = workload::run(&format!("storm --count 400000 --kind {kind}"));
        reads::ended(daemon, &finished);
        let events = reads::events(daemon, &finished);
        let expected = finished.truth["syscalls"]
            .as_object()
            .expect("the truth counts its calls");
        for (name, count) in expected {
            let count = count.as_u64().expect("a count is a number");
            let row = system_call(&events, name).unwrap_or_else(|| panic!("no {name} in {events}"));
            let found = number(row, "/count");
            // Start-up and printing read and write too, and the runtime may ask for its pid.
            let slack = if name == "getpid" { 16 } else { slack };
            assert!(
                (count..=count + slack).contains(&found),
                "{name}: {found} calls, {count} made"
            );
            let total_ns = number(row, "/total_ns");
            // The rest of a call's time it was runnable.
            let known_ns = number(row, "/running_ns") + number(row, "/blocked_ns");
            assert!(known_ns <= total_ns, "{name}: {row}");
            assert_eq!(
                number(row, "/average_ns"),
                total_ns / found,
                "{name}: {row}"
            );
            assert!(
                (total_ns / found..=total_ns).contains(&number(row, "/max_ns")),
                "{name}: {row}"
            );
        }
        assert!(
            ledger::check_process(daemon, &finished.selector),
            "the process has just ended"
        );
    }
}

#[test]
fn a_sleeps_time_is_in_its_call() {
    // Check that the sleeps of the gate's holder are so many nanosleep calls of that length, blocked.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let finished = workload::run("contention --threads 1 --millis 10 --count 40");
    reads::ended(daemon, &finished);
    let events = reads::events(daemon, &finished);
    let row =
        system_call(&events, "nanosleep").unwrap_or_else(|| panic!("no nanosleep in {events}"));
    assert_eq!(number(row, "/count"), 40);
    assert_near(
        "nanosleep",
        number(row, "/total_ns"),
        number(&finished.truth, "/held_ns"),
        0.01,
        5_000_000,
    );
    assert!(
        number(row, "/max_ns") >= 10_000_000,
        "one sleep lasts at least what was asked: {row}"
    );
}

#[test]
fn without_the_hooks_the_rest_is_exact() {
    // Check that with system_calls off no call is listed, blocked time and totals stay exact, and the ledger holds.
    let settings = Settings {
        top: "system_calls = \"off\"",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let finished = workload::run("contention --threads 2 --millis 20 --count 20");
    let process = reads::ended(&daemon, &finished);
    let events = reads::events(&daemon, &finished);
    assert_eq!(
        events["syscalls"].as_array().map(Vec::len),
        Some(0),
        "{events}"
    );
    let held_ns = number(&finished.truth, "/held_ns");
    assert_near(
        "blocked of three threads",
        reads::classes(&process)[2],
        3 * held_ns,
        0.03,
        30_000_000,
    );
    assert!(
        ledger::check_process(&daemon, &finished.selector),
        "the process has just ended"
    );
}
