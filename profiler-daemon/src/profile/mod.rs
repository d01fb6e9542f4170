//! The profile in the middle: what was drained, as ids and numbers. It knows no output format and
//! no source of data.
//!
//! Pure: time arrives with each pass. One writer calls [`Profile::apply`] once per drain pass;
//! readers get a [`Snapshot`].
//!
//! Invariant: everything a pass brings is in the session's totals for ever after. What is dropped
//! for want of room is first added to the aggregate of its image, so session = kept + images,
//! exactly.

pub mod aggregate;
pub mod budget;
pub mod calls;
pub mod check;
mod fold;
pub mod frames;
pub mod groups;
pub mod images;
pub mod input;
pub mod limits;
pub mod losses;
pub mod measured;
mod measuring;
mod memory_budget;
pub mod name;
mod now;
pub mod over;
mod prune;
mod received;
mod retention;
mod rows;
pub mod segments;
pub mod sessions;
mod sleep_runs;
pub mod snapshot;
mod spread;
mod sweep;
pub mod threads;
pub mod timeline;
pub mod tree;
pub mod values;
mod weights;
pub mod window_history;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use aggregate::{Aggregate, Refusals};
use budget::NodeBudget;
use frames::FrameTable;
use groups::{Credited, Groups, group_name};
use images::Images;
use input::{CommName, DrainPass, ProcessInfo, ThreadUpdate};
use limits::Limits;
use measured::MeasuredCalls;
use memory_budget::FoldedSoFar;
use now::Now;
use sessions::Sessions;
use snapshot::{ProcessView, Snapshot};
use timeline::{BucketStart, Counters, TimelineRings};

use crate::processes::{ids::ProcessKey, module::ModuleTable};
use crate::units::{MonoNs, UnixNs};

/// One process and its aggregate.
#[derive(Debug)]
struct ProcessEntry {
    info: Arc<ProcessInfo>,
    /// Someone described it; else the info is made up.
    described: bool,
    group: Arc<str>,
    credited: Credited,
    aggregate: Aggregate,
    /// The pass in which it was first seen to have exited.
    exited_pass: Option<u64>,
    /// See [`snapshot::ProcessView::quota_group`].
    quota_group: Option<Arc<str>>,
}

/// All that was drained since the session began.
#[derive(Debug)]
pub struct Profile {
    limits: Limits,
    frames: FrameTable,
    modules: ModuleTable,
    processes: BTreeMap<ProcessKey, ProcessEntry>,
    images: Images,
    budget: NodeBudget,
    folded: FoldedSoFar,
    /// The last pass in which making room did not help.
    crowded_pass: Option<u64>,
    groups: Groups,
    timeline: TimelineRings,
    sessions: Sessions,
    refusals: Refusals,
    started_ns: MonoNs,
    started_unix_ns: UnixNs,
    passes: u64,
    now_ns: MonoNs,
    now_unix_ns: UnixNs,
    boot_unix_ns: UnixNs,
    processors: u32,
    losses: input::NamedCounts,
    samples_lost: u64,
    discarded: input::NamedCounts,
    throttled: input::NamedCounts,
    measured: MeasuredCalls,
    measured_forgotten: u64,
}

impl Profile {
    /// Has the session begin at this moment (monotonic, and since 1970): nothing was taken in yet.
    pub fn begin_session(&mut self, started_ns: MonoNs, started_unix_ns: UnixNs) {
        *self = Self::new(self.limits.clone(), started_ns, started_unix_ns);
    }

    /// An empty profile of a session that began at `started_ns` (monotonic), `started_unix_ns`
    /// (since 1970).
    #[must_use]
    pub fn new(limits: Limits, started_ns: MonoNs, started_unix_ns: UnixNs) -> Self {
        let mut timeline = TimelineRings::default();
        timeline.open(BucketStart {
            from_ns: started_ns,
            from_unix_ns: started_unix_ns,
            counters: Arc::default(),
            measured: Some(Arc::default()),
            kept: true,
        });
        Self {
            frames: FrameTable::new(limits.frames),
            modules: ModuleTable::new(),
            processes: BTreeMap::new(),
            images: Images::default(),
            budget: NodeBudget::new(limits.tree_bytes),
            folded: FoldedSoFar::default(),
            crowded_pass: None,
            groups: Groups::new(limits.groups, limits.group_idle_ns),
            timeline,
            sessions: Sessions::default(),
            refusals: Refusals::default(),
            started_ns,
            started_unix_ns,
            passes: 0,
            now_ns: started_ns,
            now_unix_ns: started_unix_ns,
            boot_unix_ns: UnixNs::ZERO,
            processors: 0,
            losses: Vec::new(),
            samples_lost: 0,
            discarded: Vec::new(),
            throttled: Vec::new(),
            measured: MeasuredCalls::default(),
            measured_forgotten: 0,
            limits,
        }
    }

