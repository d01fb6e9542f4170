//! Streams of events: what they send, how they share, how they end, and who is refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::http::{header, response::Parts};
use profiler_daemon::api::ENDPOINTS;
use profiler_daemon::config::Config;
use profiler_daemon::http::{HttpOptions, app};
use profiler_daemon::metrics::RequestCounts;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use super::backend::{FUNCTIONS, Fake, Live, RUNNING};
use super::connections::{FOREVER, read_all, send, start};
use super::reports::{target, with};
use super::{ask, get, hasty, request, server};

const ENDLESS: u64 = 1_000_000;

/// One event.
#[derive(Debug)]
struct Event {
    id: String,
    kind: String,
    data: Value,
}

/// A stream that is being read.
struct Reader {
    parts: Parts,
    body: Body,
    text: String,
}

impl Reader {
    async fn open(router: &Router, target: &str) -> Self {
        let response = router
            .clone()
            .oneshot(request("GET", target))
            .await
            .unwrap();
        let (parts, body) = response.into_parts();
        assert_eq!(parts.status, 200, "{target}");
        Self {
            parts,
            body,
            text: String::new(),
        }
    }

    /// The next block of lines; nothing at the end.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let block = block.to_owned();
                self.text = rest.to_owned();
                return Some(block);
            }
            let body = &mut self.body;
            let frame =
                std::future::poll_fn(|context| std::pin::Pin::new(&mut *body).poll_frame(context));
            let frame = timeout(FOREVER, frame).await.expect("the stream goes on")?;
            let bytes = frame.unwrap().into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    /// The next event, comments left out; nothing at the end.
    async fn event(&mut self) -> Option<Event> {
        loop {
            let block = self.block().await?;
            let field = |name: &str| {
                let mut lines = block.lines();
                lines.find_map(|line| line.strip_prefix(name).map(str::to_owned))
            };
            if let Some(data) = field("data: ") {
                return Some(Event {
                    id: field("id: ").unwrap_or_default(),
                    kind: field("event: ").unwrap_or_default(),
                    data: serde_json::from_str(&data).unwrap(),
                });
            }
        }
    }
}

/// Routes over a profile that goes on, and its counts.
fn live(fake: Fake, change: impl FnOnce(&mut HttpOptions)) -> (Router, Arc<RequestCounts>) {
    let counts = Arc::new(RequestCounts::default());
    let mut options = HttpOptions::new(&Config::default(), Arc::clone(&counts));
    change(&mut options);
    (app(Arc::new(fake), options), counts)
}

fn going_on(passes: u64) -> Fake {
    Fake {
        live: Live::ending_in(passes),
        ..Fake::default()
    }
}

fn ended(counts: &RequestCounts, reason: &str) -> u64 {
    let totals = counts.streams.totals();
    totals
        .ended_total
        .iter()
        .find(|(name, _)| *name == reason)
        .unwrap()
        .1
}

