//! The recent past in pieces: what each process gained in each of the last segments (10 s each), so that a report can be
//! made over "the last five minutes".
//!
//! Time is put into the segment in which it passed, also when its stack is only known later: the cells remember per
//! thread and class how much passed and how much of it has found a stack. Segments begin and end with a drain pass.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use profiler_common::{CLASS_COUNT, ClassNs};
use serde::{Deserialize, Serialize};

use super::{calls::CallTotals, fold::renumbered, input::Counts, tree::NodeId, values::Values};

/// The thread index that stands for every thread whose own row is gone.
pub(super) const FOLDED: u32 = u32::MAX;

/// What a [`Cell`] counts beyond the classes: nanoseconds in which the thread was no target.
const UNOBSERVED: u8 = CLASS_COUNT as u8;
/// What a [`Cell`] counts beyond the classes: timer samples.
const SAMPLES: u8 = CLASS_COUNT as u8 + 1;

/// How much of one thing one thread gained in one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) total: u64,
    /// For time: how much of it has found a stack.
    pub(super) attributed: u64,
}

/// What one process gained in one segment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Segment {
    pub(super) seq: u32,
    pub(super) nodes: BTreeMap<NodeId, Values>,
    cells: BTreeMap<(u32, u8), Cell>,
    pub(super) calls: BTreeMap<u32, CallTotals>,
}

impl Segment {
    fn bytes(&self) -> usize {
        // Entries with the share of the tree's own nodes.
        128 + self.nodes.len() * 96 + self.cells.len() * 40 + self.calls.len() * 80
    }

    /// Time of one thread and class in this segment that no stack has.
    pub(super) fn pending(&self, thread: u32, class: usize) -> u64 {
        self.cells
            .get(&(thread, class as u8))
            .map_or(0, |cell| cell.total.saturating_sub(cell.attributed))
    }

    /// Whether all its cells count something that is known.
    pub(super) fn has_known_cells(&self) -> bool {
        self.cells.keys().all(|(_, what)| *what <= SAMPLES)
    }

    /// All cells as (thread, what, cell).
    pub(super) fn cells(&self) -> impl Iterator<Item = (u32, What, Cell)> {
        self.cells.iter().map(|((thread, what), cell)| {
            let what = match *what {
                UNOBSERVED => What::Unobserved,
                SAMPLES => What::Samples,
                class => What::Class(class as usize),
            };
            (*thread, what, *cell)
        })
    }
}

/// What a cell counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Class(usize),
    Unobserved,
    Samples,
}

impl What {
    fn code(self) -> u8 {
        match self {
            Self::Class(class) => class as u8,
            Self::Unobserved => UNOBSERVED,
            Self::Samples => SAMPLES,
        }
    }
}

/// The segments of one process, oldest first; those in which nothing happened are missing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ring(Arc<VecDeque<Arc<Segment>>>);

impl Ring {
    /// The segments from `first` on, newest first.
    pub(super) fn since(&self, first: u32) -> impl Iterator<Item = &Segment> {
        self.0
            .iter()
            .rev()
            .take_while(move |segment| segment.seq >= first)
            .map(Arc::as_ref)
    }

