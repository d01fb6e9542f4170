//! What is known of the ticks of one processor: how many were due, how many came, and whether they
//! still come. Pure: times and counts are arguments.

use super::tick_schedule::Epoch;
use crate::units::MonoNs;

/// A tick may be this late and is still none that was left out: the time a processor takes to wake
/// up.
const LATE_NS: u64 = 100_000;
/// Ticks stand still if none came for so long, and for so many periods, ...
const STILL_NS: u64 = 400_000_000;
const STILL_PERIODS: u64 = 8;
/// ... and that was seen at so many checks in a row: where the whole machine had stopped, they have
/// come again at the second, ...
const STILL_CHECKS: u32 = 3;
/// ... and the processor was at work for so many periods: an idle one may have no ticks.
const WORK_PERIODS: u64 = 20;

/// What the kernel programs have counted of a processor since they were loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessorCounts {
    pub(super) ticks: u64,
    /// How long it was idle; `None`: not known yet.
    pub(super) idle_ns: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct TickAccount {
    epoch: Epoch,
    /// What there had been when the epoch began; `None` where that could not be read.
    before: Option<ProcessorCounts>,
    /// Ticks of the epoch before it that did not come, and what there was at its end.
    missed: Option<(u64, ProcessorCounts)>,
    /// What there was when a tick had last been found to have come, and when that was.
    last: Option<ProcessorCounts>,
    since_ns: MonoNs,
    /// Checks since then.
    checks: u32,
}

impl TickAccount {
    /// Ticks begin with this epoch; there had been `seen` before.
    pub(super) fn new(epoch: Epoch, seen: Option<ProcessorCounts>) -> Self {
        Self {
            epoch,
            before: seen,
            missed: None,
            last: seen,
            since_ns: epoch.since_ns,
            checks: 0,
        }
    }

    /// The epoch under way.
    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Was the processor idle since the epoch began, but for a hundredth, if this is `seen` now?
    pub(super) fn was_idle(&self, now_ns: MonoNs, seen: Option<ProcessorCounts>) -> bool {
        let (Some(before), Some(seen)) = (self.before, seen) else {
            return false;
        };
        let (Some(before_ns), Some(idle_ns)) = (before.idle_ns, seen.idle_ns) else {
            return false;
        };
        let past_ns = now_ns.saturating_since(self.epoch.since_ns);
        idle_ns.saturating_sub(before_ns) >= past_ns - past_ns / 100
    }

    /// Another epoch begins.
    pub(super) const fn begin(&mut self, epoch: Epoch, seen: Option<ProcessorCounts>) {
        self.epoch = epoch;
        self.before = seen;
    }

    /// Ticks of this epoch that were due and did not come, if this is `seen` now. None where the
    /// processor was idle meanwhile: which ticks that cost is not known.
    fn missing(&self, now_ns: MonoNs, seen: ProcessorCounts) -> u64 {
        let Some(before) = self.before else { return 0 };
        if seen.idle_ns.is_none() || seen.idle_ns != before.idle_ns {
            return 0;
        }
        let due = self.epoch.ticks_until(now_ns.saturating_sub(LATE_NS));
        due.saturating_sub(seen.ticks.saturating_sub(before.ticks))
    }

    /// The epoch ends at `now_ns`. Ticks of the one before it that were due and did not come: only
    /// now is it known that the processor was at work, because some kernels do not tell of each
    /// switch, and that it has ticks at all.
    pub(super) fn skipped(&mut self, now_ns: MonoNs, seen: Option<ProcessorCounts>) -> u64 {
        let Some(seen) = seen else {
            self.missed = None;
            return 0;
        };
        let known = self.missed.take().filter(|(_, then)| {
            seen.idle_ns.is_some() && seen.idle_ns == then.idle_ns && seen.ticks > then.ticks
        });
        self.missed = Some((self.missing(now_ns, seen), seen));
        known.map_or(0, |(missing, _)| missing)
    }

    /// Checks what there is now. True if no tick has come for so long that they may have died.
    pub(super) fn stands_still(&mut self, now_ns: MonoNs, seen: Option<ProcessorCounts>) -> bool {
        let (Some(last), Some(seen)) = (
            self.last
                .filter(|last| seen.is_some_and(|seen| seen.ticks == last.ticks)),
            seen,
        ) else {
            self.last = seen;
            self.since_ns = now_ns;
            self.checks = 0;
            return false;
        };
        self.checks += 1;
        let still_ns = now_ns.saturating_since(self.since_ns);
        if self.checks < STILL_CHECKS
            || still_ns < STILL_NS.max(STILL_PERIODS * self.epoch.period_ns)
        {
            return false;
        }
        // Where that is known: else, and for certain, the kernel's own count says it.
        let idle_ns = match (last.idle_ns, seen.idle_ns) {
            (Some(before), Some(now)) => now.saturating_sub(before),
            _ => 0,
        };
        still_ns.saturating_sub(idle_ns) >= self.enough_work_ns().min(still_ns)
    }

