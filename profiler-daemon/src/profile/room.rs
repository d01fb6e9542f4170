//! Room in the call trees for what is new: which detail gives way, in which order.
//!
//! When the budget is used up, a quarter of it is made free by folding, in the order of [`STEPS`]. Whatever is folded
//! keeps its time and its samples; a stack that comes again is there again by name. Each step is counted by whose it was.

use super::{
    Profile,
    fold::{Folding, Thinning},
};
use crate::processes::ids::ProcessKey;

/// What received time in the last one to two of these is recent, nanoseconds.
const RECENT_NS: u64 = 10_000_000_000;

/// Whose trees a step folds.
#[derive(Clone, Copy, Debug)]
enum Whose {
    /// Of processes that were dropped from the reports.
    Retired,
    /// Of exited processes, oldest exit first.
    Exited,
    /// Of living processes, largest tree first.
    Living,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    whose: Whose,
    /// Parts of a tree stay that have more than one in so many of its time; `None`: nothing stays.
    one_in: Option<u64>,
    /// Parts that received time lately stay too.
    but_recent: bool,
}

/// What is folded first. For one account, each step leaves less than those before. The last ones leave nothing, so there
/// is room for every stack that is no deeper than the budget, but for the rows of lost stacks.
const STEPS: [Step; 9] = [
    Step::of(Whose::Retired, Some(1000), false),
    Step::of(Whose::Exited, Some(100), false),
    Step::of(Whose::Living, Some(100), true),
    Step::of(Whose::Exited, Some(10), false),
    Step::of(Whose::Exited, None, false),
    Step::of(Whose::Retired, None, false),
    Step::of(Whose::Living, Some(100), false),
    Step::of(Whose::Living, Some(10), false),
    Step::of(Whose::Living, None, false),
];

impl Step {
    const fn of(whose: Whose, one_in: Option<u64>, but_recent: bool) -> Self {
        Self {
            whose,
            one_in,
            but_recent,
        }
    }
}

/// What was folded so far, by whose it was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FoldedSoFar {
    pub(super) retired: Folding,
    pub(super) exited: Folding,
    pub(super) living: Folding,
}

/// The accounts by the order in which they are folded.
struct Queues {
    exited: Vec<ProcessKey>,
    living: Vec<ProcessKey>,
}

impl Profile {
    /// Makes room for a stack of so many frames where there is none. If no quarter of the budget could be had, it is not
    /// tried again in this pass.
    pub(super) fn want_room(&mut self, frames: usize) {
        if self.budget.has_room(frames) || self.crowded_pass == Some(self.passes) {
            return;
        }
        self.make_room();
        if !self.budget.has_quarter() {
            self.crowded_pass = Some(self.passes);
        }
    }

    fn make_room(&mut self) {
        let queues = self.queues();
        // The same moment for a while, so that trees that have not grown are not looked at again.
        let recent_ns = (self.now_ns / RECENT_NS).saturating_sub(1) * RECENT_NS;
        for (level, step) in STEPS.iter().enumerate() {
            let thinning = Thinning {
                level,
                one_in: step.one_in,
                recent_ns: step.but_recent.then_some(recent_ns),
            };
            let keys = match step.whose {
                Whose::Retired => {
                    for account in self.images.accounts_mut() {
                        if self.budget.has_quarter() {
                            return;
                        }
                        let folding = account.thin(&thinning);
                        self.budget.release(folding.freed);
                        self.folded.retired.add(&folding);
                    }
                    continue;
                }
                Whose::Exited => &queues.exited,
                Whose::Living => &queues.living,
            };
            for key in keys {
                if self.budget.has_quarter() {
                    return;
                }
                let Some(process) = self.processes.get_mut(key) else {
                    continue;
                };
                let folding = process.account.thin(&thinning);
                self.budget.release(folding.freed);
                match step.whose {
                    Whose::Living => self.folded.living.add(&folding),
                    _ => self.folded.exited.add(&folding),
                }
            }
        }
    }

    fn queues(&self) -> Queues {
        let mut exited = Vec::new();
        let mut living = Vec::new();
        for (key, process) in &self.processes {
            match process.exited_pass {
                Some(pass) => {
                    let at = process.info.exited_at_unix_ns.unwrap_or_default();
                    exited.push((pass, at, *key));
                }
                None => living.push((std::cmp::Reverse(process.account.budgeted()), *key)),
            }
        }
        exited.sort_unstable();
        living.sort_unstable();
        Queues {
            exited: exited.into_iter().map(|(.., key)| key).collect(),
            living: living.into_iter().map(|(_, key)| key).collect(),
        }
    }
}

impl Folding {
    fn add(&mut self, other: &Self) {
        self.freed += other.freed;
        self.nodes += other.nodes;
        self.ns += other.ns;
    }
}
