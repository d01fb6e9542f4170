//! The profile as of one drain pass, for readers. Immutable; it shares with the profile what has
//! not changed since.

use std::{collections::BTreeMap, sync::Arc};

use profiler_common::division::strata::MarkPeriods;
use serde::{Deserialize, Serialize};

pub use super::images::{EndedProcess, ImageView};
use super::{
    aggregate::AggregateView,
    frames::{Frame, FrameId, FrameList},
    groups::GroupsView,
    input::{NamedCounts, ProcessInfo},
    measured::{Counted, MeasuredCalls},
    over::Span,
    sessions::Sessions,
    timeline::{Counters, TimelineRings},
};
use crate::processes::{
    ids::ProcessKey,
    module::{Module, ModuleId, ModuleTable},
};
use crate::units::{BootNs, MonoNs, UnixNs};

/// One process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessView {
    /// What is known of it.
    pub info: Arc<ProcessInfo>,
    /// What it did.
    pub aggregate: AggregateView,
    /// The control group around it whose quota was used up last while it waited for a processor.
    pub quota_group: Option<Arc<str>>,
}

/// What part of the session an answer covers.
#[derive(Clone, Debug)]
pub struct SpanCovered {
    /// Where the weights come from.
    pub span: Span,
    /// Its beginning, monotonic nanoseconds.
    pub from_ns: MonoNs,
    /// Its beginning, nanoseconds since 1970.
    pub from_unix_ns: UnixNs,
    /// Its end, monotonic nanoseconds.
    pub to_ns: MonoNs,
    /// Its end, nanoseconds since 1970.
    pub to_unix_ns: UnixNs,
    /// What was lost in it, by cause; what did not grow is missing.
    pub losses: NamedCounts,
    /// Samples lost in it.
    pub samples_lost: u64,
    /// Samples discarded in it, by reason.
    pub discarded: NamedCounts,
    /// For how long control groups were throttled in it, nanoseconds by path; those that were not
    /// are missing.
    pub throttled: NamedCounts,
}

/// What was asked for is no longer kept in buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotKept {
    /// Since when everything is, monotonic nanoseconds.
    pub since_ns: MonoNs,
}

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    pub(super) started_ns: MonoNs,
    pub(super) started_unix_ns: UnixNs,
    pub(super) now_ns: MonoNs,
    pub(super) now_unix_ns: UnixNs,
    pub(super) boot_unix_ns: UnixNs,
    pub(super) passes: u64,
    pub(super) processors: u32,
    pub(super) frames: FrameList,
    pub(super) modules: ModuleTable,
    pub(super) processes: BTreeMap<ProcessKey, ProcessView>,
    pub(super) images: Vec<ImageView>,
    pub(super) dropped: Arc<BTreeMap<ProcessKey, EndedProcess>>,
    pub(super) groups: GroupsView,
    pub(super) timeline: TimelineRings,
    pub(super) sessions: Sessions,
    pub(super) counters: Arc<Counters>,
    pub(super) measured: MeasuredCalls,
    pub(super) stack_bytes: u64,
    /// The mean time between two ticks of a processor, nanoseconds.
    pub(super) tick_ns: u64,
    /// The mean time between two marks at drawn gaps, nanoseconds.
    pub(super) gap_ns: u64,
}

impl Snapshot {
    /// Processors that were profiled when it was made, where that is known.
    #[must_use]
    pub fn processors(&self) -> Option<u32> {
        (self.processors > 0).then_some(self.processors)
    }

    /// The same as if only these processes had been profiled, for what passed since a moment.
    /// Images stay of which it is known that all processes are among these that did anything since
    /// then, and count only those processes, and [`Snapshot::retired_ns`] tells what else was
    /// dropped. Losses stay, as nobody knows whose they were.
    #[must_use]
    pub fn only(&self, since_ns: MonoNs, wanted: impl Fn(ProcessKey) -> bool) -> Self {
        let mut only = self.clone();
        only.processes.retain(|key, _| wanted(*key));
        Arc::make_mut(&mut only.measured.counted).retain(|(_, key), _| wanted(*key));
        let forgotten = |view: &ImageView| view.forgotten_ns > since_ns;
        let mut lacking: Vec<bool> = self.images.iter().map(forgotten).collect();
        let mut of_images = vec![0; self.images.len()];
        for (key, ended) in self.dropped.iter() {
            let (place, is_wanted) = (ended.place as usize, wanted(*key));
            lacking[place] |= ended.last_ns > since_ns && !is_wanted;
            of_images[place] += u64::from(ended.last_ns > since_ns && is_wanted);
        }
        let rows = only.images.iter_mut().zip(lacking.iter().zip(of_images));
        for (view, (lacks, ended)) in rows {
            if *lacks || ended == 0 {
                (view.aggregate, view.ended) = (AggregateView::default(), 0);
            } else {
                view.ended = ended;
            }
        }
        only
    }

