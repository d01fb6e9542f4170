//! Changing what is profiled.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use profiler_daemon::config::Config;
use profiler_daemon::http::{HttpOptions, app};
use profiler_daemon::metrics::RequestCounts;
use serde_json::json;

use super::backend::Fake;
use super::{Answer, ask, request, server};

async fn put(router: Router, body: impl Into<Body>) -> Answer {
    let mut request = request("PUT", "/api/v1/targets");
    request.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json; charset=utf-8"),
    );
    *request.body_mut() = body.into();
    ask(router, request).await
}

#[tokio::test]
async fn targets_can_be_changed() {
    // Check that everything is profiled at first, that a change is answered, and that it lasts.
    let router = server();
    let read = || ask(router.clone(), request("GET", "/api/v1/targets"));
    assert_eq!(read().await.json()["all"], true);
    let wanted =
        json!({"all": false, "pids": [7], "comms": ["sshd"], "cgroups": [], "children": true});
    assert_eq!(
        put(
            router.clone(),
            r#"{"pids":[7],"comms":["sshd"],"children":true}"#
        )
        .await
        .json(),
        wanted
    );
    assert_eq!(read().await.json(), wanted);
    assert_eq!(
        put(router.clone(), r#"{"all":true}"#).await.json()["pids"],
        json!([])
    );
}

#[tokio::test]
async fn targets_that_are_not_allowed_change_nothing() {
    // Check that broken JSON, unknown fields, values out of bounds and empty targets are refused,
    // and nothing changes.
    let router = server();
    for (body, part) in [
        ("{", "EOF"),
        ("", "must be a JSON object"),
        ("[true]", "must be a JSON object"),
        (
            r#"{"pid":[1]}"#,
            "unknown field `pid`, expected one of `all`, `pids`",
        ),
        (r#"{"pids":[0]}"#, "must be a process number"),
        (r#"{"pids":[1],"pids":[2]}"#, "duplicate field"),
        (r#"{"all":false}"#, "nothing would be profiled"),
        (r#"{"all":true} x"#, "trailing characters"),
    ] {
        let problem = put(router.clone(), body).await.problem(400);
        assert!(
            problem["detail"].as_str().unwrap().contains(part),
            "{problem}"
        );
    }
    let refused = put(router.clone(), r#"{"cgroups":["/missing"]}"#).await;
    assert_eq!(
        refused.problem(409)["detail"],
        "there is no control group /missing"
    );
    assert_eq!(
        ask(router, request("GET", "/api/v1/targets")).await.json()["all"],
        true
    );
}

#[tokio::test]
async fn targets_that_cannot_be_set_now_can_be_set_later() {
    // Check that targets without an answer are 503 with a time to retry, and not refused for good.
    let fake = Fake {
        unavailable: true,
        ..Fake::default()
    };
    let options = HttpOptions::new(&Config::default(), Arc::new(RequestCounts::default()));
    let answer = put(app(Arc::new(fake), options), r#"{"pids":[7]}"#).await;
    let problem = answer.problem(503);
    assert_eq!(
        problem["detail"],
        "too many requests wait for the collector"
    );
    assert_eq!(answer.header(header::RETRY_AFTER), "1");
}

#[tokio::test]
async fn bodies_have_a_form_and_a_size() {
    // Check that a body of another type is 415 and one that is too large 413.
    let mut untyped = request("PUT", "/api/v1/targets");
    *untyped.body_mut() = Body::from(r#"{"all":true}"#);
    ask(server(), untyped).await.problem(415);
    let mut form = request("PUT", "/api/v1/targets");
    form.headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    ask(server(), form).await.problem(415);
    put(server(), " ".repeat((64 << 10) + 1)).await.problem(413);
}
