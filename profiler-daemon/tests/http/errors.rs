//! What every endpoint answers when the question is wrong, or there is no answer.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header;
use profiler_daemon::api::ENDPOINTS;
use profiler_daemon::http::app;

use super::backend::{DROPPED, Fake, RUNNING};
use super::{ask, example, get, hasty, request, server};

#[tokio::test]
async fn unknown_parameters_are_refused_everywhere() {
    // Check that every endpoint names the parameters it takes when given one it does not, but those
    // that probes and scrapers ask.
    for endpoint in ENDPOINTS {
        let path = example(endpoint.path);
        let asked = request(endpoint.methods()[0], &format!("{path}?sorted=1"));
        let answer = ask(server(), asked).await;
        if matches!(endpoint.handler, "healthy" | "ready" | "metrics") {
            assert_eq!(answer.status, 200, "{path}");
            continue;
        }
        let problem = answer.problem(400);
        assert_eq!(problem["errors"][0]["parameter"], "sorted", "{path}");
        let detail = problem["errors"][0]["detail"].as_str().unwrap();
        let known = detail.split_once("allowed are ").unwrap().1;
        let declared = endpoint.parameters().join(", ");
        assert_eq!(
            known,
            if declared.is_empty() {
                "no parameters"
            } else {
                &declared
            },
            "{path}"
        );
    }
}

#[tokio::test]
async fn wrong_values_are_refused_together() {
    // Check that values, repetition and columns that do not exist are told, each with what is
    // allowed.
    let problem = get("/api/v1/functions?limit=x&order=up&q=a&q=b")
        .await
        .problem(400);
    assert_eq!(problem["errors"].as_array().unwrap().len(), 3, "{problem}");
    let problem = get("/api/v1/functions?sort=nonsense").await.problem(400);
    assert_eq!(
        (
            &problem["errors"][0]["parameter"],
            &problem["errors"][0]["given"]
        ),
        (&"sort".into(), &"nonsense".into())
    );
    assert_eq!(get("/api/v1/session?window=1s").await.status, 200);
    let problem = get("/api/v1/session?window=1000h").await.problem(400);
    assert_eq!(problem["errors"][0]["parameter"], "window");
    let long = "x".repeat(5_000);
    get(&format!("/api/v1/session?{long}")).await.problem(400);
    // A name as long as it may be is read, with every character as an escape.
    let long = "%3A".repeat(2_048);
    let problem = get(&format!("/api/v1/callers?function={long}")).await;
    assert_eq!(problem.problem(400)["errors"][0]["parameter"], "function");
}

