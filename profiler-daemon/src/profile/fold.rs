//! Folding: the lightest parts of call trees give their room back, in two steps. First a stack
//! loses the callers between the last node that stays and its innermost user frame, and the
//! kernel's frames between that and the innermost of all: a remainder stands for them, below which
//! stacks of one innermost frame are one. So most time keeps its function when its callers are
//! gone. What is lighter still is part of the remainder itself. Every sum is what it was; only
//! where in the tree it lies is coarser.
//!
//! What a node weighs is the largest share that it has, with all it called, of the whole session:
//! of its samples, of its time on a processor, or of all its time. Shares are told apart by
//! [`Level`], so that the weight below which there is as much as is to be freed is found by
//! counting ([`Freed`]), without sorting.

use std::sync::Arc;

use profiler_common::{
    StackEnd,
    kinds::{KINDS, Kind, TICKS},
};

use super::{
    aggregate::Aggregate,
    budget::{CELL_BYTES, NODE_BYTES},
    tree::{NodeId, NodePlace},
    values::{Totals, is_wait},
    weights,
};
use crate::units::MonoNs;

/// What a node weighs: a quarter of an octave each, 255 is the whole session. Never above its
/// caller's.
pub(super) type Level = u8;
/// How many levels there are.
const LEVELS: usize = 256;
/// Levels between a weight and its double.
const OCTAVE: Level = 4;
/// How much lighter the stacks are that do not reach the beginning of their thread: their outermost
/// frame may be any, so each is a path of its own.
const INCOMPLETE: Level = 4 * OCTAVE;
/// How much heavier is what received something lately, or is under way; twice that, what did in
/// this pass.
const RECENT: Level = OCTAVE;
/// How much heavier an innermost frame is than the frames that lead to it.
const INNERMOST: Level = 8 * OCTAVE;
/// What is lately, nanoseconds.
const RECENT_NS: u64 = 10_000_000_000;
/// Bytes a remainder is taken to cost: it has the ticks and the marks of what it stands for.
const REMAINDER_BYTES: usize = NODE_BYTES + 2 * CELL_BYTES;

/// What the nodes of a tree weigh.
#[derive(Clone, Debug, Default)]
pub(super) struct Levels {
    /// As part of a stack, with all that was called from it.
    path: Vec<Level>,
    /// As the innermost frame of stacks, no less than as part of one; where it is none, the same.
    frame: Vec<Level>,
}

/// Which nodes stay.
pub(super) struct Staying {
    /// Where they are, with every parent of one that does.
    pub(super) path: Vec<bool>,
    /// As an innermost frame, be it below a remainder, with the innermost user frame of a kernel
    /// frame.
    pub(super) frame: Vec<bool>,
}

/// What shares are of: the whole session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WholeSession {
    samples: u64,
    running_ns: u64,
    elapsed_ns: u64,
}

impl WholeSession {
    /// Adds what an aggregate has.
    pub(super) fn add(&mut self, totals: &Totals) {
        self.samples += totals.samples();
        self.elapsed_ns += totals.elapsed_ns();
        let running = Kind::ALL.into_iter();
        self.running_ns += running
            .filter(|kind| !is_wait(*kind))
            .map(|kind| totals.kinds[kind as usize])
            .sum::<u64>();
    }
}

/// The level of a part of a whole.
fn level_of(part: f32, whole: f32) -> Level {
    if part <= 0.0 || whole <= 0.0 {
        return 0;
    }
    // Exponent and the upper two bits of the fraction: four steps an octave.
    let steps = i64::from((part / whole).to_bits() >> 21);
    let of_one = i64::from(1f32.to_bits() >> 21);
    let level = i64::from(Level::MAX) + steps - of_one;
    level.clamp(1, i64::from(Level::MAX)) as Level
}

/// The highest level that is folded, and how much of what is on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Highest {
    level: Level,
    /// Of so many bytes, at least 1, …
    bytes: i128,
    /// … that many are.
    folded: i128,
    /// How many more than that were, so far.
    surplus: i128,
}

/// Bytes that folding would free, by the level that is the highest to be folded.
#[derive(Clone, Debug)]
pub(super) struct Freed([i64; LEVELS]);

impl Default for Freed {
    fn default() -> Self {
        Self([0; LEVELS])
    }
}

impl Freed {
    /// What is to be folded to free so many bytes.
    pub(super) fn reaching(&self, bytes: usize) -> Highest {
        let wanted = i64::try_from(bytes).unwrap_or(i64::MAX);
        let mut below = 0;
        for (level, freed) in (0..=Level::MAX).zip(self.0) {
            if freed > 0 && below + freed >= wanted {
                return Highest {
                    level,
                    bytes: freed.into(),
                    folded: (wanted - below).into(),
                    surplus: 0,
                };
            }
            below += freed;
        }
        Highest {
            level: Level::MAX,
            bytes: 1,
            folded: 1,
            surplus: 0,
        }
    }
}

