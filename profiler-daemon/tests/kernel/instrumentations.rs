//! Functions of running programs, measured exactly as somebody asks over HTTP.

use std::fs::File;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use profiler_common::measured::{MeasuredThread, ShadowStack};
use serde_json::{Value, json};

use crate::daemon::{self, Daemon, Settings};
use crate::exact_functions::kernel_version;
use crate::kernel_maps::keys;
use crate::reads::{number, text};
use crate::workload::{self, Workload};

pub(crate) const PATH: &str = "/api/v1/instrumentations";
/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon that may be asked; `None`: not as this user, or on this kernel.
pub(crate) fn allowed() -> Option<Daemon> {
    if kernel_version() < (5, 17) {
        daemon::say("skipped: nothing is measured on this kernel");
        return None;
    }
    daemon::own(&Settings {
        top: "instrumentation.over_http = true",
        ..Settings::default()
    })
}

pub(crate) fn ask(
    daemon: &Daemon,
    method: &str,
    path: &str,
    body: Option<&Value>,
    status: u16,
) -> Value {
    let body = body.map(Value::to_string);
    let answer = daemon.request(method, path, body.as_deref());
    assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
    if answer.text().is_empty() {
        return Value::Null;
    }
    answer.json()
}

/// Begins one, and answers its path.
pub(crate) fn begin(daemon: &Daemon, body: &Value) -> String {
    let begun = ask(daemon, "POST", PATH, Some(body), 201);
    format!("{PATH}/{}", number(&begun, "/id"))
}

/// Asks until it is so.
pub(crate) fn until(daemon: &Daemon, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let one = ask(daemon, "GET", path, None, 200);
        if is_so(&one) {
            return one;
        }
        assert!(Instant::now() < deadline, "{one:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn is(state: &'static str) -> impl Fn(&Value) -> bool {
    move |one| one["state"] == state
}

/// The measured row of a function by the last part of its name.
pub(crate) fn row<'a>(one: &'a Value, function: &str) -> &'a Value {
    let rows = one["measured"]["functions"].as_array().expect("rows");
    let mut rows = rows.iter();
    let found = rows.find(|row| text(row, "/function").ends_with(function));
    found.unwrap_or_else(|| panic!("{function} is not in {one:#}"))
}

/// Bytes of a workload's code that are not those of its file.
pub(crate) fn changed_bytes(pid: u32) -> usize {
    let exe = File::open(workload::exe()).expect("the workload's file");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("its memory");
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("its mappings");
    let path = workload::exe().to_str().expect("the path is text");
    let code = maps
        .lines()
        .filter(|line| line.contains("r-xp") && line.ends_with(path));
    let mut compared = 0;
    let mut changed = 0;
    for line in code {
        let mut fields = line.split_whitespace();
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).expect("an address");
        let range = fields
            .next()
            .expect("a range")
            .split_once('-')
            .expect("two ends");
        let (start, end) = (hexadecimal(range.0), hexadecimal(range.1));
        let offset = hexadecimal(fields.nth(1).expect("an offset"));
        let size = usize::try_from(end - start).expect("a size");
        let (mut own, mut file) = (vec![0; size], vec![0; size]);
        memory.read_exact_at(&mut own, start).expect("its code");
        let read = exe.read_at(&mut file, offset).expect("the file's code");
        compared += read;
        let pairs = own[..read].iter().zip(&file[..read]);
        changed += pairs.filter(|(own, file)| own != file).count();
    }
    assert!(compared > 0, "{path} is not in {maps}");
    changed
}

