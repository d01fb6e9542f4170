//! What the stacks of an aggregate receive: marks, which lie where their time passed, and exact
//! waits as far as the totals of their thread allow. A stack record that holds more of these (the
//! two were read at different moments) is deferred and tried again in the next pass.

use std::sync::Arc;

use profiler_common::{
    StackEnd,
    kinds::{Kind, WaitNs},
};

use super::{
    aggregate::{Aggregate, Refusals, was_open},
    budget::NodeBudget,
    input::{LossCause, StackDelta},
    now::Now,
    segments::{CellKind, FOLDED},
    sleep_runs::Holder,
    spread::Spread,
    timeline::TimelineRings,
    tree::{NodeId, NodePlace},
    values::WAIT_CLASSES,
    weights::{self, EXACT, WALKS},
    window_history::Found,
};
use crate::processes::ids::ThreadKey;

/// Most stack records of one process deferred for the next pass.
const MAX_HELD_BACK: usize = 1024;

/// A stack record that waits for its thread's total.
#[derive(Debug)]
pub(super) struct HeldBack {
    pub(super) thread: ThreadKey,
    pub(super) leaf: NodeId,
    end: StackEnd,
    pub(super) exact: WaitNs,
}

impl Aggregate {
    /// Adds what a stack received.
    pub fn add_stack(
        &mut self,
        now: Now,
        delta: &StackDelta,
        (timeline, budget): (&TimelineRings, &mut NodeBudget),
        refusals: &mut Refusals,
    ) {
        let landing = self
            .tree
            .insert(&delta.user, &delta.kernel, delta.end, delta.lost, budget);
        let (index, totals) = match Arc::make_mut(&mut self.threads).get_mut(&delta.thread) {
            Some(thread) => (thread.index, &mut thread.totals),
            None => (FOLDED, &mut self.folded.totals),
        };
        for (tick, count) in delta.primary.ticks.iter().enumerate() {
            totals.ticks[tick] += count;
            let what = CellKind::Ticks(tick);
            self.history.gain(now.segment_ns, index, what, *count);
        }
        let excess = delta.primary.tick_excess;
        totals.tick_excess = totals.tick_excess.saturating_add(excess);
        self.history
            .gain(now.segment_ns, index, CellKind::TickExcess, excess);
        let numbers = delta.primary.numbers().into_iter().enumerate();
        for (what, amount) in numbers.filter(|(_, amount)| *amount > 0) {
            let what = what as weights::What;
            if weights::is_exact(what) {
                continue;
            }
            let node = if what == WALKS {
                landing.outermost
            } else {
                landing.leaf
            };
            let node = self.receive((node, delta.end), what, amount, budget);
            let Some(kind) = weights::wait_of(what) else {
                self.history.hit(now.segment_ns, node, what, amount);
                continue;
            };
            let of = (index, kind as u8);
            let buckets = self.spread.buckets(now.pass, of, timeline);
            let shares = match weights::kind_of(what) {
                _ if buckets.is_empty() => vec![(Some(now.segment_ns), amount)],
                Some(Kind::CallBlocked | Kind::CallRunnable) => self.spread.marks(&buckets, amount),
                _ => Spread::amount(&buckets, amount),
            };
            for (segment_ns, share) in shares {
                if let Some(segment_ns) = segment_ns {
                    self.history.hit(segment_ns, node, what, share);
                }
            }
        }
        let place = (landing.leaf, delta.end);
        let left = self.attribute(now, delta.thread, place, delta.primary.exact, budget);
        self.hold_back(delta.thread, place, left, refusals);
    }

    /// Adds to one number of a node, or of the one that stands for what has no room. Answers which.
    fn receive(
        &mut self,
        (node, end): (NodeId, StackEnd),
        what: weights::What,
        amount: u64,
        budget: &mut NodeBudget,
    ) -> NodeId {
        let is_lost =
            |node: NodeId| matches!(self.tree.nodes()[node.index()].place, NodePlace::Lost(_));
        let fits = self.weights.holds(node, what) || is_lost(node) || budget.has_cell();
        let node = if fits {
            node
        } else {
            budget.count_cut();
            self.tree.lost(LossCause::TreeFull, end, budget).leaf
        };
        if self.weights.add(node, what, amount) {
            budget.take_cell();
        }
        node
    }

    /// Tries the records deferred in the last pass again.
    pub fn retry(&mut self, now: Now, budget: &mut NodeBudget, refusals: &mut Refusals) {
        for held in std::mem::take(&mut self.held_back) {
            let place = (held.leaf, held.end);
            let left = self.attribute(now, held.thread, place, held.exact, budget);
            self.hold_back(held.thread, place, left, refusals);
        }
    }

    /// Gives exact waits to the leaf as far as the thread's total allows; returns the rest.
    fn attribute(
        &mut self,
        now: Now,
        thread: ThreadKey,
        place: (NodeId, StackEnd),
        exact: WaitNs,
        budget: &mut NodeBudget,
    ) -> WaitNs {
        let mut left = exact;
        for (wait, left) in left.iter_mut().enumerate().filter(|(_, ns)| **ns > 0) {
            let class = WAIT_CLASSES[wait] as usize;
            let (index, totals) = match Arc::make_mut(&mut self.threads).get_mut(&thread) {
                Some(thread) => (thread.index, &mut thread.totals),
                None => (FOLDED, &mut self.folded.totals),
            };
            let unattributed_ns = totals.classes[class] - totals.attributed[class];
            let part = unattributed_ns.min(*left);
            if part > 0 {
                totals.attributed[class] += part;
                let leaf = self.receive(place, EXACT + wait as weights::What, part, budget);
                let found = Found {
                    ns: part,
                    unattributed_ns,
                    may_be_older: was_open(&self.open, &self.last_open, index)
                        .is_none_or(|open| open == leaf),
                    segment_ns: now.segment_ns,
                };
                self.history
                    .attribute((index, class), Holder::Stack(leaf), found);
                *left -= part;
            }
        }
        left
    }

    fn hold_back(
        &mut self,
        thread: ThreadKey,
        (leaf, end): (NodeId, StackEnd),
        exact: WaitNs,
        refusals: &mut Refusals,
    ) {
        let excess: u64 = exact.iter().sum();
        if excess == 0 {
            return;
        }
        if self.held_back.len() < MAX_HELD_BACK {
            self.held_back.push(HeldBack {
                thread,
                leaf,
                end,
                exact,
            });
        } else {
            refusals.excess_ns += excess;
        }
    }
}
