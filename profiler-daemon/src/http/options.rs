//! What the server allows its clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::config::Config;
use crate::metrics::RequestCounts;

/// Reports that are made at the same time. Each takes a processor while it is made.
const MAX_REPORTS: usize = 4;
/// Those of them that wait for debug information.
const MAX_LINE_REPORTS: usize = 2;
/// Profiles of the next seconds that are waited for at the same time.
const MAX_RECORDINGS: usize = 4;
/// Streams of events that are open at the same time, at most a quarter of all connections. Each
/// holds one for as long as its client likes.
const MAX_STREAMS: usize = 16;
/// Bytes of answers that are held for clients that have not taken them yet.
const ANSWERS_BYTES: usize = 128 << 20;
/// How long one stream of events may be. Clients made for events come back by themselves.
const MAX_STREAM_AGE: Duration = Duration::from_secs(3_600);
/// How long the last answer of an old connection may take: a stream that has just begun then is not
/// cut.
const MAX_ANSWER_AGE: Duration = Duration::from_secs(3_630);
/// How long a stream of events may say nothing.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a client may take to send the head of a request, and how long a connection may stand
/// idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take nothing of an answer.
const WRITE_STALL: Duration = Duration::from_secs(10);
/// How long one connection may be used.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(300);
/// How long running requests may take once the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);

/// What the server allows its clients.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Where it listens; requests that name this address as host are answered.
    pub listen: SocketAddr,
    /// Further host names that requests may carry, in lower case and without port.
    pub allowed_hosts: Vec<String>,
    /// Connections that are open at the same time.
    pub max_connections: usize,
    /// Reports that are made at the same time.
    pub max_reports: usize,
    /// Those of them that wait for debug information.
    pub max_line_reports: usize,
    /// How long the body of a request may take to arrive, and how long an answer may take to be
    /// made.
    pub request_timeout: Duration,
    /// The longest body of a request, in bytes.
    pub max_body_bytes: usize,
    /// Whether clients may have functions measured.
    pub instrumentation: bool,
    /// How long the head of a request may take to arrive, and how long a connection may stand idle.
    pub header_timeout: Duration,
    /// How long a client may take nothing of an answer.
    pub write_stall: Duration,
    /// How long one connection may be used: after that, the answer under way is its last.
    pub max_connection_age: Duration,
    /// How long that last answer may take, however slowly it is taken; no less than a stream.
    pub max_answer_age: Duration,
    /// How long running requests may take once the server stops.
    pub shutdown_grace: Duration,
    /// Time between two samples of one processor, nanoseconds; profiles tell it.
    pub sampling_period_ns: u64,
    /// Profiles of the next seconds that are waited for at the same time. Each keeps the state it
    /// began with.
    pub max_recordings: usize,
    /// Streams of events that are open at the same time.
    pub max_streams: usize,
    /// Bytes of answers that are held for clients that have not taken them yet, beside the first
    /// 128 KiB of each; counted in pieces of 256 KiB. A single answer that is larger is held alone.
    pub answers_bytes: usize,
    /// How long one stream of events may be.
    pub max_stream_age: Duration,
    /// How long a stream of events may say nothing; after that it says that it is there.
    pub heartbeat: Duration,
    /// Becomes true when the server stops: streams end then.
    pub stopping: watch::Sender<bool>,
    /// Where answered requests and streams are counted.
    pub requests: Arc<RequestCounts>,
}

impl HttpOptions {
    /// What the configuration asks for; `requests` is where answered requests are counted.
    #[must_use]
    pub fn new(config: &Config, requests: Arc<RequestCounts>) -> Self {
        let request_timeout = Duration::from_nanos(config.http.request_timeout_ns);
        Self {
            listen: config.listen,
            allowed_hosts: config.allowed_hosts.clone(),
            max_connections: config.http.max_connections,
            max_reports: MAX_REPORTS,
            max_line_reports: MAX_LINE_REPORTS,
            request_timeout,
            max_body_bytes: config.http.max_body_bytes,
            instrumentation: config.instrumentation.over_http,
            header_timeout: request_timeout.min(HEADER_TIMEOUT),
            write_stall: WRITE_STALL,
            max_connection_age: MAX_CONNECTION_AGE,
            max_answer_age: MAX_ANSWER_AGE,
            shutdown_grace: SHUTDOWN_GRACE,
            sampling_period_ns: 1_000_000_000 / u64::from(config.frequency_hz.max(1)),
            max_recordings: MAX_RECORDINGS,
            max_streams: MAX_STREAMS.min(config.http.max_connections / 4).max(1),
            answers_bytes: ANSWERS_BYTES,
            max_stream_age: MAX_STREAM_AGE,
            heartbeat: HEARTBEAT,
            stopping: watch::Sender::new(false),
            requests,
        }
    }
}
