//! What one process gained in one bucket of the recent past.
//!
//! Time is put into the segment in which it passed, also when its stack is only known later: the
//! cells remember per thread and class how much passed and how much of it has found a stack.
//! Segments begin and end with a drain pass; how long they are is the [timeline](super::timeline)'s
//! to say.

use std::collections::BTreeMap;

use profiler_common::{
    CLASS_COUNT, Class,
    kinds::{BLOCKED, Kind, KindNs, RUNNABLE, TICKS},
};
use serde::{Deserialize, Serialize};

use super::{
    budget::leaves_bytes,
    calls::CallTotals,
    sleep_runs::{Holder, SleepRun},
    tree::NodeId,
    values::add_kinds,
    weights::{self, EXACT},
};
use crate::units::MonoNs;

/// The thread index that stands for every thread whose own row is gone.
pub(super) const FOLDED: u32 = u32::MAX;

/// How much of one thing one thread gained in one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ThreadGain {
    pub(super) total: u64,
    /// For time: how much of it has found a stack.
    pub(super) attributed: u64,
}

/// What a cell counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellKind {
    /// Nanoseconds of this class.
    Class(usize),
    /// Nanoseconds in which the thread was no target.
    Unobserved,
    /// Timer ticks that found this.
    Ticks(usize),
    /// Nanoseconds that were found to be running where calls are not traced.
    Untraced,
    /// Page faults that read nothing.
    MinorFaults,
    /// Page faults that waited for a page to be read.
    MajorFaults,
    /// Switches that were not seen.
    SwitchesMissed,
    /// Nanoseconds that profiling has cost.
    ProfilerCost,
    /// See [`Totals::tick_excess`](super::values::Totals::tick_excess).
    TickExcess,
}

impl CellKind {
    const ALL: [Self; CLASS_COUNT + TICKS + 7] = {
        let mut all = [Self::Unobserved; CLASS_COUNT + TICKS + 7];
        let mut index = 0;
        while index < CLASS_COUNT {
            all[index] = Self::Class(index);
            index += 1;
        }
        while index < CLASS_COUNT + TICKS {
            all[index] = Self::Ticks(index - CLASS_COUNT);
            index += 1;
        }
        all[index + 1] = Self::Untraced;
        all[index + 2] = Self::MinorFaults;
        all[index + 3] = Self::MajorFaults;
        all[index + 4] = Self::SwitchesMissed;
        all[index + 5] = Self::ProfilerCost;
        all[index + 6] = Self::TickExcess;
        all
    };

    /// Its place in [`Self::ALL`].
    const fn code(self) -> u8 {
        let index = match self {
            Self::Class(class) => class,
            Self::Ticks(tick) => CLASS_COUNT + tick,
            Self::Unobserved => CLASS_COUNT + TICKS,
            Self::Untraced => CLASS_COUNT + TICKS + 1,
            Self::MinorFaults => CLASS_COUNT + TICKS + 2,
            Self::MajorFaults => CLASS_COUNT + TICKS + 3,
            Self::SwitchesMissed => CLASS_COUNT + TICKS + 4,
            Self::ProfilerCost => CLASS_COUNT + TICKS + 5,
            Self::TickExcess => CLASS_COUNT + TICKS + 6,
        };
        index as u8
    }

    fn of_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// What a node gained, by [`weights::What`].
pub(super) type NodeGains = BTreeMap<(NodeId, weights::What), u64>;

/// What one process gained in one segment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProcessSegment {
    /// When it began, monotonic nanoseconds: what it is known by.
    pub(super) from_ns: MonoNs,
    pub(super) nodes: NodeGains,
    /// Nanoseconds by kind that is divided by marks.
    pub(super) kinds: KindNs,
    cells: BTreeMap<(u32, u8), ThreadGain>,
    pub(super) calls: BTreeMap<u32, CallTotals>,
}

impl ProcessSegment {
    pub(super) fn new(from_ns: MonoNs) -> Self {
        Self {
            from_ns,
            ..Self::default()
        }
    }

