//! How many requests were answered, by handler and status code.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Counts of answered requests. Bounded: the handlers' names are fixed in the program and codes are three digits.
#[derive(Debug, Default)]
pub struct RequestCounts(Mutex<BTreeMap<(&'static str, u16), u64>>);

impl RequestCounts {
    /// Counts one answer.
    pub fn count(&self, handler: &'static str, code: u16) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((handler, code)).or_default() += 1;
    }

    /// All counts so far, in the order of handlers and codes, for
    /// [`MetricsInput::http_requests_total`](super::MetricsInput::http_requests_total).
    #[must_use]
    pub fn totals(&self) -> Vec<(&'static str, u16, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts
            .iter()
            .map(|((handler, code), count)| (*handler, *code, *count))
            .collect()
    }
}
