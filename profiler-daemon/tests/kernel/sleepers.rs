//! Time that passes while nothing happens: a sleeping thread's time must grow in every report.

use std::time::Duration;

use serde_json::Value;

use crate::daemon::{self, Settings, say};
use crate::ledger;
use crate::reads::{
    self, assert_near, classes, function, number, text, thread, unix_now_ns, unix_ns,
};
use crate::workload::Workload;

const SLACK_NS: u64 = 10_000_000;

#[test]
fn a_sleeping_threads_time_grows_while_it_sleeps() {
    // Check that between two readings each sleeper's blocked time grows by exactly the time between
    // them, without any event of that thread, and that its function and its system call are known
    // while it sleeps.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let mut sleeper = Workload::start("sleeper");
    let facts = sleeper.ready();
    let path = format!("/processes/{}/threads?limit=0", sleeper.selector());
    let first = reads::until(daemon, &path, unix_now_ns(), |list| {
        list["total_rows"].as_u64() >= Some(5)
    });
    let first_ns = unix_ns(text(&first, "/as_of"));
    let second = reads::until(daemon, &path, first_ns + 1_500_000_000, |_| true);
    let between_ns = unix_ns(text(&second, "/as_of")) - first_ns;
    let sleepers = facts["threads"]
        .as_array()
        .expect("the sleeper lists its threads");
    for fact in sleepers {
        let [before, after] = [&first, &second].map(|list| thread(list, number(fact, "/tid")));
        assert_eq!(text(after, "/state"), "blocked", "{fact}");
        let grown = |pointer: &str| number(after, pointer) - number(before, pointer);
        assert_eq!(
            grown("/classes/blocked_ns"),
            grown("/last_event_ns"),
            "all of the time between was blocked: {fact}"
        );
        assert_eq!(
            grown("/elapsed/inclusive_ns"),
            grown("/last_event_ns"),
            "{fact}"
        );
        assert_near(
            "growth of a sleeper",
            grown("/last_event_ns"),
            between_ns,
            0.001,
            SLACK_NS,
        );
    }
    let selector = sleeper.selector();
    let functions = reads::until(
        daemon,
        &format!("/processes/{selector}/functions?limit=0"),
        unix_now_ns(),
        |_| true,
    );
    for fact in sleepers {
        let row = function(&functions, text(fact, "/function"));
        assert!(
            number(row, "/elapsed/inclusive_ns") >= between_ns,
            "it has its time while it sleeps: {row}"
        );
        assert!(
            number(row, "/application/inclusive_ns") < SLACK_NS,
            "sleeping is no application time: {row}"
        );
    }
    assert!(
        ledger::check_process(daemon, &selector),
        "the process is alive"
    );
    sleeper.go();
    sleeper.finish();
}

#[test]
fn a_sleep_under_way_is_seen_in_its_system_call() {
    // Check that a call that has not returned is listed with the time that it has taken so far.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let mut sleeper = Workload::start("sleeper");
    sleeper.ready();
    let path = format!("/processes/{}/os-events", sleeper.selector());
    let listed = |events: &Value| {
        ["nanosleep", "read", "futex", "poll"].iter().all(|name| {
            reads::system_call(events, name).is_some_and(|row| {
                number(row, "/in_progress") > 0 && number(row, "/in_progress_ns") > 1_000_000_000
            })
        })
    };
    reads::until(daemon, &path, unix_now_ns(), listed);
    sleeper.go();
    sleeper.finish();
}

#[test]
fn a_held_process_is_blocked_in_read() {
    // Check that a process that has done its work and waits for its input moves from running to
    // blocked, exactly.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let workload = Workload::start("split --seconds 1 --hold");
    let held = workload.truth();
    let path = format!("/processes/{}", held.selector);
    let first = reads::until(daemon, &path, held.unix_ns, |_| true);
    let first_ns = unix_ns(text(&first, "/as_of"));
    let second = reads::until(daemon, &path, first_ns + 1_000_000_000, |_| true);
    let [before, after] = [classes(&first), classes(&second)];
    assert_eq!(before[0], after[0], "no more user time");
    let grown_ns = number(&second, "/elapsed_ns") - number(&first, "/elapsed_ns");
    assert_eq!(after[2] - before[2], grown_ns, "all new time is blocked");
}

