//! Which of a thread's exact time has found a stack, and when the next walk is due (docs/semantics.md section 4).
//!
//! Totals are exact and belong to the clock. A walk takes all that is pending; the time off the processor goes to the stack
//! of its switch-out where that was walked. So pending = totals - attributed, per class, and is never negative.

use crate::clock::{CLASS_COUNT, Class, ClassNs, ThreadClock};

/// The time of one thread that stacks have received.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// The clock's first event + unobserved time + all attributed time: `now - mark_ns` is the time that waits for a stack.
    pub mark_ns: u64,
    /// When the thread was last walked; 0 = never.
    pub walked_ns: u64,
    /// Nanoseconds attributed, by class.
    pub attributed: ClassNs,
}

impl Attribution {
    /// Nothing is pending before the first event.
    #[inline(always)]
    pub fn start(&mut self, now_ns: u64) {
        self.mark_ns = now_ns;
    }

    /// A gap in which the thread was no target is not pending.
    #[inline(always)]
    pub fn skip(&mut self, gap_ns: u64) {
        self.mark_ns += gap_ns;
    }

    /// Is so much time pending at the event `now_ns` that a walk is due?
    #[must_use]
    #[inline(always)]
    pub fn is_due(&self, now_ns: u64, min_interval_ns: u64) -> bool {
        now_ns.saturating_sub(self.mark_ns) >= min_interval_ns
    }

    /// May the thread be walked as it leaves its processor?
    #[must_use]
    #[inline(always)]
    pub fn may_walk(&self, now_ns: u64, min_interval_ns: u64) -> bool {
        now_ns.saturating_sub(self.walked_ns) >= min_interval_ns
    }

    /// What waits for a stack, by class.
    #[must_use]
    #[inline(always)]
    pub fn pending(&self, clock: &ThreadClock) -> ClassNs {
        let mut pending = [0; CLASS_COUNT];
        let mut class = 0;
        while class < CLASS_COUNT {
            pending[class] = clock.totals[class] - self.attributed[class];
            class += 1;
        }
        pending
    }

    /// A walk at the clock's last event has taken all that was pending.
    #[inline(always)]
    pub fn take_all(&mut self, clock: &ThreadClock) {
        self.attributed = clock.totals;
        self.mark_ns = clock.last_ns;
        self.walked_ns = clock.last_ns;
    }

    /// The stack of the switch-out has taken the time off the processor.
    #[inline(always)]
    pub fn take_absence(&mut self, blocked_ns: u64, runnable_ns: u64) {
        self.attributed[Class::Blocked as usize] += blocked_ns;
        self.attributed[Class::Runnable as usize] += runnable_ns;
        self.mark_ns += blocked_ns + runnable_ns;
    }
}
