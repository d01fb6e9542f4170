//! The recent past of one process: its segments, and the sleep runs in which its threads only
//! slept.
//!
//! Invariant, per thread and class, in each segment and sleep run: attributed <= total. And the
//! time of a thread in a segment is the time that passed in it, also when a later look gives part
//! of it to another class.

use std::{collections::VecDeque, sync::Arc};

use profiler_common::{
    Class, ClassNs,
    kinds::{Kind, WaitNs},
};
use serde::{Deserialize, Serialize};

use super::{
    calls::CallTotals,
    segments::{CellKind, ProcessSegment},
    sleep_runs::{Holder, SleepRun, SleepRuns},
    spread::SpreadPart,
    timeline::TimelineRings,
    tree::NodeId,
    values::{WAIT_CLASSES, take_from},
    weights,
};
use crate::units::MonoNs;

/// See the module. Segments are oldest first; those in which nothing happened are missing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WindowHistory {
    segments: Arc<VecDeque<Arc<ProcessSegment>>>,
    sleep_runs: SleepRuns,
    segment_bytes: usize,
}

/// Time of a thread and class of which it was found what it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// How much.
    pub(super) ns: u64,
    /// Of how much nothing was known before.
    pub(super) unattributed_ns: u64,
    /// It may be of a wait that was under way at the last pass: no other is known to have been.
    pub(super) may_be_older: bool,
    /// When the growing segment began.
    pub(super) segment_ns: MonoNs,
}

/// Where pending time is.
#[derive(Clone, Copy)]
enum PendingPlace {
    /// In the segment of this index.
    Segment(usize),
    /// In the sleep run of the thread that began then.
    SleepRun(SleepRun),
}

impl WindowHistory {
    /// The segments that began in a span.
    pub(super) fn within(
        &self,
        from_ns: MonoNs,
        to_ns: MonoNs,
    ) -> impl Iterator<Item = &ProcessSegment> {
        let range = self.range(from_ns, to_ns);
        self.segments.range(range).map(Arc::as_ref)
    }

    /// All sleep runs, wherever they lie.
    pub(super) fn sleep_runs(&self) -> impl Iterator<Item = SleepRun> {
        self.sleep_runs.iter()
    }

