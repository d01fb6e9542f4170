//! Which hosts a request may mean.

use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use profiler_daemon::http::ENDPOINTS;

use super::{ask, example, request, server};

#[tokio::test]
async fn other_hosts_are_refused_everywhere() {
    // Check that no endpoint answers for a foreign name, whether it stands in the header or in the request line.
    for endpoint in ENDPOINTS {
        let path = example(endpoint.path);
        let mut foreign = request("GET", &path);
        foreign
            .headers_mut()
            .insert(header::HOST, HeaderValue::from_static("evil.example:9797"));
        let problem = ask(server(), foreign).await.problem(421);
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("allowed_hosts"),
            "{problem}"
        );
        ask(
            server(),
            request("GET", &format!("http://evil.example{path}")),
        )
        .await
        .problem(421);
    }
    let own = ask(server(), request("GET", "http://127.0.0.1:9797/healthz")).await;
    assert_eq!(own.status, 200);
}

#[tokio::test]
async fn exactly_one_host_is_needed() {
    // Check that a missing, a repeated and an unreadable Host header are refused.
    let without = Request::builder()
        .uri("/healthz")
        .body(Body::empty())
        .unwrap();
    ask(server(), without).await.problem(400);
    let mut twice = request("GET", "/healthz");
    twice
        .headers_mut()
        .append(header::HOST, HeaderValue::from_static("localhost"));
    ask(server(), twice).await.problem(400);
    let mut unreadable = request("GET", "/healthz");
    unreadable.headers_mut().insert(
        header::HOST,
        HeaderValue::from_bytes(b"local\xffhost").unwrap(),
    );
    ask(server(), unreadable).await.problem(421);
}
