//! What is profiled can change while the daemon runs: what is no target does not grow, and what was missed is not invented.

use serde_json::{Value, json};

use crate::daemon::{self, Daemon, Settings};
use crate::ledger;
use crate::reads::{self, number, text, unix_now_ns, unix_ns};
use crate::workload::Workload;

fn put(daemon: &Daemon, targets: &Value) -> u64 {
    let answer = daemon.request("PUT", "/api/v1/targets", Some(&targets.to_string()));
    assert!(
        (200..300).contains(&answer.status),
        "PUT {targets}: {} {}",
        answer.status,
        answer.text()
    );
    unix_now_ns()
}

fn elapsed_at(daemon: &Daemon, workload: &Workload, since_unix_ns: u64) -> (u64, u64) {
    let row = reads::until(
        daemon,
        &format!("/processes/{}", workload.selector()),
        since_unix_ns,
        |_| true,
    );
    (number(&row, "/elapsed_ns"), unix_ns(text(&row, "/as_of")))
}

fn not_target(daemon: &Daemon) -> u64 {
    daemon.get("/session")["discarded"]["not_target"]
        .as_u64()
        .unwrap_or(0)
}

#[test]
fn targets_change_while_it_runs() {
    // Check that after a PUT a process that is no target stops growing while a target grows, that its samples are
    // counted as discarded, and that it grows again, without the time between, once it is a target again.
    let settings = Settings {
        top: "frequency_hz = 499",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let kept = Workload::start("split --seconds 8");
    let left = Workload::start("split --seconds 8");
    assert_eq!(daemon.get("/targets")["all"], true);
    elapsed_at(&daemon, &left, unix_now_ns());

    let changed_ns = put(&daemon, &json!({"pids": [kept.pid()]}));
    assert_eq!(daemon.get("/targets")["pids"], json!([kept.pid()]));
    let discarded = not_target(&daemon);
    let (kept_before, kept_before_at) = elapsed_at(&daemon, &kept, changed_ns + 300_000_000);
    let (left_before, _) = elapsed_at(&daemon, &left, changed_ns + 300_000_000);
    let (kept_after, kept_after_at) = elapsed_at(&daemon, &kept, changed_ns + 1_800_000_000);
    let (left_after, _) = elapsed_at(&daemon, &left, changed_ns + 1_800_000_000);
    assert_eq!(
        left_after, left_before,
        "a process that is no target does not grow"
    );
    reads::assert_near(
        "growth of the target",
        kept_after - kept_before,
        kept_after_at - kept_before_at,
        0.01,
        20_000_000,
    );
    assert!(
        not_target(&daemon) > discarded + 100,
        "samples of the other process are counted as discarded"
    );
    ledger::check_process(&daemon, &left.selector());

    let changed_ns = put(&daemon, &json!({"all": true}));
    let (left_again, again_at) = elapsed_at(&daemon, &left, changed_ns + 500_000_000);
    assert!(left_again > left_after, "it grows again");
    assert!(
        left_again - left_after <= again_at - changed_ns + 1_200_000_000,
        "the time between is in no report"
    );
    let threads = daemon.get(&format!("/processes/{}/threads?limit=0", left.selector()));
    assert!(
        number(&threads, "/rows/0/unobserved_ns") > 1_000_000_000,
        "the time between is told: {threads}"
    );
    ledger::check(&daemon);
}

#[test]
fn children_of_a_target_are_targets() {
    // Check that with children:true what a target forks is profiled, and without it is not.
    let Some(daemon) = daemon::own(&Settings::default()) else {
        return;
    };
    for children in [true, false] {
        let mut parent = Workload::start("fork --millis 300 --wait");
        parent.ready();
        put(
            &daemon,
            &json!({"pids": [parent.pid()], "children": children}),
        );
        parent.go();
        let finished = parent.finish();
        reads::until(
            &daemon,
            &format!("/processes/{}", finished.selector),
            finished.unix_ns,
            |_| true,
        );
        let child = daemon.try_get(&format!(
            "/api/v1/processes/{}",
            finished.truth["child_pid"]
        ));
        let grew = child.status == 200 && number(&child.json(), "/elapsed_ns") > 200_000_000;
        assert_eq!(grew, children, "children: {children}: {}", child.text());
    }
}

#[test]
fn a_comm_can_be_a_target() {
    // Check that a process is a target by its name, from the configuration on, and that nothing else is.
    let settings = Settings {
        targets: "comms = [\"workload\"]",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let finished = crate::workload::run("split --seconds 1");
    let row = reads::until(
        &daemon,
        &format!("/processes/{}", finished.selector),
        finished.unix_ns,
        |_| true,
    );
    assert!(number(&row, "/elapsed_ns") > 900_000_000, "{row}");
    let list = daemon.get("/processes?limit=0");
    for row in reads::rows(&list) {
        assert!(
            row["comm"] == "workload" || number(row, "/elapsed_ns") == 0,
            "no target, yet it has time: {row}"
        );
    }
}

#[test]
fn wrong_targets_are_refused() {
    // Check that targets that name nothing, unknown fields and bad JSON are refused with a problem, and change nothing.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    for body in [
        "{}",
        "{\"pid\":[1]}",
        "{\"pids\":[0]}",
        "not json",
        "{\"all\":false}",
    ] {
        let answer = daemon.request("PUT", "/api/v1/targets", Some(body));
        assert!(
            (400..500).contains(&answer.status),
            "PUT {body}: {}",
            answer.status
        );
        assert!(
            answer.has_header("content-type", "application/problem+json"),
            "PUT {body}: {}",
            answer.headers
        );
    }
    assert_eq!(daemon.get("/targets")["all"], true);
}