// Check that functions of a running process are measured to the call and against its own clocks,
// that the instrumentation ends with the process and keeps its rows, and that DELETE then removes
// it.
#[test]
fn functions_of_a_process_are_measured() {
    let Some(daemon) = allowed() else { return };
    let mut workload = Workload::start("measured --wait");
    workload.ready();
    let path = begin(
        &daemon,
        &json!({
            "name": "outer", "budget_percent": 100, "pids": [workload.pid()],
            "functions": ["workload:*measured_outer", "workload:*measured_inner", "workload:*measured_thrower"],
        }),
    );
    let one = until(&daemon, &path, is("measuring"));
    assert_eq!(one["name"], "outer");
    assert!(number(&one, "/points") >= 6, "{one:#}");
    assert!(changed_bytes(workload.pid()) > 0);
    workload.go();
    let truth = workload.truth().truth;
    let one = until(&daemon, &path, is("ended"));
    assert_eq!(one["ended"], "no_process", "{one:#}");
    assert_eq!(number(&one, "/points"), 0);
    let outer = row(&one, "measured_outer");
    assert_eq!(
        number(outer, "/calls"),
        number(&truth, "/outer_calls"),
        "{one:#}"
    );
    assert_eq!(number(outer, "/outermost"), number(&truth, "/outer_calls"));
    let (elapsed, expected) = (
        number(outer, "/elapsed/inclusive_ns"),
        number(&truth, "/outer_elapsed_ns"),
    );
    assert!(
        50 * elapsed.abs_diff(expected) <= expected,
        "{elapsed} of {expected}"
    );
    let inner = row(&one, "measured_inner");
    assert_eq!(
        number(inner, "/calls"),
        number(&truth, "/inner_calls"),
        "{one:#}"
    );
    let thrower = row(&one, "measured_thrower");
    assert_eq!(
        number(thrower, "/calls"),
        number(&truth, "/thrower_calls"),
        "{one:#}"
    );
    ask(&daemon, "DELETE", &path, None, 204);
    ask(&daemon, "GET", &path, None, 404);
}

// Check that a dry run changes no byte of the program, that the time detaches by itself, that the
// first DELETE of one that runs detaches and keeps its rows, that what another measures already is
// refused by its number, and that what has ended says the same whatever is measured later.
#[test]
fn everything_is_detached() {
    let Some(daemon) = allowed() else { return };
    let mut workload = Workload::start("split --wait --seconds 30");
    workload.ready();
    workload.go();
    let pid = workload.pid();
    let mut body = json!({
        "functions": ["workload:*split_sixty"], "pids": [pid], "budget_percent": 100, "dry_run": true,
    });
    let dry = ask(&daemon, "POST", PATH, Some(&body), 200);
    assert_eq!(dry["state"], "dry_run");
    assert_eq!(dry["functions"][0]["state"], "measured", "{dry:#}");
    assert!(
        dry["functions"][0]["ns_per_call"].as_f64() > Some(0.0),
        "{dry:#}"
    );
    let list = ask(&daemon, "GET", PATH, None, 200);
    assert_eq!(list["instrumentations"], json!([]));
    assert_eq!(changed_bytes(pid), 0);

    body["dry_run"] = json!(false);
    // Long enough to be seen before it is over, also on a machine that is busy.
    body["for"] = json!("6s");
    let path = begin(&daemon, &body);
    until(&daemon, &path, is("measuring"));
    assert!(changed_bytes(pid) > 0);
    let twice = ask(&daemon, "POST", PATH, Some(&body), 201);
    assert_eq!(twice["functions"][0]["state"], "refused", "{twice:#}");
    assert!(
        text(&twice, "/functions/0/why").contains("measures it already"),
        "{twice:#}"
    );
    let over = until(&daemon, &path, is("ended"));
    assert_eq!(over["ended"], "time", "{over:#}");
    assert!(number(row(&over, "split_sixty"), "/calls") > 0, "{over:#}");
    assert_eq!(changed_bytes(pid), 0);

    body["for"] = json!("1h");
    let path = begin(&daemon, &body);
    until(&daemon, &path, is("measuring"));
    let ended = ask(&daemon, "DELETE", &path, None, 200);
    assert_eq!(
        (&ended["ended"], &ended["points"]),
        (&json!("asked"), &json!(0))
    );
    assert_eq!(changed_bytes(pid), 0);
    row(&ask(&daemon, "GET", &path, None, 200), "split_sixty");
    let first = format!("{PATH}/{}", number(&over, "/id"));
    let again = ask(&daemon, "GET", &first, None, 200);
    assert_eq!(
        again["measured"]["probe_costs"],
        over["measured"]["probe_costs"]
    );
    let times = |one: &Value| row(one, "split_sixty")["elapsed"].clone();
    assert_eq!(times(&again), times(&over));
    ask(&daemon, "DELETE", &path, None, 204);
    ask(&daemon, "DELETE", &path, None, 404);
    let nothing = json!({"functions": ["workload:no_such_function"], "pids": [pid]});
    let refused = ask(&daemon, "POST", PATH, Some(&nothing), 409);
    assert!(
        text(&refused, "/detail").contains("no such function"),
        "{refused:#}"
    );
}