/// What folding did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FoldOutcome {
    /// Bytes that the tree has less.
    pub(super) freed: usize,
    /// Nodes that stand no longer for themselves.
    pub(super) nodes: u64,
    /// Nanoseconds that these had, roughly.
    pub(super) ns: u64,
}

impl FoldOutcome {
    pub(super) fn add(&mut self, other: &Self) {
        self.freed += other.freed;
        self.nodes += other.nodes;
        self.ns += other.ns;
    }
}

/// What one mark of each kind stands for on average, nanoseconds.
struct PerMark([f64; KINDS]);

impl PerMark {
    /// Nanoseconds that a number stands for, roughly, and whether they were on a processor.
    fn ns(&self, what: weights::What, amount: u64) -> (f64, bool) {
        match weights::kind_of(what) {
            Some(kind) => (self.0[kind as usize] * amount as f64, !is_wait(kind)),
            None if weights::is_exact(what) => (amount as f64, false),
            None => (0.0, false),
        }
    }
}

/// Has every node include what it called.
fn include_called(parents: impl Fn(usize) -> usize, sums: &mut [f32]) {
    for index in (1..sums.len()).rev() {
        sums[parents(index)] += sums[index];
    }
}

impl Aggregate {
    fn per_mark(&self) -> PerMark {
        let mut marks = [0u128; KINDS];
        for (_, what, amount) in self.weights.iter() {
            if let Some(kind) = weights::kind_of(what) {
                marks[kind as usize] += u128::from(amount);
            }
        }
        let kinds = self.totals().kinds;
        PerMark(std::array::from_fn(|kind| {
            kinds[kind] as f64 / (marks[kind] as f64).max(1.0)
        }))
    }

    /// What each node weighs, at the time of a pass (monotonic), in the bucket of the recent past
    /// that began at `bucket_ns`.
    pub(super) fn levels(&self, whole: &WholeSession, now_ns: MonoNs, bucket_ns: MonoNs) -> Levels {
        let nodes = self.tree.nodes();
        let parent = |index: usize| nodes[index].parent.index();
        let per_mark = self.per_mark();
        let mut levels = vec![0; nodes.len()];
        let mut frame = vec![0; nodes.len()];
        let mut sums = vec![0f32; nodes.len()];
        let mut weigh = |whole: u64, own: &mut dyn FnMut(&mut [f32])| {
            sums.fill(0.0);
            own(&mut sums);
            for (level, sum) in frame.iter_mut().zip(&sums) {
                *level = level_of(*sum, whole as f32).max(*level);
            }
            include_called(parent, &mut sums);
            for (level, sum) in levels.iter_mut().zip(&sums) {
                *level = level_of(*sum, whole as f32).max(*level);
            }
        };
        weigh(whole.samples, &mut |own| {
            for (node, what, amount) in self.weights.iter() {
                if usize::from(what) < TICKS {
                    own[node.index()] += amount as f32;
                }
            }
        });
        weigh(whole.running_ns, &mut |own| {
            for (node, what, amount) in self.weights.iter() {
                if let (ns, true) = per_mark.ns(what, amount) {
                    own[node.index()] += ns as f32;
                }
            }
        });
        weigh(whole.elapsed_ns, &mut |own| {
            for (node, what, amount) in self.weights.iter() {
                own[node.index()] += per_mark.ns(what, amount).0 as f32;
            }
            for open in self.open.iter() {
                own[open.leaf.index()] += open.exact.iter().sum::<u64>() as f32;
            }
        });
        let mut levels = Levels {
            path: levels,
            frame,
        };
        self.favour(now_ns.saturating_sub(RECENT_NS), bucket_ns, &mut levels);
        levels
    }

