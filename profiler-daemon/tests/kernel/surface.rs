//! The HTTP surface on a live machine: what is refused, what is offered in which format, and what a
//! scraper gets.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::daemon::{self, Daemon};
use crate::http;
use crate::ledger;
use crate::reads::{number, rows, text, unix_now_ns, unix_ns, until};
use crate::workload;

/// What the test of windows asks for, the step in which windows are kept, and the step in which
/// they grow.
const WINDOW_NS: u64 = 2_000_000_000;
const SEGMENT_NS: u64 = 3_000_000_000;
const PASS_NS: u64 = 1_100_000_000;

#[test]
fn foreign_hosts_are_refused() {
    // Check that a request for another host name, as a web page could make it, gets no report.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let answer = http::request(
        daemon.address(),
        "GET",
        "/api/v1/processes",
        "evil.example",
        None,
    )
    .expect("an answer");
    assert!(
        (400..500).contains(&answer.status),
        "{} {}",
        answer.status,
        answer.text()
    );
    let port = daemon.address().port();
    let answer = http::request(
        daemon.address(),
        "GET",
        "/api/v1/session",
        &format!("localhost:{port}"),
        None,
    );
    assert_eq!(answer.expect("an answer").status, 200);
}

#[test]
fn a_typo_never_looks_like_an_empty_answer() {
    // Check that unknown parameters, values, sorts, pids and paths are refused with a problem that
    // says what is allowed.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    for (path, status, part) in [
        ("/api/v1/processes?sorted=samples", 400, "sort"),
        ("/api/v1/processes?sort=smaples", 400, "samples"),
        ("/api/v1/processes?limit=-1", 400, "limit"),
        ("/api/v1/processes?order=up", 400, "desc"),
        ("/api/v1/functions?frames=kernel", 400, "all"),
        ("/api/v1/functions?window=5", 400, "window"),
        ("/api/v1/processes?format=xml", 400, "json"),
        ("/api/v1/processes?format=svg", 400, "csv"),
        ("/api/v1/processes/abc", 400, ""),
        ("/api/v1/processes/4194303", 404, ""),
        ("/api/v1/nothing", 404, ""),
    ] {
        let answer = daemon.try_get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(
            answer.has_header("content-type", "application/problem+json"),
            "{path}: {}",
            answer.headers
        );
        let problem = answer.json();
        assert_eq!(
            number(&problem, "/status"),
            u64::from(status),
            "{path}: {problem}"
        );
        assert!(
            problem.to_string().contains(part),
            "{path}: `{part}` is not in {problem}"
        );
    }
}

#[test]
fn tables_are_sorted_cut_and_searched() {
    // Check that sort, order, limit and q do what they say, and that a cut list says so.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    workload::run("split --seconds 1");
    let list = daemon.get("/processes?limit=3&sort=elapsed_ns&order=asc");
    assert_eq!(list["truncated"], true);
    assert_eq!(list["rows"].as_array().map(Vec::len), Some(3));
    let list = daemon.get("/functions?limit=0");
    let exclusive: Vec<u64> = rows(&list)
        .iter()
        .map(|row| number(row, "/elapsed/exclusive_ns"))
        .collect();
    assert!(
        exclusive.is_sorted_by(|before, after| before >= after),
        "functions come by elapsed exclusive, largest first"
    );
    let list = daemon.get("/functions?limit=0&q=split_");
    assert!(
        list["rows"].as_array().is_some_and(|rows| rows.len() >= 3),
        "{list}"
    );
    assert!(list["rows"].as_array().into_iter().flatten().all(|row| {
        row["function"]
            .as_str()
            .is_some_and(|name| name.contains("split_"))
    }));
}

