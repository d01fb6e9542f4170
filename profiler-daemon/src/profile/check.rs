//! Whether a snapshot that came from a file holds together: every number that names something names something that is
//! there, and no sum over it overflows. What a snapshot of this program's own [`Profile`](super::Profile) holds does so by
//! construction; a file can hold anything.

use std::collections::BTreeMap;

use profiler_common::{CLASS_COUNT, ClassNs};
use thiserror::Error;

use super::{
    account::AccountView,
    calls::CallTotals,
    sessions::{Session, Sessions},
    snapshot::Snapshot,
    threads::Thread,
    timeline::Timeline,
    tree::{MAX_DEPTH, NodeId, Place},
    values::{Totals, Values},
};
use crate::processes::ids::ThreadKey;

/// The largest sum of one kind of number over a whole profile: reports add a few of them up.
const LARGEST_SUM: u128 = 1 << 60;

/// What does not hold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Flaw(&'static str);

/// A sentence where `holds` does not.
fn expect(holds: bool, flaw: &'static str) -> Result<(), Flaw> {
    if holds { Ok(()) } else { Err(Flaw(flaw)) }
}

/// Sums over a whole profile, by what is summed.
#[derive(Default)]
struct Sums {
    weights: u128,
    threads: u128,
    calls: u128,
    segments: u128,
}

impl Sums {
    fn check(&self) -> Result<(), Flaw> {
        let all = [self.weights, self.threads, self.calls, self.segments];
        let fit = all.iter().all(|sum| *sum <= LARGEST_SUM);
        expect(fit, "its numbers are larger than any profile's")
    }
}

fn of_classes(classes: &ClassNs) -> u128 {
    classes.iter().map(|ns| u128::from(*ns)).sum()
}

fn of_values(values: &Values) -> u128 {
    u128::from(values.samples) + u128::from(values.walks) + of_classes(&values.classes)
}

fn of_totals(totals: &Totals) -> u128 {
    u128::from(totals.samples) + u128::from(totals.unobserved_ns) + of_classes(&totals.classes)
}

fn of_calls(calls: &CallTotals) -> u128 {
    [
        calls.count,
        calls.total_ns,
        calls.running_ns,
        calls.blocked_ns,
        calls.max_ns,
    ]
    .iter()
    .map(|number| u128::from(*number))
    .sum()
}

fn check_totals(totals: &Totals) -> Result<(), Flaw> {
    let fits = (0..CLASS_COUNT).all(|class| totals.attributed[class] <= totals.classes[class]);
    expect(fits, "stacks have more time than their thread")
}

impl Snapshot {
    /// Checks a snapshot that came from elsewhere: what passes can be reported on without an overflow and without an index
    /// out of bounds.
    ///
    /// # Errors
    /// The first thing that does not hold together.
    pub fn check(&self) -> Result<(), Flaw> {
        expect(self.started_ns <= self.now_ns, "it ends before it begins")?;
        self.timeline.check(self.now_ns)?;
        self.sessions.is_whole()?;
        expect(self.modules.is_whole(), "its table of modules is broken")?;
        expect(
            self.frames.is_whole(self.modules.len()),
            "its table of frames is broken",
        )?;
        let mut sums = Sums::default();
        let retired = [&self.retired.user, &self.retired.kernel];
        let kept = self.processes.iter().map(|(key, process)| {
            expect(
                process.info.key == *key,
                "a process goes by another's number",
            )?;
            Ok(&process.account)
        });
        for account in kept.chain(retired.into_iter().map(Ok)) {
            account?.check(self, &mut sums)?;
        }
        sums.check()
    }
}

impl AccountView {
    fn check(&self, snapshot: &Snapshot, sums: &mut Sums) -> Result<(), Flaw> {
        self.check_nodes(snapshot)?;
        self.check_rows(sums)?;
        self.check_segments(sums)
    }

