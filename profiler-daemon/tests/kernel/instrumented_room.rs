//! Room for what is measured: it is given back, and calls that found none are told.

use std::time::{Duration, Instant};

use profiler_common::limits::MAX_MEASURED_THREADS;
use profiler_common::measured::{MeasuredThread, ShadowStack};
use profiler_common::spans::PlaceAction;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::instrumentations::{allowed, ask, begin, is, row, until};
use crate::kernel_maps::keys;
use crate::reads::{number, text};
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

/// A crowd that has begun, and the instrumentation that measures its calls from the first on.
fn measured_crowd(daemon: &Daemon, options: &str, exits: &str) -> (Workload, String) {
    let mut crowd = Workload::start(&format!("crowd --wait {options}"));
    crowd.ready();
    let path = begin(
        daemon,
        &json!({
            "functions": ["workload:*crowd_call"], "pids": [crowd.pid()],
            "budget_percent": 100, "exits": exits,
        }),
    );
    until(daemon, &path, is("measuring"));
    crowd.go();
    (crowd, path)
}

// Check that of more threads than can be measured the calls of the others are counted, and told as
// counted only; that counting alone takes no thread's place; and that all places are free again
// once the instrumentation has ended, although its threads live on, so that the next one measures
// whom it means.
#[test]
fn threads_beyond_the_bound_are_counted_only() {
    let Some(daemon) = allowed() else { return };
    for (exits, most) in [("none", 0), ("sites", MAX_MEASURED_THREADS as usize)] {
        let (crowd, path) = measured_crowd(&daemon, "--hold", exits);
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
        let (_few, path) = measured_crowd(&daemon, "--threads 10 --count 100", "sites");
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
    let (crowd, path) = measured_crowd(&daemon, "--hold --threads 50", "sites");
    crowd.truth();
    assert_eq!(threads(&daemon), 50);
    ask(&daemon, "DELETE", &path, None, 200);
    ask(&daemon, "DELETE", &path, None, 204);
    drop(crowd);
    until_nobody(&daemon);
    ask(&daemon, "DELETE", &other, None, 200);
}

/// Numbers of places that a daemon's programs know.
fn places(daemon: &Daemon) -> Vec<u32> {
    keys::<_, PlaceAction>(daemon, "PLACES")
}

// Check that places of USDT points and spans are forgotten where their processes exit before the
// instrumentation ends; that in processes for which there is no room nothing is followed, which is
// told, and that others are followed all the same.
#[test]
fn places_are_given_back() {
    let Some(daemon) = allowed() else { return };
    // Others that run the program: what is probed is in the memory of those measured alone.
    let other = Workload::start("marked --wait");
    other.ready();
    let mut marked = Workload::start("marked --wait");
    marked.ready();
    let path = begin(
        &daemon,
        &json!({
            "usdt": ["workload:workload:hit", "workload:workload:begin"],
            "pids": [marked.pid()], "budget_percent": 100,
        }),
    );
    assert_eq!(places(&daemon).len(), 2);
    marked.go();
    until(&daemon, &path, is("ended"));
    assert_eq!(places(&daemon), [0_u32; 0]);

    // So many places in so many processes that there is no room for the last of these.
    let (spans, processes) = (250, 20);
    let mut many = Workload::start("many --kind processes --threads 20 --wait");
    many.ready();
    // A place in its file, whether it comes there or not.
    let end = "usdt:workload:workload:end";
    let spans: Vec<Value> = (0..spans)
        .map(|number| json!({"name": format!("s{number}"), "start": end, "end": end, "key": "tid"}))
        .collect();
    let path = begin(
        &daemon,
        &json!({"spans": spans, "pids": [many.pid()], "budget_percent": 100}),
    );
    assert_eq!(
        ask(&daemon, "GET", &path, None, 200)["trouble"],
        Value::Null
    );
    many.go();
    let one = until(&daemon, &path, |one| !one["trouble"].is_null());
    let trouble = text(&one, "/trouble");
    assert!(
        trouble.contains("not followed in") && trouble.contains("points would be probed"),
        "{trouble}"
    );
    // Those that found room are followed all the same.
    until(&daemon, &path, |one| {
        number(one, "/processes") == processes + 1 && number(one, "/points") > 10 * 250
    });
    drop(many);
    until(&daemon, &path, is("ended"));
    assert_eq!(places(&daemon), [0_u32; 0]);
}