#[test]
fn every_report_answers_in_every_format() {
    // Check that each report of a process and of the session exists, dated and with its receipt, as
    // JSON and text.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let finished = workload::run("split --seconds 1");
    let of_process = format!("/processes/{}", finished.selector);
    for report in ["functions", "modules", "threads", "calltree", "os-events"] {
        for base in ["", of_process.as_str()] {
            let json = daemon.get(&format!("{base}/{report}"));
            assert!(
                json["as_of"].is_string() && json["completeness"].is_object(),
                "{base}/{report}"
            );
            let answer = daemon.try_get(&format!("/api/v1{base}/{report}?format=text"));
            assert_eq!(
                answer.status,
                200,
                "{base}/{report} as text: {}",
                answer.text()
            );
            assert!(
                answer.has_header("content-type", "text/plain"),
                "{base}/{report}: {}",
                answer.headers
            );
            assert!(
                answer.text().lines().count() > 1,
                "{base}/{report} as text: {}",
                answer.text()
            );
        }
    }
    for path in ["/healthz", "/-/healthy", "/readyz", "/-/ready"] {
        assert_eq!(daemon.try_get(path).status, 200, "{path}");
    }
    let status = daemon.get("/status");
    for key in [
        "version",
        "kernel_release",
        "settings",
        "attached",
        "degraded",
    ] {
        assert!(status.get(key).is_some(), "no {key} in {status}");
    }
}

#[test]
fn windows_are_parts_of_the_session() {
    // Check that a window says which span it covers, that this is at least what was asked and no
    // more than a segment longer, that the span is what a busy process grew by, and that no window
    // holds more than the session.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let workload = workload::Workload::start("split --seconds 4");
    let path = format!("/processes/{}", workload.selector());
    until(daemon, &path, unix_now_ns() + 3_000_000_000, |_| true);
    let read_before_ns = reading_ns(daemon);
    let [session, window, whole] = ledger::at_one_moment(
        daemon,
        [
            &path,
            &format!("{path}?window=2s"),
            &format!("{path}?window=session"),
        ],
    )
    .expect("the process is alive");
    let [(session_from, session_to), (from, to), (_, whole_to)] = [&session, &window, &whole]
        .map(|report| ["/window/from", "/window/to"].map(|pointer| unix_ns(text(report, pointer))))
        .map(|[from, to]| (from, to));
    assert_eq!(to, unix_ns(text(&window, "/as_of")), "a window ends now");
    assert_eq!((to, to), (session_to, whole_to), "all three end now");
    assert_eq!(
        number(&session, "/elapsed_ns"),
        number(&whole, "/elapsed_ns")
    );
    assert!(
        from == session_from || to - from >= WINDOW_NS,
        "{} ns are less than the {WINDOW_NS} asked",
        to - from
    );
    assert!(
        from >= session_from && to - from <= WINDOW_NS + SEGMENT_NS + PASS_NS,
        "{} ns are more than what was asked and a segment",
        to - from
    );
    let [session_ns, window_ns] = [&session, &window].map(|report| number(report, "/elapsed_ns"));
    let reading_ns = reading_ns(daemon) - read_before_ns;
    assert!(window_ns <= session_ns, "{window_ns} ns of {session_ns} ns");
    assert!(
        // An end is when its reading began, and a thread that has switched since is told as of its
        // switch.
        (WINDOW_NS - PASS_NS..=to - from + 1_000_000 + reading_ns).contains(&window_ns),
        "one busy thread has {window_ns} ns in a window of {} ns, {reading_ns} ns were read",
        to - from
    );
    workload.finish();
}

/// How long the daemon has been reading the kernel's maps since its start.
fn reading_ns(daemon: &Daemon) -> u64 {
    (daemon.metric("profiler_drain_seconds_total") * 1e9) as u64
}

/// Fails unless `promtool check metrics` has nothing to say. Says so where promtool is not
/// installed.
pub(crate) fn promtool_accepts(text: &str) {
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        daemon::say("skipped: promtool is not installed");
        return;
    };
    child
        .stdin
        .take()
        .expect("the input is a pipe")
        .write_all(text.as_bytes())
        .expect("promtool reads its input");
    let output = child
        .wait_with_output()
        .expect("promtool is a child of this process");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.status.success() && said.trim().is_empty(),
        "promtool: {said}"
    );
}

#[test]
fn metrics_are_well_formed() {
    // Check that promtool finds nothing to say against the metrics, and that they are not empty.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let answer = daemon.try_get("/metrics");
    assert_eq!(answer.status, 200);
    assert!(
        answer.has_header("content-type", "text/plain"),
        "{}",
        answer.headers
    );
    assert!(
        answer
            .text()
            .lines()
            .filter(|line| !line.starts_with('#'))
            .count()
            > 20,
        "{}",
        answer.text()
    );
    promtool_accepts(&answer.text());
}
