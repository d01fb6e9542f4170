//! What an endless answer and its connection know of each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What one endless answer shares with its connection: it travels with the answer, as an extension.
#[derive(Debug, Default)]
pub(super) struct Ties {
    stalled: AtomicBool,
}

impl Ties {
    /// Whether the connection was given up because the client took nothing.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }
}

/// The endless answer of a connection, where there is one: the last one begun on it.
#[derive(Debug, Clone, Default)]
pub(super) struct Endless(Arc<Mutex<Option<Arc<Ties>>>>);

impl Endless {
    /// Remembers an answer that was just begun.
    pub(super) fn begin(&self, ties: Arc<Ties>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(ties);
    }

    /// Tells it that the client takes nothing.
    pub(super) fn stalled(&self) {
        if let Some(ties) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            ties.stalled.store(true, Ordering::Relaxed);
        }
    }
}
