//! Clients that ask for much and take it slowly: what is held for them has a bound, and others are
//! answered all the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler_daemon::http::HttpOptions;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::backend::{FUNCTIONS, Fake};
use super::connections::{FOREVER, Server, read_all, send, start};
use super::hasty;

/// What an answer has at least.
const ANSWER_BYTES: usize = 8 << 20;
/// What answers may hold together, beside their first pieces.
const ANSWERS_BYTES: usize = 40 << 20;
/// The first piece of each answer.
const FIRST_BYTES: u64 = 128 << 10;

/// A server of large answers, which leaves slow clients alone for long.
async fn large() -> (Server, HttpOptions) {
    let mut options = hasty();
    options.write_stall = FOREVER * 2;
    options.request_timeout = Duration::from_secs(4);
    options.answers_bytes = ANSWERS_BYTES;
    // All may wait for their turn.
    options.max_connections = 128;
    let fake = Fake {
        name_bytes: ANSWER_BYTES / FUNCTIONS,
        ..Fake::default()
    };
    (start(fake, options.clone()).await, options)
}

/// A client that asks, and takes nothing.
async fn asking(server: &Server, format: &str) -> TcpStream {
    let mut stream = server.connect().await;
    let path = format!("/api/v1/functions?limit=0&format={format}");
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    send(&mut stream, &head).await;
    stream
}

async fn answer(server: &Server, path: &str) -> String {
    let mut stream = server.connect().await;
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    send(&mut stream, &head).await;
    read_all(&mut stream).await
}

/// Waits until this is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < FOREVER, "{what}");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_slow_readers_hold_no_more_than_they_may() {
    // Check that of many clients that take nothing of large answers and of streams, together no
    // more is held than there is room for, that those without room are told so, that small answers
    // come meanwhile, and that all of the room is free again once the clients are gone.
    let (server, options) = large().await;
    let counts = Arc::clone(&options.requests);
    let mut clients = Vec::new();
    for number in 0..24 {
        let format = if number % 4 == 0 { "events" } else { "json" };
        clients.push(asking(&server, format).await);
    }
    let most = ANSWERS_BYTES as u64 + 24 * FIRST_BYTES;
    let begin = Instant::now();
    let mut held = 0;
    while counts.answers_refused() < 4 {
        assert!(begin.elapsed() < FOREVER, "nobody was refused");
        for path in [
            "/healthz",
            "/metrics",
            "/api/v1/status",
            "/api/v1/session?format=text",
        ] {
            let text = answer(&server, path).await;
            assert!(text.starts_with("HTTP/1.1 200 "), "{path}: {text}");
        }
        held = held.max(counts.answers.held_bytes());
        assert!(held <= most, "{held} bytes are held");
    }
    assert!(held >= ANSWER_BYTES as u64, "only {held} bytes were held");
    let mut refused = 0;
    for mut client in clients.drain(..) {
        let mut begin = [0; 12];
        let peeked = timeout(Duration::from_millis(1), client.peek(&mut begin)).await;
        if matches!(peeked, Ok(Ok(12))) && begin.ends_with(b"503") {
            let text = read_all(&mut client).await.to_ascii_lowercase();
            assert!(text.contains("retry-after: 1"), "{text}");
            refused += usize::from(text.contains("they may hold 40 mib together"));
        }
    }
    assert!(refused > 0, "nobody was told why");
    until("what was held is not free", || {
        counts.answers.held_bytes() == 0
    })
    .await;
    let text = answer(&server, "/api/v1/functions?limit=0").await;
    assert!(text.starts_with("HTTP/1.1 200 ") && text.len() > ANSWER_BYTES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_is_waited_for() {
    // Check that an answer for which there is no room comes once another client has gone in the
    // middle of its own.
    let (server, options) = large().await;
    let counts = Arc::clone(&options.requests);
    let mut slow = Vec::new();
    let full = || counts.answers.held_bytes() > (ANSWERS_BYTES - ANSWER_BYTES) as u64;
    while !full() {
        slow.push(asking(&server, "json").await);
        sleep(Duration::from_millis(200)).await;
        assert!(slow.len() < 20, "the room is never full");
    }
    let waiting = answer(&server, "/api/v1/functions?limit=0");
    let leaving = async {
        sleep(Duration::from_millis(500)).await;
        drop(slow);
    };
    let (text, ()) = tokio::join!(waiting, leaving);
    assert!(text.starts_with("HTTP/1.1 200 "), "{}", &text[..200]);
    assert!(text.len() > ANSWER_BYTES);
    until("what was held is not free", || {
        counts.answers.held_bytes() == 0
    })
    .await;
}
