//! What is known of the ticks of one processor: how many were due, how many came, and whether they still come. Pure: times and counts
//! are arguments.

use super::tick_schedule::Epoch;

/// A tick may be this late and is still none that was left out: the time a processor takes to wake up.
const LATE_NS: u64 = 100_000;
/// Ticks stand still if none came for so long, and for so many periods, ...
const STILL_NS: u64 = 400_000_000;
const STILL_PERIODS: u64 = 8;
/// ... and that was seen at so many looks in a row: where the whole machine had stopped, they have come again at the second, ...
const STILL_LOOKS: u32 = 3;
/// ... and the processor was at work for so long of it, and for so many periods: an idle one may have no ticks.
const WORK_NS: u64 = 50_000_000;
const WORK_PERIODS: u64 = 2;

/// What the kernel programs have counted of a processor since they were loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) ticks: u64,
    /// How long it was idle; `None`: not known yet.
    pub(super) idle_ns: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Account {
    epoch: Epoch,
    /// What there had been when the epoch began; `None` where that could not be read.
    before: Option<Seen>,
    /// What there was when the last tick had been seen, and when that was.
    last: Option<Seen>,
    since_ns: u64,
    /// Looks since then.
    looks: u32,
}

impl Account {
    /// Ticks begin with this epoch; there had been `seen` before.
    pub(super) const fn new(epoch: Epoch, seen: Option<Seen>) -> Self {
        Self {
            epoch,
            before: seen,
            last: seen,
            since_ns: epoch.since_ns,
            looks: 0,
        }
    }

    /// The epoch under way.
    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Another epoch begins.
    pub(super) const fn begin(&mut self, epoch: Epoch, seen: Option<Seen>) {
        self.epoch = epoch;
        self.before = seen;
    }

    /// Ticks of this epoch that were due and did not come, if this is `seen` now. None where the processor was idle meanwhile: which
    /// ticks that cost is not known.
    pub(super) fn skipped(&self, now_ns: u64, seen: Option<Seen>) -> u64 {
        let (Some(before), Some(seen)) = (self.before, seen) else {
            return 0;
        };
        if seen.idle_ns.is_none() || seen.idle_ns != before.idle_ns {
            return 0;
        }
        let due = self.epoch.ticks_until(now_ns.saturating_sub(LATE_NS));
        due.saturating_sub(seen.ticks.saturating_sub(before.ticks))
    }

    /// Looks what there is now. True if ticks stand still.
    pub(super) fn stands_still(&mut self, now_ns: u64, seen: Option<Seen>) -> bool {
        let (Some(last), Some(now)) = (self.last, seen) else {
            self.start_over(now_ns, seen);
            return false;
        };
        let (Some(idle_before), Some(idle_now)) = (last.idle_ns, now.idle_ns) else {
            self.start_over(now_ns, seen);
            return false;
        };
        if now.ticks != last.ticks {
            self.start_over(now_ns, seen);
            return false;
        }
        self.looks += 1;
        let period_ns = self.epoch.period_ns;
        let still_ns = now_ns.saturating_sub(self.since_ns);
        let work_ns = still_ns.saturating_sub(idle_now.saturating_sub(idle_before));
        self.looks >= STILL_LOOKS
            && still_ns >= STILL_NS.max(STILL_PERIODS * period_ns)
            && work_ns >= WORK_NS.max(WORK_PERIODS * period_ns)
    }