/// Waits until a stream has ended for this reason.
async fn until_ended(counts: &RequestCounts, reason: &str) {
    let waiting = async {
        while ended(counts, reason) == 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = timeout(FOREVER, waiting).await;
    assert!(
        waited.is_ok(),
        "{:?} after waiting for {reason}",
        counts.streams.totals()
    );
}

#[tokio::test]
async fn every_report_comes_as_events() {
    // Check that each endpoint with this format begins with the answer that JSON has, by parameter
    // and by header, that HEAD answers the same without opening a stream, and that endpoints
    // without the format refuse it.
    let (router, counts) = live(Fake::default(), |_| {});
    let mut streamed = 0;
    for endpoint in ENDPOINTS.iter().filter(|endpoint| endpoint.takes("format")) {
        let path = target(endpoint.path);
        let target = with(&path, "format=events");
        if !endpoint.takes("interval") {
            get(&target).await.problem(400);
            continue;
        }
        streamed += 1;
        let mut reader = Reader::open(&router, &target).await;
        assert_eq!(
            reader.parts.headers[header::CONTENT_TYPE],
            "text/event-stream"
        );
        assert_eq!(reader.parts.headers[header::CACHE_CONTROL], "no-store");
        let event = reader.event().await.unwrap();
        let json = get(&with(&path, "format=json")).await.json();
        if endpoint.handler != "status" {
            assert_eq!(event.data, json, "{target}");
        }
        if let Some(as_of) = json.get("as_of") {
            assert_eq!(as_of, event.id.as_str());
        }
        drop(reader);
        let open = counts.streams.totals();
        let head = ask(router.clone(), request("HEAD", &target)).await;
        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
        assert_eq!(head.header(header::CONTENT_TYPE), "text/event-stream");
        assert_eq!(counts.streams.totals(), open, "HEAD was counted");
        let mut accepting = request("HEAD", &path);
        accepting
            .headers_mut()
            .insert(header::ACCEPT, "text/event-stream".parse().unwrap());
        let head = ask(router.clone(), accepting).await;
        assert_eq!(head.header(header::CONTENT_TYPE), "text/event-stream");
    }
    assert!(streamed >= 15, "{streamed} endpoints");
    for target in ["/api/v1/calltree?format=events", "/healthz?format=events"] {
        let answer = get(target).await;
        assert_ne!(
            answer.header(header::CONTENT_TYPE),
            "text/event-stream",
            "{target}"
        );
    }
}

#[tokio::test]
async fn events_go_on_and_streams_share_passes() {
    // Check that each stream gets each new answer once, with its time as id, and that ten streams
    // read the profile as often as one.
    let fake = going_on(ENDLESS);
    let snapshots = Arc::clone(&fake.snapshots);
    let (router, counts) = live(fake, |_| {});
    let mut readers = Vec::new();
    for report in ["session", "functions", "processes", "threads", "modules"].repeat(2) {
        readers.push(
            Reader::open(
                &router,
                &format!("/api/v1/{report}?format=events&interval=500ms"),
            )
            .await,
        );
    }
    let first = readers[0].block().await.unwrap();
    assert!(
        first.starts_with("retry: 500\nid: ") && first.contains("\ndata: {"),
        "{first}"
    );
    assert!(counts.streams.totals().open >= 1);
    let before = snapshots.load(Ordering::Relaxed);
    let tasks: Vec<_> = readers
        .into_iter()
        .map(|mut reader| {
            tokio::spawn(async move {
                let mut ids = Vec::new();
                for _ in 0..6 {
                    let event = reader.event().await.unwrap();
                    assert_eq!(event.data["as_of"], event.id.as_str());
                    ids.push(event.id);
                }
                ids
            })
        })
        .collect();
    for task in tasks {
        let ids = timeout(FOREVER, task).await.unwrap().unwrap();
        assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    }
    let passes = snapshots.load(Ordering::Relaxed) - before;
    // Six events a stream; on a busy machine the streams may be some beats apart.
    assert!(
        (5..=20).contains(&passes),
        "{passes} readings for ten streams of six events"
    );
}

#[tokio::test]
async fn what_is_the_same_is_not_sent_again() {
    // Check that an answer that does not change is sent once, and that the stream says all the same
    // that it is there.
    let (router, counts) = live(Fake::default(), |options| {
        options.heartbeat = Duration::from_millis(300);
    });
    for path in ["/api/v1/session", "/api/v1/targets"] {
        let sent = counts.streams.totals().sent_total;
        let mut reader =
            Reader::open(&router, &format!("{path}?format=events&interval=500ms")).await;
        assert!(reader.block().await.unwrap().contains("data: "));
        for _ in 0..5 {
            assert_eq!(reader.block().await.as_deref(), Some(": "), "{path}");
        }
        assert_eq!(counts.streams.totals().sent_total, sent + 1);
    }
}

#[tokio::test]
async fn an_answer_that_fails_ends_the_stream() {
    // Check that a stream about a process ends with a problem once the process is dropped, and one
    // about none does not begin.
    let (router, counts) = live(going_on(2), |_| {});
    let path = format!("/api/v1/processes/{RUNNING}");
    let mut reader = Reader::open(&router, &format!("{path}?format=events&interval=500ms")).await;
    let last = loop {
        let event = reader.event().await.expect("an error comes before the end");
        if event.kind == "error" {
            break event;
        }
        assert_eq!(event.data["pid"], RUNNING);
    };
    assert_eq!((&last.data["status"], last.id.as_str()), (&410.into(), ""));
    assert!(reader.event().await.is_none());
    assert_eq!(
        (counts.streams.totals().open, ended(&counts, "failed")),
        (0, 1)
    );
    ask(
        router.clone(),
        request("GET", &format!("{path}?format=events")),
    )
    .await
    .problem(410);
    ask(router, request("GET", "/api/v1/processes/9?format=events"))
        .await
        .problem(404);
}

#[tokio::test]
async fn wrong_questions_are_refused() {
    // Check that intervals out of bounds, and an interval without a stream, are refused with what
    // is allowed.
    for interval in ["499ms", "0s", "2h", "x", "", "2"] {
        let problem = get(&format!(
            "/api/v1/session?format=events&interval={interval}"
        ))
        .await
        .problem(400);
        assert_eq!(problem["errors"][0]["parameter"], "interval");
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("from 500ms to 1h"),
            "{problem}"
        );
    }
    let problem = get("/api/v1/session?interval=2s").await.problem(400);
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("format=events"),
        "{problem}"
    );
    get("/api/v1/calltree?interval=2s").await.problem(400);
}

