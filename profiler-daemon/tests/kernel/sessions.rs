//! Named sessions on the running kernel: two phases of a real process, told apart by a mark.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{self, Daemon, Settings};
use crate::ledger;
use crate::reads::{Yardstick, classes, function, number, running_ns, text, unix_now_ns};
use crate::workload::Workload;

/// How far two clock readings of one moment may lie apart, nanoseconds.
const READING_NS: u64 = 100_000;
/// What a process may still do after it said that its work is done.
const RESIDUE_NS: u64 = 20_000_000;
/// The length of the phase in which nothing is done.
const ASLEEP_NS: u64 = 1_500_000_000;

fn change(daemon: &Daemon, method: &str, path: &str, body: Option<&str>, status: u16) -> Value {
    let answer = daemon.request(method, &format!("/api/v1{path}"), body);
    assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
    answer.json()
}

/// Does something, and says between which moments that was.
fn timed<T>(what: impl FnOnce() -> T) -> (u64, T, u64) {
    let before_ns = unix_now_ns();
    let done = what();
    (before_ns, done, unix_now_ns())
}

#[test]
fn a_mark_parts_work_from_sleep() {
    // Check that of a process that works and then sleeps, with a mark between, the spans of a
    // session have the length that the clock says, that each holds the process's whole time in it,
    // the first its work in its functions and the second its sleep, and that both sum to the
    // session, which stays as it is when it is stopped.
    let Some(daemon) = daemon::own(&Settings::default()) else {
        return;
    };
    let daemon = &daemon;
    let mut workload = Workload::start("split --wait --hold --seconds 2");
    workload.ready();
    let yardstick = Yardstick::start();
    let body = r#"{"name": "phases"}"#;
    let (start, _, started) = timed(|| change(daemon, "POST", "/sessions", Some(body), 201));
    workload.go();
    let finished = workload.truth();
    let body = r#"{"name": "asleep", "session": "phases"}"#;
    let (mark, _, marked) = timed(|| change(daemon, "POST", "/marks", Some(body), 201));
    std::thread::sleep(std::time::Duration::from_nanos(ASLEEP_NS));
    let (stop, totals, stopped) = timed(|| change(daemon, "DELETE", "/sessions/phases", None, 200));
    let duration = |at: &str| number(&totals, &format!("{at}/duration_ns"));
    for (length_ns, least_ns, most_ns) in [
        (duration("/spans/0"), mark - started, marked - start),
        (duration("/spans/1"), stop - marked, stopped - mark),
    ] {
        assert!(
            (least_ns..=most_ns).contains(&length_ns),
            "{length_ns} ns are not between {least_ns} and {most_ns} ns"
        );
    }
    let path = format!("/processes/{}", workload.selector());
    let of = |query: &str| daemon.get(&format!("{path}?session=phases{query}"));
    let [whole, work, sleep] = ["", "&span=start", "&span=asleep"].map(of);
    for (row, length_ns) in [
        (&work, duration("/spans/0")),
        (&sleep, duration("/spans/1")),
        (&whole, duration("")),
    ] {
        let elapsed_ns = number(row, "/elapsed_ns");
        assert!(
            elapsed_ns.abs_diff(length_ns) <= READING_NS,
            "one thread has {elapsed_ns} ns in a span of {length_ns} ns"
        );
    }
    let sums: Vec<u64> = std::iter::zip(classes(&work), classes(&sleep))
        .map(|(work, sleep)| work + sleep)
        .collect();
    assert_eq!(sums, classes(&whole), "the spans are the session");
    let cpu_ns = number(&finished.truth, "/user_ns") + number(&finished.truth, "/system_ns");
    let worked_ns = running_ns(&work);
    // It also ran before the session, until it was ready. On a busy machine the kernel's own
    // account is off by some percent.
    assert!(
        worked_ns.abs_diff(cpu_ns)
            <= cpu_ns / 20 + RESIDUE_NS + yardstick.slack_ns(&finished.truth),
        "{worked_ns} ns of {cpu_ns} ns"
    );
    assert!(running_ns(&sleep) <= RESIDUE_NS, "{sleep}");
    let list = |span: &str| {
        daemon.get(&format!(
            "{path}/functions?limit=0&session=phases&span={span}"
        ))
    };
    let sixty = number(
        function(&list("start"), "split_sixty"),
        "/elapsed/inclusive_ns",
    );
    assert!(
        sixty * 100 >= worked_ns * 45,
        "{sixty} ns of {worked_ns} ns"
    );
    let asleep = list("asleep");
    let held = number(
        function(&asleep, "hold_until_closed"),
        "/elapsed/inclusive_ns",
    );
    assert!(
        held + RESIDUE_NS >= number(&sleep, "/elapsed_ns"),
        "{held} ns"
    );
    // It is the same a second later, and with the process gone.
    drop(workload);
    let later = daemon.get("/sessions/phases");
    assert_eq!(later["elapsed_ns"], totals["elapsed_ns"]);
    assert_eq!(text(&later, "/stopped_at"), text(&totals, "/stopped_at"));
    assert_eq!(classes(&of("")), classes(&whole));
    let timeline = daemon.get(&format!("{path}/timeline?session=phases"));
    let spans = timeline["rows"][0]["spans"]
        .as_array()
        .expect("a row has spans");
    let user: u64 = spans.iter().filter_map(|span| span[0].as_u64()).sum();
    assert_eq!(user, number(&whole, "/classes/user_ns"), "{timeline}");
    let removed = daemon.request("DELETE", "/api/v1/sessions/phases", None);
    assert_eq!(removed.status, 204, "{}", removed.text());
    assert_eq!(daemon.try_get("/api/v1/sessions/phases").status, 404);
}

#[test]
fn a_session_that_is_full_is_followed_by_another() {
    // Check that once the threads of a session have lived for as long as they may, the same daemon
    // begins another one at the same address, says why, and that the new one adds up from its own
    // begin on.
    let settings = Settings {
        limits: "session_thread_time = \"4h\"",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let before = daemon.get("/session");
    let workload = Workload::start("asleep --threads 3000");
    workload.ready();
    let deadline = Instant::now() + Duration::from_secs(40);
    let wait_for = |what: &str, count: usize| {
        while daemon.log().matches(what).count() < count {
            assert!(Instant::now() < deadline, "no {what}: {}", daemon.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    wait_for(
        "a new session begins: the threads of the last one have lived for 4h",
        1,
    );
    // Without these it is not full again soon.
    workload.stop();
    wait_for("ready in", 2);
    let after = daemon.get("/session");
    assert!(text(&after, "/started_at") > text(&before, "/started_at"));
    ledger::check(&daemon);
}
