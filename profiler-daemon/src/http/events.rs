//! Answers that are sent again and again: server-sent events, for `format=events`.
//!
//! A stream makes an event when it is due and the connection has room for it. So a reader that is
//! slow gets fewer events, each the newest, and nothing piles up for it. All streams wake at the
//! same beats, and those of one beat share one reading of the profile. What an event holds is made
//! by whoever opens the stream.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};

use super::respond::respond;
use super::room::Written;
use super::shared::{ServerState, in_time};
use super::streams::BEAT;
use super::ties::Ties;
use crate::api::BoxFuture;
use crate::api::format::Format;
use crate::api::parameter::MIN_INTERVAL_NS;
use crate::api::problem::Problem;
use crate::metrics::StreamEnd;
use crate::profile::snapshot::Snapshot;
use crate::report::times::rfc3339;
use crate::sys::clock;
use crate::units::UnixNs;

/// What is sent when there was nothing else to send for a while, so that both sides see that the
/// other is there.
const HEARTBEAT: &[u8] = b": \n\n";
/// Asks proxies that know this header to pass events on at once.
const UNBUFFERED: (HeaderName, HeaderValue) = (
    HeaderName::from_static("x-accel-buffering"),
    HeaderValue::from_static("no"),
);

/// When an event is made, and what was sent before.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventMoment {
    beat: u64,
    /// The time of the last event's data, Unix nanoseconds.
    sent_unix_ns: Option<UnixNs>,
}

impl EventMoment {
    /// The profile now; nothing when it is the one of the last event.
    ///
    /// # Errors
    ///
    /// When it cannot be read now.
    pub(super) async fn snapshot(
        self,
        shared: &ServerState,
    ) -> Result<Option<Arc<Snapshot>>, Problem> {
        let snapshot = shared.streams.snapshot(&*shared.source, self.beat).await?;
        let is_new = self.sent_unix_ns != Some(snapshot.as_of_unix_ns());
        Ok(is_new.then_some(snapshot))
    }
}

/// The data of an event.
pub(super) struct MadeEvent {
    /// Their time, Unix nanoseconds.
    pub(super) as_of_unix_ns: UnixNs,
    /// A line of JSON.
    pub(super) body: Written,
}

impl MadeEvent {
    /// Data of this very moment.
    pub(super) fn now(body: Written) -> Self {
        Self {
            as_of_unix_ns: clock::unix_ns(),
            body,
        }
    }
}

/// Makes the data of an event; nothing when there is nothing new.
type Make = dyn Fn(Arc<ServerState>, EventMoment) -> BoxFuture<'static, Result<Option<MadeEvent>, Problem>>
    + Send
    + Sync;

/// Answers with a stream of what `make` makes.
///
/// # Errors
///
/// When there are too many streams, or already the first event cannot be made: told as for any
/// other format.
pub(super) async fn open(
    shared: &Arc<ServerState>,
    interval_ns: u64,
    make: impl Fn(
        Arc<ServerState>,
        EventMoment,
    ) -> BoxFuture<'static, Result<Option<MadeEvent>, Problem>>
    + Send
    + Sync
    + 'static,
) -> Result<Response, Problem> {
    let streams = &shared.streams;
    let Some(place) = streams.take_place() else {
        return Err(Problem::overloaded(format!(
            "{} streams of events are open already",
            streams.max()
        )));
    };
    let mut stream = Stream {
        interval_beats: interval_ns.div_ceil(MIN_INTERVAL_NS),
        stopped: shared.options.stopping.subscribe(),
        shared: Arc::clone(shared),
        make: Box::new(make),
        hasher: RandomState::new(),
        sent: None,
        first: None,
        ends_at: Instant::now() + shared.options.max_stream_age,
        said_at: Instant::now(),
        ties: Arc::default(),
        is_counted: false,
        end: None,
        _place: place,
    };
    let made = stream.make(streams.beat()).await?;
    stream.first = made.map(|made| stream.event(made));
    let ties = Arc::clone(&stream.ties);
    let body = Body::new(EventBody {
        event: Event::new(),
        next: Some(Box::pin(stream.next())),
    });
    let mut response = respond(Format::Events, body);
    response.headers_mut().insert(UNBUFFERED.0, UNBUFFERED.1);
    response.extensions_mut().insert(ties);
    Ok(response)
}

/// The pieces of an event, in order.
type Event = VecDeque<Bytes>;

