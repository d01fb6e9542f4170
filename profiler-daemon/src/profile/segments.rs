//! What one process gained in one piece of the recent past.
//!
//! Time is put into the segment in which it passed, also when its stack is only known later: the cells remember per thread
//! and class how much passed and how much of it has found a stack. Segments begin and end with a drain pass; how long they
//! are is the [timeline](super::timeline)'s to say.

use std::collections::BTreeMap;

use profiler_common::CLASS_COUNT;
use serde::{Deserialize, Serialize};

use super::{calls::CallTotals, fold::renumbered, tree::NodeId, values::Values};

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

/// What one process gained in one segment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Segment {
    /// When it began, monotonic nanoseconds: what it is known by.
    pub(super) from_ns: u64,
    pub(super) nodes: BTreeMap<NodeId, Values>,
    cells: BTreeMap<(u32, u8), Cell>,
    pub(super) calls: BTreeMap<u32, CallTotals>,
}

impl Segment {
    pub(super) fn new(from_ns: u64) -> Self {
        Self {
            from_ns,
            ..Self::default()
        }
    }

    /// Bytes, roughly.
    pub(super) fn bytes(&self) -> usize {
        // Entries with the share of the tree's own nodes.
        128 + self.nodes.len() * 96 + self.cells.len() * 40 + self.calls.len() * 80
    }

    pub(super) fn cell(&mut self, thread: u32, what: What) -> &mut Cell {
        self.cells.entry((thread, what.code())).or_default()
    }

    /// Time of one thread and class in this segment that no stack has.
    pub(super) fn pending(&self, thread: u32, class: usize) -> u64 {
        self.cells
            .get(&(thread, class as u8))
            .map_or(0, |cell| cell.total.saturating_sub(cell.attributed))
    }

    /// Adds time of one thread and class, and to which stack it went.
    pub(super) fn add_time(&mut self, thread: u32, class: usize, leaf: Option<NodeId>, ns: u64) {
        let cell = self.cell(thread, What::Class(class));
        cell.total += ns;
        if let Some(leaf) = leaf {
            cell.attributed += ns;
            self.nodes.entry(leaf).or_default().classes[class] += ns;
        }
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

    /// Takes in another segment: of the same process as it is, or of another one with `nodes` as the new numbers of its nodes.
    /// The threads of another process become folded ones.
    pub(super) fn absorb(&mut self, other: &Self, nodes: Option<&[NodeId]>) {
        for (node, values) in &other.nodes {
            let node = nodes.map_or(*node, |nodes| nodes[node.index()]);
            self.nodes.entry(node).or_default().add(values);
        }
        for ((thread, what), cell) in &other.cells {
            let thread = if nodes.is_some() { FOLDED } else { *thread };
            let sum = self.cells.entry((thread, *what)).or_default();
            sum.total += cell.total;
            sum.attributed += cell.attributed;
        }
        for (number, calls) in &other.calls {
            self.calls.entry(*number).or_default().add(calls);
        }
    }

    /// The call tree's nodes have new numbers; those that became one are added up.
    pub(super) fn renumber(&mut self, map: &[NodeId]) {
        self.nodes = renumbered(&self.nodes, map);
    }
}
