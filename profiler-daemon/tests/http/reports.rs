//! What every endpoint answers when the question is right.

use std::sync::Arc;

use axum::http::header;
use profiler_daemon::api::ENDPOINTS;
use profiler_daemon::config::Config;
use profiler_daemon::http::{HttpOptions, app};
use profiler_daemon::metrics::RequestCounts;

use super::backend::{COMMAND_LINE, FUNCTIONS, Fake, RUNNING, START_TICKS};
use super::{ask, example, get, request, server};

/// A right question for an endpoint.
pub(crate) fn target(path: &str) -> String {
    let path = example(path);
    match path.rsplit('/').next() {
        _ if path.ends_with("/diff/processes") => format!("{path}?base=-2s..-1s&other=1s"),
        Some("callers" | "callees") => format!("{path}?function=function_0x1000"),
        Some("diff") => format!("{path}?base={RUNNING}&other={RUNNING}.{START_TICKS}"),
        Some("profile" | "wall") if path.starts_with("/debug/") => format!("{path}?seconds=1"),
        _ => path,
    }
}

/// The same with one more parameter.
pub(crate) fn with(target: &str, parameter: &str) -> String {
    let separator = if target.contains('?') { '&' } else { '?' };
    format!("{target}{separator}{parameter}")
}

#[tokio::test]
async fn every_endpoint_answers() {
    // Check that each declared endpoint answers GET and HEAD with 200, a content type and the
    // headers of every answer.
    for endpoint in ENDPOINTS
        .iter()
        .filter(|endpoint| endpoint.methods().contains(&"GET"))
    {
        let answer = get(&target(endpoint.path)).await;
        assert_eq!(answer.status, 200, "{}: {}", endpoint.path, answer.text());
        assert!(
            !answer.header(header::CONTENT_TYPE).is_empty(),
            "{}",
            endpoint.path
        );
        assert_eq!(
            answer.header(header::CACHE_CONTROL),
            "no-store",
            "{}",
            endpoint.path
        );
        assert_eq!(
            answer.header(header::X_CONTENT_TYPE_OPTIONS),
            "nosniff",
            "{}",
            endpoint.path
        );
        assert_eq!(
            answer.header(header::ACCESS_CONTROL_ALLOW_ORIGIN),
            "",
            "{}",
            endpoint.path
        );
        let head = ask(server(), request("HEAD", &target(endpoint.path))).await;
        assert_eq!(
            (head.status, head.body.len()),
            (answer.status, 0),
            "{}",
            endpoint.path
        );
        assert_eq!(
            head.header(header::CONTENT_TYPE),
            answer.header(header::CONTENT_TYPE)
        );
    }
}

#[tokio::test]
async fn every_report_comes_as_json_and_as_text() {
    // Check that format= and Accept choose the format of every endpoint that has both, and that
    // format= wins.
    for endpoint in ENDPOINTS.iter().filter(|endpoint| endpoint.takes("format")) {
        let target = target(endpoint.path);
        let json = match endpoint.path {
            // It is for people first.
            "/top" => get("/top?format=json").await,
            _ => get(&target).await,
        };
        assert_eq!(json.header(header::CONTENT_TYPE), "application/json");
        assert!(json.json().is_object(), "{target}");
        let text = get(&with(&target, "format=text")).await;
        assert_eq!(
            text.header(header::CONTENT_TYPE),
            "text/plain; charset=utf-8"
        );
        assert!(
            serde_json::from_slice::<serde_json::Value>(&text.body).is_err(),
            "{target} is JSON in text"
        );
        let mut accepting = request("GET", &target);
        accepting
            .headers_mut()
            .insert(header::ACCEPT, "text/plain".parse().unwrap());
        let accepted = ask(server(), accepting).await;
        assert_eq!(
            accepted.header(header::CONTENT_TYPE),
            "text/plain; charset=utf-8"
        );
        let varies: Vec<_> = accepted.headers.get_all(header::VARY).iter().collect();
        assert!(
            varies.iter().any(|value| value.as_bytes() == b"accept"),
            "{varies:?}"
        );
        let mut both = request("GET", &with(&target, "format=json"));
        both.headers_mut()
            .insert(header::ACCEPT, "text/plain".parse().unwrap());
        assert_eq!(
            ask(server(), both).await.header(header::CONTENT_TYPE),
            "application/json"
        );
    }
}

