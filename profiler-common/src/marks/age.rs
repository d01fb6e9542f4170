//! Who is walked where not all can be: those that were not walked for long sooner than others, and
//! calls in which many marks have fallen.
//!
//! Were the chance the same for all, those that wait often would have nearly all walks, and those
//! that wait long, which most of the time is of, would have none for minutes. As the chance depends
//! on the past only, and who is walked stands for as many as it says, no place has more or less
//! than its share.

use super::ThreadMarks;
use crate::clock::{Class, ThreadClock};
use crate::kinds::{BLOCKED, RUNNABLE};
use crate::walk_budget::MAX_SHIFT;

/// Ages are in units of 2^20 ns, about a millisecond.
const UNIT_SHIFT: u32 = 20;
/// Up to twice this age (537 ms) a thread is walked with the chance that is afforded, from then on
/// with twice that, from four times the age on with four times that...
const FIRST_SHIFT: u32 = 8;
/// ... up to `1 << MAX_DOUBLINGS` times, from 17 s on. Less where next to nothing is afforded: of
/// any storm one of `1 << MAX_SHIFT` is walked in the end, however old its threads are.
const MAX_DOUBLINGS: u32 = 6;

impl ThreadMarks {
    /// The thread is walked at `now_ns`, or first seen.
    #[inline(always)]
    pub(super) const fn note_walked(&mut self, now_ns: u64) {
        self.walked_at = (now_ns >> UNIT_SHIFT) as u32;
    }

    /// One of `1 << walk_shift` stacks can be afforded at `now_ns`. Returned: of this thread's, one
    /// of `1 << shift` is walked.
    #[must_use]
    #[inline(always)]
    pub const fn shift_by_age(&self, walk_shift: u32, now_ns: u64) -> u32 {
        let age = ((now_ns >> UNIT_SHIFT) as u32).wrapping_sub(self.walked_at);
        // The lowest bit changes no logarithm but that of nothing.
        let most = (1 << MAX_DOUBLINGS) | 1;
        let times = (age >> FIRST_SHIFT) | 1;
        let times = if times > most { most } else { times };
        let rest = MAX_SHIFT.saturating_sub(walk_shift);
        let doublings = times.ilog2();
        let doublings = if doublings > rest { rest } else { doublings };
        walk_shift.saturating_sub(doublings)
    }

    /// The same at the end of a call, of the walk that takes the marks which have fallen in it:
    /// twice as many of them have twice the chance. Else a call that waits for a second, with a
    /// thousand marks, would be walked no sooner than one that had one, and most of what waits long
    /// would rest on next to no walks.
    #[must_use]
    #[inline(always)]
    pub const fn shift_at_exit(
        &self,
        clock: &ThreadClock,
        (walk_shift, now_ns): (u32, u64),
        min_interval_ns: u64,
    ) -> u32 {
        let shift = self.shift_by_age(walk_shift, now_ns);
        if shift == 0 || min_interval_ns == 0 {
            return shift;
        }
        let mut fallen = self.pending[BLOCKED] + self.pending[RUNNABLE];
        let running_ns = clock.totals[Class::Syscall as usize];
        if running_ns >= self.next_call_ns {
            fallen += 1 + (running_ns - self.next_call_ns) / min_interval_ns;
        }
        let most = 1 << MAX_SHIFT;
        // The lowest bit changes no logarithm but that of nothing.
        let fallen = (if fallen > most { most } else { fallen }) as u32 | 1;
        shift.saturating_sub(fallen.ilog2())
    }
}

#[cfg(test)]
mod tests {
    use std::{format, vec::Vec};

    use super::*;
    use crate::walk_budget::{WHOLE_SHARE, WalkBudget, WalkShares};

    const MS: u64 = 1_000_000;