#[test]
fn calls_over_a_window_are_those_of_the_window() {
    // Check that of calls that go on, a window has the time of the window, and that no more is
    // blocked in calls than in all of their process, in the window and in the session.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let mut sleeper = Workload::start("sleeper");
    sleeper.ready();
    let path = format!("/processes/{}/os-events", sleeper.selector());
    reads::until(daemon, &path, unix_now_ns() + 3_000_000_000, |_| true);
    let window = daemon.get(&format!("{path}?window=1s"));
    let [from_ns, to_ns] = ["/from", "/to"].map(|side| unix_ns(text(&window["window"], side)));
    for name in ["nanosleep", "read", "futex", "poll"] {
        let row = reads::system_call(&window, name).expect("it is under way");
        let total_ns = number(row, "/total_ns");
        let threads = number(row, "/in_progress");
        assert_near(name, total_ns, threads * (to_ns - from_ns), 0.0, SLACK_NS);
        assert_near(name, number(row, "/blocked_ns"), total_ns, 0.0, SLACK_NS);
        assert_eq!(number(row, "/count"), 0, "none has returned: {row}");
        assert!(row["average_ns"].is_null(), "none has returned: {row}");
    }
    let session = daemon.get(&path);
    for events in [&window, &session] {
        ledger::check_calls("sleeper", events);
    }
    sleeper.go();
    sleeper.finish();
}

#[test]
fn long_waits_that_few_walks_are_afforded_for_are_divided() {
    // Check that where thousands of threads wait for a second or more, again and again, and the
    // budget affords few of their walks, all their time is that of the functions that wait, each
    // with its share within its interval; and that looks from outside keep within their part.
    let settings = Settings {
        within_budget: true,
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let daemon = &daemon;
    let workload = Workload::start("asleep-in-turn");
    workload.ready();
    // Looks may take a second at first.
    std::thread::sleep(Duration::from_secs(25));
    let busy_s = || daemon.metric("profiler_outside_busy_seconds_total");
    let before_s = busy_s();
    std::thread::sleep(Duration::from_secs(15));
    let took_s = busy_s() - before_s;
    let path = format!(
        "/processes/{}/functions?limit=0&window=15s",
        workload.selector()
    );
    let functions = reads::until(daemon, &path, unix_now_ns(), |_| true);
    let all_ns = reads::rows(&functions)
        .iter()
        .map(|row| number(row, "/elapsed/exclusive_ns"))
        .sum::<u64>() as f64;
    let share =
        |row: &Value, of: &str| number(row, &format!("/elapsed/inclusive{of}_ns")) as f64 / all_ns;
    for (name, expected) in [("rest_for_long", 0.74), ("rest_for_short", 0.26)] {
        let row = function(&functions, name);
        let [found, low, high] = ["", "_low", "_high"].map(|of| share(row, of));
        say(&format!("{name}: {found:.3}, {low:.3} to {high:.3}"));
        // Twice as far, so that it fails once in ten thousand times; waits that are open and have
        // no stack are of the longer ones.
        let (least, most) = (found - 2.0 * (found - low), found + 2.0 * (high - found));
        assert!(least < expected + 0.03 && most > expected - 0.03, "{row}");
        assert!(high - low < 0.7, "{row}");
    }
    let lost = reads::function_rows(&functions, "[not sampled]");
    let lost: f64 = lost.iter().map(|row| share(row, "")).sum();
    say(&format!(
        "not sampled: {lost:.4}; looks took {took_s:.3} s of 15 s"
    ));
    assert!(lost < 0.02, "{lost}");
    assert!(took_s < 0.5, "{took_s} s");
    assert!(
        ledger::check_process(daemon, &workload.selector()),
        "it lives"
    );
}
