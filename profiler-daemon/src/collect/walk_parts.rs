//! Which parts of the time at work walks of stacks may take, so that what profiling costs stays
//! within its budget. Pure: time and costs are arguments.
//!
//! What switches and wakes cost without walks cannot give way, since exact totals rest on it, nor
//! can what this process takes, and ticks give way last. Where these take so much of the budget
//! that walks at switches and at exits of calls would break it, such walks take less, down to a
//! tenth of the budget, or what is next to nothing. What tracing system calls costs does not count
//! here: it gives way before walks do. (What walks may take of each process: `process_walks`.)

use crate::kernel::WalkParts;

/// The part of the budget that walks at switches and exits may take where all else leaves it; that
/// of ticks, in any case.
pub(super) const MOST: f64 = 0.4;
/// The part that those at switches and exits may take in any case.
pub(super) const LEAST: f64 = 0.1;
/// Such walks may always cost as much as this share of one processor's time: where little is at
/// work, [`MOST`] of the budget of that is too few walks to tell anything by.
const FEW: f64 = 0.0005;
/// What all else may always cost, as a share of one processor's time: beside little work even a
/// sleeping daemon breaks a budget of some percent of it, and fewer walks would not gain that back.
const NEGLIGIBLE: f64 = 0.004;
/// The time over which costs are smoothed.
const SMOOTHED_NS: f64 = 3e9;
/// A change that is told to the programs, as a part of what they were told last.
const CHANGE: f64 = 0.1;

/// What was spent in a while.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct WalkTimes {
    /// How long the while was, nanoseconds.
    pub(super) past_ns: f64,
    /// How long processors were at work in it, all together.
    pub(super) busy_ns: f64,
    /// What cannot give way has cost: switches and wakes without walks, and this process.
    pub(super) others_ns: f64,
    /// What walks of ticks cost.
    pub(super) tick_walks_ns: f64,
}

