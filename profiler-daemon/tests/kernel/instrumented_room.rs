//! Room for what is measured: it is given back, and calls that found none are told.

use std::time::{Duration, Instant};

use profiler_common::limits::MAX_MEASURED_THREADS;
use profiler_common::measured::{MeasuredThread, ShadowStack};
use serde_json::json;

use crate::daemon::Daemon;
use crate::instrumentations::{allowed, ask, begin, is, row, until};
use crate::kernel_maps::keys;
use crate::reads::number;
use crate::workload::Workload;

/// How long what is gone may keep its place: some passes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Threads of any process but the daemon, on whose functions the cost of probes is measured.
fn threads(daemon: &Daemon) -> usize {
    let all: Vec<MeasuredThread> = keys::<_, ShadowStack>(daemon, "MEASURED_FRAMES");
    all.iter().filter(|thread| thread.pid != 0).count()
}

/// Waits until no thread has a place.
fn until_nobody(daemon: &Daemon) {
    let deadline = Instant::now() + PATIENCE;
    while threads(daemon) > 0 {
        assert!(Instant::now() < deadline, "{} threads", threads(daemon));
        std::thread::sleep(Duration::from_millis(50));
    }
}

// Check that of more threads than can be measured the calls of the others are counted, and told as
// counted only; that counting alone takes no thread's place; and that all places are free again
// once the instrumentation has ended, although its threads live on, so that the next one measures
// whom it means.
#[test]
fn threads_beyond_the_bound_are_counted_only() {
    let Some(daemon) = allowed() else { return };
    for (exits, most) in [("none", 0), ("sites", MAX_MEASURED_THREADS as usize)] {
        let mut crowd = Workload::start("crowd --wait --hold");
        crowd.ready();
        let path = begin(
            &daemon,
            &json!({
                "functions": ["workload:*crowd_call"], "pids": [crowd.pid()],
                "budget_percent": 100, "exits": exits,
            }),
        );
        until(&daemon, &path, is("measuring"));
        crowd.go();
        let truth = crowd.truth().truth;
        let (calls, all) = (number(&truth, "/calls"), number(&truth, "/threads"));
        assert!(threads(&daemon) <= most, "{}", threads(&daemon));
        let one = ask(&daemon, "DELETE", &path, None, 200);
        let told = row(&one, "crowd_call");
        assert_eq!(number(told, "/calls"), calls, "{told:#}");
        if exits == "sites" {
            let without = all - u64::from(MAX_MEASURED_THREADS);
            let counted_only = number(told, "/counted_only");
            assert!(counted_only >= without * calls / all, "{told:#}");
            assert_eq!(number(told, "/outermost") + counted_only, calls, "{told:#}");
        }
        assert_eq!(threads(&daemon), 0, "of {exits}");
        let mut few = Workload::start("crowd --wait --threads 10 --count 100");
        few.ready();
        let path = begin(
            &daemon,
            &json!({
                "functions": ["workload:*crowd_call"], "pids": [few.pid()], "budget_percent": 100,
            }),
        );
        until(&daemon, &path, is("measuring"));
        few.go();
        let one = until(&daemon, &path, is("ended"));
        // Where its clock was being changed, a call is counted only.
        let timed = number(row(&one, "crowd_call"), "/outermost");
        assert!(timed >= 900, "{one:#}");
    }
}

// Check that threads which exit give their places back although nobody measures functions any more
// and what measured them is forgotten, while something else is followed.
#[test]
fn threads_that_exit_later_leave_no_place_taken() {
    let Some(daemon) = allowed() else { return };
    let marked = Workload::start("marked --wait");
    marked.ready();
    let other = begin(
        &daemon,
        &json!({"usdt": ["workload:workload:hit"], "pids": [marked.pid()], "budget_percent": 100}),
    );
    let mut crowd = Workload::start("crowd --wait --hold --threads 50");
    crowd.ready();
    let path = begin(
        &daemon,
        &json!({
            "functions": ["workload:*crowd_call"], "pids": [crowd.pid()], "budget_percent": 100,
        }),
    );
    until(&daemon, &path, is("measuring"));
    crowd.go();
    crowd.truth();
    assert_eq!(threads(&daemon), 50);
    ask(&daemon, "DELETE", &path, None, 200);
    ask(&daemon, "DELETE", &path, None, 204);
    drop(crowd);
    until_nobody(&daemon);
    ask(&daemon, "DELETE", &other, None, 200);
}
