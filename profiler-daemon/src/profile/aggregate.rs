//! The aggregate of one process (or of all dropped ones together): its call tree with weights, its
//! threads with their exact totals, its system calls, and the same by segment.
//!
//! Invariant, per thread and class: attributed <= total. So time without a place is never negative,
//! in the session and in every segment. What stacks receive is in `received.rs`.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use profiler_common::{
    CLASS_COUNT, Class, ClassNs,
    kinds::{Kind, WaitNs},
};
use serde::{Deserialize, Serialize};

use super::{
    budget::{CELL_BYTES, NODE_BYTES, NodeBudget},
    calls::{CallTime, CallTotals, SeenCalls},
    input::{OpenCall, OpenStack, SyscallUpdate, ThreadUpdate},
    now::Now,
    received::HeldBack,
    segments::CellKind,
    sleep_runs::Holder,
    spread::Spread,
    threads::{Folded, Thread},
    timeline::{RingChange, TimelineRings},
    tree::{Node, NodeId, Tree},
    values::{Totals, WAIT_CLASSES, class_of, is_wait, sum},
    weights::Weights,
    window_history::{Found, WindowHistory},
};
use crate::processes::ids::{ProcessKey, ThreadKey};
use crate::units::MonoNs;

/// What reports read. Cloning costs a few reference counts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AggregateView {
    pub(super) nodes: Arc<Vec<Node>>,
    pub(super) weights: Weights,
    pub(super) threads: Arc<BTreeMap<ThreadKey, Thread>>,
    pub(super) folded: Folded,
    pub(super) open: Arc<Vec<Open>>,
    pub(super) calls: Arc<BTreeMap<u32, CallTotals>>,
    pub(super) history: WindowHistory,
}

/// The open interval of one thread.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Open {
    pub(super) thread: u32,
    pub(super) leaf: NodeId,
    pub(super) exact: WaitNs,
}

/// Which stack has the wait of a thread that was open at the last pass, where one has: of the
/// intervals that are open, or of those of the pass before once they are cleared.
pub(super) fn was_open(
    open: &[Open],
    last_open: &HashMap<u32, NodeId>,
    thread: u32,
) -> Option<NodeId> {
    let at = open.binary_search_by_key(&thread, |open| open.thread);
    let leaf = at.ok().map(|at| open[at].leaf);
    leaf.or_else(|| last_open.get(&thread).copied())
}

/// What an aggregate refused or could not place; counted by the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Thread updates that would have taken attributed time back.
    pub regressed_threads: u64,
    /// Thread updates whose classes do not sum to the observed life.
    pub unbalanced_threads: u64,
    /// Updates of threads that are gone.
    pub late_updates: u64,
    /// Nanoseconds in stack records beyond their threads' totals, given up after being deferred.
    pub excess_ns: u64,
}

impl Refusals {
    /// Adds every count.
    pub fn add(&mut self, other: &Self) {
        self.regressed_threads += other.regressed_threads;
        self.unbalanced_threads += other.unbalanced_threads;
        self.late_updates += other.late_updates;
        self.excess_ns += other.excess_ns;
    }
}

/// The parts of a wait, off the classes of it.
fn waits_of(classes: &ClassNs) -> WaitNs {
    WAIT_CLASSES.map(|class| classes[class as usize])
}

/// See the module.
#[derive(Debug, Default)]
pub struct Aggregate {
    pub(super) tree: Tree,
    pub(super) weights: Weights,
    pub(super) threads: Arc<BTreeMap<ThreadKey, Thread>>,
    pub(super) next_index: u32,
    pub(super) exited: usize,
    pub(super) folded: Folded,
    pub(super) recently_folded: VecDeque<ThreadKey>,
    pub(super) open: Arc<Vec<Open>>,
    /// Where the open intervals of the last pass were, by thread.
    pub(super) last_open: HashMap<u32, NodeId>,
    pub(super) calls: Arc<BTreeMap<u32, CallTotals>>,
    pub(super) seen_calls: HashMap<(ThreadKey, u32), SeenCalls>,
    /// Calls under way at the last pass, with what is booked for them.
    pub(super) open_calls: HashMap<ThreadKey, OpenCall>,
    pub(super) held_back: Vec<HeldBack>,
    pub(super) history: WindowHistory,
    pub(super) spread: Spread,
}

