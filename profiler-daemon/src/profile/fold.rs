//! Folding: parts of one account's call tree give their room back. Their time and samples move to a remainder below the last
//! node that stays, so every sum is what it was; only where in the tree it lies is coarser.

use std::sync::Arc;

use profiler_common::kinds::KINDS;

use super::{
    account::Account,
    tree::{NodeId, Place},
    values::is_wait,
    weights,
};

/// What of a tree stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thinning {
    /// Higher ones leave less of the same account.
    pub(super) level: usize,
    /// Nodes stay that have more than one part in so many of the account's time, or of its time on a processor, roughly, with all
    /// that they called. `None`: no such nodes.
    pub(super) one_in: Option<u64>,
    /// Nodes stay that received anything since then (monotonic nanoseconds), or that are under way.
    pub(super) recent_ns: Option<u64>,
}

/// What folding did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Folding {
    /// Bytes that the tree has less.
    pub(super) freed: usize,
    /// Nodes that stand no longer for themselves.
    pub(super) nodes: u64,
    /// Nanoseconds that these had, roughly.
    pub(super) ns: u64,
}

/// Time of a node itself, roughly.
#[derive(Clone, Copy, Debug, Default)]
struct Worth {
    elapsed_ns: u64,
    running_ns: u64,
}

impl Account {
    /// Folds all that does not stay.
    pub(super) fn thin(&mut self, thinning: &Thinning) -> Folding {
        let done = (thinning.level, self.tree.budgeted(), thinning.recent_ns);
        let nothing_new = self.thinned.is_some_and(|(level, nodes, recent)| {
            thinning.level <= level && (nodes, recent) == (done.1, done.2)
        });
        if nothing_new || self.tree.budgeted() == 0 {
            return Folding::default();
        }
        let keep = self.staying(thinning);
        let mut folding = Folding::default();
        let weights = self.worth();
        for ((node, keep), weight) in self.tree.nodes().iter().zip(&keep).zip(&weights) {
            if !keep && !node.place.is_folded() {
                folding.nodes += 1;
                folding.ns += weight.elapsed_ns;
            }
        }
        if folding.nodes > 0 {
            let before = self.budgeted();
            let map = self.tree.prune(&keep);
            self.renumber(&map);
            folding.freed = before - self.budgeted();
        }
        self.thinned = Some((thinning.level, self.tree.budgeted(), thinning.recent_ns));
        folding
    }

    /// Which nodes stay, with every parent of one that does.
    fn staying(&self, thinning: &Thinning) -> Vec<bool> {
        let nodes = self.tree.nodes();
        let mut keep: Vec<bool> = nodes
            .iter()
            .map(|node| matches!(node.place, Place::Lost(_)))
            .collect();
        keep[NodeId::ROOT.index()] = true;
        if let Some(one_in) = thinning.one_in {
            self.keep_heavy(one_in, &mut keep);
        }
        if let Some(first_ns) = thinning.recent_ns {
            for segment in self.ring.within(first_ns, u64::MAX) {
                for (node, _) in segment.nodes.keys() {
                    keep[node.index()] = true;
                }
            }
            let slept = self.ring.stretches().filter(|s| s.to_ns > first_ns);
            for leaf in slept.filter_map(|stretch| stretch.holder?.leaf()) {
                keep[leaf.index()] = true;
            }
            let leaves = self.open.iter().map(|open| open.leaf);
            let leaves = leaves.chain(self.last_open.values().copied());
            for leaf in leaves.chain(self.held_back.iter().map(|held| held.leaf)) {
                keep[leaf.index()] = true;
            }
        }
        for index in (1..nodes.len()).rev() {
            if keep[index] {
                keep[nodes[index].parent.index()] = true;
            }
        }
        // A remainder stays where it is, or becomes part of a greater one.
        for index in 1..nodes.len() {
            if matches!(nodes[index].place, Place::Folded { .. }) {
                keep[index] = keep[nodes[index].parent.index()];
            }
        }
        self.keep_single(&mut keep);
        keep
    }

    /// What each node has of the account's time, roughly: its marks at what one of them stands for on average.
    fn worth(&self) -> Vec<Worth> {
        let mut marks = [0u128; KINDS];
        for (_, what, amount) in self.weights.iter() {
            if let Some(kind) = weights::kind_of(what) {
                marks[kind as usize] += u128::from(amount);
            }
        }
        let kinds = self.totals().kinds;
        let mut worth = vec![Worth::default(); self.tree.nodes().len()];
        for (node, what, amount) in self.weights.iter() {
            let kind = weights::kind_of(what);
            let ns = match kind {
                Some(kind) => {
                    let product = u128::from(kinds[kind as usize]) * u128::from(amount);
                    u64::try_from(product / marks[kind as usize]).unwrap_or(u64::MAX)
                }
                None if weights::is_exact(what) => amount,
                None => continue,
            };
            let worth = &mut worth[node.index()];
            worth.elapsed_ns = worth.elapsed_ns.saturating_add(ns);
            let running = kind.is_some_and(|kind| !is_wait(kind));
            worth.running_ns += if running { ns } else { 0 };
        }
        worth
    }

    fn keep_heavy(&self, one_in: u64, keep: &mut [bool]) {
        let nodes = self.tree.nodes();
        let weights = self.worth();
        let mut elapsed_ns: Vec<u64> = weights.iter().map(|weight| weight.elapsed_ns).collect();
        let mut running_ns: Vec<u64> = weights.iter().map(|weight| weight.running_ns).collect();
        for open in self.open.iter() {
            elapsed_ns[open.leaf.index()] += open.exact.iter().sum::<u64>();
        }
        for index in (1..nodes.len()).rev() {
            let parent = nodes[index].parent.index();
            elapsed_ns[parent] += elapsed_ns[index];
            running_ns[parent] += running_ns[index];
        }
        let (least_elapsed_ns, least_running_ns) = (elapsed_ns[0] / one_in, running_ns[0] / one_in);
        for index in 1..nodes.len() {
            keep[index] |=
                elapsed_ns[index] > least_elapsed_ns || running_ns[index] > least_running_ns;
        }
    }

    /// To fold one node alone would only take its name away: there would be a remainder in its place.
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
            } else if matches!(nodes[index].place, Place::Folded { .. }) {
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
        self.ring.renumber(map);
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