    /// A processor that has been at work for so long since ticks were found to stand still must
    /// have had some.
    pub(super) const fn enough_work_ns(&self) -> u64 {
        WORK_PERIODS * self.epoch.period_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tick_schedule::Schedule;
    use fastrand::Rng;

    const MS: u64 = 1_000_000;

    fn epoch() -> Epoch {
        Schedule::new(100, Rng::with_seed(1)).change(0, MonoNs::new(1000 * MS), None, 0)
    }

    /// On a processor that was idle for so long.
    fn seen(ticks: u64, idle_ns: u64) -> Option<ProcessorCounts> {
        Some(ProcessorCounts {
            ticks,
            idle_ns: Some(idle_ns),
        })
    }

    #[test]
    fn what_was_due_and_did_not_come_is_skipped() {
        // Check that a tick is missing once it is late by more than a wake-up takes, that ticks
        // before the epoch do not count, that a count that could not be read accuses nobody, and
        // that the processor must be seen to have ticks afterwards.
        let epoch = epoch();
        let due_ns = |ticks: u64| epoch.since_ns + ticks * epoch.period_ns;
        let skipped = |before, end_ns, at_end, after| {
            let mut account = TickAccount::new(epoch, before);
            assert_eq!(account.skipped(end_ns, at_end), 0);
            account.begin(epoch, at_end);
            account.skipped(end_ns, after)
        };
        let (before, after) = (seen(7, 3), seen(20, 3));
        assert_eq!(skipped(before, due_ns(5) + LATE_NS, seen(12, 3), after), 0);
        assert_eq!(skipped(before, due_ns(5) + LATE_NS, seen(10, 3), after), 2);
        assert_eq!(
            skipped(before, due_ns(5) + LATE_NS - 1, seen(10, 3), after),
            1
        );
        assert_eq!(skipped(before, due_ns(5), seen(14, 3), after), 0);
        assert_eq!(skipped(before, due_ns(5) + LATE_NS, None, after), 0);
        assert_eq!(skipped(None, due_ns(9), seen(0, 3), after), 0);
        assert_eq!(skipped(before, due_ns(9), seen(7, 3), seen(7, 3)), 0);
        assert_eq!(skipped(before, due_ns(9), seen(7, 3), None), 0);
    }

    #[test]
    fn an_idle_processor_skips_nothing() {
        // Check that ticks are not missing in an epoch in which the processor was idle, or may have
        // been, also where that is only found at the end of the next one.
        let epoch = epoch();
        let end_ns = epoch.since_ns + 9 * epoch.period_ns;
        let skipped = |before, at_end, after| {
            let mut account = TickAccount::new(epoch, before);
            account.skipped(end_ns, at_end);
            account.begin(epoch, at_end);
            account.skipped(end_ns, after)
        };
        assert!(skipped(seen(7, 3), seen(7, 3), seen(8, 3)) > 0);
        assert_eq!(skipped(seen(7, 3), seen(7, 4), seen(8, 4)), 0);
        assert_eq!(skipped(seen(7, 3), seen(7, 3), seen(8, 9)), 0);
        let unknown = Some(ProcessorCounts {
            ticks: 7,
            idle_ns: None,
        });
        assert_eq!(skipped(seen(7, 3), unknown, seen(8, 3)), 0);
        assert_eq!(skipped(unknown, unknown, unknown), 0);
    }

    #[test]
    fn idle_is_who_did_hardly_anything() {
        // Check that a processor that worked for a hundredth of the epoch was idle, one that worked
        // longer was not, nor one of which that is not known.
        let epoch = epoch();
        let account = TickAccount::new(epoch, seen(7, 3));
        let now_ns = epoch.since_ns + 50 * MS;
        assert!(account.was_idle(now_ns, seen(9, 3 + 50 * MS)));
        assert!(account.was_idle(now_ns, seen(9, 3 + 50 * MS - MS / 2)));
        assert!(!account.was_idle(now_ns, seen(9, 2 + 50 * MS - MS / 2)));
        assert!(!account.was_idle(now_ns, None));
        assert!(!TickAccount::new(epoch, None).was_idle(now_ns, seen(9, 3 + 50 * MS)));
    }

    #[test]
    fn ticks_that_stand_still_are_noticed_within_half_a_second() {
        // Check that ticks that come are never taken to stand still, and that those that do are
        // noticed in time, but not when the whole machine stood still.
        let mut account = TickAccount::new(epoch(), seen(0, 0));
        for check in 1..=50 {
            assert!(
                !account.stands_still(MonoNs::new((1000 + 100 * check) * MS), seen(10 * check, 0))
            );
        }
        let stopped = 6000;
        let noticed = (1..).find(|check| {
            account.stands_still(MonoNs::new((stopped + 100 * check) * MS), seen(500, 0))
        });
        assert_eq!(noticed, Some(4));
        let mut account = TickAccount::new(epoch(), seen(0, 0));
        assert!(!account.stands_still(MonoNs::new(1100 * MS), seen(10, 0)));
        for pause in 1..=20 {
            let now = (1100 + 60_000 * pause) * MS;
            assert!(!account.stands_still(MonoNs::new(now), seen(10 * pause, 0)));
            assert!(!account.stands_still(MonoNs::new(now + 20 * MS), seen(10 * pause, 0)));
        }
    }

    #[test]
    fn an_idle_processor_needs_no_ticks() {
        // Check that ticks that do not come while the processor is idle do not stand still, and
        // that they do as soon as it has worked for a while without one.
        let mut account = TickAccount::new(epoch(), seen(0, 0));
        for check in 1..=400 {
            assert_eq!(
                account.stands_still(
                    MonoNs::new((1000 + 100 * check) * MS),
                    seen(0, 99 * check * MS)
                ),
                check * MS >= account.enough_work_ns(),
                "{check}"
            );
        }
    }

    #[test]
    fn slow_ticks_are_given_their_time() {
        // Check that a tick a second does not stand still for the seconds that eight are at least
        // in coming.
        let epoch = Schedule::new(1, Rng::with_seed(1)).change(0, MonoNs::ZERO, None, 0);
        let mut account = TickAccount::new(epoch, seen(0, 0));
        let eight = 8 * epoch.period_ns / (100 * MS);
        assert!(
            (1..eight)
                .all(|check| !account.stands_still(MonoNs::new(100 * check * MS), seen(0, 0)))
        );
        assert!(
            (eight..=eight + 20)
                .any(|check| account.stands_still(MonoNs::new(100 * check * MS), seen(0, 0)))
        );
    }
}
