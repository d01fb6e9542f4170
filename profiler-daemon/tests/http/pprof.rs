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
