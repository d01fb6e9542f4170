//! System calls by number: sums of what each thread's cumulative counts gained, and of what passed
//! in calls under way.

use profiler_common::Class;
use serde::{Deserialize, Serialize};

use super::input::SyscallUpdate;

/// Time inside calls. What is neither on a processor nor blocked waited for a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTime {
    /// Nanoseconds since the entry.
    pub total_ns: u64,
    /// Of them, on a processor.
    pub running_ns: u64,
    /// Of them, blocked.
    pub blocked_ns: u64,
}

impl CallTime {
    /// Nanoseconds in which it could have run and had no processor.
    #[must_use]
    pub const fn runnable_ns(&self) -> u64 {
        let known_ns = self.running_ns.saturating_add(self.blocked_ns);
        self.total_ns.saturating_sub(known_ns)
    }

    /// What has come since `earlier`, part by part: what one part has less does not make another
    /// less.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let running_ns = self.running_ns.saturating_sub(earlier.running_ns);
        let blocked_ns = self.blocked_ns.saturating_sub(earlier.blocked_ns);
        let runnable_ns = self.runnable_ns().saturating_sub(earlier.runnable_ns());
        Self {
            total_ns: running_ns + blocked_ns + runnable_ns,
            running_ns,
            blocked_ns,
        }
    }

    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.total_ns += other.total_ns;
        self.running_ns += other.running_ns;
        self.blocked_ns += other.blocked_ns;
    }

    /// Up to `ns` of one class turned out to be of another: (from, to). Answers how much it had.
    /// What is neither running in a call nor waiting is no part of one.
    pub(super) fn reclassify(&mut self, (from, to): (usize, usize), ns: u64) -> u64 {
        const RUNNING: usize = Class::Syscall as usize;
        const BLOCKED: usize = Class::Blocked as usize;
        const RUNNABLE: usize = Class::Runnable as usize;
        let part = ns.min(match from {
            RUNNING => self.running_ns,
            BLOCKED => self.blocked_ns,
            RUNNABLE => self.runnable_ns(),
            _ => 0,
        });
        match from {
            RUNNING => self.running_ns -= part,
            BLOCKED => self.blocked_ns -= part,
            _ => {}
        }
        match to {
            RUNNING => self.running_ns += part,
            BLOCKED => self.blocked_ns += part,
            RUNNABLE => {}
            _ => self.total_ns -= part,
        }
        part
    }

    /// What is of some classes here and was booked of others, `too_much` of each: no more of it in
    /// either.
    fn take_others(&mut self, too_much: &mut Self) -> Vec<OtherClass> {
        let classes = [Class::Syscall, Class::Blocked, Class::Runnable].map(|class| class as usize);
        let parts = |time: &Self| [time.running_ns, time.blocked_ns, time.runnable_ns()];
        let of_parts = |[running_ns, blocked_ns, runnable_ns]: [u64; 3]| Self {
            total_ns: running_ns + blocked_ns + runnable_ns,
            running_ns,
            blocked_ns,
        };
        let (mut gained, mut booked) = (parts(self), parts(too_much));
        let mut others = Vec::new();
        for (from, booked_ns) in booked.iter_mut().enumerate() {
            for (to, gained_ns) in gained.iter_mut().enumerate() {
                let ns = (*booked_ns).min(*gained_ns);
                if ns > 0 {
                    *booked_ns -= ns;
                    *gained_ns -= ns;
                    others.push(((classes[from], classes[to]), ns));
                }
            }
        }
        (*self, *too_much) = (of_parts(gained), of_parts(booked));
        others
    }

    /// The larger of each part.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        let mut all = self.since(other);
        all.add(other);
        all
    }
}

/// Time that was booked for a call as of one class and turned out to be of another: from which, to
/// which, nanoseconds.
pub(super) type OtherClass = ((usize, usize), u64);