    /// Bytes of all of it, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.segment_bytes + self.sleep_runs.bytes()
    }

    fn range(&self, from_ns: MonoNs, to_ns: MonoNs) -> std::ops::Range<usize> {
        let first = self.segments.partition_point(|s| s.from_ns < from_ns);
        let end = self.segments.partition_point(|s| s.from_ns < to_ns);
        first..end.max(first)
    }

    /// Changes the segment that began then, made where it is missing.
    fn at(&mut self, from_ns: MonoNs, change: impl FnOnce(&mut ProcessSegment)) {
        let index = match self.segments.back() {
            Some(last) if last.from_ns == from_ns => self.segments.len() - 1,
            _ => self.segments.partition_point(|s| s.from_ns < from_ns),
        };
        let found = self.segments.get(index);
        if found.is_none_or(|segment| segment.from_ns != from_ns) {
            let segment = ProcessSegment::new(from_ns);
            self.segment_bytes += segment.bytes();
            Arc::make_mut(&mut self.segments).insert(index, Arc::new(segment));
        }
        self.change(index, change);
    }

    fn change(&mut self, index: usize, change: impl FnOnce(&mut ProcessSegment)) {
        let segment = Arc::make_mut(&mut Arc::make_mut(&mut self.segments)[index]);
        let before = segment.bytes();
        change(segment);
        self.segment_bytes = self.segment_bytes + segment.bytes() - before;
    }

    /// A thread gained `amount` in the segment that began at `segment_ns`.
    pub(super) fn gain(&mut self, segment_ns: MonoNs, thread: u32, what: CellKind, amount: u64) {
        if amount > 0 {
            self.at(segment_ns, |segment| {
                segment.cell(thread, what).total += amount;
            });
        }
    }

    /// A thread slept from one pass to another, all of it in one system call if that is named.
    pub(super) fn sleep(&mut self, thread: u32, from_ns: MonoNs, to_ns: MonoNs, call: Option<u32>) {
        self.sleep_runs.add(SleepRun {
            thread,
            from_ns,
            to_ns,
            class: Class::Blocked as usize,
            holder: None,
            call,
        });
    }

    /// Adds to one number of a place in the call tree.
    pub(super) fn hit(
        &mut self,
        segment_ns: MonoNs,
        node: NodeId,
        what: weights::What,
        amount: u64,
    ) {
        if amount > 0 {
            self.at(segment_ns, |segment| segment.hit(node, what, amount));
        }
    }

    /// Adds system calls of one number.
    pub(super) fn call(&mut self, segment_ns: MonoNs, number: u32, gain: &CallTotals) {
        if *gain == CallTotals::default() {
            return;
        }
        self.at(segment_ns, |segment| {
            segment.calls.entry(number).or_default().add(gain);
        });
    }

    /// A thread's time of one class turned out to be less by `amount`, and that of others to be
    /// more by `gains`. What it has less becomes theirs where it passed, newest first, where no
    /// stack has it yet, or where that is no longer kept; so does the time in `call`, if it was
    /// inside one. What is left of the gains is answered.
    pub(super) fn reclassify(
        &mut self,
        thread: u32,
        (class, amount): (usize, u64),
        call: Option<u32>,
        mut gains: ClassNs,
    ) -> ClassNs {
        let mut forgotten = amount;
        for (place, part) in self.pending(thread, class, amount) {
            forgotten -= part;
            let parts = take_from(&mut gains, part);
            match place {
                PendingPlace::Segment(index) => self.change(index, |segment| {
                    segment.cell(thread, CellKind::Class(class)).total -= part;
                    for (other, ns) in parts {
                        segment.add_time(thread, other, None, ns);
                        segment.reclassify_call(call, (class, other), ns);
                    }
                }),
                PendingPlace::SleepRun(sleep_run) => {
                    let (mut from_ns, _) = self.sleep_runs.shorten(thread, sleep_run.from_ns, part);
                    // Else it is the segments that tell of its call.
                    let call = call.filter(|_| sleep_run.call.is_none());
                    for (other, ns) in parts {
                        let part = SleepRun {
                            from_ns,
                            to_ns: from_ns + ns,
                            ..sleep_run
                        };
                        self.sleep_runs.add(part.of_class(other));
                        self.reclassify_calls(call, (class, other), from_ns, from_ns + ns);
                        from_ns += ns;
                    }
                }
            }
        }
        take_from(&mut gains, forgotten).for_each(drop);
        gains
    }

    /// The time inside calls of one number that passed in a span turned out to be of another class.
    fn reclassify_calls(
        &mut self,
        call: Option<u32>,
        classes: (usize, usize),
        from_ns: MonoNs,
        to_ns: MonoNs,
    ) {
        let last = self.segments.partition_point(|s| s.from_ns < to_ns);
        let mut end_ns = to_ns;
        for index in (0..last).rev() {
            if call.is_none() || end_ns <= from_ns {
                return;
            }
            let began_ns = self.segments[index].from_ns.max(from_ns);
            let ns = end_ns - began_ns;
            self.change(index, |segment| segment.reclassify_call(call, classes, ns));
            end_ns = began_ns;
        }
    }

    /// `found` of a thread's time of one class is what `holder` says: it goes where that time
    /// passed, which is answered. What passed before the oldest segment is in no window.
    pub(super) fn attribute(
        &mut self,
        (thread, class): (u32, usize),
        holder: Holder,
        found: Found,
    ) -> Vec<SpreadPart> {
        let give =
            |segment: &mut ProcessSegment, part: u64| segment.give(thread, class, holder, part);
        let places = self.places(thread, class, found).into_iter();
        let parts = places.map(|(place, ns)| match place {
            PendingPlace::Segment(index) => {
                self.change(index, |segment| give(segment, ns));
                SpreadPart {
                    from_ns: self.segments[index].from_ns,
                    ns,
                    slept: false,
                }
            }
            PendingPlace::SleepRun(sleep_run) => {
                let (from_ns, to_ns) = self.sleep_runs.shorten(thread, sleep_run.from_ns, ns);
                self.sleep_runs.add(SleepRun {
                    from_ns,
                    to_ns,
                    holder: Some(holder),
                    ..sleep_run
                });
                SpreadPart {
                    from_ns,
                    ns,
                    slept: true,
                }
            }
        });
        parts.collect()
    }

    /// `amount` of a thread's running time was found to be of a kind: most of it passed in the
    /// growing segment.
    pub(super) fn attribute_running(
        &mut self,
        (thread, class): (u32, usize),
        holder: Holder,
        found: Found,
    ) {
        let amount = found.ns;
        let last = self.segments.len().wrapping_sub(1);
        if let Some(segment) = self.segments.get(last)
            && segment.pending(thread, class) >= amount
            && self.sleep_runs.pending(thread, class).next().is_none()
        {
            self.change(last, |segment| segment.give(thread, class, holder, amount));
        } else {
            self.attribute((thread, class), holder, found);
        }
    }

    /// `amount` of a thread's running time that had been found to be of a kind was none: newest
    /// first.
    pub(super) fn take_back(&mut self, thread: u32, class: usize, kind: Kind, mut amount: u64) {
        for index in (0..self.segments.len()).rev() {
            if amount == 0 {
                return;
            }
            self.change(index, |segment| {
                amount -= segment.take_back(thread, class, kind, amount);
            });
        }
    }

    /// Where time that was found passed. What of a thread's time in older segments nothing has yet
    /// is one wait, or a part of it: the one that was under way at the last pass. So it is of what
    /// was found if that is as much, and not known to be another wait; all else passed since, and
    /// is newer.
    fn places(&self, thread: u32, class: usize, found: Found) -> Vec<(PendingPlace, u64)> {
        let now = self.segments.back();
        let now = now.filter(|segment| segment.from_ns == found.segment_ns);
        let slept = self
            .sleep_runs
            .pending_since(thread, class, found.segment_ns);
        let recent_ns = now.map_or(0, |segment| segment.pending(thread, class))
            + slept
                .map(|sleep_run| sleep_run.to_ns - sleep_run.from_ns)
                .sum::<u64>();
        let older_ns = found.unattributed_ns.saturating_sub(recent_ns);
        if older_ns == 0 || !found.may_be_older || found.ns < older_ns {
            return self.pending(thread, class, found.ns);
        }
        let all = self.pending(thread, class, u64::MAX).into_iter();
        let (recent, older): (Vec<_>, Vec<_>) = all.partition(|(place, _)| {
            let from_ns = match place {
                PendingPlace::Segment(index) => self.segments[*index].from_ns,
                PendingPlace::SleepRun(sleep_run) => sleep_run.from_ns,
            };
            from_ns >= found.segment_ns
        });
        // What is no longer kept is a part of it, too.
        let mut left_ns = found.ns - older_ns;
        let mut forgotten_ns = older_ns;
        let mut places = Vec::new();
        for (place, ns) in older.into_iter().rev() {
            let part = ns.min(forgotten_ns);
            forgotten_ns -= part;
            places.push((place, part));
        }
        for (place, ns) in recent {
            let part = ns.min(left_ns);
            left_ns -= part;
            places.push((place, part));
        }
        places.retain(|(_, ns)| *ns > 0);
        places
    }

    /// Where `amount` of a thread's time of one class is that nothing has, newest first. Less,
    /// where less is kept.
    fn pending(&self, thread: u32, class: usize, mut amount: u64) -> Vec<(PendingPlace, u64)> {
        let mut places = Vec::new();
        if amount == 0 {
            return places;
        }
        let mut take = |place, pending: u64| {
            let part = pending.min(amount);
            amount -= part;
            if part > 0 {
                places.push((place, part));
            }
            amount > 0
        };
        let mut sleep_runs = self.sleep_runs.pending(thread, class).peekable();
        for (index, segment) in self.segments.iter().enumerate().rev() {
            while let Some(sleep_run) = sleep_runs.next_if(|s| s.from_ns >= segment.from_ns) {
                if !take(
                    PendingPlace::SleepRun(sleep_run),
                    sleep_run.to_ns - sleep_run.from_ns,
                ) {
                    return places;
                }
            }
            if !take(PendingPlace::Segment(index), segment.pending(thread, class)) {
                return places;
            }
        }
        for sleep_run in sleep_runs {
            if !take(
                PendingPlace::SleepRun(sleep_run),
                sleep_run.to_ns - sleep_run.from_ns,
            ) {
                break;
            }
        }
        places
    }

    /// How much of an open interval's time passed in a span of whole segments and has no other
    /// stack.
    pub(super) fn open_within(
        &self,
        from_ns: MonoNs,
        to_ns: MonoNs,
        thread: u32,
        exact: &WaitNs,
    ) -> WaitNs {
        std::array::from_fn(|wait| {
            if exact[wait] == 0 {
                return 0;
            }
            let class = WAIT_CLASSES[wait] as usize;
            let places = self.pending(thread, class, exact[wait]).into_iter();
            let inside = places.map(|(place, part)| match place {
                PendingPlace::Segment(index) => {
                    let began_ns = self.segments[index].from_ns;
                    part * u64::from(from_ns <= began_ns && began_ns < to_ns)
                }
                // Of a sleep run it is the newest part.
                PendingPlace::SleepRun(sleep_run) => SleepRun {
                    from_ns: sleep_run.to_ns - part,
                    ..sleep_run
                }
                .within(from_ns, to_ns),
            });
            inside.sum()
        })
    }

    /// Makes one segment of those that began in a span; sleep runs that lie wholly in it become
    /// part of it.
    pub(super) fn merge(&mut self, from_ns: MonoNs, to_ns: MonoNs) {
        let sleep_runs = self.sleep_runs.take_inside(from_ns, to_ns);
        let range = self.range(from_ns, to_ns);
        if range.len() > 1 {
            let segments = Arc::make_mut(&mut self.segments);
            let rest: Vec<Arc<ProcessSegment>> =
                segments.drain(range.start + 1..range.end).collect();
            self.segment_bytes -= rest.iter().map(|s| s.bytes()).sum::<usize>();
            self.change(range.start, |merged| {
                for segment in rest {
                    merged.absorb(&segment, None);
                }
            });
        }
        if let Some(segment) = self.segments.get(range.start)
            && !range.is_empty()
            && segment.from_ns != from_ns
        {
            self.change(range.start, |segment| segment.from_ns = from_ns);
        }
        if !sleep_runs.is_empty() {
            self.at(from_ns, |merged| {
                for sleep_run in sleep_runs {
                    let ns = sleep_run.to_ns - sleep_run.from_ns;
                    merged.add_time(sleep_run.thread, sleep_run.class, sleep_run.holder, ns);
                    merged.add_call_of(&sleep_run, ns);
                }
            });
        }
    }

    /// Forgets what passed in a span of whole segments.
    pub(super) fn forget(&mut self, from_ns: MonoNs, to_ns: MonoNs) {
        self.sleep_runs.take_inside(from_ns, to_ns);
        let range = self.range(from_ns, to_ns);
        if !range.is_empty() {
            let gone = Arc::make_mut(&mut self.segments).drain(range);
            self.segment_bytes -= gone.map(|segment| segment.bytes()).sum::<usize>();
        }
    }

    /// The call tree's nodes have new numbers; those that became one are added up.
    pub(super) fn renumber(&mut self, map: &[NodeId]) {
        self.sleep_runs.renumber(map);
        for index in 0..self.segments.len() {
            if !self.segments[index].nodes.is_empty() {
                self.change(index, |segment| segment.renumber(map));
            }
        }
    }

    /// Takes in another process's past: its nodes under their new numbers, its threads as folded
    /// ones.
    pub(super) fn absorb(&mut self, other: &Self, nodes: &[NodeId], timeline: &TimelineRings) {
        for from in other.segments.iter() {
            self.at(from.from_ns, |to| to.absorb(from, Some(nodes)));
        }
        for sleep_run in other.sleep_runs.iter() {
            let holder = sleep_run.holder.map(|holder| holder.renumbered(nodes));
            for (from_ns, to_ns) in timeline.kept_buckets(sleep_run.from_ns, sleep_run.to_ns) {
                let ns = sleep_run.within(from_ns, to_ns);
                self.at(from_ns, |to| {
                    to.add_time(super::segments::FOLDED, sleep_run.class, holder, ns);
                    to.add_call_of(&sleep_run, ns);
                });
            }
        }
    }
}
