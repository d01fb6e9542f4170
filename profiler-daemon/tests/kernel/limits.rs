//! Too small on purpose: what does not fit is counted by cause, and what is counted still adds up.

use serde_json::{Value, json};

use crate::daemon::{self, Daemon, Settings};
use crate::ledger;
use crate::reads::{self, number, unix_now_ns};
use crate::targets;
use crate::workload::{self, Workload};

fn causes(daemon: &Daemon) -> Value {
    daemon.get("/session")["completeness"]["causes"].clone()
}

#[test]
fn more_threads_than_records_are_counted_as_lost() {
    // Check that with 64 thread records and 300 threads the rest are counted as not observed, and
    // the ledger holds.
    let settings = Settings {
        limits: "max_threads = 64",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let many = Workload::start("many --threads 300");
    many.ready();
    workload::run("churn --count 100");
    let causes = causes(&daemon);
    assert!(
        causes["threads_no_record"].as_u64() > Some(100),
        "threads without a record are counted: {causes}"
    );
    ledger::check(&daemon);
}

#[test]
fn threads_without_a_record_get_one_when_records_come_free() {
    // Check that a process that found no thread record is observed once another one, which had them
    // all, has ended, and that it was not before.
    let settings = Settings {
        limits: "max_threads = 64",
        targets: "pids = [1]",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let many = Workload::start("many --threads 100");
    many.ready();
    targets::put(&daemon, &json!({"pids": [many.pid()]}));
    let late = Workload::start("split --seconds 60");
    targets::put(&daemon, &json!({"pids": [many.pid(), late.pid()]}));
    let path = format!("/processes/{}", late.selector());
    // Two passes and more: it was turned away in a pass of its own.
    reads::until(&daemon, "/session", unix_now_ns() + 2_500_000_000, |_| true);
    assert_eq!(
        daemon.try_get(&format!("/api/v1{path}")).status,
        404,
        "there was no record for it"
    );
    let status = many.stop();
    assert!(!status.success(), "it held its records: {status}");
    reads::until(&daemon, &path, unix_now_ns(), |row| {
        number(row, "/elapsed_ns") > 500_000_000
    });
    let status = late.stop();
    assert!(!status.success(), "it was still at work: {status}");
    ledger::check(&daemon);
}

#[test]
fn more_stacks_than_fit_keep_their_time() {
    // Check that with tables too small for the stacks that come, the loss is counted by cause, no
    // time is lost with a stack, and the ledger holds.
    let settings = Settings {
        top: "frequency_hz = 4999\nmin_interval = 0",
        limits: "stack_entries = 1024\nstack_ring_bytes = \"256KiB\"\nprofile_stack_bytes = \"1MiB\"",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let recursions: Vec<_> = [40, 80, 120, 160, 200]
        .iter()
        .map(|depth| Workload::start(&format!("recursion --seconds 2 --depth {depth}")))
        .collect();
    let finished: Vec<_> = recursions
        .into_iter()
        .chain([
            Workload::start("churn --count 300"),
            Workload::start("pingpong --count 10000"),
        ])
        .map(Workload::finish)
        .collect();
    for finished in &finished {
        reads::ended(&daemon, finished);
        assert!(
            ledger::check_process(&daemon, &finished.selector),
            "a process that has just ended is still known"
        );
    }
    let causes = causes(&daemon);
    let lost: u64 = causes
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(_, count)| count.as_u64())
        .sum();
    assert!(
        lost > 0,
        "nothing was counted as lost or deferred: {causes}"
    );
    ledger::check(&daemon);
}
