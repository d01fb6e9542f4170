//! Named sessions and marks over HTTP.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use serde_json::{Value, json};

use super::backend::RUNNING;
use super::{Answer, ask, request, server};

async fn send(router: &Router, method: &str, path: &str, body: &Value) -> Answer {
    let mut request = request(method, path);
    request.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    *request.body_mut() = Body::from(body.to_string());
    ask(router.clone(), request).await
}

async fn start(router: &Router, name: &str) -> Answer {
    send(router, "POST", "/api/v1/sessions", &json!({"name": name})).await
}

async fn read(router: &Router, path: &str) -> Answer {
    ask(router.clone(), request("GET", path)).await
}

fn texts<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    let list = list.as_array().unwrap();
    list.iter()
        .map(|item| item[field].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_session_from_start_to_removal() {
    // Check that a session has a life: 201 with its place, spans by marks, totals at the stop that
    // stay readable and are those of its spans and of every report over it, and 404 once it is
    // removed.
    let router = server();
    let started = start(&router, "check out").await;
    assert_eq!(started.status, 201, "{}", started.text());
    assert_eq!(
        started.header(header::LOCATION),
        "/api/v1/sessions/check%20out"
    );
    assert_eq!(started.json()["elapsed_ns"], 0);
    for name in ["warm-up done", "again", "again"] {
        let body = json!({"name": name, "session": "check out"});
        let marked = send(&router, "POST", "/api/v1/marks", &body).await;
        assert_eq!(marked.status, 201, "{}", marked.text());
    }
    let path = "/api/v1/sessions/check%20out";
    let running = read(&router, path).await.json();
    assert_eq!(
        (&running["state"], &running["stopped_at"]),
        (&json!("running"), &Value::Null)
    );
    for query in ["format=json", "format=bogus&interval=zzz"] {
        let asked = format!("{path}?{query}");
        let refused = send(&router, "DELETE", &asked, &Value::Null).await;
        assert_eq!(refused.problem(400)["errors"][0]["parameter"], "format");
    }
    assert_eq!(read(&router, path).await.json()["state"], "running");
    let stopped = send(&router, "DELETE", path, &Value::Null).await;
    assert_eq!(stopped.status, 200, "{}", stopped.text());
    let totals = stopped.json();
    assert_eq!(totals["state"], "stopped");
    assert_eq!(totals["elapsed_ns"], 4_000_000_000_u64, "{totals}");
    assert_eq!(totals["duration_ns"], 4_000_000_000_u64);
    assert_eq!(
        texts(&totals["spans"], "name"),
        ["start", "warm-up done", "again", "again.2"]
    );
    let spans = totals["spans"].as_array().unwrap();
    assert!(
        spans
            .iter()
            .all(|span| span["classes"]["user_ns"] == 1_000_000_000_u64),
        "{totals}"
    );
    // Time goes on, and the session does not.
    start(&router, "later").await;
    assert_eq!(
        read(&router, path).await.json()["elapsed_ns"],
        4_000_000_000_u64
    );
    let of = |query: &str| format!("/api/v1/processes/{RUNNING}?session={query}");
    let process = read(&router, &of("check+out")).await.json();
    assert_eq!(process["elapsed_ns"], 4_000_000_000_u64);
    assert_eq!(process["elapsed_percent"], 100.0);
    assert_eq!(process["window"]["to"], totals["stopped_at"]);
    let process = read(&router, &of("check%20out&span=again.2")).await.json();
    assert_eq!(process["elapsed_ns"], 1_000_000_000_u64);
    let diff = read(&router, "/api/v1/diff?base=check+out/start&other=check+out")
        .await
        .json();
    assert_eq!(diff["other"]["elapsed_ns"], 4_000_000_000_u64, "{diff}");
    assert_eq!(diff["base"]["elapsed_ns"], 1_000_000_000_u64);
    let list = read(&router, "/api/v1/sessions").await.json();
    assert_eq!(
        texts(&list["sessions"], "name"),
        ["default", "check out", "later"]
    );
    let removed = send(&router, "DELETE", path, &Value::Null).await;
    assert_eq!((removed.status.as_u16(), removed.body.len()), (204, 0));
    read(&router, path).await.problem(404);
    read(&router, "/api/v1/functions?session=check+out")
        .await
        .problem(404);
}

#[tokio::test]
async fn every_report_takes_a_session() {
    // Check that each endpoint that takes a window takes a session and a span of it, and says there
    // is none where there is none.
    let router = server();
    start(&router, "one").await;
    send(&router, "DELETE", "/api/v1/sessions/one", &Value::Null).await;
    let mut asked = 0;
    for endpoint in profiler_daemon::api::ENDPOINTS {
        if !endpoint.takes("session") || endpoint.path.ends_with("/diff") {
            continue;
        }
        let function = endpoint.takes("function");
        let function = if function {
            "&function=function_0x1000"
        } else {
            ""
        };
        let target = |query: &str| format!("{}?{query}{function}", super::example(endpoint.path));
        let answer = read(&router, &target("session=one&span=start")).await;
        // Nothing was called in it.
        let expected = if function.is_empty() { 200 } else { 400 };
        assert_eq!(
            answer.status,
            expected,
            "{}: {}",
            endpoint.path,
            answer.text()
        );
        read(&router, &target("session=two")).await.problem(404);
        read(&router, &target("session=one&span=two"))
            .await
            .problem(404);
        read(&router, &target("session=1")).await.problem(400);
        assert_eq!(
            read(&router, &target("session=default")).await.status,
            if endpoint.path.ends_with("timeline") {
                400
            } else {
                200
            }
        );
        asked += 1;
    }
    assert!(asked >= 20, "{asked} endpoints were asked");
}

#[tokio::test]
async fn sessions_that_cannot_be() {
    // Check that names, bodies and changes that are not allowed are refused with what is, and
    // change nothing.
    let router = server();
    let sessions = "/api/v1/sessions";
    for body in [
        json!([]),
        json!({"name": ""}),
        json!({"name": "30s"}),
        json!({"name": "a/b"}),
        json!({"name": "a\nb"}),
        json!({"name": "n".repeat(65)}),
        json!({"named": "a"}),
        json!({"name": 1}),
    ] {
        send(&router, "POST", sessions, &body).await.problem(400);
    }
    for name in ["default", "session"] {
        start(&router, name).await.problem(409);
    }
    send(&router, "POST", "/api/v1/marks", &json!({"name": "m"}))
        .await
        .problem(409);
    send(
        &router,
        "POST",
        "/api/v1/marks",
        &json!({"name": "m", "session": "x"}),
    )
    .await
    .problem(404);
    send(&router, "DELETE", "/api/v1/sessions/default", &Value::Null)
        .await
        .problem(409);
    send(&router, "DELETE", "/api/v1/sessions/x", &Value::Null)
        .await
        .problem(404);
    send(&router, "DELETE", "/api/v1/sessions/1", &Value::Null)
        .await
        .problem(400);
    let mut untyped = request("POST", sessions);
    *untyped.body_mut() = Body::from("{}");
    ask(router.clone(), untyped).await.problem(415);
    assert_eq!(start(&router, "a").await.status, 201);
    start(&router, "a").await.problem(409);
    let made = send(&router, "POST", sessions, &json!({})).await.json();
    assert_eq!(made["name"], "session.1");
    assert_eq!(start(&router, "b").await.status, 201);
    let problem = start(&router, "c").await.problem(409);
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("limits.sessions"),
        "{problem}"
    );
    // A stopped one gives way to a new one, and says so.
    send(&router, "DELETE", "/api/v1/sessions/a", &Value::Null).await;
    send(
        &router,
        "POST",
        "/api/v1/marks",
        &json!({"name": "m", "session": "a"}),
    )
    .await
    .problem(409);
    assert_eq!(start(&router, "c").await.status, 201);
    let problem = read(&router, "/api/v1/functions?session=a")
        .await
        .problem(410);
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("limits.sessions"),
        "{problem}"
    );
    let marked = send(&router, "POST", "/api/v1/marks", &json!({"name": "all"}))
        .await
        .json();
    assert_eq!(texts(&marked["spans"], "session"), ["session.1", "b", "c"]);
    let problem = send(&router, "POST", "/api/v1/marks", &json!({"name": "all"}))
        .await
        .problem(409);
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("limits.session_spans"),
        "{problem}"
    );
}
