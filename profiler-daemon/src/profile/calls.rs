//! System calls by number: sums of what each thread's cumulative counts gained.

use serde::{Deserialize, Serialize};

use super::input::SyscallUpdate;

/// The calls of one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTotals {
    /// Calls that returned.
    pub count: u64,
    /// Nanoseconds from entry to exit.
    pub total_ns: u64,
    /// Nanoseconds on a processor.
    pub running_ns: u64,
    /// Nanoseconds blocked.
    pub blocked_ns: u64,
    /// The longest call, nanoseconds; an upper bound where `max_is_bound`.
    pub max_ns: u64,
    /// In a window whose longest call was not the thread's longest ever, only a bound is known.
    pub max_is_bound: bool,
}

impl CallTotals {
    /// The absolute values of an update.
    #[must_use]
    pub fn of(update: &SyscallUpdate) -> Self {
        Self {
            count: update.count,
            total_ns: update.total_ns,
            running_ns: update.running_ns,
            blocked_ns: update.blocked_ns,
            max_ns: update.max_ns,
            max_is_bound: false,
        }
    }

    /// What has come since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let total_ns = self.total_ns.saturating_sub(earlier.total_ns);
        let count = self.count.saturating_sub(earlier.count);
        let rose = self.max_ns > earlier.max_ns;
        Self {
            count,
            total_ns,
            running_ns: self.running_ns.saturating_sub(earlier.running_ns),
            blocked_ns: self.blocked_ns.saturating_sub(earlier.blocked_ns),
            max_ns: if rose {
                self.max_ns
            } else {
                self.max_ns.min(total_ns)
            },
            max_is_bound: !rose && count > 1,
        }
    }

    /// Adds the counts and keeps the longer maximum.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.running_ns += other.running_ns;
        self.blocked_ns += other.blocked_ns;
        if other.max_ns > self.max_ns {
            self.max_ns = other.max_ns;
            self.max_is_bound = other.max_is_bound;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(count: u64, total_ns: u64, max_ns: u64) -> CallTotals {
        CallTotals {
            count,
            total_ns,
            max_ns,
            ..CallTotals::default()
        }
    }

    // Check that a gain keeps the new maximum where it rose, the exact length of a single call, and else a bound.
    #[test]
    fn maximum_of_a_gain() {
        let before = totals(2, 100, 60);
        let rose = totals(3, 200, 100).since(&before);
        assert_eq!(
            (rose.count, rose.max_ns, rose.max_is_bound),
            (1, 100, false)
        );
        let single = totals(3, 130, 60).since(&before);
        assert_eq!((single.max_ns, single.max_is_bound), (30, false));
        let several = totals(4, 150, 60).since(&before);
        assert_eq!((several.max_ns, several.max_is_bound), (50, true));
        let mut sum = rose;
        sum.add(&several);
        assert_eq!(
            (sum.count, sum.total_ns, sum.max_ns, sum.max_is_bound),
            (3, 150, 100, false)
        );
    }
}