    /// The frames by number: whoever fills a pass interns its frames here.
    pub fn frames(&mut self) -> &mut FrameTable {
        &mut self.frames
    }

    /// Takes one drain pass in.
    pub fn apply(&mut self, pass: DrainPass) {
        let last_ns = self.now_ns;
        let is_border = self.begin(&pass);
        let now = Now {
            segment_ns: self.timeline.current_ns(),
            last_ns,
            now_ns: self.now_ns,
            pass: self.passes,
        };
        let mut touched = BTreeSet::new();
        for info in pass.processes {
            touched.insert(info.key);
            self.describe(info);
        }
        for (key, group) in pass.quota_groups {
            if let Some(process) = self.processes.get_mut(&key) {
                process.quota_group = Some(group);
            }
        }
        for update in &pass.threads {
            if let Some(process) = self.process(update.process, Some(update)) {
                touched.insert(update.process);
                let mut refusals = Refusals::default();
                process.aggregate.update_thread(now, update, &mut refusals);
                self.refusals.add(&refusals);
            }
        }
        for of in &pass.unread {
            if let Some(process) = self.processes.get_mut(&of.0) {
                process.aggregate.lose_sight(now, *of, &mut self.refusals);
            }
        }
        for process in self.processes.values_mut() {
            if !pass.is_partial {
                process.aggregate.clear_open();
            }
            process
                .aggregate
                .retry(now, &mut self.budget, &mut self.refusals);
        }
        self.images.retry(now, &mut self.budget, &mut self.refusals);
        for delta in &pass.stacks {
            touched.insert(delta.process);
            self.ensure(delta.process);
            self.want_memory(delta.user.len() + delta.kernel.len());
            let aggregate = match self.processes.get_mut(&delta.process) {
                Some(process) => &mut process.aggregate,
                None => self.images.aggregate(delta.process),
            };
            aggregate.add_stack(
                now,
                delta,
                (&self.timeline, &mut self.budget),
                &mut self.refusals,
            );
        }
        for open in &pass.open {
            touched.insert(open.process);
            self.want_memory(open.user.len() + open.kernel.len());
            match self.processes.get_mut(&open.process) {
                Some(process) => {
                    process
                        .aggregate
                        .set_open(open, &mut self.budget, &mut self.refusals)
                }
                None => self.refusals.late_updates += 1,
            }
        }
        for update in &pass.syscalls {
            match self.processes.get_mut(&update.process) {
                Some(process) => {
                    process
                        .aggregate
                        .update_call(now.segment_ns, update, &mut self.refusals)
                }
                None => self.refusals.late_updates += 1,
            }
        }
        self.end(&touched);
        if is_border {
            self.begin_bucket();
        }
    }

    /// Takes the pass's own numbers over and begins the next bucket of the recent past when it is
    /// due. True if one is to begin at the end of the pass, too.
    fn begin(&mut self, pass: &DrainPass) -> bool {
        let began_ns = self.timeline.current_ns();
        if self.now_ns.saturating_since(began_ns) >= self.limits.segment_ns {
            self.begin_bucket();
        }
        self.passes += 1;
        self.now_ns = pass.now_ns.max(self.now_ns);
        self.now_unix_ns = pass.now_unix_ns;
        self.boot_unix_ns = pass.boot_unix_ns;
        self.processors = pass.processors;
        self.losses = pass.losses.clone();
        self.samples_lost = pass.samples_lost;
        self.discarded = pass.discarded.clone();
        self.throttled = pass.throttled.clone();
        self.modules = pass.modules.clone();
        self.take_measured(pass.measured.clone())
    }

    fn end(&mut self, touched: &BTreeSet<ProcessKey>) {
        let (pass, exited_threads) = (self.passes, self.limits.exited_threads);
        for (key, process) in &mut self.processes {
            if !touched.contains(key) {
                continue;
            }
            process.aggregate.settle_open();
            let totals = process.aggregate.totals();
            self.groups
                .credit(&process.group, self.now_ns, &mut process.credited, &totals);
            process.aggregate.fold_exited(exited_threads, pass);
            process.notice_exit(pass, self.now_unix_ns);
        }
        self.groups.drop_idle(self.now_ns);
        self.drop_exited();
    }

