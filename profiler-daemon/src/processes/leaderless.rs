//! Processes that went on when their first thread had ended, in turns: their end is looked for.

use std::{collections::BTreeSet, ops::Bound};

/// Processes that went on when their first thread had ended.
#[derive(Debug, Default)]
pub(super) struct Leaderless {
    ids: BTreeSet<u64>,
    /// Who was looked at last.
    last: u64,
}

impl Leaderless {
    /// Who is looked at next: all in turn.
    pub(super) fn next(&mut self) -> Option<u64> {
        let behind = (Bound::Excluded(self.last), Bound::Unbounded);
        let next = self.ids.range(behind).next().or_else(|| self.ids.first());
        self.last = *next?;
        Some(self.last)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// This one goes on without its first thread.
    pub(super) fn insert(&mut self, id: u64) {
        self.ids.insert(id);
    }

    /// This one has ended.
    pub(super) fn remove(&mut self, id: u64) {
        self.ids.remove(&id);
    }
}