impl Aggregate {
    /// What reports read, as of now.
    #[must_use]
    pub fn view(&self) -> AggregateView {
        AggregateView {
            nodes: Arc::clone(self.tree.nodes()),
            weights: self.weights.clone(),
            threads: Arc::clone(&self.threads),
            folded: self.folded,
            open: Arc::clone(&self.open),
            calls: Arc::clone(&self.calls),
            history: self.history.clone(),
        }
    }

    /// Bytes held, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.row_bytes() + self.budgeted() + self.history.bytes()
    }

    /// Those of them that are neither its tree's nor its segments', roughly.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        512 + self.threads.len() * 480 + self.seen_calls.len() * 128 + self.open_calls.len() * 96
    }

    /// Bytes of its segments, roughly.
    #[must_use]
    pub fn segment_bytes(&self) -> usize {
        self.history.bytes()
    }

    /// Bytes that count against the budget of call trees.
    #[must_use]
    pub fn budgeted(&self) -> usize {
        self.tree.budgeted() * NODE_BYTES + self.weights.len() * CELL_BYTES
    }

    /// Whether it has threads and all of them exited.
    #[must_use]
    pub fn all_exited(&self) -> bool {
        !self.threads.is_empty() && self.exited == self.threads.len()
    }

    /// The exact totals since the session began, without open intervals' stacks.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = self.folded.totals;
        for thread in self.threads.values() {
            totals.add(&thread.totals);
        }
        totals
    }

    /// The last event of its threads that have rows, monotonic nanoseconds.
    #[must_use]
    pub fn last_ns(&self) -> MonoNs {
        let threads = self.threads.values();
        threads
            .map(|thread| thread.last_ns)
            .max()
            .unwrap_or_default()
    }

    /// Threads seen: rows and folded ones.
    #[must_use]
    pub fn thread_count(&self) -> u64 {
        self.threads.len() as u64 + self.folded.count
    }

    /// Replaces what is known of a thread. One that passes have left out has slept at least until
    /// the last of them.
    pub fn update_thread(&mut self, now: Now, update: &ThreadUpdate, refusals: &mut Refusals) {
        let now = self.catch_up(now, update, refusals);
        self.take_update(now, update, refusals);
    }

    /// The same for one of which is known no more than that it lives: it need not sleep on.
    pub fn lose_sight(
        &mut self,
        now: Now,
        (process, key): (ProcessKey, ThreadKey),
        refusals: &mut Refusals,
    ) {
        if let Some(thread) = self.threads.get(&key).filter(|thread| thread.sleeps_on) {
            let until = now.last_ns.max(thread.last_ns);
            let asleep = thread.asleep_until((key, process), self.call_of(key), until);
            self.sleep_until(now, &asleep, refusals);
        }
        if let Some(thread) = Arc::make_mut(&mut self.threads).get_mut(&key) {
            thread.sleeps_on = false;
        }
    }

    /// The moment of the update of a thread that may have been left out: of one that sleeps still,
    /// all since it was told; of another, what it did after the last pass is left to tell.
    fn catch_up(&mut self, now: Now, update: &ThreadUpdate, refusals: &mut Refusals) -> Now {
        let is_behind = |thread: &&Thread| thread.sleeps_on && thread.last_ns < now.last_ns;
        let Some(thread) = self.threads.get(&update.thread).filter(is_behind) else {
            return now;
        };
        let of = (update.thread, update.process);
        let asleep = |until_ns| thread.asleep_until(of, self.call_of(update.thread), until_ns);
        let still = asleep(now.now_ns);
        if (still.classes, still.call) == (update.classes, update.call) {
            return Now {
                last_ns: thread.last_ns,
                ..now
            };
        }
        let asleep = asleep(now.last_ns);
        self.sleep_until(now, &asleep, refusals);
        now
    }

    /// A thread slept from when it was told last to the last pass, or later.
    fn sleep_until(&mut self, now: Now, asleep: &ThreadUpdate, refusals: &mut Refusals) {
        let told_ns = self
            .threads
            .get(&asleep.thread)
            .map(|thread| thread.last_ns);
        let then = Now {
            last_ns: told_ns.unwrap_or(now.last_ns),
            now_ns: asleep.last_event_ns,
            ..now
        };
        self.take_update(then, asleep, refusals);
    }

    fn call_of(&self, thread: ThreadKey) -> Option<OpenCall> {
        self.open_calls.get(&thread).copied()
    }

    fn take_update(&mut self, now: Now, update: &ThreadUpdate, refusals: &mut Refusals) {
        if !self.threads.contains_key(&update.thread)
            && self.recently_folded.contains(&update.thread)
        {
            refusals.late_updates += 1;
            return;
        }
        self.settle_identity(update);
        let life_ns = update.last_event_ns.saturating_since(update.first_event_ns);
        if sum(&update.classes).saturating_add(update.unobserved_ns) != life_ns {
            refusals.unbalanced_threads += 1;
        }
        let threads = Arc::make_mut(&mut self.threads);
        let thread = threads.entry(update.thread).or_insert_with(|| {
            self.next_index += 1;
            Thread::new(self.next_index - 1, update)
        });
        for kind in Kind::ALL {
            let index = kind as usize;
            let back = thread.totals.kinds[index].saturating_sub(update.kinds[index]);
            if back > 0 && !is_wait(kind) {
                // The thread had left its processor and the kernel had not told: the time since
                // then was no running time.
                let class = class_of(kind) as usize;
                thread.totals.kinds[index] -= back;
                thread.totals.attributed[class] -= back;
                self.history.take_back(thread.index, class, kind, back);
            }
        }
        if (0..CLASS_COUNT).any(|class| update.classes[class] < thread.totals.attributed[class]) {
            refusals.regressed_threads += 1;
            self.exited += usize::from(thread.set_state(update.state, now.pass));
            return;
        }
        let old = thread.totals;
        self.exited += usize::from(thread.update(now, update));
        let index = thread.index;
        let slept_in = self.slept_in(now, update);
        let slept = self.note_past(now, (index, slept_in), &old, update);
        let told = slept && slept_in.is_some();
        self.update_open_call(now.segment_ns, update.thread, update.call, told);
        self.place_kinds(now, update);
    }

    /// Notes what the time of a thread was found to be, of the kinds that are divided by marks.
    /// What its totals do not yet allow comes with a later update, since these are absolute.
    fn place_kinds(&mut self, now: Now, update: &ThreadUpdate) {
        let Some(thread) = Arc::make_mut(&mut self.threads).get_mut(&update.thread) else {
            return;
        };
        let totals = &mut thread.totals;
        for kind in Kind::ALL {
            let (class, index) = (class_of(kind), kind as usize);
            let gain = update.kinds[index].saturating_sub(totals.kinds[index]);
            let room = totals.classes[class as usize] - totals.attributed[class as usize];
            let part = gain.min(room);
            if part == 0 {
                continue;
            }
            let found = Found {
                ns: part,
                unattributed_ns: room,
                may_be_older: was_open(&self.open, &self.last_open, thread.index).is_none(),
                segment_ns: now.segment_ns,
            };
            totals.kinds[index] += part;
            totals.attributed[class as usize] += part;
            let (class, holder) = (class as usize, Holder::Kind(index as u8));
            if is_wait(kind) {
                let parts = self.history.attribute((thread.index, class), holder, found);
                let of = (thread.index, index as u8);
                self.spread.note(now.pass, of, parts, now.segment_ns);
            } else {
                self.history
                    .attribute_running((thread.index, class), holder, found);
            }
        }
    }

    /// The system call in which a thread was blocked for all of the time since the last pass.
    fn slept_in(&self, now: Now, update: &ThreadUpdate) -> Option<u32> {
        let pass_ns = now.now_ns - now.last_ns;
        let call = update.call?;
        let before = self.open_calls.get(&update.thread)?;
        let blocked = CallTime {
            total_ns: pass_ns,
            running_ns: 0,
            blocked_ns: pass_ns,
        };
        (call.goes_on(before) && call.time.since(&before.time) == blocked).then_some(call.number)
    }

    /// Puts what a thread gained since its last update where it passed. True: it slept, and that is
    /// a sleep run.
    fn note_past(
        &mut self,
        now: Now,
        (thread, slept_in): (u32, Option<u32>),
        old: &Totals,
        update: &ThreadUpdate,
    ) -> bool {
        let unobserved_ns = update.unobserved_ns.saturating_sub(old.unobserved_ns);
        let counts = [
            (CellKind::Unobserved, unobserved_ns),
            (
                CellKind::MinorFaults,
                update.minor_faults.saturating_sub(old.minor_faults),
            ),
            (
                CellKind::MajorFaults,
                update.major_faults.saturating_sub(old.major_faults),
            ),
            (
                CellKind::SwitchesMissed,
                update.switches_missed.saturating_sub(old.switches_missed),
            ),
            (
                CellKind::ProfilerCost,
                update.profiler_cost_ns.saturating_sub(old.profiler_cost_ns),
            ),
        ];
        for (what, gain) in counts {
            self.history.gain(now.segment_ns, thread, what, gain);
        }
        let mut gains: ClassNs =
            std::array::from_fn(|class| update.classes[class].saturating_sub(old.classes[class]));
        let pass_ns = now.now_ns - now.last_ns;
        let slept = pass_ns > 0
            && unobserved_ns == 0
            && gains[Class::Blocked as usize] == pass_ns
            && (0..CLASS_COUNT).all(|class| old.classes[class] <= update.classes[class])
            && sum(&gains) == pass_ns;
        if slept {
            self.history
                .sleep(thread, now.last_ns, now.now_ns, slept_in);
            return true;
        }
        for class in 0..CLASS_COUNT {
            let less = old.classes[class].saturating_sub(update.classes[class]);
            if less > 0 {
                // The open interval had been counted under another class: the exact values follow
                // the event. If the thread was in a call then, all of that interval was.
                let before = gains;
                let call = self.open_calls.get(&update.thread).map(|call| call.number);
                gains = self.history.reclassify(thread, (class, less), call, gains);
                let taken = std::array::from_fn(|other| before[other] - gains[other]);
                self.reclassify_open_call(update.thread, class, taken);
            }
        }
        for (class, gain) in gains.into_iter().enumerate() {
            self.history
                .gain(now.segment_ns, thread, CellKind::Class(class), gain);
        }
        false
    }

    /// Forgets the open intervals of the last pass, but not where they were.
    pub fn clear_open(&mut self) {
        self.last_open.clear();
        if !self.open.is_empty() {
            let last = std::mem::take(&mut self.open);
            self.last_open
                .extend(last.iter().map(|open| (open.thread, open.leaf)));
        }
    }

    /// Notes an open interval, as far as the thread's time without a stack goes.
    pub fn set_open(&mut self, open: &OpenStack, budget: &mut NodeBudget, refusals: &mut Refusals) {
        let Some(thread) = self.threads.get(&open.thread) else {
            refusals.late_updates += 1;
            return;
        };
        let (index, totals) = (thread.index, thread.totals);
        let leaf = self.open_leaf(index, open, budget);
        let pending = waits_of(&totals.unattributed());
        let wait = waits_of(&open.classes);
        let entry = Open {
            thread: index,
            leaf,
            exact: std::array::from_fn(|class| wait[class].min(pending[class])),
        };
        Arc::make_mut(&mut self.open).push(entry);
    }

    /// Where an open interval's stack leads: for most the place where it led in the last pass.
    fn open_leaf(&mut self, thread: u32, open: &OpenStack, budget: &mut NodeBudget) -> NodeId {
        if let Some(leaf) = self.last_open.get(&thread)
            && open.lost.is_none()
            && self.tree.is_path(*leaf, &open.user, &open.kernel, open.end)
        {
            return *leaf;
        }
        self.tree
            .insert(&open.user, &open.kernel, open.end, open.lost, budget)
            .leaf
    }

    /// Ends the notes of this pass: one open interval per thread, the last one noted.
    pub fn settle_open(&mut self) {
        if self.open.len() > 1 {
            let open = Arc::make_mut(&mut self.open);
            open.reverse();
            open.sort_by_key(|entry| entry.thread);
            open.dedup_by_key(|entry| entry.thread);
        }
    }

    /// Replaces a thread's counts of one system call.
    pub fn update_call(
        &mut self,
        segment_ns: MonoNs,
        update: &SyscallUpdate,
        refusals: &mut Refusals,
    ) {
        if !self.threads.contains_key(&update.thread) {
            refusals.late_updates += 1;
            return;
        }
        let seen = self
            .seen_calls
            .entry((update.thread, update.number))
            .or_default();
        let (gain, others) = seen.update(CallTotals::of(update));
        self.add_calls(update.number, &gain);
        for (classes, ns) in others {
            self.reclassify_calls(update.number, classes, ns);
        }
        self.history.call(segment_ns, update.number, &gain);
    }

    /// Books what has passed of the call that a thread is inside, so that a window has no more and
    /// no less of it. `told`: a sleep run tells of the recent past.
    fn update_open_call(
        &mut self,
        segment_ns: MonoNs,
        thread: ThreadKey,
        now: Option<OpenCall>,
        told: bool,
    ) {
        let before = self.open_calls.remove(&thread);
        let going_on = before.zip(now).filter(|(before, now)| now.goes_on(before));
        if let Some(before) = before.filter(|before| before.entry_seen && going_on.is_none()) {
            let key = (thread, before.number);
            self.seen_calls
                .entry(key)
                .or_default()
                .is_over(&before.time);
        }
        if let Some(mut now) = now {
            let booked = going_on.map_or_else(CallTime::default, |(before, _)| before.time);
            let gain = CallTotals::under_way(now.time.since(&booked));
            self.add_calls(now.number, &gain);
            if !told {
                self.history.call(segment_ns, now.number, &gain);
            }
            now.time = now.time.max(&booked);
            self.open_calls.insert(thread, now);
        }
    }

    /// What was booked for the call that a thread was inside at its last update was of other
    /// classes.
    fn reclassify_open_call(&mut self, thread: ThreadKey, class: usize, others: ClassNs) {
        let Some(open) = self.open_calls.get_mut(&thread) else {
            return;
        };
        let number = open.number;
        let moved: ClassNs =
            std::array::from_fn(|other| open.time.reclassify((class, other), others[other]));
        for (other, ns) in moved.into_iter().enumerate() {
            self.reclassify_calls(number, (class, other), ns);
        }
    }

    /// So much of the time in calls of that number is of another class: (from, to).
    fn reclassify_calls(&mut self, number: u32, classes: (usize, usize), ns: u64) {
        if ns > 0 {
            let all = Arc::make_mut(&mut self.calls).entry(number).or_default();
            all.time.reclassify(classes, ns);
        }
    }

    fn add_calls(&mut self, number: u32, gain: &CallTotals) {
        if *gain == CallTotals::default() {
            return;
        }
        Arc::make_mut(&mut self.calls)
            .entry(number)
            .or_default()
            .add(gain);
    }

    /// Changes how its recent past is kept.
    pub(super) fn age(&mut self, change: RingChange) {
        match change {
            RingChange::Merge { from_ns, to_ns } => self.history.merge(from_ns, to_ns),
            RingChange::Forget { from_ns, to_ns } => self.history.forget(from_ns, to_ns),
        }
    }

    /// Takes in an aggregate that is dropped: sums stay, threads become part of the folded ones.
    pub fn absorb(
        &mut self,
        other: Self,
        timeline: &TimelineRings,
        budget: &mut NodeBudget,
        refusals: &mut Refusals,
    ) {
        budget.release(other.budgeted());
        let map = self.tree.absorb(other.tree.nodes(), budget);
        let cells = self.weights.len();
        self.weights.absorb(&other.weights, &map);
        (cells..self.weights.len()).for_each(|_| budget.take_cell());
        self.folded.count += other.thread_count();
        self.folded.totals.add(&other.totals());
        self.history.absorb(&other.history, &map, timeline);
        let calls = Arc::make_mut(&mut self.calls);
        for (number, totals) in other.calls.iter() {
            calls.entry(*number).or_default().add(totals);
        }
        for held in other.held_back {
            refusals.excess_ns += held.exact.iter().sum::<u64>();
        }
    }
}
