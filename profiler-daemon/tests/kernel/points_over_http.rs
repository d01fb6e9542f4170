//! USDT points, spans and callers of running programs, as somebody asks for them over HTTP.

use serde_json::{Value, json};

use crate::instrumentations::{PATH, allowed, ask, begin, changed_bytes, is, row, until};
use crate::reads::{number, text};
use crate::spans::check_median;
use crate::workload::Workload;

/// The row of this name.
fn named<'a>(rows: &'a Value, name: &str) -> &'a Value {
    let mut all = rows.as_array().expect("rows").iter();
    let found = all.find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in {rows:#}"))
}

/// Spans of the workload that knows its marks.
fn spans() -> Value {
    let usdt = |name: &str| format!("usdt:workload:workload:{name}");
    json!([
        {"name": "pair", "start": usdt("begin"), "end": usdt("end"), "key": "arg0"},
        {
            "name": "calls", "start": "workload:*marked_first", "end": "workload:*marked_second",
            "key": "arg0",
        },
        {"name": "next", "start": usdt("hit"), "end": usdt("hit"), "key": "tid"},
    ])
}

// Check that hits of USDT points, spans from one thread to another and callers of a function are
// counted all at once in a process that runs, each as the program itself knows it; that where
// callers are not wanted there are none; and that everything is detached with the first DELETE.
#[test]
fn points_spans_and_callers_are_counted() {
    let Some(daemon) = allowed() else { return };
    let mut workload = Workload::start("marked --wait");
    workload.ready();
    let pid = workload.pid();
    let path = begin(
        &daemon,
        &json!({
            "functions": ["workload:*marked_first"], "callers": true,
            "usdt": ["workload:workload:hit,arg0", "workload:beg*"], "spans": spans(),
            "pids": [pid], "budget_percent": 100,
        }),
    );
    let second = begin(
        &daemon,
        &json!({
            "functions": ["workload:*marked_second"], "callers": false,
            "pids": [pid], "budget_percent": 100,
        }),
    );
    let one = until(&daemon, &path, is("measuring"));
    assert_eq!(one["missing"], json!([]), "{one:#}");
    for row in one["usdt"].as_array().expect("rows") {
        assert_eq!(row["state"], "followed", "{one:#}");
    }
    until(&daemon, &second, is("measuring"));
    assert!(changed_bytes(pid) > 0);
    workload.go();
    let truth = workload.truth().truth;
    let one = until(&daemon, &path, is("ended"));
    assert_eq!(one["ended"], "no_process", "{one:#}");
    let measured = &one["measured"];
    let (hits, calls) = (number(&truth, "/hits"), number(&truth, "/calls"));
    assert_eq!(number(&truth, "/semaphore"), 1, "{truth:#}");
    let hit = named(&measured["usdt"], "hit");
    assert_eq!(number(hit, "/hits"), hits, "{hit:#}");
    assert_eq!(hit["argument"]["sum"], truth["sum"], "{hit:#}");
    assert_eq!(number(hit, "/processes/0/pid"), u64::from(pid), "{hit:#}");
    let (pairs, begin) = (number(&truth, "/pairs"), named(&measured["usdt"], "begin"));
    assert_eq!(number(begin, "/hits"), pairs + 4, "{begin:#}");
    let pair = named(&measured["spans"], "pair");
    assert_eq!(number(pair, "/count"), pairs, "{pair:#}");
    assert_eq!(number(pair, "/starts"), pairs + 4, "{pair:#}");
    check_median(pair, &truth);
    assert_eq!(number(named(&measured["spans"], "calls"), "/count"), calls);
    let next = named(&measured["spans"], "next");
    assert_eq!(number(next, "/count"), hits - 1, "{next:#}");
    let first = row(&one, "marked_first");
    assert_eq!(number(first, "/calls"), calls, "{first:#}");
    let callers = first["callers"].as_array().expect("rows");
    let by_callers: u64 = callers.iter().map(|row| number(row, "/calls")).sum();
    assert_eq!(by_callers, calls, "{first:#}");
    assert!(
        text(first, "/callers/0/function").contains("marked::run"),
        "{first:#}"
    );
    let other = until(&daemon, &second, is("ended"));
    let other = row(&other, "marked_second");
    assert_eq!(number(other, "/calls"), calls, "{other:#}");
    assert_eq!(other["callers"], json!([]), "{other:#}");
    ask(&daemon, "DELETE", &path, None, 204);
    ask(&daemon, "GET", &path, None, 404);
}

