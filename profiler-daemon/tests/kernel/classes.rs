//! What threads were doing: the five classes against `getrusage`, against the thread's own clock,
//! and against construction.

use serde_json::Value;

use crate::daemon;
use crate::ledger;
use crate::reads::{self, Yardstick, assert_near, classes, number, running_ns, thread};
use crate::workload;

/// Processor time against `getrusage`, and wall time against a clock.
const CPU_RELATIVE: f64 = 0.01;
const WALL_RELATIVE: f64 = 0.001;
const SLACK_NS: u64 = 10_000_000;

#[test]
fn processor_time_agrees_with_getrusage() {
    // Check that user + syscall is utime + stime to 1 % + 10 ms, for processes that compute, call,
    // fault, sleep and switch.
    for command_line in [
        "split --seconds 1",
        "storm --count 1000000",
        "faults --seconds 1",
        "wait-split --seconds 1",
        "pingpong --kind threads --cpu 0",
    ] {
        agrees_with_getrusage(command_line);
    }
}

#[test]
fn processor_time_agrees_with_getrusage_across_processors() {
    // Check the same for two threads that wake each other 40000 times, each on a processor that is
    // idle meanwhile.
    agrees_with_getrusage("pingpong --kind threads");
}

/// Fails unless the processor time found for a program is what the kernel told the program.
fn agrees_with_getrusage(command_line: &str) {
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let yardstick = Yardstick::start();
    let finished = workload::run(command_line);
    let slack_ns = yardstick.slack_ns(&finished.truth);
    let process = reads::ended(daemon, &finished);
    let used_ns = number(&finished.truth, "/user_ns") + number(&finished.truth, "/system_ns");
    assert_near(
        command_line,
        running_ns(&process),
        used_ns,
        CPU_RELATIVE,
        slack_ns,
    );
    assert_eq!(
        classes(&process)[4],
        0,
        "{command_line}: a user process has no kernel thread time"
    );
}

#[test]
fn a_process_lasts_as_long_as_by_its_own_clock() {
    // Check that the elapsed time of a process with one thread is its wall time, to 0.1 % + 10 ms.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    for command_line in [
        "split --seconds 2",
        "wait-split --seconds 2",
        "fork --millis 500",
        "storm --count 300000",
    ] {
        let finished = workload::run(command_line);
        let process = reads::ended(daemon, &finished);
        let elapsed_ns = number(&process, "/elapsed_ns");
        let own_ns = number(&finished.truth, "/wall_ns");
        // Its own clock starts in main, this process's clock before the fork: the truth is between
        // the two.
        assert!(
            elapsed_ns as f64 >= own_ns as f64 * (1.0 - WALL_RELATIVE),
            "{command_line}: {elapsed_ns} < {own_ns}"
        );
        assert_near(
            command_line,
            elapsed_ns,
            finished.wall_ns,
            WALL_RELATIVE,
            SLACK_NS,
        );
    }
}

/// Fails unless the elapsed time of a thread is its life: more than its own clock saw, which starts
/// and stops within it, and less than was seen from before its start until it was gone. How long a
/// busy machine takes to start and to end it is in neither.
fn assert_lifetime(what: &str, row: &Value, truth: &Value) {
    let elapsed_ns = number(row, "/elapsed/inclusive_ns");
    let [inner_ns, outer_ns] = ["/wall_ns", "/outer_wall_ns"].map(|of| number(truth, of));
    assert!(
        (inner_ns..=outer_ns).contains(&elapsed_ns),
        "{what}: {elapsed_ns} is not between {inner_ns} and {outer_ns}"
    );
}

#[test]
fn what_a_runner_does_not_run_it_is_runnable() {
    // Check that four runners on one processor are runnable for exactly the wall time that they did
    // not run.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let yardstick = Yardstick::start();
    let finished = workload::run("preempt --seconds 2 --threads 4 --cpu 0");
    let slack_ns = yardstick.slack_ns(&finished.truth);
    reads::ended(daemon, &finished);
    let threads = reads::table(daemon, &finished, "threads");
    let runners = finished.truth["threads"]
        .as_array()
        .expect("the truth lists its threads");
    assert_eq!(runners.len(), 4);
    let mut runnable_sum_ns = 0;
    for runner in runners {
        assert_eq!(runner["pinned"], true);
        let row = thread(&threads, number(runner, "/tid"));
        let [_, _, blocked_ns, runnable_ns, _] = classes(row);
        let wall_ns = number(runner, "/wall_ns");
        let used_ns = number(runner, "/user_ns") + number(runner, "/system_ns");
        assert_lifetime("elapsed of a runner", row, runner);
        assert_near(
            "runnable of a runner",
            runnable_ns + blocked_ns,
            wall_ns - used_ns,
            CPU_RELATIVE,
            slack_ns,
        );
        assert!(
            blocked_ns < SLACK_NS,
            "a runner never sleeps, yet was blocked {blocked_ns} ns"
        );
        runnable_sum_ns += runnable_ns;
    }
    // Three of four wait at any moment, more when others want that processor too.
    let wall_ns = number(&finished.truth, "/wall_ns");
    assert!(
        runnable_sum_ns as f64 > wall_ns as f64 * 3.0 * 0.95,
        "{runnable_sum_ns} ns runnable in {wall_ns} ns"
    );
}