// Check that what would cost too much is given up in the trial, with the rate that was seen, before
// any exit is probed.
#[test]
fn what_costs_too_much_does_not_pass_its_trial() {
    let Some(daemon) = allowed() else { return };
    // So many calls that it is over its budget however little of a processor it gets.
    let mut workload = Workload::start("recursion --wait --depth 500 --seconds 20");
    workload.ready();
    workload.go();
    let path = begin(
        &daemon,
        &json!({"functions": ["workload:*recursion::recurse"], "pids": [workload.pid()], "budget_percent": 0.1}),
    );
    let one = until(&daemon, &path, is("ended"));
    assert_eq!(one["ended"], "given_up", "{one:#}");
    assert_eq!(changed_bytes(workload.pid()), 0);
    let dear = row(&one, "recursion::recurse");
    let why = text(dear, "/why");
    assert!(
        why.contains("calls a second") && why.contains("trial"),
        "{why}"
    );
}

// Check that a program that starts later is measured by its name from the moment that it is found,
// and not without that.
#[test]
fn who_comes_later_is_measured_by_name() {
    let Some(daemon) = allowed() else { return };
    let path = begin(
        &daemon,
        &json!({"functions": ["workload:*measured_outer"], "comms": ["workload"], "budget_percent": 100}),
    );
    let one = ask(&daemon, "GET", &path, None, 200);
    assert_eq!(one["state"], "waiting", "{one:#}");
    let mut workload = Workload::start("measured --wait");
    workload.ready();
    until(&daemon, &path, is("measuring"));
    workload.go();
    let truth = workload.truth().truth;
    let calls = |one: &Value| number(row(one, "measured_outer"), "/outermost");
    let one = until(&daemon, &path, |one| {
        calls(one) == number(&truth, "/outer_calls")
    });
    assert_eq!(one["state"], "measuring", "others may come: {one:#}");
}

