//! How much of a processor's time is spent on walks: a token bucket, filled with a share of the
//! time in which the processor is at work, emptied by what each walk has cost. Walks at switches
//! and at the exits of calls give way as it empties. Those of ticks have another one, of a share of
//! their own, and give way last, once that is in debt: no storm of other walks thins them out, and
//! however deep the stacks at ticks are, others are walked.
//!
//! It does not say yes or no: what is walked would then depend on what ran just before. It says
//! with which *chance* the next stack is walked, as a power of two, by the past alone; whoever is
//! walked stands for as many as that. So the time that is spent is bounded and what marks stand for
//! is not changed, whatever the order of events.
//!
//! A process that is busy has a bucket of its own besides ([`ProcessWalks`]): one that is at
//! work for a tenth of the time could have all the walks of its processor.

/// What can be saved up, nanoseconds of walking: some hundred walks at the begin of a storm.
pub const CAPACITY_NS: i64 = 2_000_000;
/// Above this, everything is walked.
const PLENTY_NS: i64 = CAPACITY_NS / 2;
/// At least one of `1 << MAX_SHIFT` is walked.
pub const MAX_SHIFT: u32 = 16;
/// Below [`PLENTY_NS`], each such step halves the chance: at nothing it is the least.
const STEP_NS: i64 = PLENTY_NS / MAX_SHIFT as i64;
/// A share of 1: shares are in units of one of so many.
pub const WHOLE_SHARE: u64 = 1 << 20;
/// Ticks give way beyond the bucket: each such step of debt halves the chance that one is walked.
const TICK_STEP_NS: i64 = CAPACITY_NS / 8;
/// So many ticks a second are walked at least, of those that there are.
const LEAST_TICKS_HZ: u32 = 19;
/// Work of this length fills the bucket at any share that can be set; bounds what is multiplied.
const LONGEST_NS: u64 = 1 << 40;

/// Which parts of the time in which a processor is at work may be spent on walks, each in units of
/// one of [`WHOLE_SHARE`]. All zero: any.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkShares {
    /// On walks at switches and at calls.
    pub others: u32,
    /// On those of ticks, before they give way.
    pub ticks: u32,
}

/// See the module. Written by the programs on its processor; a tick may interrupt another one, and
/// what one of them adds is then lost.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkBudget {
    /// Nanoseconds of walking at switches and calls that may be spent, less [`CAPACITY_NS`]: the
    /// bucket begins full.
    missing_ns: i64,
    /// The same at ticks.
    ticks_missing_ns: i64,
    /// Work up to here has been credited, monotonic nanoseconds; 0 = none yet.
    earned_until_ns: u64,
    /// What walks on this processor have cost, nanoseconds; those of ticks too.
    pub spent_ns: u64,
    /// Of this, those of ticks.
    pub ticks_spent_ns: u64,
    /// One of `1 << shift` stacks is walked at switches and calls, as of [`WalkBudget::refresh`].
    pub shift: u64,
}

/// One of `1 << shift` ticks is walked at least, of `frequency_hz` a second.
#[must_use]
pub const fn max_tick_shift(frequency_hz: u32) -> u32 {
    match (frequency_hz / LEAST_TICKS_HZ).checked_ilog2() {
        Some(shift) => shift,
        None => 0,
    }
}

/// What is missing is no less than nothing, and what goes beyond the bucket is no debt for ever:
/// one walk that was interrupted for long would stop all others.
#[inline(always)]
const fn within(missing_ns: i64) -> i64 {
    if missing_ns < 0 {
        0
    } else if missing_ns > 2 * CAPACITY_NS {
        2 * CAPACITY_NS
    } else {
        missing_ns
    }
}

/// What may be spent on walks of a process at switches and at calls. The daemon says with which
/// share it earns, of all time that passes. Its threads earn and spend on any processor: where two
/// do so at once, what one of them adds is lost.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessWalks {
    /// As of a processor that is always at work; nothing is noted of ticks.
    pub budget: WalkBudget,
    /// What it earns.
    pub shares: WalkShares,
}

impl ProcessWalks {
    /// At `now_ns`: one of `1 << shift` stacks is walked.
    #[inline(always)]
    pub fn shift(&mut self, now_ns: u64) -> u64 {
        self.budget.refresh(now_ns, self.shares);
        self.budget.shift
    }
}

// SAFETY: `#[repr(C)]`, only integers, no implicit padding (size asserted below).
#[cfg(feature = "user")]
unsafe impl aya::Pod for ProcessWalks {}

impl WalkBudget {
    /// The processor was idle up to `now_ns`: nothing is earned by that.
    #[inline(always)]
    pub fn rest(&mut self, now_ns: u64) {
        self.earned_until_ns = now_ns;
    }

    /// The processor was at work up to `now_ns`.
    #[inline(always)]
    pub fn earn(&mut self, now_ns: u64, shares: WalkShares) {
        let since_ns = self.earned_until_ns;
        self.earned_until_ns = now_ns;
        if since_ns == 0 || now_ns <= since_ns {
            return;
        }
        let worked_ns = now_ns - since_ns;
        let worked_ns = if worked_ns > LONGEST_NS {
            LONGEST_NS
        } else {
            worked_ns
        };
        let earned_ns = |share: u32| ((worked_ns * share as u64) >> 20) as i64;
        self.missing_ns = within(self.missing_ns - earned_ns(shares.others));
        self.ticks_missing_ns = within(self.ticks_missing_ns - earned_ns(shares.ticks));
    }

    /// A walk has cost this much; `of_tick`: that of a timer tick.
    #[inline(always)]
    pub fn spend(&mut self, ns: u64, of_tick: bool) {
        let ns = if ns > LONGEST_NS { LONGEST_NS } else { ns };
        self.spent_ns += ns;
        if of_tick {
            self.ticks_spent_ns += ns;
            self.ticks_missing_ns = within(self.ticks_missing_ns + ns as i64);
        } else {
            self.missing_ns = within(self.missing_ns + ns as i64);
        }
    }

    /// One of `1 << shift` ticks is walked: at most `max`, 0 where nothing is bounded.
    #[inline(always)]
    #[must_use]
    pub const fn tick_shift(&self, shares: WalkShares, max: u32) -> u32 {
        let debt_ns = self.ticks_missing_ns - CAPACITY_NS;
        if shares.ticks == 0 || debt_ns <= 0 {
            return 0;
        }
        let shift = debt_ns as u64 / TICK_STEP_NS as u64;
        if shift > max as u64 {
            max
        } else {
            shift as u32
        }
    }

    /// At `now_ns`, on a processor at work: with which chance the next stack is walked.
    #[inline(always)]
    pub fn refresh(&mut self, now_ns: u64, shares: WalkShares) {
        self.earn(now_ns, shares);
        let lacks_ns = self.missing_ns - (CAPACITY_NS - PLENTY_NS);
        self.shift = if shares.others == 0 || lacks_ns <= 0 {
            0
        } else {
            let shift = 1 + lacks_ns as u64 / STEP_NS as u64;
            if shift > MAX_SHIFT as u64 {
                MAX_SHIFT as u64
            } else {
                shift
            }
        };
    }
}

const _: () = assert!(size_of::<ProcessWalks>() == 56);
const _: () = assert!(size_of::<WalkBudget>() == 48);

#[cfg(test)]
#[path = "walk_budget_tests.rs"]
mod tests;