    /// Has incomplete stacks weigh less, and recent ones and innermost frames more.
    fn favour(&self, recent_ns: MonoNs, bucket_ns: MonoNs, levels: &mut Levels) {
        let nodes = self.tree.nodes();
        let Levels { path, frame } = levels;
        let mut incomplete = vec![false; nodes.len()];
        for index in 1..nodes.len() {
            let node = &nodes[index];
            incomplete[index] = match node.parent {
                NodeId::ROOT => matches!(node.end, StackEnd::Incomplete(_)),
                parent => incomplete[parent.index()],
            };
            let lighter = if incomplete[index] { INCOMPLETE } else { 0 };
            path[index] = path[index].saturating_sub(lighter);
            if frame[index] > 0 && matches!(node.place, NodePlace::User(_) | NodePlace::Kernel(_)) {
                frame[index] = frame[index]
                    .saturating_add(INNERMOST)
                    .saturating_sub(lighter);
            } else {
                frame[index] = 0;
            }
        }
        let recent = self.recent(recent_ns, bucket_ns);
        for index in (1..nodes.len()).rev() {
            path[index] = path[index].saturating_add(recent[index]);
            let parent = nodes[index].parent.index();
            path[parent] = path[parent].max(path[index]);
            if frame[index] > 0 {
                frame[index] = frame[index].saturating_add(recent[index]);
                // Of a kernel frame, that of the user code which called it stays too.
                if matches!(nodes[index].place, NodePlace::Kernel(_)) {
                    let user = self.user_frame(index);
                    frame[user] = frame[user].max(frame[index]);
                }
            }
        }
        frame[NodeId::ROOT.index()] = 0;
        for (frame, path) in frame.iter_mut().zip(path) {
            *frame = (*frame).max(*path);
        }
    }

    /// The innermost user frame at a node or above; the root where there is none.
    fn user_frame(&self, mut index: usize) -> usize {
        let nodes = self.tree.nodes();
        while index != NodeId::ROOT.index() && !matches!(nodes[index].place, NodePlace::User(_)) {
            index = nodes[index].parent.index();
        }
        index
    }

    /// How much heavier each node is for being recent.
    fn recent(&self, recent_ns: MonoNs, bucket_ns: MonoNs) -> Vec<Level> {
        let mut recent = vec![0; self.tree.nodes().len()];
        let slept = self.history.sleep_runs().filter(|s| s.to_ns > recent_ns);
        let slept = slept.filter_map(|sleep_run| sleep_run.holder?.leaf());
        let leaves = self.open.iter().map(|open| open.leaf);
        let leaves = leaves.chain(self.last_open.values().copied());
        let held = self.held_back.iter().map(|held| held.leaf);
        for leaf in slept.chain(leaves).chain(held) {
            recent[leaf.index()] = RECENT;
        }
        for segment in self.history.within(recent_ns, MonoNs::MAX) {
            let is_this = segment.from_ns >= bucket_ns;
            for (node, _) in segment.nodes.keys() {
                recent[node.index()] = if is_this { 2 * RECENT } else { RECENT };
            }
        }
        recent
    }

    fn node_bytes(&self, node: usize) -> usize {
        let node = NodeId(u32::try_from(node).expect("the budget keeps trees below 2^32"));
        NODE_BYTES + self.weights.of(node) * CELL_BYTES
    }

    /// Counts what folding would free: of an innermost frame nothing before it has no name any
    /// more.
    pub(super) fn count_freed(&self, levels: &Levels, freed: &mut Freed) {
        let nodes = self.tree.nodes();
        // The lightest below each node that has no remainder yet.
        let mut lightest = vec![Level::MAX; nodes.len()];
        let mut has_remainder = vec![false; nodes.len()];
        for index in 1..nodes.len() {
            let parent = nodes[index].parent.index();
            match nodes[index].place {
                NodePlace::Lost(_) => {}
                NodePlace::Folded { .. } => has_remainder[parent] = true,
                _ => {
                    lightest[parent] = lightest[parent].min(levels.path[index]);
                    freed.0[usize::from(levels.frame[index])] += self.node_bytes(index) as i64;
                }
            }
        }
        for index in 0..nodes.len() {
            let (from, to) = (
                usize::from(lightest[index]),
                usize::from(levels.path[index]),
            );
            if !has_remainder[index] && from < to {
                freed.0[from] -= REMAINDER_BYTES as i64;
                freed.0[to] += REMAINDER_BYTES as i64;
            }
        }
    }

    /// How many nodes, from the first on, are old: of those on the highest level that is folded
    /// they have the part that is, and whole stacks. What is more than that is taken off the next
    /// tree's part.
    fn old(&self, levels: &Levels, highest: &mut Highest) -> usize {
        let nodes = self.tree.nodes();
        let is_frame = |index: usize| {
            !matches!(
                nodes[index].place,
                NodePlace::Lost(_) | NodePlace::Folded { .. }
            )
        };
        // A stack's innermost frame goes with the stack, though it has a level of its own.
        let bytes = |index: usize| match levels.frame[index] == highest.level {
            true => self.node_bytes(index) as i128,
            false => 0,
        };
        let on_level = |index: &usize| {
            (levels.frame[*index] == highest.level || levels.path[*index] == highest.level)
                && is_frame(*index)
        };
        let all: i128 = (1..nodes.len()).filter(on_level).map(bytes).sum();
        let wanted = all * highest.folded / highest.bytes - highest.surplus;
        let (mut sum, mut last) = (0, 0);
        for index in (1..nodes.len()).filter(on_level) {
            let goes_on = last > 0 && nodes[index].parent.index() == last;
            if sum >= wanted && !goes_on {
                break;
            }
            sum += bytes(index);
            last = index;
        }
        highest.surplus = sum - wanted;
        last + 1
    }