    fn check_nodes(&self, snapshot: &Snapshot) -> Result<(), Flaw> {
        let nodes = &self.nodes;
        // An account that never had a stack has no node, not even the root.
        expect(
            nodes.first().is_none_or(|root| root.parent == NodeId::ROOT),
            "a call tree has no root",
        )?;
        let mut depths: Vec<usize> = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            if index == 0 {
                depths.push(0);
                continue;
            }
            let parent = node.parent.index();
            expect(parent < index, "a call tree runs in a circle")?;
            let depth = depths[parent] + 1;
            expect(depth <= MAX_DEPTH + 1, "a call tree is too deep")?;
            depths.push(depth);
            expect(
                match node.place {
                    Place::User(frame) | Place::Kernel(frame) => snapshot.frames.holds(frame),
                    Place::Lost(_) => parent == 0,
                    Place::Cut | Place::Folded { .. } => true,
                },
                "a call tree names a frame that is not there",
            )?;
        }
        expect(
            self.weights.len() <= nodes.len(),
            "there are weights without a place in the call tree",
        )
    }

    fn holds(&self, node: NodeId) -> bool {
        node.index() < self.nodes.len()
    }

    fn check_rows(&self, sums: &mut Sums) -> Result<(), Flaw> {
        let threads: &BTreeMap<ThreadKey, Thread> = &self.threads;
        for thread in threads.values() {
            check_totals(&thread.totals)?;
            expect(
                thread.first_ns <= thread.last_ns,
                "a thread ends before it begins",
            )?;
            sums.threads += of_totals(&thread.totals);
        }
        check_totals(&self.folded.totals)?;
        sums.threads += of_totals(&self.folded.totals) + u128::from(self.folded.count);
        sums.weights += self.weights.iter().map(of_values).sum::<u128>();
        sums.calls += self.calls.values().map(of_calls).sum::<u128>();
        for open in self.open.iter() {
            expect(
                self.holds(open.leaf),
                "an open interval has no place in the call tree",
            )?;
            sums.weights += of_classes(&open.classes);
        }
        sums.check()
    }

    fn check_segments(&self, sums: &mut Sums) -> Result<(), Flaw> {
        let begins = self.ring.within(0, u64::MAX).map(|segment| segment.from_ns);
        expect(
            begins.is_sorted_by(|a, b| a < b),
            "its segments are out of order",
        )?;
        for segment in self.ring.within(0, u64::MAX) {
            expect(
                segment.nodes.keys().all(|node| self.holds(*node)),
                "a segment has weights without a place in the call tree",
            )?;
            expect(
                segment.has_known_cells(),
                "a segment counts what is not known",
            )?;
            let cells = segment
                .cells()
                .map(|(_, _, cell)| u128::from(cell.total) + u128::from(cell.attributed));
            sums.segments += cells.sum::<u128>()
                + segment.nodes.values().map(of_values).sum::<u128>()
                + segment.calls.values().map(of_calls).sum::<u128>();
        }
        for stretch in self.ring.stretches() {
            expect(
                stretch.from_ns <= stretch.to_ns
                    && stretch.class < CLASS_COUNT
                    && stretch.leaf.is_none_or(|leaf| self.holds(leaf)),
                "a sleep makes no sense",
            )?;
            sums.segments += u128::from(stretch.to_ns - stretch.from_ns);
        }
        sums.check()
    }
}

impl Sessions {
    fn is_whole(&self) -> Result<(), Flaw> {
        let makes_sense = |session: &Session| {
            let begins = session.spans.iter().map(|span| span.from);
            let moments = begins.chain(session.stopped);
            !session.spans.is_empty()
                && moments.is_sorted_by(|a, b| a.ns <= b.ns && a.unix_ns <= b.unix_ns)
        };
        expect(
            self.list().iter().all(makes_sense),
            "a named session makes no sense",
        )
    }
}

impl Timeline {
    fn check(&self, now_ns: u64) -> Result<(), Flaw> {
        let begins = self.starts.iter().map(|start| start.from_ns);
        let rises = begins.clone().zip(begins.skip(1)).all(|(a, b)| a <= b)
            && self
                .starts
                .back()
                .is_some_and(|last| last.from_ns <= now_ns);
        expect(rises, "its recent past is out of order")
    }
}