    fn describe(&mut self, info: ProcessInfo) {
        if self.images.contains(info.key) {
            return;
        }
        let group = group_name(&info);
        let process = self
            .processes
            .entry(info.key)
            .or_insert_with(|| ProcessEntry::new(info.clone(), group.clone()));
        process.info = Arc::new(info);
        process.described = true;
        process.group = group;
    }

    /// The process of an update, made up where nobody described it; `None` for a dropped one.
    fn process(
        &mut self,
        key: ProcessKey,
        update: Option<&ThreadUpdate>,
    ) -> Option<&mut ProcessEntry> {
        if !self.processes.contains_key(&key) {
            if self.images.contains(key) {
                self.refusals.late_updates += 1;
                return None;
            }
            let comm = update.map_or(CommName::default(), |update| update.comm);
            let info = ProcessInfo::unknown(key, comm, self.boot_unix_ns);
            let group = group_name(&info);
            self.processes.insert(key, ProcessEntry::new(info, group));
        }
        self.processes.get_mut(&key)
    }

    fn ensure(&mut self, key: ProcessKey) {
        if !self.processes.contains_key(&key) && !self.images.contains(key) {
            let made = self.process(key, None);
            debug_assert!(made.is_some(), "only dropped processes are not made");
        }
    }

    /// Bytes that all call trees take.
    #[must_use]
    pub fn stack_bytes(&self) -> u64 {
        self.budget.used_bytes() as u64
    }

    /// Bytes that the recent past takes, and what named sessions need of it.
    #[must_use]
    pub fn recent_past_bytes(&self) -> u64 {
        let kept = self.processes.values().map(|process| &process.aggregate);
        let aggregates = kept.chain(self.images.aggregates());
        aggregates
            .map(|aggregate| aggregate.segment_bytes() as u64)
            .sum()
    }

    /// Bytes of all processes beside their call trees and recent past: their facts, threads and
    /// system calls.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        let kept = self.processes.values().map(|process| &process.aggregate);
        let aggregates = kept.chain(self.images.aggregates());
        aggregates
            .map(|aggregate| aggregate.row_bytes() as u64)
            .sum()
    }

    /// The state as of the last pass. Cheap: it shares everything that the next pass does not
    /// change.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let view = |(key, process): (&ProcessKey, &ProcessEntry)| {
            let view = ProcessView {
                info: Arc::clone(&process.info),
                aggregate: process.aggregate.view(),
                quota_group: process.quota_group.clone(),
            };
            (*key, view)
        };
        Snapshot {
            started_ns: self.started_ns,
            started_unix_ns: self.started_unix_ns,
            now_ns: self.now_ns,
            now_unix_ns: self.now_unix_ns,
            boot_unix_ns: self.boot_unix_ns,
            processors: self.processors,
            passes: self.passes,
            frames: self.frames.list(),
            modules: self.modules.clone(),
            processes: self.processes.iter().map(view).collect(),
            images: self.images.views(),
            dropped: self.images.known(),
            groups: self.groups.view(),
            timeline: self.timeline.clone(),
            sessions: self.sessions.clone(),
            counters: self.counters(),
            measured: self.measured.clone(),
            stack_bytes: self.stack_bytes(),
            tick_ns: self.limits.tick_ns,
            gap_ns: self.limits.gap_ns,
        }
    }
}

impl Profile {
    /// The session's own counters as of the last pass.
    fn counters(&self) -> Arc<Counters> {
        Arc::new(Counters {
            losses: self.own_and_kernel_losses(),
            samples_lost: self.samples_lost,
            discarded: self.discarded.clone(),
            throttled: self.throttled.clone(),
        })
    }
}

impl ProcessEntry {
    fn new(info: ProcessInfo, group: Arc<str>) -> Self {
        Self {
            info: Arc::new(info),
            described: false,
            group,
            credited: Credited::default(),
            aggregate: Aggregate::default(),
            exited_pass: None,
            quota_group: None,
        }
    }

    /// Notes the exit. Of a process that nobody described only its threads can tell, and a thread
    /// that was not yet seen takes it back.
    fn notice_exit(&mut self, pass: u64, now_unix_ns: UnixNs) {
        let exited_at_unix_ns = if self.described {
            self.info.exited_at_unix_ns
        } else {
            let known = self.info.exited_at_unix_ns.or(Some(now_unix_ns));
            known.filter(|_| self.aggregate.all_exited())
        };
        if self.info.exited_at_unix_ns != exited_at_unix_ns {
            Arc::make_mut(&mut self.info).exited_at_unix_ns = exited_at_unix_ns;
        }
        self.exited_pass = exited_at_unix_ns.map(|_| self.exited_pass.unwrap_or(pass));
    }
}