    /// Folds what is lightest.
    pub(super) fn fold_lightest(&mut self, levels: &Levels, highest: &mut Highest) -> FoldOutcome {
        let keep = self.staying(levels, highest);
        let mut folding = FoldOutcome::default();
        let nodes = self.tree.nodes();
        let is_gone = |index: usize| {
            !keep.path[index] && !keep.frame[index] && !nodes[index].place.is_folded()
        };
        folding.nodes = (0..nodes.len()).filter(|index| is_gone(*index)).count() as u64;
        if keep.path.iter().all(|keep| *keep) {
            return folding;
        }
        let per_mark = self.per_mark();
        let gone = self
            .weights
            .iter()
            .filter(|(node, ..)| is_gone(node.index()));
        folding.ns = gone
            .map(|(_, what, amount)| per_mark.ns(what, amount).0)
            .sum::<f64>() as u64;
        let before = self.budgeted();
        let map = self.tree.prune(&keep, &self.named());
        self.renumber(&map);
        folding.freed = before.saturating_sub(self.budgeted());
        folding
    }

    /// Which nodes are named by something that is to go where they go.
    fn named(&self) -> Vec<bool> {
        let mut named = vec![false; self.tree.nodes().len()];
        let leaves = self.open.iter().map(|open| open.leaf);
        let leaves = leaves.chain(self.last_open.values().copied());
        let leaves = leaves.chain(self.held_back.iter().map(|held| held.leaf));
        for node in leaves.chain(self.weights.iter().map(|(node, ..)| node)) {
            named[node.index()] = true;
        }
        named
    }

    /// Which nodes stay.
    fn staying(&self, levels: &Levels, highest: &mut Highest) -> Staying {
        let old = self.old(levels, highest);
        let nodes = self.tree.nodes();
        let stays = |level: Level, index: usize| {
            level > highest.level || level == highest.level && index >= old
        };
        let mut path: Vec<bool> = vec![false; nodes.len()];
        let mut frame: Vec<bool> = vec![false; nodes.len()];
        path[NodeId::ROOT.index()] = true;
        for index in (1..nodes.len()).rev() {
            match nodes[index].place {
                NodePlace::Lost(_) => path[index] = true,
                NodePlace::Folded { .. } => {}
                _ => {
                    path[index] |= stays(levels.path[index], index);
                    frame[index] = stays(levels.frame[index], index);
                }
            }
            if path[index] {
                path[nodes[index].parent.index()] = true;
            }
        }
        for index in 1..nodes.len() {
            let parent = nodes[index].parent;
            path[index] |= match nodes[index].place {
                // A remainder stays where it is, or becomes part of a greater one.
                NodePlace::Folded { .. } => path[parent.index()],
                // Between it and its caller there is nothing to be folded.
                _ => frame[index] && path[parent.index()],
            };
        }
        self.keep_single(&mut path);
        Staying { path, frame }
    }

    /// To fold one node alone would only take its name away: there would be a remainder in its
    /// place.
    fn keep_single(&self, keep: &mut [bool]) {
        let nodes = self.tree.nodes();
        let mut above = vec![NodeId::ROOT; nodes.len()];
        let mut below = vec![0u32; nodes.len()];
        for index in 1..nodes.len() {
            let parent = nodes[index].parent;
            if !keep[index] {
                above[index] = if keep[parent.index()] {
                    parent
                } else {
                    above[parent.index()]
                };
                below[above[index].index()] += 1;
            } else if matches!(nodes[index].place, NodePlace::Folded { .. }) {
                below[parent.index()] += 1;
            }
        }
        for index in 1..nodes.len() {
            keep[index] |= below[above[index].index()] == 1 && !keep[index];
        }
    }

    /// Everything that names nodes of the tree names them by their new numbers.
    fn renumber(&mut self, map: &[NodeId]) {
        let weights = std::mem::take(&mut self.weights);
        self.weights.absorb(&weights, map);
        self.history.renumber(map);
        if !self.open.is_empty() {
            for open in Arc::make_mut(&mut self.open) {
                open.leaf = map[open.leaf.index()];
            }
        }
        for leaf in self.last_open.values_mut() {
            *leaf = map[leaf.index()];
        }
        for held in &mut self.held_back {
            held.leaf = map[held.leaf.index()];
        }
    }
}
