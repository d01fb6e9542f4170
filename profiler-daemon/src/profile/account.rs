//! The account of one process (or of all dropped ones together): its call tree with weights, its threads with their
//! exact totals, its system calls, and the same by segment.
//!
//! Invariant, per thread and class: attributed <= total. So time without a stack is never negative, in the session and in
//! every segment. A stack record that holds more than its thread's total (the two were read at different moments) is
//! held back and tried again in the next pass.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use profiler_common::{CLASS_COUNT, Class, ClassNs};
use serde::{Deserialize, Serialize};

use super::{
    budget::{NODE_BYTES, NodeBudget},
    calls::CallTotals,
    input::{OpenStack, StackDelta, SyscallUpdate, ThreadUpdate},
    ring::Ring,
    segments::{FOLDED, What},
    threads::{Folded, Thread},
    timeline::{Change, Timeline},
    tree::{Node, NodeId, Tree},
    values::{Totals, Values, sum},
};
use crate::processes::ids::ThreadKey;

/// Most stack records of one process held back for the next pass.
const MAX_HELD_BACK: usize = 1024;

/// What reports read. Cloning costs a few reference counts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AccountView {
    pub(super) nodes: Arc<Vec<Node>>,
    pub(super) weights: Arc<Vec<Values>>,
    pub(super) threads: Arc<BTreeMap<ThreadKey, Thread>>,
    pub(super) folded: Folded,
    pub(super) open: Arc<Vec<Open>>,
    pub(super) calls: Arc<BTreeMap<u32, CallTotals>>,
    pub(super) ring: Ring,
}

/// The open interval of one thread.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Open {
    pub(super) thread: u32,
    pub(super) leaf: NodeId,
    pub(super) classes: ClassNs,
}

/// What an account refused or could not place; counted by the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Thread updates that would have taken attributed time back.
    pub regressed_threads: u64,
    /// Thread updates whose classes do not sum to the observed life.
    pub unbalanced_threads: u64,
    /// Updates of threads that are gone.
    pub late_updates: u64,
    /// Nanoseconds in stack records beyond their threads' totals, given up after being held back.
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

/// The moment of an update.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// When the growing piece of the recent past began, monotonic nanoseconds.
    pub segment_ns: u64,
    /// The time of the pass before, monotonic nanoseconds.
    pub last_ns: u64,
    /// The time of the pass, monotonic nanoseconds.
    pub now_ns: u64,
    /// The number of the pass.
    pub pass: u64,
}

/// A stack record that waits for its thread's total.
#[derive(Debug)]
pub(super) struct HeldBack {
    pub(super) thread: ThreadKey,
    pub(super) leaf: NodeId,
    classes: ClassNs,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Account {
    pub(super) tree: Tree,
    pub(super) weights: Arc<Vec<Values>>,
    pub(super) threads: Arc<BTreeMap<ThreadKey, Thread>>,
    pub(super) next_index: u32,
    pub(super) exited: usize,
    pub(super) folded: Folded,
    pub(super) recently_folded: VecDeque<ThreadKey>,
    pub(super) open: Arc<Vec<Open>>,
    /// Where the open intervals of the last pass were, by thread.
    pub(super) last_open: HashMap<u32, NodeId>,
    pub(super) calls: Arc<BTreeMap<u32, CallTotals>>,
    pub(super) seen_calls: HashMap<(ThreadKey, u32), CallTotals>,
    pub(super) held_back: Vec<HeldBack>,
    pub(super) ring: Ring,
    /// How far the tree was folded when it had so many nodes: nothing more is to be had by doing it again.
    pub(super) thinned: Option<(usize, usize, Option<u64>)>,
}

impl Account {
    /// What reports read, as of now.
    #[must_use]
    pub fn view(&self) -> AccountView {
        AccountView {
            nodes: Arc::clone(self.tree.nodes()),
            weights: Arc::clone(&self.weights),
            threads: Arc::clone(&self.threads),
            folded: self.folded,
            open: Arc::clone(&self.open),
            calls: Arc::clone(&self.calls),
            ring: self.ring.clone(),
        }
    }

