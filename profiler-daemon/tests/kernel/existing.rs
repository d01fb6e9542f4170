//! Threads that were there before the daemon: seeded in the right class, never with time from before.

use crate::daemon::{self, Settings};
use crate::ledger;
use crate::reads::{self, classes, number, text, thread, unix_now_ns};
use crate::workload::Workload;

#[test]
fn threads_that_already_exist_begin_in_their_class() {
    // Check that sleepers are blocked from the first moment, runners run, and the time before the daemon is in no report;
    // and that a sleeper that then wakes up is followed like any other.
    if !daemon::privileged() {
        return;
    }
    let mut sleeper = Workload::start("sleeper");
    let facts = sleeper.ready();
    let runner = Workload::start("split --seconds 6");
    let before_ns = unix_now_ns();
    let Some(daemon) = daemon::own(&Settings::default()) else {
        return;
    };
    let path = format!("/processes/{}/threads?limit=0", sleeper.selector());
    let threads = reads::until(&daemon, &path, unix_now_ns(), |list| {
        list["total_rows"].as_u64() >= Some(5)
    });
    let daemon_age_ns = unix_now_ns() - before_ns;
    for fact in facts["threads"]
        .as_array()
        .expect("the sleeper lists its threads")
    {
        let row = thread(&threads, number(fact, "/tid"));
        let [user_ns, syscall_ns, blocked_ns, runnable_ns, kernel_ns] = classes(row);
        assert_eq!(text(row, "/state"), "blocked", "{row}");
        assert_eq!(
            [user_ns, syscall_ns, runnable_ns, kernel_ns],
            [0; 4],
            "it has slept all the time: {row}"
        );
        assert!(
            blocked_ns > 0 && blocked_ns <= daemon_age_ns,
            "{blocked_ns} ns blocked in {daemon_age_ns} ns"
        );
    }
    let path = format!("/processes/{}", runner.selector());
    let row = reads::until(&daemon, &path, unix_now_ns() + 500_000_000, |_| true);
    let [user_ns, _, blocked_ns, runnable_ns, _] = classes(&row);
    assert!(
        user_ns > 0 && blocked_ns < 5_000_000,
        "a runner runs: {row}"
    );
    assert!(
        user_ns + runnable_ns <= unix_now_ns() - before_ns,
        "no time from before the daemon: {row}"
    );
    assert!(
        ledger::check_process(&daemon, &sleeper.selector()),
        "the process is alive"
    );
    sleeper.go();
    let finished = sleeper.finish();
    reads::ended(&daemon, &finished);
    assert!(
        ledger::check_process(&daemon, &finished.selector),
        "the process has just ended"
    );
    ledger::check(&daemon);
}