    fn start_over(&mut self, now_ns: u64, seen: Option<Seen>) {
        self.last = seen;
        self.since_ns = now_ns;
        self.looks = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tick_schedule::Schedule;
    use fastrand::Rng;

    const MS: u64 = 1_000_000;

    fn epoch() -> Epoch {
        Schedule::new(100, Rng::with_seed(1)).change(0, 1000 * MS, None)
    }

    /// On a processor that was idle for so long.
    fn seen(ticks: u64, idle_ns: u64) -> Option<Seen> {
        Some(Seen {
            ticks,
            idle_ns: Some(idle_ns),
        })
    }

    #[test]
    fn what_was_due_and_did_not_come_is_skipped() {
        // Check that a tick is skipped once it is late by more than a wake-up takes, that ticks before the epoch do not count, and that a
        // count that could not be read accuses nobody.
        let epoch = epoch();
        let account = Account::new(epoch, seen(7, 3));
        let due_ns = |ticks: u64| epoch.since_ns + ticks * epoch.period_ns;
        assert_eq!(account.skipped(due_ns(5) + LATE_NS, seen(12, 3)), 0);
        assert_eq!(account.skipped(due_ns(5) + LATE_NS, seen(10, 3)), 2);
        assert_eq!(account.skipped(due_ns(5) + LATE_NS - 1, seen(10, 3)), 1);
        assert_eq!(account.skipped(due_ns(5), seen(14, 3)), 0);
        assert_eq!(account.skipped(due_ns(5) + LATE_NS, None), 0);
        assert_eq!(Account::new(epoch, None).skipped(due_ns(9), seen(0, 3)), 0);
    }

    #[test]
    fn an_idle_processor_skips_nothing() {
        // Check that ticks are not missed in an epoch in which the processor was idle, or may have been.
        let epoch = epoch();
        let end_ns = epoch.since_ns + 9 * epoch.period_ns;
        let account = Account::new(epoch, seen(7, 3));
        assert!(account.skipped(end_ns, seen(7, 3)) > 0);
        assert_eq!(account.skipped(end_ns, seen(7, 4)), 0);
        let unknown = Some(Seen {
            ticks: 7,
            idle_ns: None,
        });
        assert_eq!(account.skipped(end_ns, unknown), 0);
        assert_eq!(Account::new(epoch, unknown).skipped(end_ns, unknown), 0);
    }

    #[test]
    fn ticks_that_stand_still_are_noticed_within_half_a_second() {
        // Check that ticks that come are never taken to stand still, and that those that do are noticed in time, but not when the whole
        // machine stood still.
        let mut account = Account::new(epoch(), seen(0, 0));
        for look in 1..=50 {
            assert!(!account.stands_still((1000 + 100 * look) * MS, seen(10 * look, 0)));
        }
        let stopped = 6000;
        let noticed =
            (1..).find(|look| account.stands_still((stopped + 100 * look) * MS, seen(500, 0)));
        assert_eq!(noticed, Some(4));
        let mut account = Account::new(epoch(), seen(0, 0));
        assert!(!account.stands_still(1100 * MS, seen(10, 0)));
        for pause in 1..=20 {
            let now = (1100 + 60_000 * pause) * MS;
            assert!(!account.stands_still(now, seen(10 * pause, 0)));
            assert!(!account.stands_still(now + 20 * MS, seen(10 * pause, 0)));
        }
    }

    #[test]
    fn an_idle_processor_needs_no_ticks() {
        // Check that ticks that do not come while the processor is idle do not stand still, and that they do as soon as it has worked for a
        // while without one.
        let mut account = Account::new(epoch(), seen(0, 0));
        for look in 1..=100 {
            let idle_ns = 99 * look * MS;
            assert_eq!(
                account.stands_still((1000 + 100 * look) * MS, seen(0, idle_ns)),
                look >= 50,
                "{look}"
            );
        }
    }

    #[test]
    fn slow_ticks_are_given_their_time() {
        // Check that a tick a second does not stand still for the seconds that eight are at least in coming.
        let epoch = Schedule::new(1, Rng::with_seed(1)).change(0, 0, None);
        let mut account = Account::new(epoch, seen(0, 0));
        let eight = 8 * epoch.period_ns / (100 * MS);
        assert!((1..eight).all(|look| !account.stands_still(100 * look * MS, seen(0, 0))));
        assert!((eight..=eight + 20).any(|look| account.stands_still(100 * look * MS, seen(0, 0))));
    }
}