/// What is known of a thread's calls of one number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeenCalls {
    /// Its counts as the last pass told them: of calls that returned.
    returned: CallTotals,
    /// What was booked while calls were under way that are over now, and that no count contains
    /// yet.
    booked: CallTime,
    /// What the last counts to come had no place for: of a call that they did not contain yet.
    left: CallTime,
}

impl SeenCalls {
    /// A call is over that this much was booked for while it was under way.
    pub(super) fn is_over(&mut self, booked: &CallTime) {
        self.booked.add(booked);
    }

    /// Takes newer counts over; what is to be booked for the calls that have returned since, and
    /// what of that which was booked is of other classes. (An open wait is taken to be blocked
    /// until it is known since when its thread could have run.)
    pub(super) fn update(&mut self, now: CallTotals) -> (CallTotals, Vec<OtherClass>) {
        let mut gain = now.since(&self.returned);
        let mut others = Vec::new();
        self.returned = now;
        if gain.count > 0 {
            let returned = gain.time.since(&self.left);
            gain.time = returned.since(&self.booked);
            self.left = self.booked.since(&returned);
            // Else what was booked is of a call that is not among them.
            if returned.total_ns >= self.booked.total_ns {
                others = gain.time.take_others(&mut self.left);
            }
            self.booked = CallTime::default();
        }
        (gain, others)
    }
}

/// The calls of one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTotals {
    /// Calls that returned.
    pub count: u64,
    /// Nanoseconds from entry to exit of those.
    pub returned_ns: u64,
    /// Time inside calls: of each the part that passed by then, also of those under way.
    pub time: CallTime,
    /// The longest call that returned, nanoseconds; an upper bound where `max_is_bound`.
    pub max_ns: u64,
    /// In a window whose longest call was not the thread's longest ever, only a bound is known.
    pub max_is_bound: bool,
}

impl CallTotals {
    /// The absolute values of an update: no call is under way.
    #[must_use]
    pub const fn of(update: &SyscallUpdate) -> Self {
        Self {
            count: update.count,
            returned_ns: update.total_ns,
            time: CallTime {
                total_ns: update.total_ns,
                running_ns: update.running_ns,
                blocked_ns: update.blocked_ns,
            },
            max_ns: update.max_ns,
            max_is_bound: false,
        }
    }

    /// Time of a call that is under way.
    #[must_use]
    pub fn under_way(time: CallTime) -> Self {
        Self {
            time,
            ..Self::default()
        }
    }