    /// Bytes, roughly.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + leaves_bytes::<(NodeId, weights::What), u64>(self.nodes.len())
            + leaves_bytes::<(u32, u8), ThreadGain>(self.cells.len())
            + leaves_bytes::<u32, CallTotals>(self.calls.len())
    }

    pub(super) fn cell(&mut self, thread: u32, what: CellKind) -> &mut ThreadGain {
        self.cells.entry((thread, what.code())).or_default()
    }

    /// Adds to one number of a node.
    pub(super) fn hit(&mut self, node: NodeId, what: weights::What, amount: u64) {
        if amount > 0 {
            let number = self.nodes.entry((node, what)).or_default();
            *number = number.saturating_add(amount);
        }
    }

    /// Time of one thread and class in this segment that nothing has.
    pub(super) fn pending(&self, thread: u32, class: usize) -> u64 {
        self.cells
            .get(&(thread, class as u8))
            .map_or(0, |cell| cell.total.saturating_sub(cell.attributed))
    }

    /// Adds time of one thread and class, and what it was found to be.
    pub(super) fn add_time(&mut self, thread: u32, class: usize, holder: Option<Holder>, ns: u64) {
        self.cell(thread, CellKind::Class(class)).total += ns;
        if let Some(holder) = holder {
            self.give(thread, class, holder, ns);
        }
    }

    /// Notes what time of one thread and class that was pending was found to be.
    pub(super) fn give(&mut self, thread: u32, class: usize, holder: Holder, ns: u64) {
        self.cell(thread, CellKind::Class(class)).attributed += ns;
        match holder {
            Holder::Stack(leaf) => {
                let wait = if class == Class::Runnable as usize {
                    RUNNABLE
                } else {
                    BLOCKED
                };
                self.hit(leaf, EXACT + wait as weights::What, ns);
            }
            Holder::Kind(kind) => {
                self.kinds[usize::from(kind)] += ns;
                if usize::from(kind) == Kind::Untraced as usize {
                    self.cell(thread, CellKind::Untraced).total += ns;
                }
            }
        }
    }

    /// Adds so much of a sleep run to the system call that it passed in.
    pub(super) fn add_call_of(&mut self, sleep_run: &SleepRun, ns: u64) {
        if let Some(number) = sleep_run.call.filter(|_| ns > 0) {
            let calls = self.calls.entry(number).or_default();
            calls.add(&sleep_run.call_time(ns));
        }
    }

    /// Time inside calls of one number turned out to be of another class: (from, to).
    pub(super) fn reclassify_call(&mut self, call: Option<u32>, classes: (usize, usize), ns: u64) {
        if let Some(calls) = call.and_then(|number| self.calls.get_mut(&number)) {
            calls.time.reclassify(classes, ns);
        }
    }

    /// Takes up to `amount` of a thread's running time from a kind again, and answers how much.
    pub(super) fn take_back(&mut self, thread: u32, class: usize, kind: Kind, amount: u64) -> u64 {
        let untraced = kind == Kind::Untraced;
        let what = if untraced {
            CellKind::Untraced
        } else {
            CellKind::Class(class)
        };
        let has = |cell: &ThreadGain| {
            if untraced {
                cell.total
            } else {
                cell.attributed
            }
        };
        let Some(cell) = self.cells.get(&(thread, what.code())) else {
            return 0;
        };
        let part = amount.min(has(cell)).min(self.kinds[kind as usize]);
        self.kinds[kind as usize] -= part;
        self.cell(thread, CellKind::Class(class)).attributed -= part;
        if untraced {
            self.cell(thread, CellKind::Untraced).total -= part;
        }
        part
    }

    /// Whether all its cells count something that is known.
    pub(super) fn has_known_cells(&self) -> bool {
        let known = |(_, what): &(u32, u8)| CellKind::of_code(*what).is_some();
        self.cells.keys().all(known)
    }

    /// All cells as (thread, what, cell).
    pub(super) fn cells(&self) -> impl Iterator<Item = (u32, CellKind, ThreadGain)> {
        self.cells
            .iter()
            .filter_map(|((thread, what), cell)| Some((*thread, CellKind::of_code(*what)?, *cell)))
    }

    /// Takes in another segment: of the same process as it is, or of another one with `nodes` as
    /// the new numbers of its nodes. The threads of another process become folded ones.
    pub(super) fn absorb(&mut self, other: &Self, nodes: Option<&[NodeId]>) {
        for ((node, what), amount) in &other.nodes {
            let node = nodes.map_or(*node, |nodes| nodes[node.index()]);
            self.hit(node, *what, *amount);
        }
        add_kinds(&mut self.kinds, &other.kinds);
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
        for ((node, what), amount) in std::mem::take(&mut self.nodes) {
            self.hit(map[node.index()], what, amount);
        }
    }
}
