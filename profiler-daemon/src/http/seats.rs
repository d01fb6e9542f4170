//! Places for connections: a bounded number, and which connection gives way to a new one.
//!
//! A connection is *silent* while the server waits for its client: for a request, for the rest of
//! one, or for the client to take more of an answer. Where every place is taken, the connection
//! that is silent longest is closed, so that clients that hold connections without using them keep
//! nobody out. One whose answer is being made is left alone.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::sync::Notify;

/// A client that takes an answer may pause for so long before its connection counts as silent.
const PAUSE: Duration = Duration::from_secs(1);

/// A bounded number of places.
#[derive(Debug)]
pub(super) struct Seats {
    max: usize,
    taken: Mutex<HashMap<u64, Arc<SeatConnection>>>,
    next: AtomicU64,
}

/// What is known of the connection in one place.
#[derive(Debug)]
pub(super) struct SeatConnection {
    state: Mutex<SeatsState>,
    leave: Notify,
}

#[derive(Debug)]
struct SeatsState {
    /// Answers that are being made or written.
    at_work: usize,
    /// When the last answer was handed over whole; at first, when the connection was accepted.
    idle_since: Instant,
    /// Since when the client takes nothing of what is written.
    stalled_since: Option<Instant>,
}

/// The place of one connection, until this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    number: u64,
    place: Arc<SeatConnection>,
    seats: Arc<Seats>,
}

impl Seats {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            taken: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// A place, and whether another connection gave way for it; `None` if every connection is at
    /// work.
    pub(super) fn take(self: &Arc<Self>) -> Option<(Seat, bool)> {
        self.take_at(Instant::now())
    }

    fn take_at(self: &Arc<Self>, now: Instant) -> Option<(Seat, bool)> {
        let mut taken = self.taken();
        let full = taken.len() >= self.max;
        if full {
            let silent = taken.iter().filter_map(|(number, place)| {
                let since = place.silent_since(now)?;
                Some((since, *number))
            });
            let (_, longest) = silent.min()?;
            if let Some(place) = taken.remove(&longest) {
                place.leave.notify_one();
            }
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let place = Arc::new(SeatConnection {
            state: Mutex::new(SeatsState {
                at_work: 0,
                idle_since: now,
                stalled_since: None,
            }),
            leave: Notify::new(),
        });
        taken.insert(number, Arc::clone(&place));
        let seat = Seat {
            number,
            place,
            seats: Arc::clone(self),
        };
        Some((seat, full))
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<u64, Arc<SeatConnection>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// The place, for those who tell it what the connection does.
    pub(super) fn place(&self) -> Arc<SeatConnection> {
        Arc::clone(&self.place)
    }

    /// Ends when the connection has to give way.
    pub(super) async fn given_up(&self) {
        self.place.leave.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.taken().remove(&self.number);
    }
}

impl SeatConnection {
    /// Notes that an answer is being made, until what this returns is dropped.
    pub(super) fn work(self: &Arc<Self>) -> SeatWork {
        self.state().at_work += 1;
        SeatWork(Arc::clone(self))
    }

    /// Notes that the client stopped or began to take what is written.
    pub(super) fn stalled(&self, stalled: bool) {
        let now = Instant::now();
        let mut state = self.state();
        // What is taken is a sign of life, also where the whole of the answer was handed over long
        // ago.
        state.idle_since = now;
        state.stalled_since = stalled.then_some(now);
    }

    fn silent_since(&self, now: Instant) -> Option<Instant> {
        let state = self.state();
        match state.stalled_since {
            Some(since) => (now.duration_since(since) >= PAUSE).then_some(since),
            None => (state.at_work == 0).then_some(state.idle_since),
        }
    }

    fn state(&self) -> MutexGuard<'_, SeatsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that is being made or written.
#[derive(Debug)]
pub(super) struct SeatWork(Arc<SeatConnection>);

impl SeatWork {
    /// The body of the answer, whose end is the end of the work.
    pub(super) fn until_the_end_of(self, body: Body) -> Body {
        Body::new(Attended { body, _work: self })
    }
}

/// The body of a request. Once it was read, or nobody wants it any more, the answer is being made.
pub(super) struct Arriving {
    body: Incoming,
    place: Arc<SeatConnection>,
    begun: Begun,
}

/// Where the work is that began when a body had arrived.
pub(super) type Begun = Arc<Mutex<Option<SeatWork>>>;

impl Arriving {
    pub(super) fn new(body: Incoming, place: Arc<SeatConnection>, begun: Begun) -> Self {
        Self { body, place, begun }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let work = self.place.work();
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
    }
}

impl hyper::body::Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for SeatWork {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.at_work -= 1;
        state.idle_since = Instant::now();
    }
}

/// A body with the work that it belongs to.
struct Attended {
    body: Body,
    _work: SeatWork,
}

impl hyper::body::Body for Attended {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_longest_silent_gives_way() {
        // Check that of all that are silent the one silent longest gives way, whether idle or not
        // taking its answer, that none at work does, and that a place that was left is free.
        let seats = Seats::new(3);
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let take = |seconds| seats.take_at(after(seconds));
        let (first, gave_way) = take(0).expect("a free place");
        assert!(!gave_way);
        let (second, _) = take(2).expect("a free place");
        let (third, _) = take(4).expect("a free place");
        let (first_work, second_work) = (first.place().work(), second.place().work());
        let (fourth, gave_way) = take(6).expect("the third is idle");
        assert!(gave_way);
        third.given_up().await;
        drop(third);
        let fourth_work = fourth.place().work();
        assert!(take(8).is_none(), "all are at work");
        second.place().state().stalled_since = Some(after(8));
        assert!(take(8).is_none(), "a short pause is no silence");
        let (_fifth, _) = take(10).expect("the second takes nothing");
        second.given_up().await;
        drop((first_work, second_work, fourth_work));
        fourth.place().state().idle_since = after(9);
        first.place().state().idle_since = after(8);
        let (_sixth, _) = take(12).expect("the first is idle longest");
        first.given_up().await;
        drop(fourth);
        assert!(!take(12).expect("a free place").1);
    }
}
