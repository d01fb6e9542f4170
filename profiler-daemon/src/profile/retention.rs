//! What leaves the profile: exited processes beyond the bounds, oldest exit first, and pieces of the recent past beyond theirs. Nothing
//! leaves the sums: a dropped process becomes part of a retired account.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{
    Profile,
    account::{Account, Refusals},
    timeline::Start,
};
use crate::processes::ids::ProcessKey;

/// Passes after the one that told of an exit in which more may still come of the process: it is not dropped before.
const GRACE_PASSES: u64 = 1;

/// The dropped processes.
#[derive(Debug, Default)]
pub(super) struct Retired {
    /// What user processes were.
    pub(super) user: Account,
    /// What kernel threads were: their kernel frames are always shown.
    pub(super) kernel: Account,
    /// How many processes were dropped.
    pub(super) processes: u64,
    /// The last ones dropped, and whether they were kernel threads.
    known: Arc<BTreeMap<ProcessKey, bool>>,
    order: VecDeque<ProcessKey>,
}

impl Retired {
    pub(super) fn contains(&self, key: ProcessKey) -> bool {
        self.known.contains_key(&key)
    }

    pub(super) fn dropped(&self) -> Arc<BTreeMap<ProcessKey, bool>> {
        Arc::clone(&self.known)
    }

    /// The account that what still comes of a dropped process belongs to.
    pub(super) fn account(&mut self, key: ProcessKey) -> &mut Account {
        if self.known.get(&key).copied().unwrap_or_default() {
            &mut self.kernel
        } else {
            &mut self.user
        }
    }

    pub(super) fn retry(&mut self, refusals: &mut Refusals) {
        self.user.retry(refusals);
        self.kernel.retry(refusals);
    }

    fn remember(&mut self, key: ProcessKey, kernel_thread: bool, limit: usize) {
        let known = Arc::make_mut(&mut self.known);
        known.insert(key, kernel_thread);
        self.order.push_back(key);
        while self.order.len() > limit {
            if let Some(oldest) = self.order.pop_front() {
                known.remove(&oldest);
            }
        }
    }
}

impl Profile {
    /// Drops exited processes until the bounds hold, those within [`GRACE_PASSES`] excepted.
    pub(super) fn drop_exited(&mut self) {
        let mut exited: Vec<(u64, u64, ProcessKey, usize)> = self
            .processes
            .iter()
            .filter_map(|(key, process)| {
                let pass = process.exited_pass?;
                let at = process.info.exited_at_unix_ns.unwrap_or_default();
                Some((pass, at, *key, process.account.bytes()))
            })
            .collect();
        let mut bytes: usize = exited.iter().map(|(.., bytes)| bytes).sum();
        let mut count = exited.len();
        if count <= self.limits.exited_processes && bytes <= self.limits.exited_bytes {
            return;
        }
        exited.sort_unstable();
        for (pass, _, key, freed) in exited {
            let full = count > self.limits.exited_processes || bytes > self.limits.exited_bytes;
            if !full || pass + GRACE_PASSES >= self.passes {
                break;
            }
            self.drop_process(key);
            count -= 1;
            bytes -= freed;
        }
    }

    fn drop_process(&mut self, key: ProcessKey) {
        let Some(process) = self.processes.remove(&key) else {
            return;
        };
        let kernel_thread = process.info.kernel_thread;
        self.retired
            .remember(key, kernel_thread, self.limits.dropped_remembered);
        self.retired.processes += 1;
        let account = if kernel_thread {
            &mut self.retired.kernel
        } else {
            &mut self.retired.user
        };
        account.absorb(
            process.account,
            &self.timeline,
            &mut self.budget,
            &mut self.refusals,
        );
    }

    /// Begins a piece of the recent past at the time of the last pass, unless one begins there already; older ones become
    /// coarser or are forgotten.
    pub(super) fn begin_piece(&mut self) {
        if self.timeline.current_ns() >= self.now_ns {
            return;
        }
        self.timeline.open(Start {
            from_ns: self.now_ns,
            from_unix_ns: self.now_unix_ns,
            counters: self.counters(),
            kept: true,
        });
        self.age(self.now_ns.saturating_sub(self.limits.recent_past_ns));
        if self.recent_past_is_full() {
            self.make_room_for_pieces();
        }
    }

    /// Makes the recent past fit its bytes: first what is old in it gives way, then named sessions, then the last minutes.
    fn make_room_for_pieces(&mut self) {
        let fine_ns = self.limits.grades.first();
        let fine_ns = fine_ns.map_or(0, |grade| grade.older_than_ns);
        let mut horizon_ns = self.now_ns.saturating_sub(self.limits.recent_past_ns);
        let mut last_ns = self.now_ns.saturating_sub(fine_ns);
        while self.recent_past_is_full() {
            let next_ns = self.timeline.next_horizon(horizon_ns);
            if let Some(next_ns) = next_ns.filter(|next_ns| *next_ns <= last_ns) {
                horizon_ns = next_ns;
            } else if !self.sessions.give_up_for_room() {
                if last_ns == u64::MAX {
                    return;
                }
                last_ns = u64::MAX;
            }
            self.age(horizon_ns);
        }
    }

    fn age(&mut self, horizon_ns: u64) {
        let changes =
            self.timeline
                .age(self.now_ns, &self.limits.grades, horizon_ns, &self.sessions);
        for change in &changes {
            for account in self.accounts() {
                account.age(*change);
            }
        }
    }

    fn recent_past_is_full(&self) -> bool {
        self.recent_past_bytes() > self.limits.segment_bytes as u64
    }

    fn accounts(&mut self) -> impl Iterator<Item = &mut Account> {
        let retired = [&mut self.retired.user, &mut self.retired.kernel];
        self.processes
            .values_mut()
            .map(|process| &mut process.account)
            .chain(retired)
    }
}