// Check that a dry run says which places would be probed, what is refused and why, and what is
// nowhere, and changes no byte; that what is not in a file that is named is refused; and that the
// first DELETE detaches what was attached.
#[test]
fn a_dry_run_says_what_would_be_probed() {
    let Some(daemon) = allowed() else { return };
    let workload = Workload::start("marked --wait");
    workload.ready();
    let pid = workload.pid();
    let mut body = json!({
        "usdt": ["workload:workload:hit,arg5", "workload:end", "workload:nowhere"],
        "spans": [
            {
                "name": "late", "start": "usdt:workload:workload:begin", "end": "libnone.so:end",
                "key": "tid",
            },
            {
                "name": "keyless", "start": "usdt:workload:workload:begin",
                "end": "usdt:workload:workload:end", "key": "arg1",
            },
        ],
        "pids": [pid], "dry_run": true,
    });
    let dry = ask(&daemon, "POST", PATH, Some(&body), 200);
    assert_eq!(
        (&dry["id"], &dry["state"]),
        (&Value::Null, &json!("dry_run"))
    );
    let end = named(&dry["usdt"], "end");
    assert_eq!(end["state"], "followed", "{dry:#}");
    assert_eq!(end["places"][0]["role"], "hit", "{dry:#}");
    assert!(end["ns_per_hit"].as_f64() > Some(0.0), "{dry:#}");
    let refused = |row: &Value, why: &str| {
        assert_eq!(row["state"], "refused", "{row:#}");
        assert!(text(row, "/why").contains(why), "{row:#}");
    };
    refused(named(&dry["usdt"], "hit"), "it has 3 arguments, no arg5");
    refused(named(&dry["spans"], "keyless"), "no arg1");
    let late = named(&dry["spans"], "late");
    assert_eq!(late["state"], "waiting", "{late:#}");
    assert_eq!(late["places"][0]["role"], "start", "{late:#}");
    assert_eq!(
        dry["missing"],
        json!([
            "usdt: workload:nowhere",
            "spans: late: libnone.so:end",
            "spans: keyless: usdt:workload:workload:begin",
            "spans: keyless: usdt:workload:workload:end",
        ])
    );
    assert_eq!(
        ask(&daemon, "GET", PATH, None, 200)["instrumentations"],
        json!([])
    );
    assert_eq!(changed_bytes(pid), 0);

    body["dry_run"] = json!(false);
    let path = begin(&daemon, &body);
    let one = until(&daemon, &path, is("measuring"));
    assert_eq!(number(&one, "/points"), 2, "{one:#}");
    assert!(changed_bytes(pid) > 0);
    let ended = ask(&daemon, "DELETE", &path, None, 200);
    assert_eq!(
        (&ended["ended"], &ended["points"]),
        (&json!("asked"), &json!(0))
    );
    assert_eq!(changed_bytes(pid), 0);
    for body in [
        json!({"usdt": ["workload:workload:nothing"], "pids": [pid]}),
        json!({
            "spans": [{"name": "a", "start": "workload:no_such_function", "end": "a:b", "key": "tid"}],
            "pids": [pid],
        }),
    ] {
        let refused = ask(&daemon, "POST", PATH, Some(&body), 409);
        assert!(
            text(&refused, "/detail").contains("there is no such"),
            "{refused:#}"
        );
    }
}

// Check that points and spans are followed in a program that starts later, by its name and where
// everything is measured, and that spans under way there are told.
#[test]
fn who_comes_later_is_followed() {
    let Some(daemon) = allowed() else { return };
    for whom in [json!({"comms": ["workload"]}), json!({"all": true})] {
        let mut body = json!({
            "usdt": ["workload:workload:hit"], "spans": spans(), "budget_percent": 100,
        });
        let fields = body.as_object_mut().expect("an object");
        fields.extend(whom.as_object().expect("an object").clone());
        let path = begin(&daemon, &body);
        let one = ask(&daemon, "GET", &path, None, 200);
        assert_eq!(one["state"], "waiting", "{one:#}");
        let mut workload = Workload::start("marked --wait");
        workload.ready();
        // Of each span both ends, and the point.
        until(&daemon, &path, |one| {
            one["state"] == "measuring" && one["missing"] == json!([])
        });
        workload.go();
        let truth = workload.truth().truth;
        let hits = |one: &Value| number(named(&one["measured"]["usdt"], "hit"), "/hits");
        let one = until(&daemon, &path, |one| hits(one) == number(&truth, "/hits"));
        let pair = named(&one["measured"]["spans"], "pair");
        assert_eq!(number(pair, "/count"), number(&truth, "/pairs"), "{pair:#}");
        until(&daemon, &path, |one| {
            let pair = named(&one["measured"]["spans"], "pair");
            number(pair, "/left_exit") == 2 && number(pair, "/open") == 0
        });
        ask(&daemon, "DELETE", &path, None, 200);
    }
}

// Check that a span whose ends are hit too often is given up with the rate that was seen, and that
// an instrumentation that has nothing else ends with it.
#[test]
fn spans_that_cost_too_much_are_given_up() {
    let Some(daemon) = allowed() else { return };
    let mut workload = Workload::start("recursion --wait --depth 500 --seconds 20");
    workload.ready();
    workload.go();
    let again = "workload:*recursion::recurse";
    let path = begin(
        &daemon,
        &json!({
            "spans": [{"name": "again", "start": again, "end": again, "key": "tid"}],
            "pids": [workload.pid()], "budget_percent": 0.1,
        }),
    );
    let one = until(&daemon, &path, is("ended"));
    assert_eq!(one["ended"], "given_up", "{one:#}");
    assert_eq!(changed_bytes(workload.pid()), 0);
    let span = named(&one["spans"], "again");
    assert_eq!(
        (&span["state"], &one["given_up"]),
        (&json!("given_up"), &json!(1))
    );
    assert!(text(span, "/why").contains("hits a second"), "{span:#}");
}