#[tokio::test]
async fn functions_and_modules_must_exist() {
    // Check that callers and callees need a function that is there, and that modules that are not
    // there are refused.
    for report in ["callers", "callees"] {
        let path = format!("/api/v1/processes/{RUNNING}/{report}");
        let problem = get(&path).await.problem(400);
        assert_eq!(problem["errors"][0]["parameter"], "function");
        let problem = get(&format!("{path}?function=function_0x100"))
            .await
            .problem(400);
        let detail = problem["errors"][0]["detail"].as_str().unwrap();
        assert!(detail.contains("function_0x1000"), "{detail}");
        let answer = get(&format!("{path}?function=function_0x1000&module=[jit]")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        get(&format!("{path}?function=function_0x1000&module=libc*"))
            .await
            .problem(400);
    }
    for query in ["hide=nothing", "modules=nothing", "modules=", "hide=a,,b"] {
        let problem = get(&format!("/api/v1/calltree?{query}")).await.problem(400);
        let parameter = query.split('=').next().unwrap();
        assert_eq!(problem["errors"][0]["parameter"], parameter);
    }
    assert_eq!(get("/api/v1/functions?hide=[jit]").await.status, 200);
}

#[tokio::test]
async fn what_is_compared_must_be_comparable() {
    // Check that both sides are needed, of one kind, and that each wrong value is told.
    for (query, parameter) in [
        ("other=42", "base"),
        ("base=42", "other"),
        ("base=42&other=30s", ""),
        ("base=42&other=x!", "other"),
        ("base=42&other=x", ""),
        ("base=10s&other=session&window=10s", "window"),
        ("base=10s&other=session&session=x", "session"),
        ("base=x/y&other=x/y/z", "other"),
        ("base=42&other=42&threshold=101", "threshold"),
        ("base=42&other=42&sort=samples", "sort"),
        ("base=42&other=42&pid=42", "pid"),
        ("base=42&other=42&comm=example", "comm"),
        ("base=1s&other=2s&pid=42&comm=example", ""),
        ("base=1s&other=2s&comm=abcdefghijklmnopq", "comm"),
        ("base=1s&other=2s&value=cpu", "value"),
        ("base=-5s..&other=2s", "base"),
        ("base=-5s..-6s..-7s&other=2s", "base"),
        ("base=-5s..-5s&other=2s", "from"),
    ] {
        let problem = get(&format!("/api/v1/diff?{query}")).await.problem(400);
        let told = problem["errors"][0]["parameter"].as_str().unwrap_or("");
        assert_eq!(told, parameter, "{query}: {problem}");
    }
    get("/api/v1/diff?base=42&other=9999").await.problem(404);
    for query in ["pid=9999", "comm=nobody"] {
        let path = format!("/api/v1/diff?base=1s&other=2s&{query}");
        get(&path).await.problem(404);
    }
    for (query, parameter) in [
        ("base=42&other=2s", "base"),
        ("base=2s&other=42", "other"),
        ("base=1s&other=2s&by=user", "by"),
        ("base=1s&other=2s&pid=42", "pid"),
        ("base=1s&other=2s&window=1s", "window"),
    ] {
        let path = format!("/api/v1/diff/processes?{query}");
        let problem = get(&path).await.problem(400);
        assert_eq!(problem["errors"][0]["parameter"], parameter, "{query}");
    }
    let answer = get("/api/v1/diff?base=session&other=1s&threshold=1").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn formats_that_do_not_exist_are_refused() {
    // Check that a format is refused where it does not exist, with what is available: 400 by
    // parameter, 406 by header.
    let problem = get("/api/v1/functions?format=xml").await.problem(400);
    assert_eq!(
        problem["errors"][0]["detail"],
        "format must be json, text, csv or events"
    );
    let problem = get("/api/v1/session?format=csv").await.problem(400);
    assert_eq!(
        problem["errors"][0]["detail"],
        "format must be json, text or events"
    );
    for (target, accept) in [
        ("/api/v1/functions", "text/html"),
        ("/api/v1/session", "text/csv"),
    ] {
        let mut accepting = request("GET", target);
        accepting
            .headers_mut()
            .insert(header::ACCEPT, accept.parse().unwrap());
        let problem = ask(server(), accepting).await.problem(406);
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("application/json"),
            "{problem}"
        );
    }
}

#[tokio::test]
async fn processes_that_are_not_there_are_told_apart() {
    // Check that an unknown process is 404, another start time too, a dropped one 410 and nonsense
    // 400, in every report.
    for report in [
        "",
        "/functions",
        "/modules",
        "/threads",
        "/calltree",
        "/os-events",
    ] {
        get(&format!("/api/v1/processes/9999{report}"))
            .await
            .problem(404);
        get(&format!("/api/v1/processes/{RUNNING}.1{report}"))
            .await
            .problem(404);
        get(&format!("/api/v1/processes/{DROPPED}{report}"))
            .await
            .problem(410);
        for nonsense in ["x", "1.", "-1", "1.2.3", "99999999999", "%ff", "%00"] {
            get(&format!("/api/v1/processes/{nonsense}{report}"))
                .await
                .problem(400);
        }
    }
}

#[tokio::test]
async fn paths_that_do_not_exist_list_those_that_do() {
    // Check that unknown paths, reports that are not made yet included, answer 404 with every
    // endpoint.
    for path in [
        "/nothing",
        "/api/v2",
        "/api/v1/functions/",
        "/api/v1/processes/42/sources",
        "/debug/pprof/heap",
        "/debug/pprof/goroutine?debug=1",
    ] {
        let problem = get(path).await.problem(404);
        assert_eq!(
            problem["errors"].as_array().unwrap().len(),
            ENDPOINTS.len(),
            "{path}"
        );
    }
}

#[tokio::test]
async fn methods_that_do_not_exist_list_those_that_do() {
    // Check that every endpoint refuses other methods with 405, an Allow header and a problem;
    // preflights included.
    for endpoint in ENDPOINTS {
        let path = example(endpoint.path);
        let others = ["POST", "DELETE", "OPTIONS"];
        let others = others
            .iter()
            .filter(|method| !endpoint.methods().contains(method));
        for method in others {
            let answer = ask(server(), request(method, &path)).await;
            answer.problem(405);
            let allowed = answer.header(header::ALLOW);
            assert!(
                endpoint
                    .methods()
                    .iter()
                    .all(|method| allowed.contains(method)),
                "{path}: {allowed:?}"
            );
        }
    }
}

#[tokio::test]
async fn not_ready_and_unavailable_say_why() {
    // Check that a daemon that is not ready, or cannot read the kernel, answers 503 with its
    // reasons and when to retry.
    let fake = Fake {
        ready: Err(vec!["tick is not attached".to_owned()]),
        unavailable: true,
        ..Fake::default()
    };
    let router = app(Arc::new(fake), hasty());
    let answer = ask(router.clone(), request("GET", "/readyz")).await;
    assert_eq!(
        answer.problem(503)["errors"][0]["detail"],
        "tick is not attached"
    );
    for target in ["/api/v1/functions", "/api/v1/session", "/metrics"] {
        let answer = ask(router.clone(), request("GET", target)).await;
        assert_eq!(
            answer.problem(503)["detail"],
            "the kernel's maps cannot be read"
        );
        assert_eq!(answer.header(header::RETRY_AFTER), "1");
    }
    assert_eq!(ask(router, request("GET", "/healthz")).await.status, 200);
}

#[tokio::test]
async fn an_answer_that_takes_too_long_is_given_up() {
    // Check that the time of a request is bounded, also while it waits for its turn to make a
    // report.
    let mut options = hasty();
    options.max_reports = 1;
    let router = app(
        Arc::new(Fake {
            delay: Duration::from_secs(60),
            ..Fake::default()
        }),
        options,
    );
    let ask = |target: &str| ask(router.clone(), request("GET", target));
    let (first, second, health) = tokio::join!(
        ask("/api/v1/session"),
        ask("/api/v1/session"),
        ask("/healthz")
    );
    for answer in [first, second] {
        assert!(
            answer.problem(503)["detail"]
                .as_str()
                .unwrap()
                .contains("within 400 ms")
        );
        assert_eq!(answer.header(header::RETRY_AFTER), "1");
    }
    assert_eq!(health.status, 200);
}
