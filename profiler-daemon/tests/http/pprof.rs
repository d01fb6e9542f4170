//! Profiles for pprof, as those who scrape them ask for them.

use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::header;
use profiler_daemon::export::pprof::proto::PprofProfile as Profile;
use profiler_daemon::http::app;
use prost::Message as _;

use super::backend::{Fake, RUNNING};
use super::{Answer, ask, get, hasty, request, server};

fn profile(answer: &Answer) -> Profile {
    assert_eq!(
        answer.status,
        200,
        "{}",
        String::from_utf8_lossy(&answer.body)
    );
    assert_eq!(
        answer.header(header::CONTENT_TYPE),
        "application/octet-stream"
    );
    assert_eq!(
        answer.header(header::CONTENT_DISPOSITION),
        "attachment; filename=\"profile.pb.gz\""
    );
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&*answer.body)
        .read_to_end(&mut plain)
        .unwrap();
    Profile::decode(&*plain).unwrap()
}

#[tokio::test]
async fn a_process_comes_as_a_profile() {
    // Check that the profile of a process has its stacks, and is compressed once, also for clients
    // that take gzip.
    let path = format!("/api/v1/processes/{RUNNING}/pprof");
    let plain = get(&path).await;
    let found = profile(&plain);
    assert_eq!(found.sample.len(), 40);
    assert_eq!(found.period, 10_101_010);
    let mut asking = request("GET", &path);
    asking
        .headers_mut()
        .insert(header::ACCEPT_ENCODING, "gzip".parse().unwrap());
    let compressed = ask(server(), asking).await;
    assert_eq!(compressed.header(header::CONTENT_ENCODING), "");
    assert_eq!(compressed.body, plain.body);
    get("/api/v1/processes/9999/pprof").await.problem(404);
}

#[tokio::test]
async fn the_next_seconds_are_waited_for() {
    // Check that a profile of the next second takes one, longer than a request may, and holds
    // nothing from before.
    let mut options = hasty();
    options.max_recordings = 1;
    let router = app(Arc::new(Fake::default()), options);
    let begun = Instant::now();
    let ask = |target: &str| ask(router.clone(), request("GET", target));
    let second = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        ask("/debug/pprof/wall?seconds=1").await
    };
    let (first, second) = tokio::join!(ask("/debug/pprof/profile?seconds=1"), second);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert!(profile(&first).sample.is_empty());
    // One at a time: the second is told at once.
    let problem = second.problem(503);
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("1 profiles of the next seconds")
    );
    profile(&ask("/debug/pprof/wall?seconds=1&pid=42&labels=process&frames=all").await);
}

#[tokio::test]
async fn a_head_is_not_waited_for() {
    // Check that HEAD is answered without waiting for the seconds, with the type that GET has and
    // no length, and that what is refused is refused alike.
    for path in ["/debug/pprof/profile", "/debug/pprof/wall"] {
        let begun = Instant::now();
        let head = ask(server(), request("HEAD", &format!("{path}?seconds=300"))).await;
        assert!(begun.elapsed() < Duration::from_secs(60), "{path}");
        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0), "{path}");
        let content_type = head.header(header::CONTENT_TYPE);
        assert_eq!(content_type, "application/octet-stream");
        assert_eq!(head.header(header::CONTENT_LENGTH), "");
        let wrong = request("HEAD", &format!("{path}?seconds=300&pid=9999"));
        assert_eq!(ask(server(), wrong).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn another_format_is_refused() {
    // Check that who accepts no bytes is told so, and does not wait for the next seconds, and that
    // who takes anything has the profile.
    for path in [
        format!("/api/v1/processes/{RUNNING}/pprof"),
        "/api/v1/profile".to_owned(),
        "/debug/pprof/profile?seconds=300".to_owned(),
        "/debug/pprof/wall?seconds=300".to_owned(),
    ] {
        let accepting = |accept: &str| {
            let mut accepting = request("GET", &path);
            let headers = accepting.headers_mut();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            ask(server(), accepting)
        };
        let problem = accepting("application/json").await.problem(406);
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!(
            detail, "the answer is available as application/octet-stream",
            "{path}"
        );
        if !path.contains("seconds") {
            for accept in ["application/octet-stream", "text/html, */*;q=0.1"] {
                assert_eq!(accepting(accept).await.status, 200, "{path}");
            }
        }
    }
}

#[tokio::test]
async fn wrong_questions_are_told_at_once() {
    // Check that nothing is waited for where the question is wrong or there is no such process.
    for (query, status) in [
        ("seconds=0", 400),
        ("seconds=301", 400),
        ("seconds=1.5", 400),
        ("labels=tid", 400),
        ("pid=x", 400),
        ("pid=9999", 404),
        ("window=30s", 400),
        ("debug=1", 400),
    ] {
        let begun = Instant::now();
        get(&format!("/debug/pprof/profile?{query}"))
            .await
            .problem(status);
        assert!(begun.elapsed() < Duration::from_secs(20), "{query}");
    }
}
