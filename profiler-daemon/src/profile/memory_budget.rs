//! Room in the call trees for what is new: which detail gives way.
//!
//! When the budget is used up, a quarter of it is made free by folding what is lightest
//! ([`fold`](super::fold)): first in the trees of a process that holds more than a third of the
//! room and of a user who holds more than half of it, no further than to that, then anywhere. So
//! nobody can take the room of others by stacks that are many, or many threads that sleep. Of what
//! weighs the same, each tree loses the same part, and first what was made first. Whatever is
//! folded keeps its time and its samples; a stack that comes again is there again by name. It is
//! counted by whose it was.

use std::collections::BTreeMap;

use super::{
    Profile,
    aggregate::Aggregate,
    fold::{FoldOutcome, Freed, Levels, WholeSession},
};
use crate::processes::ids::ProcessKey;

/// Root, whose processes are not bounded together.
const ROOT: u32 = 0;

/// Whose a tree is.
#[derive(Clone, Copy, Debug)]
enum Whose {
    /// Of processes that were dropped from the reports: which image.
    Retired(usize),
    /// Of an exited process.
    Exited(ProcessKey),
    /// Of a living process.
    Living(ProcessKey),
}

/// A tree that may be folded.
#[derive(Clone, Copy, Debug)]
struct FoldableTree {
    whose: Whose,
    /// Its user, where one is known; root's, and what is dropped, has none.
    user: Option<Option<u32>>,
    bytes: usize,
}

/// What was folded so far, by whose it was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FoldedSoFar {
    pub(super) retired: FoldOutcome,
    pub(super) exited: FoldOutcome,
    pub(super) living: FoldOutcome,
}

impl Profile {
    /// Makes room for a stack of so many frames where there is none. If no quarter of the budget
    /// could be had, it is not tried again in this pass.
    pub(super) fn want_memory(&mut self, frames: usize) {
        if self.budget.has_room(frames) || self.crowded_pass == Some(self.passes) {
            return;
        }
        self.free_memory();
        if self.budget.lacking_bytes() > 0 {
            self.crowded_pass = Some(self.passes);
        }
    }

    fn free_memory(&mut self) {
        let mut whole = WholeSession::default();
        let kept = self.processes.values().map(|process| &process.aggregate);
        for aggregate in kept.chain(self.images.aggregates()) {
            whole.add(&aggregate.totals());
        }
        let trees = self.trees();
        // What remainders take is known roughly, so there is something on top of what is lacking:
        // more each time.
        let mut margin = self.budget.limit_bytes() / 32;
        for (group, excess) in over_share(&trees, self.budget.limit_bytes()) {
            match self.budget.lacking_bytes() {
                0 => return,
                lacking => self.fold_lightest(&whole, &group, excess.min(lacking + margin)),
            };
        }
        while self.budget.lacking_bytes() > 0 {
            let wanted = self.budget.lacking_bytes().saturating_add(margin);
            let freed = self.fold_lightest(&whole, &trees, wanted);
            if freed == 0 && margin > self.budget.limit_bytes() {
                break;
            }
            margin = margin.saturating_mul(4).max(1);
        }
    }

    /// All trees that hold anything.
    fn trees(&self) -> Vec<FoldableTree> {
        let retired = self.images.aggregates().enumerate();
        let retired = retired.map(|(place, aggregate)| FoldableTree {
            whose: Whose::Retired(place),
            user: None,
            bytes: aggregate.budgeted(),
        });
        let kept = self.processes.iter().map(|(key, process)| FoldableTree {
            whose: match process.exited_pass {
                Some(_) => Whose::Exited(*key),
                None => Whose::Living(*key),
            },
            user: Some(process.info.uid).filter(|user| *user != Some(ROOT)),
            bytes: process.aggregate.budgeted(),
        });
        retired.chain(kept).filter(|tree| tree.bytes > 0).collect()
    }

    fn tree_aggregate(&mut self, whose: Whose) -> Option<&mut Aggregate> {
        match whose {
            Whose::Retired(place) => self.images.aggregates_mut().nth(place),
            Whose::Exited(key) | Whose::Living(key) => self
                .processes
                .get_mut(&key)
                .map(|process| &mut process.aggregate),
        }
    }

    /// Folds what is lightest in these trees until about so many bytes are free. Answers how many
    /// are.
    fn fold_lightest(
        &mut self,
        whole: &WholeSession,
        trees: &[FoldableTree],
        bytes: usize,
    ) -> usize {
        if bytes == 0 {
            return 0;
        }
        let (now_ns, pass_ns) = (self.now_ns, self.timeline.current_ns());
        let mut freed = Freed::default();
        let mut levels: Vec<Levels> = Vec::with_capacity(trees.len());
        for tree in trees {
            let of_tree = self.tree_aggregate(tree.whose).map(|aggregate| {
                let levels = aggregate.levels(whole, now_ns, pass_ns);
                aggregate.count_freed(&levels, &mut freed);
                levels
            });
            levels.push(of_tree.unwrap_or_default());
        }
        let mut highest = freed.reaching(bytes);
        let mut all = 0;
        for (tree, levels) in trees.iter().zip(levels) {
            let Some(aggregate) = self.tree_aggregate(tree.whose) else {
                continue;
            };
            let folding = aggregate.fold_lightest(&levels, &mut highest);
            self.budget.release(folding.freed);
            all += folding.freed;
            match tree.whose {
                Whose::Retired(_) => self.folded.retired.add(&folding),
                Whose::Exited(_) => self.folded.exited.add(&folding),
                Whose::Living(_) => self.folded.living.add(&folding),
            }
        }
        all
    }
}

/// The trees of each process, and of each user, that holds more than its share, and how many bytes
/// more.
fn over_share(trees: &[FoldableTree], limit: usize) -> Vec<(Vec<FoldableTree>, usize)> {
    let (of_process, of_user) = (limit / 3, limit / 2);
    let mut over: Vec<(Vec<FoldableTree>, usize)> = Vec::new();
    let mut users: BTreeMap<Option<u32>, Vec<FoldableTree>> = BTreeMap::new();
    for tree in trees {
        if tree.bytes > of_process && !matches!(tree.whose, Whose::Retired(_)) {
            over.push((vec![*tree], tree.bytes - of_process));
        }
        if let Some(user) = tree.user {
            users.entry(user).or_default().push(*tree);
        }
    }
    for trees in users.into_values() {
        let bytes: usize = trees.iter().map(|tree| tree.bytes).sum();
        if trees.len() > 1 && bytes > of_user {
            over.push((trees, bytes - of_user));
        }
    }
    over
}
