//! How many requests were answered, by handler and status code; how many streams of events are open
//! and how they ended.

use std::array;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counts of answered requests. Bounded: the handlers' names are fixed in the program and codes are
/// three digits.
#[derive(Debug, Default)]
pub struct RequestCounts {
    by_code: Mutex<BTreeMap<(&'static str, u16), u64>>,
    /// Connections that gave way to new ones.
    given_up: AtomicU64,
    /// Streams of events.
    pub streams: StreamCounts,
    /// What is held of answers.
    pub answers: AnswerCounts,
    /// Answers for which there was no room.
    answers_refused: AtomicU64,
}

impl RequestCounts {
    /// Counts a connection that gave way to a new one.
    pub fn count_given_up(&self) {
        self.given_up.fetch_add(1, Ordering::Relaxed);
    }

    /// How many connections gave way to new ones.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Counts an answer that was refused as others that are held left no room for it.
    pub fn count_answer_refused(&self) {
        self.answers_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How many answers were refused as others that are held left no room for them.
    #[must_use]
    pub fn answers_refused(&self) -> u64 {
        self.answers_refused.load(Ordering::Relaxed)
    }

    /// Counts one answer.
    pub fn count(&self, handler: &'static str, code: u16) {
        let mut counts = self.by_code.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((handler, code)).or_default() += 1;
    }

    /// All counts so far, in the order of handlers and codes.
    #[must_use]
    pub fn totals(&self) -> Vec<(&'static str, u16, u64)> {
        let counts = self.by_code.lock().unwrap_or_else(PoisonError::into_inner);
        counts
            .iter()
            .map(|((handler, code), count)| (*handler, *code, *count))
            .collect()
    }
}

/// What is held of answers that their clients have not taken yet.
#[derive(Debug, Default)]
pub struct AnswerCounts {
    held_bytes: AtomicU64,
}

impl AnswerCounts {
    /// Counts memory that holds a part of an answer, until [`let_go`](Self::let_go) has as many
    /// bytes.
    pub fn hold(&self, bytes: u64) {
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts memory that was held and is free again.
    pub fn let_go(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The memory that answers hold now, bytes.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }
}

profiler_common::named_enum! {
    /// Why a stream of events ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum StreamEnd {
        /// The client left.
        Client => "client",
        /// The client took nothing for too long.
        Slow => "slow",
        /// The answer could not be made any more; the client was told.
        Failed => "failed",
        /// The server stopped.
        Stopped => "stopped",
        /// It was open for as long as a stream may be.
        Aged => "aged",
    }
}

/// Counts of streams of events.
#[derive(Debug, Default)]
pub struct StreamCounts {
    opened: AtomicU64,
    sent: AtomicU64,
    ended: [AtomicU64; StreamEnd::ALL.len()],
}

/// What was counted of streams of events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamTotals {
    /// Streams that are open.
    pub open: u64,
    /// Events that were sent, heartbeats not included.
    pub sent_total: u64,
    /// Streams that ended, by reason.
    pub ended_total: Vec<(&'static str, u64)>,
}

impl StreamCounts {
    /// Counts a stream that begins.
    pub fn opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an event.
    pub fn sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a stream that ends.
    pub fn ended(&self, end: StreamEnd) {
        self.ended[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// All counts so far.
    #[must_use]
    pub fn totals(&self) -> StreamTotals {
        let ended: [u64; StreamEnd::ALL.len()] =
            array::from_fn(|index| self.ended[index].load(Ordering::Relaxed));
        let opened = self.opened.load(Ordering::Relaxed);
        StreamTotals {
            open: opened.saturating_sub(ended.iter().sum()),
            sent_total: self.sent.load(Ordering::Relaxed),
            ended_total: StreamEnd::ALL
                .iter()
                .map(|end| (end.name(), ended[*end as usize]))
                .collect(),
        }
    }
}
