//! Threads: each its own time under its own name, and none lost however short it lived.

use crate::daemon::{self, Settings};
use crate::ledger;
use crate::reads::{self, Yardstick, assert_near, number, running_ns, system_call, text, thread};
use crate::workload;

#[test]
fn each_thread_has_its_own_time() {
    // Check that threads with different work each have what getrusage says of them, under their
    // names.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let yardstick = Yardstick::start();
    let finished = workload::run("threads --threads 6 --millis 80");
    let slack_ns = yardstick.slack_ns(&finished.truth);
    let process = reads::ended(daemon, &finished);
    assert_eq!(number(&process, "/threads"), 7, "six and the main thread");
    let threads = reads::table(daemon, &finished, "threads");
    for truth in finished.truth["threads"]
        .as_array()
        .expect("the truth lists its threads")
    {
        let row = thread(&threads, number(truth, "/tid"));
        assert_eq!(row["comm"], truth["name"]);
        assert_eq!(text(row, "/state"), "exited");
        let used_ns = number(truth, "/user_ns") + number(truth, "/system_ns");
        assert_near(
            text(truth, "/name"),
            running_ns(row),
            used_ns,
            0.01,
            slack_ns,
        );
    }
}

#[test]
fn no_short_thread_is_lost() {
    // Check that 600 threads of 2 ms each are all in the totals of their process, though only some
    // are kept one by one.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let yardstick = Yardstick::start();
    let finished = workload::run("churn --count 600 --millis 2");
    let slack_ns = yardstick.slack_ns(&finished.truth);
    let process = reads::ended(daemon, &finished);
    let used_ns = number(&finished.truth, "/user_ns") + number(&finished.truth, "/system_ns");
    // The end of each thread, after its last accounting, comes on top.
    assert_near("churn", running_ns(&process), used_ns, 0.02, slack_ns);
    let functions = reads::table(daemon, &finished, "functions");
    let work_ns = number(
        reads::function(&functions, "churn_work"),
        "/application/inclusive_ns",
    );
    // A thread ends right after its work, and an interval goes to the stack at its end: the last
    // one of each thread goes to the way out.
    assert!(
        work_ns as f64 >= used_ns as f64 * 0.5,
        "churn_work has {work_ns} of {used_ns} ns"
    );
    assert!(
        ledger::check_process(daemon, &finished.selector),
        "the process has just ended"
    );
}

#[test]
fn calls_of_threads_that_end_while_they_are_read_are_counted() {
    // Check that of threads that live for a tenth of a millisecond every call is counted while
    // reports make the daemon read all the time: some begin and end between its reading of calls
    // and of threads; and that a report as of the end of them all has them all. With a daemon of
    // its own: one that has much to tell reads less often, and counts what then finds no room.
    let Some(daemon) = &daemon::own(&Settings::default()) else {
        return;
    };
    for _ in 0..3 {
        let finished = std::thread::scope(|scope| {
            let storm = scope.spawn(|| workload::run("storm --kind brief --count 100000"));
            while !storm.is_finished() {
                daemon.get("/session");
            }
            storm.join().expect("the workload ends")
        });
        reads::ended(daemon, &finished);
        let events = reads::events(daemon, &finished);
        let row =
            system_call(&events, "getppid").unwrap_or_else(|| panic!("no getppid in {events}"));
        assert_eq!(
            number(row, "/count"),
            number(&finished.truth, "/syscalls/getppid"),
            "{}",
            daemon.get("/session")["completeness"]
        );
    }
}