    // Check that the chance grows with the age, from the first doubling to the last and not beyond
    // one, nor at all where nothing is afforded, and that numbers that come round say the same.
    #[test]
    fn the_chance_doubles_with_the_age() {
        for walked_ns in [0, 77 * MS, (u64::from(u32::MAX) << UNIT_SHIFT) - 300 * MS] {
            let mut marks = ThreadMarks::default();
            marks.note_walked(walked_ns);
            for (ms, doublings) in [
                (0, 0),
                (535, 0),
                (540, 1),
                (1070, 1),
                (1080, 2),
                (4290, 3),
                (4300, 4),
                (17_170, 5),
                (17_190, 6),
                (3_600_000, 6),
            ] {
                let now_ns = walked_ns + ms * MS;
                assert_eq!(marks.shift_by_age(10, now_ns), 10 - doublings, "{ms} ms");
                assert_eq!(marks.shift_by_age(14, now_ns), 14 - doublings.min(2));
                assert_eq!(marks.shift_by_age(MAX_SHIFT, now_ns), MAX_SHIFT);
                assert_eq!(
                    marks.shift_by_age(3, now_ns),
                    3_u32.saturating_sub(doublings)
                );
                assert_eq!(marks.shift_by_age(0, now_ns), 0);
            }
        }
    }

    // Check that the chance at the end of a call grows with the marks that have fallen in it,
    // waiting or running, up to one, and is that of the age where none has, or marks have no gaps.
    #[test]
    fn the_chance_grows_with_the_marks() {
        let mut marks = ThreadMarks::default();
        marks.note_walked(MS);
        marks.next_call_ns = 100 * MS;
        let mut clock = ThreadClock::default();
        for (pending, running_ms, doublings) in [
            ([0, 0], 0, 0),
            ([1, 0], 0, 0),
            ([1, 1], 0, 1),
            ([700, 0], 0, 9),
            ([0, 3], 0, 1),
            ([0, 0], 99, 0),
            ([0, 0], 100, 0),
            ([0, 0], 101, 1),
            ([2, 0], 101, 2),
            ([u64::from(u32::MAX), 7], 0, 12),
        ] {
            marks.pending = pending;
            clock.totals[Class::Syscall as usize] = running_ms * MS;
            let what = format!("{pending:?} {running_ms}");
            let at_exit = |shift| marks.shift_at_exit(&clock, (shift, 2 * MS), MS);
            assert_eq!(at_exit(12), 12 - doublings, "{what}");
            assert_eq!(at_exit(3), 3_u32.saturating_sub(doublings), "{what}");
            assert_eq!(marks.shift_at_exit(&clock, (5, 2 * MS), 0), 5, "{what}");
        }
    }

    /// Forty threads that wait half a second each time and four that wait 4 ms share a processor
    /// that affords 20 walks a second: how many walks each of the first has had in each 10 s.
    fn walks_of_slow_threads(by_age: bool) -> Vec<u32> {
        const SLOW: u64 = 40;
        let shares = WalkShares {
            others: (WHOLE_SHARE / 5000) as u32,
            ticks: 0,
        };
        let mut state = 9_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 32) as u32
        };
        let mut budget = WalkBudget::default();
        budget.rest(1);
        let mut threads: Vec<(ThreadMarks, u64)> = (0..SLOW + 4)
            .map(|index| (ThreadMarks::default(), MS * (1 + index)))
            .collect();
        let mut walks = Vec::new();
        for ms in 1..60_000 {
            if ms % 10_000 == 0 {
                walks.resize(walks.len() + SLOW as usize, 0);
            }
            for (index, (marks, leaves_ns)) in threads.iter_mut().enumerate() {
                if ms * MS < *leaves_ns {
                    continue;
                }
                let is_slow = (index as u64) < SLOW;
                *leaves_ns += if is_slow { 500 * MS } else { 4 * MS };
                budget.refresh(ms * MS, shares);
                let afforded = u32::try_from(budget.shift).expect("a shift");
                if !by_age {
                    marks.note_walked(ms * MS);
                }
                if marks.leave(false, ms * MS, || afforded, MS, &mut random) {
                    budget.spend(10_000, false);
                    if is_slow && ms >= 10_000 {
                        let first = walks.len() - SLOW as usize;
                        walks[first + index] += 1;
                    }
                }
            }
        }
        walks
    }

    // Check that where walks are few those that wait long have some in each 10 s, which most had
    // not by a chance that is the same for all.
    #[test]
    fn who_waits_long_is_walked_in_each_window() {
        let without = |walks: &[u32]| {
            walks.iter().filter(|walks| **walks == 0).count() as f64 / walks.len() as f64
        };
        let (by_age, alike) = (walks_of_slow_threads(true), walks_of_slow_threads(false));
        assert!(without(&by_age) < 0.05, "{}", without(&by_age));
        assert!(without(&alike) > 0.4, "{}", without(&alike));
    }
}