    /// The same as if the session had begun at a moment, rounded as [`Snapshot::between`] does: for
    /// processes that did. Unchanged where that is not kept.
    #[must_use]
    pub fn begun(mut self, at_ns: MonoNs) -> Self {
        if let Ok(since) = self.between(at_ns, None) {
            let started = (since.from_ns, since.from_unix_ns);
            (self.started_ns, self.started_unix_ns) = started;
            self.counters = Arc::new(Counters {
                losses: since.losses,
                samples_lost: since.samples_lost,
                discarded: since.discarded,
                throttled: since.throttled,
            });
        }
        self
    }

    /// The processes that ended last of those that are not kept one by one.
    #[must_use]
    pub fn dropped(&self) -> &BTreeMap<ProcessKey, EndedProcess> {
        &self.dropped
    }

    /// Of a process that is not kept one by one: whose it became a part of. None where that is no
    /// longer known.
    #[must_use]
    pub fn merged_with(&self, key: ProcessKey) -> Option<&ImageView> {
        let ended = self.dropped.get(&key)?;
        self.images.get(ended.place as usize)
    }

    /// The same with a loss that nobody counted when it happened: every window has it that begins
    /// at this moment or before, and ends later.
    #[must_use]
    pub fn with_loss(mut self, since_ns: MonoNs, name: &'static str, count: u64) -> Self {
        let with = |counters: &mut Arc<Counters>| {
            let losses = &mut Arc::make_mut(counters).losses;
            losses.push((name.into(), count));
        };
        with(&mut self.counters);
        let starts = Arc::make_mut(&mut self.timeline.starts).iter_mut();
        for start in starts.filter(|start| start.from_ns > since_ns) {
            with(&mut start.counters);
        }
        self
    }

    /// What those did between two moments that are in its images, nanoseconds, rounded as
    /// [`Snapshot::between`] does; 0 where that is not kept.
    #[must_use]
    pub fn retired_ns(&self, from_ns: MonoNs, to_ns: Option<MonoNs>) -> u64 {
        let Ok(coverage) = self.between(from_ns, to_ns) else {
            return 0;
        };
        let elapsed = self.images.iter().map(|image| {
            let threads = image.aggregate.threads_over(coverage.span);
            threads.total().elapsed_ns()
        });
        elapsed.fold(0, u64::saturating_add)
    }

    /// The time for which one mark stands.
    #[must_use]
    pub const fn mark_periods(&self) -> MarkPeriods {
        MarkPeriods {
            tick_ns: self.tick_ns,
            gap_ns: self.gap_ns,
        }
    }

    /// Bytes that all call trees take.
    #[must_use]
    pub fn stack_bytes(&self) -> u64 {
        self.stack_bytes
    }

    /// Time of the pass, nanoseconds since 1970.
    #[must_use]
    pub fn as_of_unix_ns(&self) -> UnixNs {
        self.now_unix_ns
    }

