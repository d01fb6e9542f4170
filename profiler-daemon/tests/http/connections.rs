//! Real connections: clients that are slow, greedy or absent, and the end of the server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler_daemon::http::{HttpOptions, app, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::backend::Fake;
use super::hasty;

/// Longer than anything here may take; a test that gets here has failed.
pub(crate) const FOREVER: Duration = Duration::from_secs(20);

/// A server on a port of its own.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<anyhow::Result<()>>,
}

pub(crate) async fn start(fake: Fake, options: HttpOptions) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let app = app(Arc::new(fake), options.clone());
    let running = tokio::spawn(serve(listener, app, options, async {
        stopped.await.unwrap_or_default();
    }));
    Server {
        address,
        stop,
        running,
    }
}

impl Server {
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Stops it and answers how long that took.
    pub(crate) async fn stop(self) -> Duration {
        let begin = Instant::now();
        self.stop.send(()).unwrap();
        timeout(FOREVER, self.running)
            .await
            .expect("the server stops")
            .unwrap()
            .unwrap();
        begin.elapsed()
    }
}

pub(crate) async fn send(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

/// Everything until the server closes the connection.
pub(crate) async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match timeout(FOREVER, stream.read_to_end(&mut bytes))
        .await
        .expect("the server closes the connection")
    {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

/// One answer on a connection that stays open: up to the end of a body that ends in a line break.
async fn read_answer(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    let mut bytes = [0; 4096];
    while !text.ends_with(end) {
        let length = timeout(FOREVER, stream.read(&mut bytes))
            .await
            .expect("an answer comes")
            .unwrap();
        assert!(length > 0, "the connection ended after {text:?}");
        text.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
    }
    text
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
const SESSION: &str =
    "GET /api/v1/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn silent_and_dribbling_clients_are_closed() {
    // Check that a client that says nothing, stops in the middle of a head, or stays after its
    // answer is closed.
    let server = start(Fake::default(), hasty()).await;
    for said in ["", "GET /healthz HTTP/1.1\r\nHost: local"] {
        let mut stream = server.connect().await;
        send(&mut stream, said).await;
        let answer = read_all(&mut stream).await;
        assert!(!answer.contains("200 OK"), "{answer}");
    }
    let mut stream = server.connect().await;
    send(&mut stream, HEALTH).await;
    let answer = read_all(&mut stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("ok\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up() {
    // Check that a body that stops on its way is answered with 408 and the connection closed.
    let server = start(Fake::default(), hasty()).await;
    let mut stream = server.connect().await;
    let head = "PUT /api/v1/targets HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{";
    send(&mut stream, head).await;
    let answer = read_all(&mut stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 408 ") && answer.contains("application/problem+json"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_body_without_a_length_has_a_bound() {
    // Check that a body sent in pieces is given up with 413 once it is too large.
    let server = start(Fake::default(), hasty()).await;
    let mut stream = server.connect().await;
    let head = "PUT /api/v1/targets HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    let piece = format!("{:x}\r\n{}\r\n", (64 << 10) + 1, " ".repeat((64 << 10) + 1));
    send(&mut stream, &(head.to_owned() + &piece)).await;
    let answer = read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn heads_beyond_bounds_are_told_so() {
    // Check that an address and headers beyond what is allowed are refused with a problem that says
    // what is, and those within are answered.
    let server = start(Fake::default(), hasty()).await;
    let lines = |count: usize| (0..count).map(|n| format!("X-{n}: y\r\n")).collect();
    let long = |bytes: usize| format!("X-Long: {}\r\n", "y".repeat(bytes));
    let cases: [(&str, usize, String); 6] = [
        ("404 ", 8_000, String::new()),
        ("414 ", 8_193, String::new()),
        ("404 ", 10, lines(98)),
        ("431 ", 10, lines(99)),
        ("404 ", 10, long(32_000)),
        ("431 ", 10, long(33_000)),
    ];
    for (code, uri_bytes, headers) in cases {
        let address = "a".repeat(uri_bytes - 1);
        let mut stream = server.connect().await;
        let head = format!(
            "GET /{address} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        );
        send(&mut stream, &head).await;
        let answer = read_all(&mut stream).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code}")),
            "{code}: {answer}"
        );
        assert!(answer.contains("application/problem+json"), "{answer}");
        assert!(
            code == "404 " || answer.contains("and may "),
            "it does not say what is allowed: {answer}"
        );
    }
}

#[tokio::test]
async fn what_is_no_request_is_refused_without_a_word() {
    // Check that what is no HTTP, and heads beyond all that is read, are answered with a bare code
    // and the connection closed.
    let server = start(Fake::default(), hasty()).await;
    let endless = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n",
        "y".repeat(400_000)
    );
    let countless = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
        "X: y\r\n".repeat(2_000)
    );
    for (said, codes) in [
        ("no request at all\r\n\r\n", ["400 ", "400 "]),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\n: y\r\n\r\n",
            ["400 ", "400 "],
        ),
        (&endless, ["431 ", "414 "]),
        (&countless, ["431 ", "431 "]),
    ] {
        let mut stream = server.connect().await;
        // The server may hang up before all is said.
        stream.write_all(said.as_bytes()).await.ok();
        let answer = read_all(&mut stream).await;
        let bare = codes
            .iter()
            .any(|code| answer.starts_with(&format!("HTTP/1.1 {code}")))
            && answer.ends_with("\r\n\r\n");
        assert!(
            bare,
            "{answer:?} to {:?}",
            said.chars().take(60).collect::<String>()
        );
    }
    let mut stream = server.connect().await;
    send(&mut stream, SESSION).await;
    assert!(read_all(&mut stream).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn clients_that_do_not_read_lose_their_place() {
    // Check that a client that takes nothing of a long answer is closed, so that the next has its
    // place.
    let mut options = hasty();
    options.max_connections = 1;
    let fake = Fake {
        metrics_bytes: 64 << 20,
        ..Fake::default()
    };
    let server = start(fake, options).await;
    let mut greedy = server.connect().await;
    send(
        &mut greedy,
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    )
    .await;
    // The place is free once the server gave the greedy client up; until then others are refused.
    let begin = Instant::now();
    loop {
        let mut stream = server.connect().await;
        stream
            .write_all(HEALTH.as_bytes())
            .await
            .unwrap_or_default();
        if read_all(&mut stream).await.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(
            begin.elapsed() < FOREVER,
            "the greedy client keeps its place"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // What was on its way can be read, but the answer never ends.
    let mut taken = Vec::new();
    let end = timeout(FOREVER, greedy.read_to_end(&mut taken))
        .await
        .unwrap();
    assert!(
        end.is_err() || taken.len() < 64 << 20,
        "{} bytes were taken",
        taken.len()
    );
}

#[tokio::test]
async fn connections_beyond_the_limit_are_told_so() {
    // Check that where answers are being made on all connections, one client too many gets 503 and
    // a time to retry, and that a free place is used again.
    let mut options = hasty();
    options.max_connections = 2;
    options.header_timeout = FOREVER;
    options.request_timeout = FOREVER;
    let fake = Fake {
        delay: FOREVER,
        ..Fake::default()
    };
    let server = start(fake, options).await;
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut stream = server.connect().await;
        send(&mut stream, SESSION).await;
        kept.push(stream);
    }
    // Those before it are at work once the requests have been read; until then the older one gives
    // way.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut refused = server.connect().await;
    send(&mut refused, HEALTH).await;
    let answer = read_all(&mut refused).await.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 503 "), "{answer}");
    for part in [
        "retry-after: 1",
        "application/problem+json",
        "http.max_connections",
    ] {
        assert!(answer.contains(part), "{part} is missing from {answer}");
    }
    drop(kept.pop());
    let begin = Instant::now();
    loop {
        let mut stream = server.connect().await;
        send(
            &mut stream,
            "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        )
        .await;
        if read_all(&mut stream).await.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(begin.elapsed() < FOREVER, "the free place is not used");
    }
}

#[tokio::test]
async fn silent_connections_give_way() {
    // Check that clients that hold every connection and say nothing, half a head, half a body, or
    // nothing after an answer, keep nobody out, and that the one whose answer is being made keeps
    // its place.
    let mut options = hasty();
    options.max_connections = 5;
    options.header_timeout = FOREVER;
    options.request_timeout = FOREVER;
    let fake = Fake {
        delay: Duration::from_secs(1),
        ..Fake::default()
    };
    let counts = Arc::clone(&options.requests);
    let server = start(fake, options).await;
    let mut waiting = server.connect().await;
    send(&mut waiting, SESSION).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let half_a_body = "PUT /api/v1/targets HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{";
    let mut silent = Vec::new();
    for said in ["", "GET /healthz HTTP/1.1\r\nHost: local", half_a_body] {
        let mut stream = server.connect().await;
        send(&mut stream, said).await;
        silent.push(stream);
    }
    let mut answered = server.connect().await;
    send(&mut answered, HEALTH).await;
    read_answer(&mut answered, "ok\n").await;
    silent.push(answered);
    let begin = Instant::now();
    let mut served = Vec::new();
    for _ in 0..silent.len() {
        let mut stream = server.connect().await;
        send(&mut stream, HEALTH).await;
        let answer = read_answer(&mut stream, "ok\n").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        served.push(stream);
    }
    assert!(begin.elapsed() < FOREVER / 4, "{:?}", begin.elapsed());
    for mut stream in silent {
        assert_eq!(read_all(&mut stream).await, "", "it was not closed");
    }
    assert_eq!(counts.given_up(), 4);
    let answer = read_all(&mut waiting).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_connection_does_not_live_forever() {
    // Check that a client that keeps asking is closed between two answers once its connection is
    // old.
    let mut options = hasty();
    options.max_connection_age = Duration::from_millis(200);
    let server = start(Fake::default(), options).await;
    let mut stream = server.connect().await;
    let begin = Instant::now();
    let mut answers = 0;
    let mut bytes = [0; 4096];
    while begin.elapsed() < FOREVER && stream.write_all(HEALTH.as_bytes()).await.is_ok() {
        match timeout(FOREVER, stream.read(&mut bytes)).await.unwrap() {
            Ok(0) | Err(_) => break,
            Ok(_) => answers += 1,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(
        answers > 0 && begin.elapsed() < FOREVER,
        "{answers} answers"
    );
}

#[tokio::test]
async fn an_old_connection_ends_its_answer_first() {
    // Check that an answer that takes longer than its connection may be old, and longer than a
    // request may take, is sent whole, and that the connection is closed after it.
    let mut options = hasty();
    options.max_connection_age = Duration::from_millis(100);
    let server = start(Fake::default(), options).await;
    let mut stream = server.connect().await;
    let head = "GET /debug/pprof/profile?seconds=3 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    send(&mut stream, head).await;
    let answer = read_all(&mut stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.contains("application/octet-stream"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn the_last_answer_of_a_connection_has_an_end() {
    // Check that an old connection whose answer does not come is dropped all the same.
    let mut options = hasty();
    options.request_timeout = FOREVER * 2;
    options.max_connection_age = Duration::from_millis(100);
    options.max_answer_age = Duration::from_millis(100);
    let fake = Fake {
        delay: FOREVER * 2,
        ..Fake::default()
    };
    let server = start(fake, options).await;
    let mut stream = server.connect().await;
    send(&mut stream, SESSION).await;
    assert_eq!(read_all(&mut stream).await, "");
}

#[tokio::test]
async fn stopping_finishes_what_runs() {
    // Check that a running request is answered although the server stops, and that nobody new is
    // let in.
    let fake = Fake {
        delay: Duration::from_millis(200),
        ..Fake::default()
    };
    let server = start(fake, hasty()).await;
    let address = server.address;
    let mut stream = server.connect().await;
    send(&mut stream, SESSION).await;
    // One answer after it shows that the server has read the request before.
    let mut other = server.connect().await;
    send(&mut other, HEALTH).await;
    read_answer(&mut other, "ok\n").await;
    let stopping = tokio::spawn(server.stop());
    let answer = read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    stopping.await.unwrap();
    assert!(
        TcpStream::connect(address).await.is_err(),
        "the port is still open"
    );
}

#[tokio::test]
async fn stopping_does_not_wait_for_idle_clients() {
    // Check that clients that are between two requests, or have said nothing, do not delay the end.
    let mut options = hasty();
    options.header_timeout = FOREVER;
    options.shutdown_grace = FOREVER;
    let server = start(Fake::default(), options).await;
    let mut idle = server.connect().await;
    send(&mut idle, HEALTH).await;
    read_answer(&mut idle, "ok\n").await;
    let silent = server.connect().await;
    let mut witness = server.connect().await;
    send(&mut witness, HEALTH).await;
    read_answer(&mut witness, "ok\n").await;
    assert!(server.stop().await < FOREVER / 4);
    drop(silent);
}

#[tokio::test]
async fn stopping_ends_though_an_answer_does_not() {
    // Check that the server returns after its grace when a client or an answer hangs.
    let mut options = hasty();
    options.request_timeout = FOREVER;
    options.write_stall = FOREVER;
    let fake = Fake {
        delay: FOREVER,
        metrics_bytes: 64 << 20,
        ..Fake::default()
    };
    let server = start(fake, options.clone()).await;
    let mut hanging = server.connect().await;
    send(&mut hanging, SESSION).await;
    let mut greedy = server.connect().await;
    send(
        &mut greedy,
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    )
    .await;
    let mut witness = server.connect().await;
    send(&mut witness, HEALTH).await;
    read_answer(&mut witness, "ok\n").await;
    let took = server.stop().await;
    assert!(
        took >= options.shutdown_grace && took < FOREVER / 2,
        "{took:?}"
    );
}