#[tokio::test]
async fn the_first_screen() {
    // Check that /top is text for curl and for a browser, JSON where that is asked for, that it
    // names the process, its function and where more is, and that it takes a time and no word that
    // it does not know.
    for accept in ["*/*", "text/html,*/*;q=0.8"] {
        let mut asking = request("GET", "/top");
        asking
            .headers_mut()
            .insert(header::ACCEPT, accept.parse().unwrap());
        let screen = ask(server(), asking).await;
        assert_eq!(
            screen.header(header::CONTENT_TYPE),
            "text/plain; charset=utf-8"
        );
        let text = screen.text();
        for part in [
            &format!(" {RUNNING} example"),
            "function_0x1000 (",
            "whole session (19 s)",
            "/api/v1/processes?format=text",
        ] {
            assert!(text.contains(part), "{part} is missing from {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
    let mut asking = request("GET", "/top");
    asking
        .headers_mut()
        .insert(header::ACCEPT, "application/json".parse().unwrap());
    let found = ask(server(), asking).await.json();
    assert_eq!(found["busiest"][0]["pid"], RUNNING);
    assert_eq!(found["busiest"][0]["start_ticks"], START_TICKS);
    assert_eq!(found["whole_session"], true);
    let last = get("/top?window=2s&format=json").await.json();
    assert_eq!(
        (&last["whole_session"], &last["busiest"]),
        (&false.into(), &serde_json::json!([]))
    );
    for wrong in ["/top?sort=pid", "/top?window=0s", "/?window=30s"] {
        get(wrong).await.problem(400);
    }
    let mut asking = request("GET", "/top");
    asking
        .headers_mut()
        .insert(header::ACCEPT, "image/png".parse().unwrap());
    ask(server(), asking).await.problem(406);
}

#[tokio::test]
async fn the_query_reaches_the_report() {
    // Check that sort, order, limit and q decide which rows of a table are answered, and in which
    // order.
    let path = format!("/api/v1/processes/{RUNNING}/functions");
    let all = get(&format!("{path}?limit=0")).await.json();
    let total = all["total_rows"].as_u64().unwrap();
    assert!(total >= FUNCTIONS as u64, "{all}");
    assert_eq!(all["rows"].as_array().unwrap().len() as u64, total);
    let few = get(&format!("{path}?limit=3&sort=samples.inclusive"))
        .await
        .json();
    assert_eq!(
        (few["rows"].as_array().unwrap().len(), &few["truncated"]),
        (3, &true.into())
    );
    assert_eq!(few["total_rows"], total);
    // Every stack begins with the first function.
    assert_eq!(few["rows"][0]["function"], "function_0x1000");
    assert_eq!(few["rows"][0]["samples"]["inclusive"], FUNCTIONS);
    let rising = get(&format!("{path}?limit=0&sort=samples.inclusive&order=asc"))
        .await
        .json();
    assert_eq!(
        rising["rows"].as_array().unwrap().last().unwrap()["function"],
        "function_0x1000"
    );
    let found = get(&format!("{path}?q=0x1011")).await.json();
    assert_eq!(found["rows"].as_array().unwrap().len(), 1, "{found}");
}

#[tokio::test]
async fn tables_come_as_csv() {
    // Check that every table has a CSV form with a header and as many lines as rows, by parameter
    // and by header.
    for report in [
        "functions",
        "modules",
        "threads",
        "processes",
        "os-events",
        "callers",
        "callees",
        "diff",
        "diff/processes",
    ] {
        let target = target(&format!("/api/v1/{report}"));
        let answer = get(&with(&target, "format=csv")).await;
        assert_eq!(
            answer.header(header::CONTENT_TYPE),
            "text/csv; charset=utf-8; header=present"
        );
        let json = get(&target).await.json();
        let rows = json
            .get("rows")
            .unwrap_or(&json["syscalls"])
            .as_array()
            .unwrap()
            .len();
        assert_eq!(
            answer.text().matches("\r\n").count(),
            rows + 1,
            "{}",
            answer.text()
        );
        let mut accepting = request("GET", &target);
        accepting
            .headers_mut()
            .insert(header::ACCEPT, "text/csv".parse().unwrap());
        assert_eq!(ask(server(), accepting).await.body, answer.body);
    }
}

#[tokio::test]
async fn call_trees_come_in_the_formats_of_other_tools() {
    // Check the content type of each format, that value= is read, and that a page made of a flame
    // graph runs no script.
    for (format, content_type) in [
        ("folded", "text/plain; charset=utf-8"),
        ("svg", "image/svg+xml"),
        ("speedscope", "application/json"),
        ("firefox", "application/json"),
    ] {
        for path in [
            "/api/v1/calltree".to_owned(),
            format!("/api/v1/processes/{RUNNING}/calltree"),
        ] {
            for value in [
                "samples",
                "elapsed",
                "application",
                "off_processor",
                "blocked",
                "runnable",
                "syscall",
            ] {
                let answer = get(&format!("{path}?format={format}&value={value}")).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                assert_eq!(answer.header(header::CONTENT_TYPE), content_type);
                let policy = answer.header(header::CONTENT_SECURITY_POLICY);
                assert!(policy.contains("default-src 'none'") && !policy.contains("script-src"));
            }
        }
    }
    let folded = get("/api/v1/calltree?format=folded&value=elapsed").await;
    let first: Vec<&str> = folded.text().lines().take(2).collect();
    assert_eq!(
        first,
        [
            "[other images] (1 ended);function_0x1000 400000000",
            "example (42);function_0x1000;function_0x1000 10000000"
        ]
    );
    // The session's tree has a level for processes; where idle threads are does not change what
    // there is.
    for idle in ["apart", "among"] {
        let tree = get(&format!("/api/v1/calltree?idle={idle}")).await.json();
        let nodes = tree["root"]["children"].as_array().unwrap();
        assert!(!nodes.is_empty() && nodes.iter().all(|node| node["kind"] == "process"));
        let of_process = format!("/api/v1/processes/{RUNNING}/calltree?idle={idle}&format=folded");
        assert_eq!(get(&of_process).await.status, 200);
    }
    get("/api/v1/calltree?idle=yes").await.problem(400);
    // The tree has all values, cut and put in order by the one that is named.
    let tree = get("/api/v1/calltree?value=blocked").await;
    assert_eq!(tree.status, 200, "{}", tree.text());
    for format in ["json", "folded"] {
        let path = format!("/api/v1/calltree?format={format}&value=cpu");
        let problem = get(&path).await.problem(400);
        assert_eq!(problem["errors"][0]["parameter"], "value");
        let detail = problem["errors"][0]["detail"].as_str().unwrap();
        assert!(detail.ends_with("runnable or syscall"), "{detail}");
    }
    get("/api/v1/functions?format=folded").await.problem(400);
}

#[tokio::test]
async fn ended_processes_are_named_by_image() {
    // Check that the row of processes that are one by image leads to their own reports, and that
    // other names of images are refused.
    let processes = get("/api/v1/processes").await.json();
    let rows = processes["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["pid"].is_null()).unwrap();
    assert_eq!(row["ended"], 1);
    let path = format!("/api/v1/images/{}", row["image_id"].as_str().unwrap());
    let totals = get(&path).await.json();
    assert_eq!(totals["elapsed_ns"], row["elapsed_ns"]);
    let functions = get(&format!("{path}/functions")).await.json();
    let found = &functions["rows"][0];
    assert_eq!(found["function"], "function_0x1000");
    assert_eq!(found["elapsed"]["inclusive_ns"], 400_000_000);
    assert_eq!(found["marks"]["ticks"], 1);
    assert_eq!(found["few_marks"], true);
    get("/api/v1/images/0123456789abcdef").await.problem(404);
    get("/api/v1/images/42").await.problem(400);
}

#[tokio::test]
async fn a_process_is_named_by_pid_and_start() {
    // Check that a pid alone and a pid with its start time name the same process.
    for name in [RUNNING.to_string(), format!("{RUNNING}.{START_TICKS}")] {
        let process = get(&format!("/api/v1/processes/{name}")).await.json();
        assert_eq!(
            (&process["pid"], &process["start_ticks"]),
            (&RUNNING.into(), &START_TICKS.into()),
            "{process}"
        );
        assert_eq!(process["elapsed_ns"], 500_000_000);
    }
}

#[tokio::test]
async fn a_command_line_is_shown_and_moves_no_terminal() {
    // Check that a command line that was read stands in the row and the report of its process, its
    // control characters escaped.
    let processes = get("/api/v1/processes").await.json();
    assert_eq!(processes["rows"][0]["command_line"], COMMAND_LINE);
    let path = format!("/api/v1/processes/{RUNNING}");
    assert_eq!(get(&path).await.json()["command_line"], COMMAND_LINE);
    let text = get(&format!("{path}?format=text")).await;
    assert!(
        text.text().contains("example --title \\u{1b}]0;x\\u{7}"),
        "{}",
        text.text()
    );
}

#[tokio::test]
async fn health_status_and_metrics_answer() {
    // Check the bodies of both spellings of health, of the status in both formats, and the metrics'
    // content type.
    assert_eq!(get("/-/healthy").await.text(), "ok\n");
    assert_eq!(get("/readyz").await.text(), "ready\n");
    let status = get("/api/v1/status").await.json();
    assert_eq!(
        (&status["version"], &status["settings"]["frequency_hz"]),
        (&"1.2.3".into(), &99.into())
    );
    assert_eq!(status["degraded"][0]["what"], "kernel names");
    let text = get("/api/v1/status?format=text").await;
    assert!(
        text.text().lines().any(
            |line| line.starts_with("setting limits.max_threads") && line.ends_with("\"auto\"")
        )
    );
    assert_eq!(
        get("/metrics?foo=bar").await.header(header::CONTENT_TYPE),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let list = get("/api/v1").await;
    assert!(
        ENDPOINTS
            .iter()
            .all(|endpoint| list.text().contains(endpoint.path)),
        "{}",
        list.text()
    );
}

#[tokio::test]
async fn long_answers_are_compressed_on_request() {
    // Check that only long answers to clients that take gzip are compressed.
    let compressed = |target: &str| {
        let mut request = request("GET", target);
        request
            .headers_mut()
            .insert(header::ACCEPT_ENCODING, "gzip".parse().unwrap());
        ask(server(), request)
    };
    let long = compressed("/api/v1/functions").await;
    assert_eq!(long.header(header::CONTENT_ENCODING), "gzip");
    assert!(long.body.starts_with(&[0x1f, 0x8b]));
    assert_eq!(
        compressed("/healthz")
            .await
            .header(header::CONTENT_ENCODING),
        ""
    );
    assert_eq!(
        get("/api/v1/functions")
            .await
            .header(header::CONTENT_ENCODING),
        ""
    );
}

#[tokio::test]
async fn answers_are_counted() {
    // Check that each answer is counted once under its handler and code, refusals and unknown paths
    // included.
    let counts = Arc::new(RequestCounts::default());
    let router = app(
        Arc::new(Fake::default()),
        HttpOptions::new(&Config::default(), Arc::clone(&counts)),
    );
    for target in [
        "/api/v1/functions",
        "/api/v1/processes/42/functions",
        "/api/v1/functions?x=1",
        "/nothing",
    ] {
        ask(router.clone(), request("GET", target)).await;
    }
    assert_eq!(
        counts.totals(),
        [
            ("functions", 200, 2),
            ("functions", 400, 1),
            ("none", 404, 1)
        ]
    );
}
