//! Which threads of an aggregate have rows of their own: the number that an exec changes, and rows
//! that are given up.
//!
//! A thread that is not the first of its process and executes a program takes over the number of
//! the first one, which dies. It keeps its own start, so (number, start) stays unique: the dead
//! one's row is (number, the process's start).

use std::{collections::BTreeSet, sync::Arc};

use super::{aggregate::Aggregate, input::ThreadUpdate};
use crate::processes::ids::ThreadKey;
use crate::units::MonoNs;

/// Folded threads remembered so that a late update does not count them twice.
const MAX_RECENTLY_FOLDED: usize = 256;

impl Aggregate {
    /// Makes sure that the row of the update's thread is that thread's, and no other's.
    pub(super) fn settle_identity(&mut self, update: &ThreadUpdate) {
        // Only the number of the process is ever taken over.
        if update.thread.tid != update.process.pid {
            return;
        }
        match self.threads.get(&update.thread) {
            None => self.take_number_over(update),
            // First seen after its exec: the kernel has given it the start of the one whose number
            // it took over.
            Some(row) if row.exited_pass.is_some() && row.first_ns != update.first_event_ns => {
                self.fold(&BTreeSet::from([update.thread]));
            }
            Some(_) => {}
        }
    }

    /// Gives a row its new key where the thread was known by another number: same place in the
    /// kernel, same start, same first event. Everything else knows the thread by its index.
    fn take_number_over(&mut self, update: &ThreadUpdate) {
        let (to, found) = (
            update.thread,
            self.threads.iter().find(|(key, row)| {
                key.start_ns == update.thread.start_ns
                    && row.slot == update.slot
                    && row.first_ns == update.first_event_ns
                    && row.exited_pass.is_none()
            }),
        );
        let Some(from) = found.map(|(key, _)| *key) else {
            return;
        };
        let threads = Arc::make_mut(&mut self.threads);
        if let Some(row) = threads.remove(&from) {
            threads.insert(to, row);
        }
        let rename = |key: &mut ThreadKey| {
            if *key == from {
                *key = to;
            }
        };
        self.held_back
            .iter_mut()
            .for_each(|held| rename(&mut held.thread));
        if let Some(call) = self.open_calls.remove(&from) {
            self.open_calls.insert(to, call);
        }
        let renamed: Vec<_> = self
            .seen_calls
            .extract_if(|(thread, _), _| *thread == from)
            .collect();
        self.seen_calls.extend(
            renamed
                .into_iter()
                .map(|((_, number), totals)| ((to, number), totals)),
        );
    }

    /// Folds the rows of the threads that exited first, so that at most `limit` rows of exited
    /// threads remain. The ones that exited in this very pass stay: more may come of them.
    pub fn fold_exited(&mut self, limit: usize, pass: u64) {
        if self.exited <= limit {
            return;
        }
        let mut gone: Vec<(MonoNs, ThreadKey)> = self
            .threads
            .iter()
            .filter(|(_, thread)| thread.exited_pass.is_some_and(|seen| seen < pass))
            .map(|(key, thread)| (thread.last_ns, *key))
            .collect();
        gone.sort_unstable();
        gone.truncate(self.exited - limit);
        let keys: BTreeSet<ThreadKey> = gone.iter().map(|(_, key)| *key).collect();
        self.fold(&keys);
        self.recently_folded.extend(keys);
        let surplus = self
            .recently_folded
            .len()
            .saturating_sub(MAX_RECENTLY_FOLDED);
        self.recently_folded.drain(..surplus);
    }

    /// Adds rows of exited threads to those that have none.
    fn fold(&mut self, keys: &BTreeSet<ThreadKey>) {
        let threads = Arc::make_mut(&mut self.threads);
        for key in keys {
            if let Some(thread) = threads.remove(key) {
                self.exited -= 1;
                self.folded.count += 1;
                self.folded.totals.add(&thread.totals);
            }
        }
        self.seen_calls
            .retain(|(thread, _), _| !keys.contains(thread));
        self.open_calls.retain(|thread, _| !keys.contains(thread));
    }
}