    /// Bytes held, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        512 + self.tree.budgeted() * NODE_BYTES
            + self.threads.len() * 256
            + self.seen_calls.len() * 96
            + self.ring.bytes()
    }

    /// Bytes of its segments, roughly.
    #[must_use]
    pub fn segment_bytes(&self) -> usize {
        self.ring.bytes()
    }

    /// Nodes that count against the budget.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.tree.budgeted()
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

    /// Threads seen: rows and folded ones.
    #[must_use]
    pub fn thread_count(&self) -> u64 {
        self.threads.len() as u64 + self.folded.count
    }

    /// Replaces what is known of a thread.
    pub fn update_thread(&mut self, now: Now, update: &ThreadUpdate, refusals: &mut Refusals) {
        if !self.threads.contains_key(&update.thread)
            && self.recently_folded.contains(&update.thread)
        {
            refusals.late_updates += 1;
            return;
        }
        self.settle_identity(update);
        let life_ns = update.last_event_ns.saturating_sub(update.first_event_ns);
        if sum(&update.classes).saturating_add(update.unobserved_ns) != life_ns {
            refusals.unbalanced_threads += 1;
        }
        let threads = Arc::make_mut(&mut self.threads);
        let thread = threads.entry(update.thread).or_insert_with(|| {
            self.next_index += 1;
            Thread::new(self.next_index - 1, update)
        });
        if (0..CLASS_COUNT).any(|class| update.classes[class] < thread.totals.attributed[class]) {
            refusals.regressed_threads += 1;
            self.exited += usize::from(thread.set_state(update.state, now.pass));
            return;
        }
        let old = thread.totals;
        self.exited += usize::from(thread.update(update, now.pass));
        let index = thread.index;
        self.note_past(now, index, &old, update);
    }

    /// Puts what a thread gained since its last update where it passed.
    fn note_past(&mut self, now: Now, thread: u32, old: &Totals, update: &ThreadUpdate) {
        let unobserved_ns = update.unobserved_ns.saturating_sub(old.unobserved_ns);
        let mut gains: ClassNs =
            std::array::from_fn(|class| update.classes[class].saturating_sub(old.classes[class]));
        let pass_ns = now.now_ns - now.last_ns;
        let slept = pass_ns > 0
            && unobserved_ns == 0
            && gains[Class::Blocked as usize] == pass_ns
            && (0..CLASS_COUNT).all(|class| old.classes[class] <= update.classes[class])
            && sum(&gains) == pass_ns;
        if slept {
            self.ring.sleep(thread, now.last_ns, now.now_ns);
            return;
        }
        for class in 0..CLASS_COUNT {
            let less = old.classes[class].saturating_sub(update.classes[class]);
            if less > 0 {
                // The open interval had been counted under another class: the exact values follow the event.
                gains = self.ring.reclassify(thread, class, less, gains);
            }
        }
        for (class, gain) in gains.into_iter().enumerate() {
            self.ring
                .gain(now.segment_ns, thread, What::Class(class), gain);
        }
        self.ring
            .gain(now.segment_ns, thread, What::Unobserved, unobserved_ns);
    }

    /// Adds what a stack received.
    pub fn add_stack(
        &mut self,
        segment_ns: u64,
        delta: &StackDelta,
        budget: &mut NodeBudget,
        refusals: &mut Refusals,
    ) {
        let landing = self
            .tree
            .insert(&delta.user, &delta.kernel, delta.end, delta.lost, budget);
        let nodes = self.tree.nodes().len();
        let weights = Arc::make_mut(&mut self.weights);
        weights.resize(nodes, Values::default());
        weights[landing.leaf.index()].samples += delta.samples;
        weights[landing.outermost.index()].walks += delta.walks;
        let index = match Arc::make_mut(&mut self.threads).get_mut(&delta.thread) {
            Some(thread) => {
                thread.totals.samples += delta.samples;
                thread.index
            }
            None => {
                self.folded.totals.samples += delta.samples;
                FOLDED
            }
        };
        self.ring
            .gain(segment_ns, index, What::Samples, delta.samples);
        self.ring.hit(segment_ns, landing.leaf, delta.samples, 0);
        self.ring.hit(segment_ns, landing.outermost, 0, delta.walks);
        let left = self.attribute(delta.thread, landing.leaf, &delta.classes);
        self.hold_back(delta.thread, landing.leaf, left, refusals);
    }