/// One stream.
struct Stream {
    shared: Arc<ServerState>,
    make: Box<Make>,
    interval_beats: u64,
    hasher: RandomState,
    /// Time and hash of the data that were sent last.
    sent: Option<(UnixNs, u64)>,
    /// The first event, which was made before the answer began.
    first: Option<Event>,
    /// When it must end.
    ends_at: Instant,
    /// When anything was sent last.
    said_at: Instant,
    stopped: watch::Receiver<bool>,
    ties: Arc<Ties>,
    /// Whether it was counted as open; an answer to `HEAD` never is.
    is_counted: bool,
    /// Why it ends, where that is known.
    end: Option<StreamEnd>,
    _place: OwnedSemaphorePermit,
}

impl Stream {
    /// Waits for what is to be sent next; nothing at the end.
    async fn next(mut self) -> Option<(Event, Self)> {
        if !self.is_counted {
            self.is_counted = true;
            self.shared.options.requests.streams.opened();
        }
        if self.end.is_some() {
            return None;
        }
        if let Some(mut event) = self.first.take() {
            let retry_ms = BEAT.as_millis() * u128::from(self.interval_beats);
            event.push_front(format!("retry: {retry_ms}\n").into());
            return self.say(event);
        }
        loop {
            let mut stopped = self.stopped.clone();
            let streams = &self.shared.streams;
            // Streams of one interval send at the same beats.
            let due = (streams.beat() / self.interval_beats + 1) * self.interval_beats;
            let silence_ends = self.said_at + self.shared.options.heartbeat;
            tokio::select! {
                biased;
                // An error means that the server is gone, which is the same.
                _ = stopped.wait_for(|stopped| *stopped) => {
                    self.end = Some(StreamEnd::Stopped);
                    return None;
                }
                () = sleep_until(self.ends_at) => {
                    self.end = Some(StreamEnd::Aged);
                    return None;
                }
                () = sleep_until(streams.at(due)) => {}
                () = sleep_until(silence_ends) => {
                    self.said_at = Instant::now();
                    return Some(([Bytes::from_static(HEARTBEAT)].into(), self));
                }
            }
            let made = tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => {
                    self.end = Some(StreamEnd::Stopped);
                    return None;
                }
                made = self.make(due) => made,
            };
            match made {
                Ok(Some(made)) => {
                    let event = self.event(made);
                    return self.say(event);
                }
                Ok(None) => {}
                Err(problem) => {
                    self.end = Some(StreamEnd::Failed);
                    let event = format!("event: error\ndata: {}\n\n", line(&problem.to_json()));
                    return Some(([event.into()].into(), self));
                }
            }
        }
    }

    /// Makes the data of a beat, within the time of any answer; nothing where they would be the
    /// same again.
    async fn make(&self, beat: u64) -> Result<Option<MadeEvent>, Problem> {
        let moment = EventMoment {
            beat,
            sent_unix_ns: self.sent.map(|(as_of_unix_ns, _)| as_of_unix_ns),
        };
        let made = in_time(&self.shared, (self.make)(Arc::clone(&self.shared), moment)).await??;
        Ok(made.filter(|made| {
            let hash = self.hash(&made.body);
            self.sent.is_none_or(|(_, sent)| sent != hash)
        }))
    }

    /// Data as an event. Notes that they are sent.
    fn event(&mut self, made: MadeEvent) -> Event {
        self.sent = Some((made.as_of_unix_ns, self.hash(&made.body)));
        let id = rfc3339(made.as_of_unix_ns);
        made.body.into_line(format!("id: {id}\ndata: "), "\n\n")
    }

    fn hash(&self, body: &Written) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for piece in body.pieces() {
            hasher.write(piece);
        }
        hasher.finish()
    }

    fn say(mut self, event: Event) -> Option<(Event, Self)> {
        self.shared.options.requests.streams.sent();
        self.said_at = Instant::now();
        Some((event, self))
    }
}

/// JSON as one line. It has no line break of its own: within text they are escaped.
fn line(json: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(json.trim_ascii_end())
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.is_counted {
            let gone = if self.ties.is_stalled() {
                StreamEnd::Slow
            } else {
                StreamEnd::Client
            };
            let streams = &self.shared.options.requests.streams;
            streams.ended(self.end.unwrap_or(gone));
        }
        self.shared.streams.leave();
    }
}

/// What a stream waits for: what it sends next, and itself for what comes after.
type Next = Pin<Box<dyn Future<Output = Option<(Event, Stream)>> + Send>>;

/// A stream as the body of an answer.
struct EventBody {
    /// What is left of the event that is being sent.
    event: Event,
    /// What comes after it; nothing once the stream has ended.
    next: Option<Next>,
}

impl HttpBody for EventBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if let Some(piece) = self.event.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let Some(next) = &mut self.next else {
                return Poll::Ready(None);
            };
            let said = ready!(next.as_mut().poll(context));
            self.next = None;
            if let Some((event, stream)) = said {
                self.event = event;
                self.next = Some(Box::pin(stream.next()));
            }
        }
    }
}