    /// What has come since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let returned_ns = self.returned_ns.saturating_sub(earlier.returned_ns);
        let count = self.count.saturating_sub(earlier.count);
        let rose = self.max_ns > earlier.max_ns;
        Self {
            count,
            returned_ns,
            time: self.time.since(&earlier.time),
            max_ns: if rose {
                self.max_ns
            } else {
                self.max_ns.min(returned_ns)
            },
            max_is_bound: !rose && count > 1,
        }
    }

    /// Adds the counts and keeps the longer maximum.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.returned_ns += other.returned_ns;
        self.time.add(&other.time);
        if other.max_ns > self.max_ns {
            self.max_ns = other.max_ns;
            self.max_is_bound = other.max_is_bound;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(total_ns: u64, running_ns: u64, blocked_ns: u64) -> CallTime {
        CallTime {
            total_ns,
            running_ns,
            blocked_ns,
        }
    }

    fn totals(count: u64, total_ns: u64, max_ns: u64) -> CallTotals {
        CallTotals {
            count,
            returned_ns: total_ns,
            time: time(total_ns, total_ns, 0),
            max_ns,
            ..CallTotals::default()
        }
    }

    // Check that what was booked for a call under way is not booked again when its count comes, be
    // that a pass later, and that what one part has less takes nothing from another.
    #[test]
    fn what_was_booked_is_not_booked_again() {
        let mut seen = SeenCalls::default();
        seen.is_over(&time(70, 10, 60));
        assert_eq!(seen.update(totals(0, 0, 0)).0, CallTotals::default());
        let mut returned = totals(1, 100, 100);
        returned.time = time(100, 15, 80);
        let (gain, others) = seen.update(returned);
        assert!(others.is_empty(), "{others:?}");
        assert_eq!((gain.count, gain.returned_ns, gain.max_ns), (1, 100, 100));
        assert_eq!(gain.time, time(30, 5, 20));
        let mut returned = totals(2, 110, 100);
        returned.time = time(110, 25, 80);
        let gain = seen.update(returned).0;
        assert_eq!((gain.returned_ns, gain.time), (10, time(10, 10, 0)));
        // It had been taken to be blocked, and had run.
        seen.is_over(&time(50, 0, 50));
        let mut returned = totals(3, 160, 100);
        returned.time = time(160, 75, 80);
        let (gain, others) = seen.update(returned);
        let [syscall, blocked] = [Class::Syscall, Class::Blocked].map(|class| class as usize);
        assert_eq!(
            (gain.time, others),
            (time(0, 0, 0), vec![((blocked, syscall), 50)])
        );
        // The end of another had to wait for a processor.
        seen.is_over(&time(3_000, 0, 3_000));
        let mut returned = totals(4, 3_360, 3_200);
        returned.time = time(3_360, 85, 2_420);
        let (gain, others) = seen.update(returned);
        let mut all = time(3_160, 75, 3_080);
        for (classes, ns) in others {
            all.reclassify(classes, ns);
        }
        all.add(&gain.time);
        assert_eq!(all, returned.time);
        assert_eq!(time(20, 5, 10).since(&time(10, 0, 10)), time(10, 5, 0));
        assert_eq!(time(20, 5, 10).max(&time(10, 7, 0)), time(22, 7, 10));
    }

    // Check that the count of another call, which came first, has no part of what was booked for
    // one that it does not contain yet, and that this is not kept for ever where its count never
    // comes.
    #[test]
    fn what_was_booked_waits_for_its_own_count() {
        let mut seen = SeenCalls::default();
        seen.is_over(&time(1_000, 0, 1_000));
        let (other, others) = seen.update(totals(1, 10, 10));
        assert!(others.is_empty(), "{others:?}");
        assert_eq!(other.time.running_ns, 10);
        let mut returned = totals(2, 1_030, 1_020);
        returned.time = time(1_030, 30, 1_000);
        let its_own = seen.update(returned).0.time;
        assert_eq!(its_own, time(20, 20, 0));
        seen.is_over(&time(500, 0, 500));
        returned.count = 3;
        seen.update(returned);
        returned.count = 4;
        seen.update(returned);
        returned = totals(5, 1_100, 1_020);
        returned.time = time(1_100, 30, 1_070);
        assert_eq!(seen.update(returned).0.time, time(70, 0, 70));
    }

    // Check that time that turns out to be of another class stays in the call, that no more is
    // taken than there is, and that what runs or waits outside any call is none of a call's.
    #[test]
    fn time_of_another_class() {
        let [user, syscall, blocked, runnable, _] = Class::ALL.map(|class| class as usize);
        let mut call = time(100, 10, 80);
        assert_eq!(call.reclassify((blocked, runnable), 30), 30);
        assert_eq!((call, call.runnable_ns()), (time(100, 10, 50), 40));
        assert_eq!(call.reclassify((syscall, blocked), 30), 10);
        assert_eq!(call, time(100, 0, 60));
        assert_eq!(call.reclassify((runnable, syscall), 5), 5);
        assert_eq!(call, time(100, 5, 60));
        assert_eq!(call.reclassify((blocked, user), 20), 20);
        assert_eq!(call, time(80, 5, 40));
        assert_eq!(call.reclassify((user, blocked), 20), 0);
        assert_eq!(call, time(80, 5, 40));
    }

    // Check that a gain keeps the new maximum where it rose, the exact length of a single call, and
    // else a bound.
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
            (sum.count, sum.time.total_ns, sum.max_ns, sum.max_is_bound),
            (3, 150, 100, false)
        );
    }
}