    /// Time of the pass, monotonic nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> MonoNs {
        self.now_ns
    }

    /// Begin of the session, nanoseconds since 1970.
    #[must_use]
    pub fn started_unix_ns(&self) -> UnixNs {
        self.started_unix_ns
    }

    /// When something started that is known by nanoseconds since boot, nanoseconds since 1970.
    #[must_use]
    pub fn unix_ns_of_boot_ns(&self, boot_ns: BootNs) -> UnixNs {
        self.boot_unix_ns.saturating_add(boot_ns.ns())
    }

    /// Passes so far.
    #[must_use]
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// The frame of this number.
    #[must_use]
    pub fn frame(&self, id: FrameId) -> Frame {
        self.frames.get(id)
    }

    /// The module of this number.
    #[must_use]
    pub fn module(&self, id: ModuleId) -> &Module {
        self.modules.get(id)
    }

    /// All modules as of this pass.
    #[must_use]
    pub fn modules(&self) -> &ModuleTable {
        &self.modules
    }

    /// The groups' counters.
    #[must_use]
    pub fn groups(&self) -> &GroupsView {
        &self.groups
    }

    /// The kept processes by (pid, start).
    #[must_use]
    pub fn processes(&self) -> &BTreeMap<ProcessKey, ProcessView> {
        &self.processes
    }

    /// Those that ended and are not kept one by one, by image.
    #[must_use]
    pub fn images(&self) -> &[ImageView] {
        &self.images
    }

    /// How many processes ended and are not kept one by one.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.images.iter().map(|image| image.ended).sum()
    }

    /// Whether a process of this number (and start, in 10 ms ticks since boot) was kept once and is
    /// dropped.
    #[must_use]
    pub fn was_dropped(&self, pid: u32, start_ticks: Option<u64>) -> bool {
        let first = ProcessKey {
            pid,
            start_ns: BootNs::ZERO,
        };
        let last = ProcessKey {
            pid,
            start_ns: BootNs::MAX,
        };
        self.dropped
            .range(first..=last)
            .any(|(key, _)| start_ticks.is_none_or(|ticks| key.start_ticks() == ticks))
    }

    /// Counters of losses since the session began: the kernel's and the profile's own.
    #[must_use]
    pub fn losses(&self) -> &NamedCounts {
        &self.counters.losses
    }

    /// Samples that could not be stored since the session began.
    #[must_use]
    pub fn samples_lost(&self) -> u64 {
        self.counters.samples_lost
    }

    /// Samples discarded on purpose since the session began, by reason.
    #[must_use]
    pub fn discarded(&self) -> &NamedCounts {
        &self.counters.discarded
    }

    /// The whole session.
    #[must_use]
    pub fn whole(&self) -> SpanCovered {
        SpanCovered {
            from_ns: self.started_ns,
            from_unix_ns: self.started_unix_ns,
            to_ns: self.now_ns,
            to_unix_ns: self.now_unix_ns,
            span: Span::Session,
            losses: grown(&self.counters.losses, &Vec::new()),
            samples_lost: self.counters.samples_lost,
            discarded: self.counters.discarded.clone(),
            throttled: grown(&self.counters.throttled, &Vec::new()),
        }
    }

    /// What passed between two moments, rounded outward to buckets of the recent past; of a session
    /// that is younger, from its beginning. `to_ns: None` is now.
    ///
    /// # Errors
    /// Part of it is forgotten.
    pub fn between(&self, from_ns: MonoNs, to_ns: Option<MonoNs>) -> Result<SpanCovered, NotKept> {
        let end = to_ns.and_then(|to_ns| self.timeline.border_after(to_ns));
        let (to_ns, to_unix_ns, then) = end
            .map_or((self.now_ns, self.now_unix_ns, &self.counters), |end| {
                (end.from_ns, end.from_unix_ns, &end.counters)
            });
        let not_kept = NotKept {
            since_ns: self.timeline.kept_since_ns(),
        };
        let from = self.timeline.border_before(from_ns).ok_or(not_kept)?;
        if !self.timeline.is_kept(from.from_ns, to_ns) {
            return Err(not_kept);
        }
        Ok(SpanCovered {
            span: Span::Between {
                from_ns: from.from_ns,
                to_ns: end.map_or(MonoNs::MAX, |end| end.from_ns),
            },
            from_ns: from.from_ns,
            from_unix_ns: from.from_unix_ns,
            to_ns,
            to_unix_ns,
            losses: grown(&then.losses, &from.counters.losses),
            samples_lost: then.samples_lost.saturating_sub(from.counters.samples_lost),
            discarded: less(&then.discarded, &from.counters.discarded),
            throttled: grown(&then.throttled, &from.counters.throttled),
        })
    }

    /// The functions that are measured exactly, with all of their calls.
    #[must_use]
    pub fn measured(&self) -> &MeasuredCalls {
        &self.measured
    }

    /// The calls of measured functions that had ended by a moment which is a border of the recent
    /// past, or now; `None` where that is forgotten.
    #[must_use]
    pub fn counted_at(&self, at_ns: MonoNs) -> Option<&Counted> {
        if at_ns >= self.now_ns {
            return Some(&self.measured.counted);
        }
        let start = self.timeline.border_after(at_ns)?;
        (start.from_ns == at_ns).then_some(start.measured.as_deref()?)
    }

    /// The first border of the recent past that is not before a moment, and the last one that is
    /// not after another: monotonic nanoseconds. `None` where there is none, or what passed in
    /// between is forgotten.
    #[must_use]
    pub fn borders_within(&self, from_ns: MonoNs, to_ns: MonoNs) -> Option<(MonoNs, MonoNs)> {
        let from_ns = match from_ns <= self.started_ns {
            true => self.started_ns,
            false => self.timeline.border_after(from_ns)?.from_ns,
        };
        let to_ns = match to_ns >= self.now_ns {
            true => self.now_ns,
            false => self.timeline.border_before(to_ns)?.from_ns,
        };
        (from_ns < to_ns && self.timeline.is_kept(from_ns, to_ns)).then_some((from_ns, to_ns))
    }

    /// The named sessions.
    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Since when everything is kept in buckets, monotonic nanoseconds.
    #[must_use]
    pub fn kept_since_ns(&self) -> MonoNs {
        self.timeline.kept_since_ns()
    }

    /// When the buckets begin that lie between two borders, oldest first: monotonic, and since
    /// 1970.
    pub fn borders(
        &self,
        from_ns: MonoNs,
        to_ns: MonoNs,
    ) -> impl Iterator<Item = (MonoNs, UnixNs)> {
        let starts = self.timeline.starts.iter();
        let inside = starts.filter(move |start| from_ns <= start.from_ns && start.from_ns < to_ns);
        inside.map(|start| (start.from_ns, start.from_unix_ns))
    }
}

fn lookup(counts: &NamedCounts, name: &str) -> u64 {
    counts
        .iter()
        .find(|(known, _)| known == name)
        .map_or(0, |(_, count)| *count)
}

/// All of `now`, less what there was earlier.
fn less(now: &NamedCounts, earlier: &NamedCounts) -> NamedCounts {
    now.iter()
        .map(|(name, count)| (name.clone(), count.saturating_sub(lookup(earlier, name))))
        .collect()
}

/// What grew since `earlier`.
fn grown(now: &NamedCounts, earlier: &NamedCounts) -> NamedCounts {
    let mut grown = less(now, earlier);
    grown.retain(|(_, count)| *count > 0);
    grown
}