// Check that a span whose process has exited is no longer under way although the process's id is
// used again by one that is followed too.
#[test]
fn spans_end_with_their_process() {
    let Some(daemon) = allowed() else { return };
    let mut workload = Workload::start("marked-again --wait");
    workload.ready();
    let span = json!({
        "name": "pair", "start": "usdt:workload:workload:begin",
        "end": "usdt:workload:workload:end", "key": "arg0",
    });
    let path = begin(
        &daemon,
        &json!({
            "spans": [span], "pids": [workload.pid()], "children": true, "budget_percent": 100,
        }),
    );
    workload.go();
    workload.ready();
    // The first program and its second child are followed still.
    let one = until(&daemon, &path, |one| {
        let pair = named(&one["measured"]["spans"], "pair");
        number(one, "/processes") == 2 && number(pair, "/left_exit") == 1
    });
    let pair = named(&one["measured"]["spans"], "pair");
    assert_eq!(
        (number(pair, "/starts"), number(pair, "/open")),
        (1, 0),
        "{pair:#}"
    );
    workload.go();
    workload.truth();
}

// Check that functions and spans that come to cost too much are given up, and that no call and no
// hit of one beside them in the same file is missed.
#[test]
fn giving_up_takes_nothing_of_others() {
    let Some(daemon) = allowed() else { return };
    let names = ["steady_call", "dear_first", "dear_second"];
    let functions = names.map(|name| format!("workload:*given_up::{name}"));
    let spans: Vec<Value> = names
        .iter()
        .zip(&functions)
        .map(|(name, end)| json!({"name": name, "start": end, "end": end, "key": "tid"}))
        .collect();
    for what in ["functions", "spans"] {
        let mut workload = Workload::start("given-up --wait --hold");
        workload.ready();
        let wanted = match what {
            "functions" => json!(functions),
            _ => json!(spans),
        };
        let mut body = json!({"pids": [workload.pid()], "budget_percent": 10});
        body[what] = wanted;
        let path = begin(&daemon, &body);
        until(&daemon, &path, is("measuring"));
        workload.go();
        let truth = workload.truth().truth;
        let one = ask(&daemon, "DELETE", &path, None, 200);
        assert_eq!(one["given_up"], 2, "{one:#}");
        let of_name = |name: &str| match what {
            "functions" => row(&one, name),
            _ => named(&one["measured"]["spans"], name),
        };
        let steady = of_name("steady_call");
        let counted = match what {
            "functions" => "/calls",
            _ => "/starts",
        };
        assert_eq!(
            number(steady, counted),
            number(&truth, "/steady_calls"),
            "{one:#}"
        );
        assert_eq!(steady["why"], Value::Null, "{steady:#}");
        for name in &names[1..] {
            let dear = of_name(name);
            assert!(text(dear, "/why").contains("given up"), "{dear:#}");
        }
    }
}

// Check that where there are too many functions and processes for each to have links of its own, a
// function that shares them with one that is given up says for how long it was not seen.
#[test]
fn what_shares_links_with_what_is_given_up_says_so() {
    let Some(daemon) = allowed() else { return };
    // Others that run the program: probes are in the memory of each that is measured. The first
    // have links for each function, the last one for all.
    let idle: Vec<Workload> = (0..14).map(|_| Workload::start("marked --wait")).collect();
    let mut busy = Workload::start("given-up --wait --hold");
    busy.ready();
    idle.iter().for_each(|workload| drop(workload.ready()));
    let mut pids: Vec<u32> = idle[1..].iter().map(Workload::pid).collect();
    pids.push(busy.pid());
    let modules = ["given_up", "loops", "naps"];
    let functions = modules.map(|module| format!("workload:workload::programs::{module}::*"));
    let path = begin(
        &daemon,
        &json!({
            "functions": functions, "pids": pids, "budget_percent": 10, "exits": "none",
        }),
    );
    let one = until(&daemon, &path, is("measuring"));
    assert!(number(&one, "/points") > 400, "{one:#}");
    busy.go();
    let truth = busy.truth().truth;
    let one = ask(&daemon, "DELETE", &path, None, 200);
    let steady = row(&one, "steady_call");
    assert!(
        number(steady, "/calls") <= number(&truth, "/steady_calls"),
        "{steady:#}"
    );
    assert!(text(steady, "/why").contains("not seen for"), "{steady:#}");
    for dear in ["dear_first", "dear_second"] {
        let dear = row(&one, dear);
        assert!(text(dear, "/why").contains("given up"), "{dear:#}");
    }
}