    /// Bytes of all segments.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|segment| segment.bytes()).sum()
    }

    /// Forgets the segments before `first`.
    pub(super) fn forget_before(&mut self, first: u32) {
        if self.0.front().is_some_and(|segment| segment.seq < first) {
            let ring = Arc::make_mut(&mut self.0);
            while ring.front().is_some_and(|segment| segment.seq < first) {
                ring.pop_front();
            }
        }
    }

    /// The segment of this number, made where it is missing.
    pub(super) fn at(&mut self, seq: u32) -> &mut Segment {
        let ring = Arc::make_mut(&mut self.0);
        let position = match ring.back() {
            Some(last) if last.seq == seq => ring.len() - 1,
            Some(last) if last.seq > seq => match ring.binary_search_by_key(&seq, |s| s.seq) {
                Ok(position) => position,
                Err(position) => {
                    ring.insert(
                        position,
                        Arc::new(Segment {
                            seq,
                            ..Segment::default()
                        }),
                    );
                    position
                }
            },
            _ => {
                ring.push_back(Arc::new(Segment {
                    seq,
                    ..Segment::default()
                }));
                ring.len() - 1
            }
        };
        Arc::make_mut(&mut ring[position])
    }

    /// A thread gained `amount` in segment `seq`.
    pub(super) fn gain(&mut self, seq: u32, thread: u32, what: What, amount: u64) {
        if amount > 0 {
            let cell = self.at(seq).cells.entry((thread, what.code())).or_default();
            cell.total += amount;
        }
    }

    /// A thread's time turned out to be less by `amount`: it is taken back where no stack has it yet, newest first.
    pub(super) fn take_back(&mut self, thread: u32, what: What, amount: u64) {
        self.newest_first(thread, what, amount, |segment, part| {
            if let Some(cell) = segment.cells.get_mut(&(thread, what.code())) {
                cell.total -= part;
            }
        });
    }

    /// A stack received `amount` of a thread's time of one class: it goes where that time passed, newest first. What
    /// passed before the oldest segment is in no window.
    pub(super) fn attribute(&mut self, thread: u32, class: usize, leaf: NodeId, amount: u64) {
        self.newest_first(thread, What::Class(class), amount, |segment, part| {
            if let Some(cell) = segment.cells.get_mut(&(thread, class as u8)) {
                cell.attributed += part;
            }
            segment.nodes.entry(leaf).or_default().classes[class] += part;
        });
    }

    /// Calls `change` with each part of `amount` that is pending in a segment.
    fn newest_first(
        &mut self,
        thread: u32,
        what: What,
        mut amount: u64,
        mut change: impl FnMut(&mut Segment, u64),
    ) {
        if amount == 0 {
            return;
        }
        let ring = Arc::make_mut(&mut self.0);
        for segment in ring.iter_mut().rev() {
            let part = segment
                .cells
                .get(&(thread, what.code()))
                .map_or(0, |cell| cell.total.saturating_sub(cell.attributed))
                .min(amount);
            if part > 0 {
                change(Arc::make_mut(segment), part);
                amount -= part;
            }
            if amount == 0 {
                return;
            }
        }
    }

    /// How much of an open interval's time passed in the segments from `first` on and has no other stack.
    pub(super) fn open_since(&self, first: u32, thread: u32, classes: &ClassNs) -> ClassNs {
        let mut placed = [0; CLASS_COUNT];
        for segment in self.since(first) {
            for class in 0..CLASS_COUNT {
                let rest = classes[class] - placed[class];
                if rest > 0 {
                    placed[class] += segment.pending(thread, class).min(rest);
                }
            }
        }
        placed
    }

    /// The call tree's nodes have new numbers; those that became one are added up.
    pub(super) fn renumber(&mut self, map: &[NodeId]) {
        if self.0.is_empty() {
            return;
        }
        for segment in Arc::make_mut(&mut self.0) {
            if !segment.nodes.is_empty() {
                let nodes = renumbered(&segment.nodes, map);
                Arc::make_mut(segment).nodes = nodes;
            }
        }
    }

    /// Takes in another process's segments: its nodes under their new numbers, its threads as folded ones.
    pub(super) fn absorb(&mut self, other: &Self, nodes: &[NodeId]) {
        for from in other.0.iter() {
            let to = self.at(from.seq);
            for (node, values) in &from.nodes {
                to.nodes.entry(nodes[node.index()]).or_default().add(values);
            }
            for ((_, what), cell) in &from.cells {
                let sum = to.cells.entry((FOLDED, *what)).or_default();
                sum.total += cell.total;
                sum.attributed += cell.attributed;
            }
            for (number, calls) in &from.calls {
                to.calls.entry(*number).or_default().add(calls);
            }
        }
    }
}

/// The state of the session's own counters when a segment began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Start {
    /// The segment.
    pub(super) seq: u32,
    /// When it began, monotonic nanoseconds.
    pub(super) from_ns: u64,
    /// When it began, nanoseconds since 1970.
    pub(super) from_unix_ns: u64,
    /// Loss counters then.
    pub(super) losses: Counts,
    /// Samples lost then.
    pub(super) samples_lost: u64,
    /// Samples discarded then.
    pub(super) discarded: Counts,
}

/// When each kept segment began, oldest first; the last one is still growing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Timeline {
    pub(super) starts: VecDeque<Start>,
}

impl Timeline {
    /// The number of the growing segment.
    pub(super) fn current(&self) -> u32 {
        self.starts.back().map_or(0, |start| start.seq)
    }

    /// The number of the oldest segment kept.
    pub(super) fn oldest(&self) -> u32 {
        self.starts.front().map_or(0, |start| start.seq)
    }

    /// Whether no segment was ever forgotten.
    pub(super) fn is_whole(&self) -> bool {
        self.oldest() == 0
    }

    /// Forgets the oldest segment, never the growing one.
    pub(super) fn forget_oldest(&mut self) {
        if self.starts.len() > 1 {
            self.starts.pop_front();
        }
    }

    /// The segment that covers `duration_ns` before `now_ns`, rounded outward; `None` when that is no longer kept.
    pub(super) fn covering(&self, now_ns: u64, duration_ns: u64) -> Option<&Start> {
        let from = now_ns.saturating_sub(duration_ns);
        let found = self.starts.iter().rev().find(|start| start.from_ns <= from);
        found.or_else(|| self.starts.front().filter(|_| self.is_whole()))
    }
}