impl WalkTimes {
    /// These, fading away, and what came after them.
    fn then(self, after: &Self) -> Self {
        let kept = (-after.past_ns / SMOOTHED_NS).exp();
        Self {
            past_ns: self.past_ns.mul_add(kept, after.past_ns),
            busy_ns: self.busy_ns.mul_add(kept, after.busy_ns),
            others_ns: self.others_ns.mul_add(kept, after.others_ns),
            tick_walks_ns: self.tick_walks_ns.mul_add(kept, after.tick_walks_ns),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct WalkPolicy {
    /// The budget of the machine, as a share of the time at work.
    budget: f64,
    spent: WalkTimes,
    told: WalkParts,
}

impl WalkPolicy {
    /// Nothing has been spent yet.
    pub(super) fn new(budget: f64) -> Self {
        let most = MOST * budget;
        Self {
            budget,
            spent: WalkTimes::default(),
            told: WalkParts {
                others: most,
                ticks: most,
            },
        }
    }

    /// What walks may take now.
    pub(super) const fn parts(&self) -> WalkParts {
        self.told
    }

    /// What all walks may take now: those of ticks as much as they do, at most their part.
    pub(super) fn all(&self) -> f64 {
        let ticks = self.spent.tick_walks_ns / self.spent.busy_ns.max(1.0);
        self.told.others + ticks.min(self.told.ticks)
    }

    /// What looks from outside may take, as a share of one processor's time: as much as walks have
    /// in any case, or what is always left to all else.
    pub(super) fn outside(&self) -> f64 {
        let spent = &self.spent;
        let at_work = spent.busy_ns / spent.past_ns.max(1.0);
        (LEAST * self.budget * at_work).max(NEGLIGIBLE)
    }

    /// What has been spent since the last step; what walks may take from now on, if that has
    /// changed.
    pub(super) fn step(&mut self, spent: &WalkTimes) -> Option<WalkParts> {
        self.spent = self.spent.then(spent);
        let spent = &self.spent;
        if spent.busy_ns <= 0.0 {
            return None;
        }
        let most = MOST * self.budget;
        let rest_ns = spent.others_ns + spent.tick_walks_ns - NEGLIGIBLE * spent.past_ns;
        let left = self.budget - rest_ns / spent.busy_ns;
        let least = (LEAST * self.budget).max(FEW * spent.past_ns / spent.busy_ns);
        let others = left.min(most).max(least);
        let before = self.told.others;
        if (others - before).abs() <= CHANGE * before && others < most {
            return None;
        }
        let parts = WalkParts {
            others,
            ..self.told
        };
        let is_new = parts != self.told;
        self.told = parts;
        is_new.then_some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: f64 = 0.01;

    /// A quarter of a second of two processors at work for this part of it.
    fn quarter(busy: f64, others: f64, ticks: f64) -> WalkTimes {
        let busy_ns = 2.0 * 2.5e8 * busy;
        WalkTimes {
            past_ns: 2.5e8,
            busy_ns,
            others_ns: others * busy_ns,
            tick_walks_ns: ticks * busy_ns,
        }
    }

    /// What walks at switches and exits may take after so many seconds of this.
    fn after(policy: &mut WalkPolicy, seconds: u32, spent: &WalkTimes) -> f64 {
        for _ in 0..4 * seconds {
            policy.step(spent);
        }
        policy.parts().others
    }

    // Check that walks have their whole part while all else leaves it, all that is left where that
    // is less, and a tenth of the budget where nothing is left, however much those of ticks take;
    // that they have it back when all else is little again; and that those of ticks have theirs
    // throughout.
    #[test]
    fn walks_take_what_is_left() {
        let mut policy = WalkPolicy::new(BUDGET);
        let near = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 0.15, "{found} {expected}");
        };
        near(after(&mut policy, 30, &quarter(1.0, 0.003, 0.0005)), 0.004);
        assert_eq!(
            policy.outside(),
            NEGLIGIBLE,
            "a tenth of 1 % of two is less"
        );
        near(
            after(&mut policy, 30, &quarter(1.0, 0.010, 0.0005)),
            0.001_5,
        );
        near(policy.all(), 0.002);
        near(after(&mut policy, 30, &quarter(1.0, 0.02, 0.0005)), 0.001);
        near(after(&mut policy, 30, &quarter(1.0, 0.02, 0.002)), 0.001);
        near(after(&mut policy, 30, &quarter(1.0, 0.002, 0.02)), 0.001);
        near(policy.all(), 0.005);
        assert_eq!(after(&mut policy, 30, &quarter(1.0, 0.003, 0.0005)), 0.004);
        assert_eq!(policy.parts().ticks, 0.004);
        near(after(&mut policy, 30, &quarter(0.1, 0.05, 0.0005)), 0.002_5);
        near(after(&mut policy, 30, &quarter(0.05, 0.1, 0.0005)), 0.005);
        let mut policy = WalkPolicy::new(0.05);
        after(&mut policy, 30, &quarter(1.0, 0.003, 0.0005));
        near(policy.outside(), 0.01);
    }

    // Check that a storm is answered within some seconds, and that its end is, though nothing
    // happens at its begin; that a machine with next to nothing to do has walks for 0.05 % of a
    // processor, however dear the daemon is beside that; and that what stays the same is not told
    // again.
    #[test]
    fn it_follows_within_seconds() {
        let mut policy = WalkPolicy::new(BUDGET);
        assert_eq!(policy.step(&WalkTimes::default()), None);
        assert_eq!(policy.step(&quarter(0.0, 0.0, 0.0)), None);
        after(&mut policy, 60, &quarter(1.0, 0.001, 0.0005));
        assert_eq!(policy.step(&quarter(1.0, 0.001, 0.0005)), None);
        let storm = quarter(1.0, 0.02, 0.0005);
        assert!(after(&mut policy, 4, &storm) < 0.002);
        assert_eq!(policy.step(&storm), None);
        assert_eq!(after(&mut policy, 12, &quarter(1.0, 0.001, 0.0005)), 0.004);
        let few = after(&mut policy, 30, &quarter(0.01, 0.15, 0.01));
        assert!((few / 0.025 - 1.0).abs() < 0.15, "{few}");
    }
}
