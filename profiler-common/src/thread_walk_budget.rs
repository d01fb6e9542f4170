//! How much of a process's running time is spent on walks at switches and at calls, thread by
//! thread: a token bucket for each, filled as it runs, emptied by what each such walk has cost. A
//! processor's own bucket ([`crate::walk_budget`]) does not bound that: a process that is at work
//! for a tenth of the time could have all the walks of its processor.
//!
//! As there, it says with which chance the thread's next stack is walked, by the past alone, and
//! walks of ticks are not of this bucket: they leave less for others, but not nothing.

use crate::walk_budget::{MAX_SHIFT, WHOLE_SHARE};

/// What can be saved up, nanoseconds of walking: some hundred walks. With less, a few walks would
/// change the chance of the next, and who stands for many would have them count for less.
const CAPACITY_NS: u64 = 2_000_000;
/// With more than this, every stack is walked.
const PLENTY_NS: u64 = CAPACITY_NS / 2;
/// Below [`PLENTY_NS`], each such step halves the chance: at nothing it is the least.
const STEP_NS: u64 = PLENTY_NS / MAX_SHIFT as u64;
/// Time of this length fills the bucket at any share that can be set; bounds what is multiplied.
const LONGEST_NS: u64 = 1 << 40;
/// A process that uses less of a processor than one part in so many has no budget of its own: its
/// walks may take what they may of one of that use. Where switches leave nothing, that is two
/// fifths of the budget of one of that use, a fifth of that of one of twice that use, and so on:
/// with less, its waits could not be told apart within a minute.
const LEAST_USE: u64 = 20;
/// The parts of the budget, of [`PARTS`], that walks may take as far as switches and walks of ticks
/// leave them. One part they may take in any case.
const MOST_PARTS: u64 = 4;
const PARTS: u64 = 10;

/// What may be spent on a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessShare {
    /// Of its running time, in units of one of [`WHOLE_SHARE`]; 0: any.
    pub share: u32,
    /// What a switch takes of that, without a walk, nanoseconds.
    pub switch_ns: u32,
}

/// What a thread has done by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadWork {
    /// Monotonic nanoseconds.
    pub now_ns: u64,
    /// How long it has run.
    pub running_ns: u64,
    /// How often it was switched out, modulo 2^32.
    pub switches: u32,
    /// What its walks have cost, those of ticks too, nanoseconds.
    pub walked_ns: u64,
}

/// See the module.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadWalkBudget {
    /// What its walks at switches and at calls may have cost by [`ThreadWalkBudget::at_ns`],
    /// nanoseconds since its record was made.
    allowed_ns: u64,
    /// What they have cost.
    spent_ns: u64,
    /// When `allowed_ns` was computed, monotonic nanoseconds.
    at_ns: u64,
    /// What walks of its ticks had cost by then.
    ticks_ns: u64,
    /// How long it had run by then.
    running_ns: u64,
    /// How often it had been switched out by then, modulo 2^32.
    switches: u32,
    padding: u32,
}

impl ThreadWalkBudget {
    /// The thread's record is made at `now_ns`: nothing has been spent yet.
    #[inline(always)]
    pub fn start(&mut self, now_ns: u64) {
        *self = Self {
            allowed_ns: CAPACITY_NS,
            at_ns: now_ns,
            ..Self::default()
        };
    }

    /// A walk of the thread at a switch or at a call has cost this much.
    #[inline(always)]
    pub fn spend(&mut self, ns: u64) {
        self.spent_ns += ns;
    }

    /// One of `1 << shift` stacks of the thread may be walked now, which is one of so many
    /// `threads` of its process: that is asked where it matters.
    #[inline(always)]
    pub fn shift(
        &mut self,
        work: &ThreadWork,
        threads: impl FnOnce() -> u32,
        share: ProcessShare,
    ) -> u32 {
        if share.share == 0 {
            return 0;
        }
        let past_ns = work.now_ns.saturating_sub(self.at_ns).min(LONGEST_NS);
        let ran_ns = work.running_ns.saturating_sub(self.running_ns);
        let ran_ns = ran_ns.min(LONGEST_NS);
        let switches = work.switches.wrapping_sub(self.switches);
        let switched_ns = u64::from(switches) * u64::from(share.switch_ns);
        let walked_by_ticks_ns = work.walked_ns.saturating_sub(self.spent_ns);
        let ticks_ns = walked_by_ticks_ns.saturating_sub(self.ticks_ns);
        self.at_ns = work.now_ns;
        self.ticks_ns = walked_by_ticks_ns;
        self.running_ns = work.running_ns;
        self.switches = work.switches;

        let of = |ns: u64| ns * u64::from(share.share) / WHOLE_SHARE;
        let whole_ns = of(ran_ns);
        let left_ns = whole_ns.saturating_sub(switched_ns + ticks_ns);
        // (`clamp` can panic, which no kernel program may.)
        let left_ns = left_ns.min(MOST_PARTS * whole_ns / PARTS);
        let left_ns = left_ns.max(whole_ns / PARTS);
        let seldom_ns = of(past_ns / LEAST_USE) * MOST_PARTS / PARTS;
        let earned_ns = if seldom_ns > left_ns {
            left_ns.max(seldom_ns / u64::from(threads().max(1)))
        } else {
            left_ns
        };
        // What is owed is no debt for ever: one walk that was interrupted for long would stop all
        // others.
        let least_ns = self.spent_ns.saturating_sub(CAPACITY_NS);
        let allowed_ns = (self.allowed_ns + earned_ns).max(least_ns);
        self.allowed_ns = allowed_ns.min(self.spent_ns + CAPACITY_NS);

        let has_ns = self.allowed_ns.saturating_sub(self.spent_ns);
        if has_ns >= PLENTY_NS {
            return 0;
        }
        let shift = 1 + (PLENTY_NS - has_ns) / STEP_NS;
        shift.min(u64::from(MAX_SHIFT)) as u32
    }
}

const _: () = assert!(size_of::<ThreadWalkBudget>() == 48);

#[cfg(test)]
#[path = "thread_walk_budget_tests.rs"]
mod tests;
