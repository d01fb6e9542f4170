//! What is known of the ticks of one processor: how many were due, how many came, and whether they still come. Pure: times and counts
//! are arguments.

use super::tick_schedule::Epoch;

/// A tick may be this late and is still none that was left out: the time a processor takes to wake up.
const LATE_NS: u64 = 100_000;
/// Ticks stand still if none came for so long, and for so many periods, ...
const STILL_NS: u64 = 400_000_000;
const STILL_PERIODS: u64 = 8;
/// ... and that was seen at so many looks in a row: where the whole machine had stopped, they have come again at the second.
const STILL_LOOKS: u32 = 3;

/// See the module.
#[derive(Debug)]
pub(super) struct Account {
    epoch: Epoch,
    /// How many there had been when the epoch began; `None` where that could not be read.
    seen_before: Option<u64>,
    /// How many there were at the last look, and since when it has been so many.
    seen: Option<u64>,
    since_ns: u64,
    /// Looks since then.
    looks: u32,
}

impl Account {
    /// Ticks begin with this epoch; there had been `seen` before.
    pub(super) const fn new(epoch: Epoch, seen: Option<u64>) -> Self {
        Self {
            epoch,
            seen_before: seen,
            seen,
            since_ns: epoch.since_ns,
            looks: 0,
        }
    }

    /// The epoch under way.
    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Another epoch begins.
    pub(super) const fn begin(&mut self, epoch: Epoch, seen: Option<u64>) {
        self.epoch = epoch;
        self.seen_before = seen;
    }

    /// Ticks of this epoch that were due and did not come, if there are `seen` now.
    pub(super) fn skipped(&self, now_ns: u64, seen: Option<u64>) -> u64 {
        let (Some(before), Some(seen)) = (self.seen_before, seen) else {
            return 0;
        };
        let due = self.epoch.ticks_until(now_ns.saturating_sub(LATE_NS));
        due.saturating_sub(seen.saturating_sub(before))
    }

    /// Looks how many there are now. True if they stand still.
    pub(super) fn stands_still(&mut self, now_ns: u64, seen: Option<u64>) -> bool {
        if seen != self.seen || seen.is_none() {
            self.seen = seen;
            self.since_ns = now_ns;
            self.looks = 0;
            return false;
        }
        self.looks += 1;
        let still_ns = now_ns.saturating_sub(self.since_ns);
        self.looks >= STILL_LOOKS && still_ns >= STILL_NS.max(STILL_PERIODS * self.epoch.period_ns)
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

    #[test]
    fn what_was_due_and_did_not_come_is_skipped() {
        // Check that a tick is skipped once it is late by more than a wake-up takes, that ticks before the epoch do not count, and that a
        // count that could not be read accuses nobody.
        let epoch = epoch();
        let account = Account::new(epoch, Some(7));
        let due_ns = |ticks: u64| epoch.since_ns + ticks * epoch.period_ns;
        assert_eq!(account.skipped(due_ns(5) + LATE_NS, Some(12)), 0);
        assert_eq!(account.skipped(due_ns(5) + LATE_NS, Some(10)), 2);
        assert_eq!(account.skipped(due_ns(5) + LATE_NS - 1, Some(10)), 1);
        assert_eq!(account.skipped(due_ns(5), Some(14)), 0);
        assert_eq!(account.skipped(due_ns(5) + LATE_NS, None), 0);
        assert_eq!(Account::new(epoch, None).skipped(due_ns(9), Some(0)), 0);
    }

    #[test]
    fn ticks_that_stand_still_are_noticed_within_half_a_second() {
        // Check that ticks that come are never taken to stand still, and that those that do are noticed in time, but not when the whole
        // machine stood still.
        let mut account = Account::new(epoch(), Some(0));
        for look in 1..=50 {
            assert!(!account.stands_still((1000 + 100 * look) * MS, Some(10 * look)));
        }
        let stopped = 6000;
        let noticed =
            (1..).find(|look| account.stands_still((stopped + 100 * look) * MS, Some(500)));
        assert_eq!(noticed, Some(4));
        let mut account = Account::new(epoch(), Some(0));
        assert!(!account.stands_still(1100 * MS, Some(10)));
        for pause in 1..=20 {
            let now = (1100 + 60_000 * pause) * MS;
            assert!(!account.stands_still(now, Some(10 * pause)));
            assert!(!account.stands_still(now + 20 * MS, Some(10 * pause)));
        }
    }

    #[test]
    fn slow_ticks_are_given_their_time() {
        // Check that a tick a second does not stand still for the seven seconds that eight are at least in coming.
        let epoch = Schedule::new(1, Rng::with_seed(1)).change(0, 0, None);
        let mut account = Account::new(epoch, Some(0));
        assert!((1..70).all(|look| !account.stands_still(100 * look * MS, Some(0))));
        assert!((70..=90).any(|look| account.stands_still(100 * look * MS, Some(0))));
    }
}