#[test]
fn waiters_are_blocked_while_the_gate_is_held() {
    // Check that each waiter is blocked for the time that the gate was held shut, inside its futex
    // calls.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let finished = workload::run("contention --threads 3 --millis 20 --count 50");
    reads::ended(daemon, &finished);
    let threads = reads::table(daemon, &finished, "threads");
    let held_ns = number(&finished.truth, "/held_ns");
    for waiter in finished.truth["threads"]
        .as_array()
        .expect("the truth lists its threads")
    {
        let [_, _, blocked_ns, runnable_ns, _] = classes(thread(&threads, number(waiter, "/tid")));
        let waited_ns = number(waiter, "/waited_ns");
        assert_near(
            "blocked + runnable of a waiter",
            blocked_ns + runnable_ns,
            waited_ns,
            CPU_RELATIVE,
            SLACK_NS,
        );
        assert_near("blocked of a waiter", blocked_ns, held_ns, 0.02, SLACK_NS);
    }
    let functions = reads::table(daemon, &finished, "functions");
    let at_gate_ns = number(
        reads::function(&functions, "wait_at_gate"),
        "/elapsed/inclusive_ns",
    );
    assert_near("wait_at_gate", at_gate_ns, held_ns * 3, 0.02, 3 * SLACK_NS);
}

#[test]
fn no_wake_up_is_lost_in_a_race() {
    // Check that over 100000 switches between racing wakers and sleepers every thread's classes add
    // up to its wall time, and its time off the processor to what it did not use.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    for kind in ["futex", "eventfd"] {
        let finished = workload::run(&format!("race --count 50000 --kind {kind}"));
        assert!(
            number(&finished.truth, "/switches") > 50_000,
            "not much of a race: {}",
            finished.truth
        );
        reads::ended(daemon, &finished);
        let threads = reads::table(daemon, &finished, "threads");
        for racer in finished.truth["threads"]
            .as_array()
            .expect("the truth lists its threads")
        {
            let row = thread(&threads, number(racer, "/tid"));
            let [user_ns, syscall_ns, blocked_ns, runnable_ns, _] = classes(row);
            let wall_ns = number(racer, "/wall_ns");
            let used_ns = number(racer, "/user_ns") + number(racer, "/system_ns");
            assert_lifetime("elapsed of a racer", row, racer);
            // The switches of a racer are its own, mostly; the process has those of all.
            let slack_ns = SLACK_NS + number(racer, "/switches") * 8_000;
            assert_near(
                "running of a racer",
                user_ns + syscall_ns,
                used_ns,
                0.05,
                slack_ns,
            );
            assert_near(
                "waiting of a racer",
                blocked_ns + runnable_ns,
                wall_ns.saturating_sub(used_ns),
                0.05,
                slack_ns,
            );
        }
        assert!(
            ledger::check_process(daemon, &finished.selector),
            "the process has just ended"
        );
    }
}

#[test]
fn processors_are_accounted_for() {
    // Check that while every processor is kept busy, all running time on the machine adds up to the
    // processors' time, whoever races and preempts meanwhile: no stretch is counted twice, or not
    // at all.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let processors = std::thread::available_parallelism().expect("a number of processors");
    let hogs: Vec<_> = (0..processors.get())
        .map(|cpu| {
            workload::Workload::start(&format!("preempt --threads 1 --seconds 4 --cpu {cpu}"))
        })
        .collect();
    let since_start = |session: &Value| {
        let [user_ns, syscall_ns, _, _, kernel_ns] = classes(session);
        (
            reads::unix_ns(reads::text(session, "/as_of")),
            user_ns + syscall_ns + kernel_ns,
        )
    };
    std::thread::sleep(std::time::Duration::from_millis(500));
    let before = since_start(&daemon.get("/session"));
    workload::run("race --count 20000 --kind futex");
    std::thread::sleep(std::time::Duration::from_secs(1));
    let after = since_start(&daemon.get("/session"));
    drop(hogs);
    assert_near(
        "running on all processors",
        after.1 - before.1,
        (after.0 - before.0) * processors.get() as u64,
        CPU_RELATIVE,
        SLACK_NS,
    );
}

#[test]
fn page_faults_stay_in_user_time() {
    // Check the stated limit: time in page faults taken in user mode counts as user time of the
    // function that faults.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let finished = workload::run("faults --seconds 1");
    let process = reads::ended(daemon, &finished);
    let touching_ns = number(&finished.truth, "/touching_ns");
    let [user_ns, _, _, runnable_ns, _] = classes(&process);
    assert!(
        user_ns + runnable_ns + SLACK_NS >= touching_ns * 95 / 100,
        "user {user_ns}, touching took {touching_ns}"
    );
    let functions = reads::table(daemon, &finished, "functions");
    let row = reads::function(&functions, "touch_pages");
    assert_near(
        "touch_pages",
        number(row, "/elapsed/inclusive_ns"),
        touching_ns,
        0.05,
        2 * SLACK_NS,
    );
}

#[test]
fn waiting_for_a_disk_is_in_its_system_call() {
    // Check that the time of write and fdatasync by system call is the time that the caller
    // measured around them.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let finished = workload::run("io --count 50");
    reads::ended(daemon, &finished);
    let events = reads::events(daemon, &finished);
    let total_ns: u64 = ["write", "fdatasync"]
        .iter()
        .map(|name| {
            number(
                reads::system_call(&events, name)
                    .unwrap_or_else(|| panic!("no {name} in {events}")),
                "/total_ns",
            )
        })
        .sum();
    assert_near(
        "write + fdatasync",
        total_ns,
        number(&finished.truth, "/in_calls_ns"),
        0.05,
        SLACK_NS,
    );
}
