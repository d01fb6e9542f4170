//! Which of a thread's exact time has found a stack, and when the next walk is due (docs/semantics.md section 4).
//!
//! Totals are exact and belong to the clock. A walk takes all that is pending; the time off the processor goes to the stack
//! of its switch-out where that was walked. So pending = totals - attributed, per class, and is never negative.

use crate::clock::{CLASS_COUNT, Class, ClassNs, ThreadClock};

/// Walks of one thread in quick succession, after it was not walked for so many times `min_interval`.
pub const WALK_BURST: u64 = 8;

/// The time of one thread that stacks have received.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// The clock's first event + unobserved time + all attributed time: `now - mark_ns` is the time that waits for a stack.
    pub mark_ns: u64,
    /// When the next walk is due if walks are evenly spaced: each one puts it off by `min_interval` (the theoretical arrival
    /// time of the generic cell rate algorithm).
    pub next_walk_ns: u64,
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

    /// Is so much time pending at the event `now_ns` that a walk is due, and allowed?
    #[must_use]
    #[inline(always)]
    pub fn is_due(&self, now_ns: u64, min_interval_ns: u64) -> bool {
        now_ns.saturating_sub(self.mark_ns) >= min_interval_ns
            && self.may_walk(now_ns, min_interval_ns)
    }

    /// May the thread be walked? One walk per `min_interval` in the long run, [`WALK_BURST`] of them in quick succession: a
    /// thread that does some short waits before a long one has a stack for the long one too.
    #[must_use]
    #[inline(always)]
    pub fn may_walk(&self, now_ns: u64, min_interval_ns: u64) -> bool {
        now_ns + (WALK_BURST - 1) * min_interval_ns >= self.next_walk_ns
    }

    /// The thread is walked, whether or not that comes to something.
    #[inline(always)]
    pub fn note_walk(&mut self, now_ns: u64, min_interval_ns: u64) {
        let from_ns = if self.next_walk_ns > now_ns {
            self.next_walk_ns
        } else {
            now_ns
        };
        self.next_walk_ns = from_ns + min_interval_ns;
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
    }

    /// Some of what was taken could not be kept, and is pending again.
    #[inline(always)]
    pub fn give_back(&mut self, class: Class, ns: u64) {
        self.attributed[class as usize] -= ns;
        self.mark_ns -= ns;
    }

    /// The stack of the switch-out has taken the time off the processor.
    #[inline(always)]
    pub fn take_absence(&mut self, blocked_ns: u64, runnable_ns: u64) {
        self.attributed[Class::Blocked as usize] += blocked_ns;
        self.attributed[Class::Runnable as usize] += runnable_ns;
        self.mark_ns += blocked_ns + runnable_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn some_walks_in_quick_succession_then_one_per_interval() {
        // Check that a rested thread is walked eight times in a row, and in the long run once per interval.
        let mut attribution = Attribution::default();
        let start_ns = 50 * MS;
        attribution.start(start_ns);
        let mut walks = [0, 0];
        for step in 0..10_000 {
            let now_ns = start_ns + step * 10_000;
            if attribution.may_walk(now_ns, MS) {
                attribution.note_walk(now_ns, MS);
                walks[usize::from(step >= 100)] += 1;
            }
        }
        assert_eq!(
            walks,
            [8, 99],
            "in the first millisecond, in the 99 after it"
        );
    }

    #[test]
    fn without_an_interval_every_event_is_walked() {
        // Check that an interval of zero puts no bound on walks.
        let mut attribution = Attribution::default();
        attribution.start(5);
        for _ in 0..100 {
            assert!(attribution.is_due(5, 0));
            attribution.note_walk(5, 0);
        }
    }

    #[test]
    fn a_failed_walk_is_not_tried_again_at_once() {
        // Check that a thread whose walks come to nothing (no room for them) is not walked at each of its system calls.
        let mut attribution = Attribution::default();
        attribution.start(0);
        let mut walks = 0;
        for now_ns in (10 * MS..20 * MS).step_by(1_000) {
            if attribution.is_due(now_ns, MS) {
                attribution.note_walk(now_ns, MS);
                walks += 1;
            }
        }
        assert_eq!(walks, WALK_BURST + 9);
    }
}