// Check that nothing is left in a program whose daemon is killed: its code is that of its file
// within a second, and it goes on.
#[test]
fn a_killed_daemon_leaves_nothing() {
    let Some(mut daemon) = allowed() else { return };
    let mut workload = Workload::start("split --wait --seconds 6");
    workload.ready();
    workload.go();
    let path = begin(
        &daemon,
        &json!({"functions": ["workload:*split_*"], "pids": [workload.pid()], "budget_percent": 100}),
    );
    until(&daemon, &path, is("measuring"));
    assert!(changed_bytes(workload.pid()) > 0);
    daemon.stop(libc::SIGKILL);
    let killed = Instant::now();
    while changed_bytes(workload.pid()) > 0 {
        assert!(
            killed.elapsed() < Duration::from_secs(1),
            "its code is changed"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(number(&workload.truth().truth, "/cycles") > 0);
}

// Check that a call within which a thread executes another program, be it the first of its process
// or not, is over then, although the process lives on; and that nothing is kept under the id that
// the thread had.
#[test]
fn calls_end_where_another_program_is_executed() {
    let Some(daemon) = allowed() else { return };
    for kind in ["leader", "thread"] {
        let mut workload =
            Workload::start(&format!("exec --wait --hold --millis 300 --kind {kind}"));
        workload.ready();
        let path = begin(
            &daemon,
            &json!({
                "functions": ["workload:*exec::execute", "workload:*before_exec_work"],
                "pids": [workload.pid()], "budget_percent": 100,
            }),
        );
        until(&daemon, &path, is("measuring"));
        workload.go();
        workload.truth();
        let one = until(&daemon, &path, |one| {
            number(row(one, "exec::execute"), "/open") == 0
        });
        assert_eq!(one["state"], "measuring", "{one:#}");
        let execute = row(&one, "exec::execute");
        assert_eq!(
            (number(execute, "/calls"), number(execute, "/left_unseen")),
            (1, 1),
            "{kind}: {execute:#}"
        );
        let before = row(&one, "before_exec_work");
        assert_eq!(number(before, "/outermost"), 1, "{kind}: {before:#}");
        let threads: Vec<MeasuredThread> = keys::<_, ShadowStack>(&daemon, "MEASURED_FRAMES");
        let moved =
            |thread: &&MeasuredThread| thread.pid == workload.pid() && thread.tid != workload.pid();
        assert_eq!(threads.iter().find(moved), None, "{kind}");
        ask(&daemon, "DELETE", &path, None, 200);
    }
}

// Check that nothing stays attached, and no instrumentation known, that was asked for by somebody
// who left before the answer, whenever that was while it began.
#[test]
fn who_leaves_before_the_answer_leaves_nothing() {
    let Some(daemon) = allowed() else { return };
    let workload = Workload::start("split --wait --seconds 60");
    workload.ready();
    let pid = workload.pid();
    let body = json!({"functions": ["workload:*split_sixty"], "pids": [pid], "for": "1h"});
    let mut took = Duration::ZERO;
    for _ in 0..2 {
        let asked = Instant::now();
        let path = begin(&daemon, &body);
        took = asked.elapsed();
        ask(&daemon, "DELETE", &path, None, 200);
        ask(&daemon, "DELETE", &path, None, 204);
    }
    const PARTS: u32 = 24;
    let mut left = 0;
    let dry_run = json!({
        "functions": ["workload:*split_sixty"], "pids": [pid], "dry_run": true,
    })
    .to_string();
    for part in 1..PARTS {
        // Who left while functions were chosen has the turn until they are.
        let deadline = Instant::now() + PATIENCE;
        while daemon.request("POST", PATH, Some(&dry_run)).status != 200 {
            assert!(Instant::now() < deadline, "others' functions are chosen");
        }
        let mut stream = TcpStream::connect(daemon.address()).expect("it listens");
        let text = body.to_string();
        write!(
            stream,
            "POST {PATH} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
            daemon.address(),
            text.len(),
        )
        .expect("it takes requests");
        std::thread::sleep(took * part / PARTS);
        stream.set_nonblocking(true).expect("a socket");
        let mut answer = [0; 12];
        let answered = stream.peek(&mut answer).unwrap_or(0);
        drop(stream);
        // It may go on.
        let was_told = answer[..answered] == *b"HTTP/1.1 201";
        assert!(was_told || answered == 0, "{}", answer.escape_ascii());
        let deadline = Instant::now() + PATIENCE;
        loop {
            let all = ask(&daemon, "GET", PATH, None, 200);
            let all = all["instrumentations"].as_array().expect("a list").clone();
            if was_told {
                let told = all.last().expect("it goes on");
                let path = format!("{PATH}/{}", number(told, "/id"));
                ask(&daemon, "DELETE", &path, None, 200);
                ask(&daemon, "DELETE", &path, None, 204);
            } else if all.is_empty() && changed_bytes(pid) == 0 {
                left += 1;
            } else {
                assert!(
                    Instant::now() < deadline,
                    "after {part} of {PARTS}: {all:#?}"
                );
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            break;
        }
    }
    assert!(left > PARTS / 3, "{left} of {PARTS} left before the answer");
}

// Check that nobody can have functions measured over HTTP unless the configuration says so.
#[test]
fn it_is_off_by_default() {
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let body = json!({"functions": ["workload:*"], "all": true});
    let refused = ask(daemon, "POST", PATH, Some(&body), 403);
    assert!(
        text(&refused, "/detail").contains("instrumentation.over_http = true"),
        "{refused:#}"
    );
}
