//! What leaves the profile: exited processes beyond the bounds, oldest exit first, and buckets of
//! the recent past beyond theirs. Nothing leaves the sums: a dropped process becomes part of the
//! aggregate of its image.

use std::sync::Arc;

use super::{
    Profile,
    aggregate::Aggregate,
    measured::{MAX_HELD, MeasuredCalls},
    sessions::Sessions,
    timeline::{BucketStart, Needs},
};
use crate::processes::ids::ProcessKey;
use crate::units::{MonoNs, UnixNs};

/// Passes after the one that told of an exit in which more may still come of the process: it is not
/// dropped before.
const GRACE_PASSES: u64 = 1;

/// What is needed of the past beside what windows may ask for.
struct Borders<'a> {
    sessions: &'a Sessions,
    measured: &'a MeasuredCalls,
}

impl Needs for Borders<'_> {
    fn needs(&self, from_ns: MonoNs, to_ns: MonoNs) -> bool {
        self.sessions.needs(from_ns, to_ns)
    }

    fn is_border(&self, at_ns: MonoNs) -> bool {
        self.sessions.is_border(at_ns) || self.measured.is_border(at_ns)
    }
}

impl Profile {
    /// Drops exited processes until the bounds hold, those within [`GRACE_PASSES`] excepted.
    pub(super) fn drop_exited(&mut self) {
        let mut exited: Vec<(u64, UnixNs, ProcessKey, usize)> = self
            .processes
            .iter()
            .filter_map(|(key, process)| {
                let pass = process.exited_pass?;
                let at = process.info.exited_at_unix_ns.unwrap_or_default();
                Some((pass, at, *key, process.aggregate.bytes()))
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
        let aggregate = self.images.take_in(
            &process.info,
            process.aggregate.last_ns(),
            self.limits.images,
            self.limits.dropped_remembered,
        );
        aggregate.absorb(
            process.aggregate,
            &self.timeline,
            &mut self.budget,
            &mut self.refusals,
        );
    }

    /// Begins a bucket of the recent past at the time of the last pass, unless one begins there
    /// already; older ones become coarser or are forgotten.
    pub(super) fn begin_bucket(&mut self) {
        if self.timeline.current_ns() >= self.now_ns {
            return;
        }
        self.timeline.open(BucketStart {
            from_ns: self.now_ns,
            from_unix_ns: self.now_unix_ns,
            counters: self.counters(),
            measured: Some(Arc::clone(&self.measured.counted)),
            kept: true,
        });
        self.measured_forgotten += self.timeline.forget_counted(MAX_HELD);
        self.age(self.now_ns.saturating_sub(self.limits.recent_past_ns));
        if self.recent_past_is_full() {
            self.free_memory_for_buckets();
        }
    }

    /// Makes the recent past fit its bytes: first what is old in it gives way, then named sessions,
    /// then the last minutes.
    fn free_memory_for_buckets(&mut self) {
        let fine_ns = self.limits.grades.first();
        let fine_ns = fine_ns.map_or(0, |grade| grade.older_than_ns);
        let mut horizon_ns = self.now_ns.saturating_sub(self.limits.recent_past_ns);
        let mut last_ns = self.now_ns.saturating_sub(fine_ns);
        while self.recent_past_is_full() {
            let next_ns = self.timeline.next_horizon(horizon_ns);
            if let Some(next_ns) = next_ns.filter(|next_ns| *next_ns <= last_ns) {
                horizon_ns = next_ns;
            } else if !self.sessions.give_up_for_room() {
                if last_ns == MonoNs::MAX {
                    return;
                }
                last_ns = MonoNs::MAX;
            }
            self.age(horizon_ns);
        }
    }

    fn age(&mut self, horizon_ns: MonoNs) {
        let needs = Borders {
            sessions: &self.sessions,
            measured: &self.measured,
        };
        let grades = &self.limits.grades;
        let changes = self.timeline.age(self.now_ns, grades, horizon_ns, &needs);
        for change in &changes {
            for aggregate in self.aggregates() {
                aggregate.age(*change);
            }
        }
    }

    fn recent_past_is_full(&self) -> bool {
        self.recent_past_bytes() > self.limits.segment_bytes as u64
    }

    fn aggregates(&mut self) -> impl Iterator<Item = &mut Aggregate> {
        self.processes
            .values_mut()
            .map(|process| &mut process.aggregate)
            .chain(self.images.aggregates_mut())
    }
}