#[tokio::test]
async fn too_many_streams_are_told_so() {
    // Check that one stream beyond the bound gets 503 with a time to retry, other answers go on,
    // and a free place is used again.
    let (router, counts) = live(Fake::default(), |options| options.max_streams = 2);
    let target = "/api/v1/session?format=events";
    let mut kept = [
        Reader::open(&router, target).await,
        Reader::open(&router, target).await,
    ];
    for reader in &mut kept {
        assert!(reader.event().await.is_some());
    }
    assert_eq!(counts.streams.totals().open, 2);
    let refused = ask(router.clone(), request("GET", target)).await;
    refused.problem(503);
    assert_eq!(refused.header(header::RETRY_AFTER), "1");
    assert_eq!(
        ask(router.clone(), request("GET", "/api/v1/session"))
            .await
            .status,
        200
    );
    drop(kept);
    assert_eq!(
        (counts.streams.totals().open, ended(&counts, "client")),
        (0, 2)
    );
    assert!(Reader::open(&router, target).await.event().await.is_some());
}

#[tokio::test]
async fn events_are_not_compressed() {
    // Check that a client that takes gzip gets events as they are, since compression would hold
    // them back.
    let mut asking = request("GET", "/api/v1/functions?format=events");
    asking
        .headers_mut()
        .insert(header::ACCEPT_ENCODING, "gzip".parse().unwrap());
    let response = server().oneshot(asking).await.unwrap();
    assert!(response.headers().get(header::CONTENT_ENCODING).is_none());
}

/// A request for a stream of every function on a connection of its own.
const STREAM: &str = "GET /api/v1/functions?limit=0&format=events&interval=500ms HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[tokio::test]
async fn a_client_that_leaves_is_noticed() {
    // Check that a stream ends, and is counted so, when its client closes the connection.
    let options = hasty();
    let counts = Arc::clone(&options.requests);
    let server = start(going_on(ENDLESS), options).await;
    let mut stream = server.connect().await;
    send(&mut stream, STREAM).await;
    let mut bytes = [0; 1024];
    assert!(
        timeout(FOREVER, stream.read(&mut bytes))
            .await
            .unwrap()
            .unwrap()
            > 0
    );
    drop(stream);
    until_ended(&counts, "client").await;
    assert_eq!(counts.streams.totals().open, 0);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_dropped() {
    // Check that a stream whose client stops reading ends once the connection takes nothing more,
    // and is counted as slow.
    let mut options = hasty();
    options.request_timeout = FOREVER;
    let counts = Arc::clone(&options.requests);
    // One event is more than the buffers of a connection hold.
    let fake = Fake {
        name_bytes: (32 << 20) / FUNCTIONS,
        ..going_on(ENDLESS)
    };
    let server = start(fake, options).await;
    let mut stream = server.connect().await;
    send(&mut stream, STREAM).await;
    until_ended(&counts, "slow").await;
    assert_eq!(counts.streams.totals().open, 0);
    drop(stream);
}

#[tokio::test]
async fn a_stream_outlives_the_age_of_connections() {
    // Check that a stream goes on when its connection is old, and that the connection is closed
    // after it.
    let mut options = hasty();
    options.max_connection_age = Duration::from_millis(100);
    options.request_timeout = Duration::from_millis(100);
    options.write_stall = Duration::from_millis(100);
    let server = start(going_on(6), options).await;
    let mut stream = server.connect().await;
    let path = format!("/api/v1/processes/{RUNNING}");
    send(
        &mut stream,
        &format!("GET {path}?format=events&interval=500ms HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    )
    .await;
    let text = read_all(&mut stream).await;
    assert!(text.matches("\nid: ").count() >= 3, "{text}");
    assert!(text.contains("event: error\n"), "{text}");
}

#[tokio::test]
async fn stopping_ends_streams_at_once() {
    // Check that the server does not wait for the next event of a stream when it stops, and that
    // clients see a whole answer.
    let mut options = hasty();
    options.shutdown_grace = FOREVER;
    let counts = Arc::clone(&options.requests);
    let server = start(going_on(ENDLESS), options).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = server.connect().await;
        send(&mut stream, &STREAM.replace("500ms", "1h")).await;
        let mut bytes = [0; 1024];
        assert!(
            timeout(FOREVER, stream.read(&mut bytes))
                .await
                .unwrap()
                .unwrap()
                > 0
        );
        streams.push(stream);
    }
    assert!(server.stop().await < FOREVER / 4);
    for stream in &mut streams {
        let rest = read_all(stream).await;
        assert!(rest.ends_with("\r\n0\r\n\r\n"), "the answer is cut: {rest}");
    }
    assert_eq!(
        (counts.streams.totals().open, ended(&counts, "stopped")),
        (0, 3)
    );
}

#[tokio::test]
async fn a_stream_does_not_live_forever() {
    // Check that a stream that is old enough ends after a whole event, and is counted so.
    let (router, counts) = live(Fake::default(), |options| {
        options.max_stream_age = Duration::ZERO
    });
    let mut reader = Reader::open(&router, "/api/v1/session?format=events").await;
    assert!(reader.event().await.is_some() && reader.event().await.is_none());
    assert_eq!(
        (counts.streams.totals().open, ended(&counts, "aged")),
        (0, 1)
    );
}