    /// Tries the records held back in the last pass again.
    pub fn retry(&mut self, refusals: &mut Refusals) {
        for held in std::mem::take(&mut self.held_back) {
            let left = self.attribute(held.thread, held.leaf, &held.classes);
            self.hold_back(held.thread, held.leaf, left, refusals);
        }
    }

    /// Gives the time to the leaf as far as the thread's total allows; returns the rest.
    fn attribute(&mut self, thread: ThreadKey, leaf: NodeId, classes: &ClassNs) -> ClassNs {
        if sum(classes) == 0 {
            return [0; CLASS_COUNT];
        }
        let threads = Arc::make_mut(&mut self.threads);
        let (index, totals) = match threads.get_mut(&thread) {
            Some(thread) => (thread.index, &mut thread.totals),
            None => (FOLDED, &mut self.folded.totals),
        };
        let weight = &mut Arc::make_mut(&mut self.weights)[leaf.index()];
        let mut left = [0; CLASS_COUNT];
        for class in 0..CLASS_COUNT {
            let room = totals.classes[class] - totals.attributed[class];
            let part = room.min(classes[class]);
            totals.attributed[class] += part;
            weight.classes[class] += part;
            self.ring.attribute(index, class, leaf, part);
            left[class] = classes[class] - part;
        }
        left
    }

    fn hold_back(
        &mut self,
        thread: ThreadKey,
        leaf: NodeId,
        classes: ClassNs,
        refusals: &mut Refusals,
    ) {
        let excess = sum(&classes);
        if excess == 0 {
            return;
        }
        if self.held_back.len() < MAX_HELD_BACK {
            self.held_back.push(HeldBack {
                thread,
                leaf,
                classes,
            });
        } else {
            refusals.excess_ns += excess;
        }
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
        let pending = totals.unattributed();
        let entry = Open {
            thread: index,
            leaf,
            classes: std::array::from_fn(|class| open.classes[class].min(pending[class])),
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
        let landing = self
            .tree
            .insert(&open.user, &open.kernel, open.end, open.lost, budget);
        Arc::make_mut(&mut self.weights).resize(self.tree.nodes().len(), Values::default());
        landing.leaf
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
        segment_ns: u64,
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
        let now = CallTotals::of(update);
        let gain = now.since(seen);
        if gain.count == 0 && gain.total_ns == 0 {
            return;
        }
        *seen = now;
        Arc::make_mut(&mut self.calls)
            .entry(update.number)
            .or_default()
            .add(&gain);
        self.ring.call(segment_ns, update.number, &gain);
    }

    /// Changes how its recent past is kept.
    pub(super) fn age(&mut self, change: Change) {
        match change {
            Change::Merge { from_ns, to_ns } => self.ring.merge(from_ns, to_ns),
            Change::Forget { from_ns, to_ns } => self.ring.forget(from_ns, to_ns),
        }
    }

    /// Takes in an account that is dropped: sums stay, threads become part of the folded ones.
    pub fn absorb(
        &mut self,
        other: Self,
        timeline: &Timeline,
        budget: &mut NodeBudget,
        refusals: &mut Refusals,
    ) {
        budget.release(other.nodes());
        let map = self.tree.absorb(other.tree.nodes(), budget);
        let weights = Arc::make_mut(&mut self.weights);
        weights.resize(self.tree.nodes().len(), Values::default());
        for (from, to) in other.weights.iter().zip(&map) {
            weights[to.index()].add(from);
        }
        self.folded.count += other.thread_count();
        self.folded.totals.add(&other.totals());
        self.ring.absorb(&other.ring, &map, timeline);
        let calls = Arc::make_mut(&mut self.calls);
        for (number, totals) in other.calls.iter() {
            calls.entry(*number).or_default().add(totals);
        }
        for held in other.held_back {
            refusals.excess_ns += sum(&held.classes);
        }
    }
}
