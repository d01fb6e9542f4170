//! Measuring functions over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use profiler_daemon::http::app;
use serde_json::{Value, json};

use super::backend::{Fake, RUNNING};
use super::{Answer, ask, hasty, request};

const PATH: &str = "/api/v1/instrumentations";

fn served(allowed: bool) -> Router {
    let mut options = hasty();
    options.instrumentation = allowed;
    app(Arc::new(Fake::default()), options)
}

async fn send(router: &Router, method: &str, path: &str, body: &Value) -> Answer {
    let mut request = request(method, path);
    if !body.is_null() {
        request.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        *request.body_mut() = Body::from(body.to_string());
    }
    ask(router.clone(), request).await
}

fn wanted() -> Value {
    json!({"functions": ["example:work"], "pids": [RUNNING]})
}

// Check that nobody can have functions measured until the configuration says so, that the refusal
// says how, and that reading is allowed.
#[tokio::test]
async fn it_is_off_until_the_configuration_says_so() {
    let router = served(false);
    for (method, path, body) in [
        ("POST", PATH, wanted()),
        ("DELETE", "/api/v1/instrumentations/1", Value::Null),
    ] {
        let refused = send(&router, method, path, &body).await;
        assert_eq!(refused.status, 403, "{}", refused.text());
        assert!(
            refused.text().contains("instrumentation.over_http = true"),
            "{}",
            refused.text()
        );
    }
    let list = send(&router, "GET", PATH, &Value::Null).await;
    assert_eq!(list.json()["instrumentations"][0]["name"], "first");
}

// Check the life of an instrumentation: 201 with its place, its rows in each format, the first
// DELETE ends it and keeps them, the second removes it, and then it is unknown.
#[tokio::test]
async fn an_instrumentation_from_start_to_removal() {
    let router = served(true);
    let begun = send(&router, "POST", PATH, &wanted()).await;
    assert_eq!(begun.status, 201, "{}", begun.text());
    let path = "/api/v1/instrumentations/2";
    assert_eq!(begun.header(header::LOCATION), path);
    let one = begun.json();
    assert_eq!(one["state"], "measuring");
    assert_eq!(
        one["functions"][0]["exits"],
        json!({"how": "sites", "points": 1})
    );
    assert_eq!(one["functions"][1]["state"], "refused");
    assert_eq!(one["functions"][1]["why"], "its symbol has no size");
    let list = send(&router, "GET", PATH, &Value::Null).await.json();
    assert_eq!(list["instrumentations"][1]["id"], 2);
    let list = send(
        &router,
        "GET",
        "/api/v1/instrumentations?format=text",
        &Value::Null,
    )
    .await;
    let list = list.text();
    let lines: Vec<Vec<&str>> = list
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let titles = [
        "NUMBER",
        "STATE",
        "FUNCTIONS",
        "USDT",
        "SPANS",
        "POINTS",
        "UNTIL",
        "NAME",
    ];
    assert_eq!(lines[0], titles, "{list}");
    assert_eq!(lines[2][..3], ["2", "measuring", "2"], "{list}");
    let csv = send(&router, "GET", &format!("{path}?format=csv"), &Value::Null).await;
    assert!(
        csv.text().starts_with("function,module,calls,"),
        "{}",
        csv.text()
    );
    assert_eq!(csv.text().lines().count(), 2, "{}", csv.text());
    let text = send(&router, "GET", &format!("{path}?format=text"), &Value::Null).await;
    assert!(text.text().contains("refused    other"), "{}", text.text());
    let ended = send(&router, "DELETE", path, &Value::Null).await;
    assert_eq!(
        (ended.status.as_u16(), &ended.json()["ended"]),
        (200, &json!("asked"))
    );
    let removed = send(&router, "DELETE", path, &Value::Null).await;
    assert_eq!(removed.status, 204);
    for method in ["GET", "DELETE"] {
        let unknown = send(&router, method, path, &Value::Null).await;
        assert_eq!(unknown.status, 404, "{}", unknown.text());
    }
}

// Check that USDT points and spans are taken without functions, and how each stands is answered, in
// JSON and as text.
#[tokio::test]
async fn points_and_spans_are_taken() {
    let router = served(true);
    let body = json!({
        "usdt": ["app:begin,arg0"], "callers": true, "pids": [RUNNING],
        "spans": [{"name": "request", "start": "app:begin", "end": "usdt:app:done", "key": "tid"}],
    });
    let begun = send(&router, "POST", PATH, &body).await;
    assert_eq!(begun.status, 201, "{}", begun.text());
    let one = begun.json();
    let span = &one["spans"][0];
    assert_eq!(
        (&span["state"], &span["end"]),
        (&json!("waiting"), &json!("usdt:app:done"))
    );
    assert_eq!(one["usdt"], json!([]));
    assert_eq!(one["measured"]["spans"][0]["count"], 0);
    let path = "/api/v1/instrumentations/2?format=text";
    let text = send(&router, "GET", path, &Value::Null).await;
    let line =
        "waiting    request (app:begin to usdt:app:done) its start and its end are in no file";
    assert!(text.text().contains(line), "{}", text.text());
}

// Check that a dry run answers the same and makes nothing, and that what cannot be is refused with
// its reason: bodies with 400, the machine's reasons with 409, numbers that are none with 400.
#[tokio::test]
async fn what_is_refused() {
    let router = served(true);
    let mut dry = wanted();
    dry["dry_run"] = json!(true);
    let looked = send(&router, "POST", PATH, &dry).await;
    assert_eq!(looked.status, 200, "{}", looked.text());
    assert_eq!(looked.json()["id"], Value::Null);
    assert_eq!(looked.json()["state"], "dry_run");
    let list = send(&router, "GET", PATH, &Value::Null).await;
    assert_eq!(list.json()["instrumentations"][1], Value::Null);
    let nobody = json!({"functions": ["a:b"], "pids": [RUNNING + 1]});
    let refused = send(&router, "POST", PATH, &nobody).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    for body in [
        json!({"functions": ["a:b"]}),
        json!({"functions": ["a:b"], "all": true, "for": "2h"}),
        json!({"functions": ["no pattern"], "all": true}),
        json!({"functions": "a:b", "all": true}),
        json!([["a:b"]]),
        json!({"all": true}),
        json!({"usdt": ["app"], "all": true}),
        json!({"usdt": vec!["a:b"; 257], "all": true}),
        json!({"spans": ["a=b:c,d:e,tid"], "all": true}),
        json!({"spans": [{"name": "a", "start": "b:c", "end": "d:e"}], "all": true}),
        json!({"functions": ["a:b"], "callers": "yes", "all": true}),
    ] {
        let refused = send(&router, "POST", PATH, &body).await;
        assert_eq!(refused.status, 400, "{body}: {}", refused.text());
    }
    for number in ["0", "+1", "x", "99999999999"] {
        let path = format!("{PATH}/{number}");
        let refused = send(&router, "GET", &path, &Value::Null).await;
        assert_eq!(refused.status, 400, "{number}: {}", refused.text());
    }
}
