//! Tests of the HTTP server over a hand-made profile: every endpoint and refusal by request, slow
//! and greedy clients and the graceful stop over real connections.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod backend;
mod connections;
mod errors;
mod events;
mod guards;
mod instrumentations;
mod lines;
mod openapi;
mod page;
mod pprof;
mod reports;
mod schemathesis;
mod sessions;
mod slow_readers;
mod targets;
mod timeline;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use profiler_daemon::config::Config;
use profiler_daemon::http::{HttpOptions, app};
use profiler_daemon::metrics::RequestCounts;
use serde_json::Value;
use tower::ServiceExt as _;

use backend::Fake;

/// An answer, read to its end.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: header::HeaderName) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Checks that this is a problem of this status, and answers with its body.
    #[track_caller]
    fn problem(&self, status: u16) -> Value {
        assert_eq!(
            self.status.as_u16(),
            status,
            "{}",
            String::from_utf8_lossy(&self.body)
        );
        assert_eq!(
            self.header(header::CONTENT_TYPE),
            "application/problem+json"
        );
        let problem = self.json();
        assert_eq!(problem["status"], status);
        for member in ["type", "title", "detail"] {
            assert!(
                problem[member]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{problem}"
            );
        }
        problem
    }
}

/// Options with short patience, for tests that wait.
fn hasty() -> HttpOptions {
    let mut options = HttpOptions::new(&Config::default(), Arc::new(RequestCounts::default()));
    options.request_timeout = Duration::from_millis(400);
    options.header_timeout = Duration::from_millis(300);
    options.write_stall = Duration::from_millis(300);
    options.shutdown_grace = Duration::from_millis(600);
    options
}

fn server() -> Router {
    app(
        Arc::new(Fake::default()),
        HttpOptions::new(&Config::default(), Arc::new(RequestCounts::default())),
    )
}

/// A path of the endpoint table about something that is there.
fn example(path: &str) -> String {
    path.replace("{pid}", &backend::RUNNING.to_string())
        .replace("{name}", "default")
        .replace("{id}", "other")
        .replace("{number}", "1")
}

fn request(method: &str, target: &str) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(target)
        .header(header::HOST, "localhost:9797")
        .body(Body::empty())
        .unwrap()
}

async fn ask(router: Router, request: Request<Body>) -> Answer {
    let response = router.oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, 64 << 20).await.unwrap().to_vec();
    Answer {
        status: parts.status,
        headers: parts.headers,
        body,
    }
}

async fn get(target: &str) -> Answer {
    ask(server(), request("GET", target)).await
}
