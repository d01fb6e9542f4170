//! Which hosts a request may mean, and which sites it may come from.

use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use profiler_daemon::api::ENDPOINTS;

use super::{ask, example, request, server};

#[tokio::test]
async fn other_hosts_are_refused_everywhere() {
    // Check that no endpoint answers for a foreign name, whether it stands in the header or in the
    // request line.
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

#[tokio::test]
async fn pages_of_other_sites_fetch_nothing() {
    // Check that what a page of another site embeds is refused everywhere, and that its links, own
    // pages and programs are answered.
    let from = |path: &str, headers: [&'static str; 3]| {
        let mut request = request("GET", path);
        for (name, value) in ["sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"]
            .into_iter()
            .zip(headers)
        {
            request
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        request
    };
    for endpoint in ENDPOINTS {
        let path = example(endpoint.path);
        for embedded in [
            ["cross-site", "no-cors", "image"],
            ["cross-site", "cors", "empty"],
            ["cross-site", "navigate", "iframe"],
        ] {
            let problem = ask(server(), from(&path, embedded)).await.problem(403);
            assert!(problem["type"].as_str().unwrap().ends_with("cross-site"));
        }
    }
    let mut ahead = from("/healthz", ["cross-site", "navigate", "document"]);
    ahead
        .headers_mut()
        .insert("sec-purpose", HeaderValue::from_static("prefetch"));
    ask(server(), ahead).await.problem(403);
    for allowed in [
        ["cross-site", "navigate", "document"],
        ["same-origin", "cors", "empty"],
        ["none", "navigate", "document"],
    ] {
        let answer = ask(server(), from("/healthz", allowed)).await;
        assert_eq!(answer.status, 200, "{allowed:?}");
    }
}
