//! How long to rest after process events: briefly while they are few, because a program that has
//! just begun maps its libraries within a millisecond and may wait for long after that, and longer
//! while they are many, so that wakes stay bounded. Where the walker finds what is mapped by
//! itself, they can be much fewer, and what ends soon has ended before anything is done for it.

use std::time::Duration;

use crate::units::MonoNs;

/// A rest while events are few.
const BRIEF: Duration = Duration::from_micros(300);
/// A rest while they are many, where stacks of a program are incomplete until its mappings have
/// been told to the walker. Also the time in which one more brief rest is earned: 200 wakes a
/// second in the long run.
const LONG: Duration = Duration::from_millis(5);
/// The same where the walker finds mappings by itself. A program that ends within it is not
/// described: its command line is not known, and user and control group are those of its parent.
const LONG_IF_FOUND: Duration = Duration::from_millis(50);
/// Brief rests that can be saved up.
const MAX_SAVED: u64 = 50;

/// Brief rests earned and taken.
#[derive(Debug)]
pub(super) struct Backoff {
    long: Duration,
    saved: u64,
    earned_at_ns: MonoNs,
}

impl Backoff {
    /// With all brief rests to take. `finds_mappings`: the walker does not depend on it.
    pub(super) const fn new(finds_mappings: bool, now_ns: MonoNs) -> Self {
        Self {
            long: if finds_mappings { LONG_IF_FOUND } else { LONG },
            saved: MAX_SAVED,
            earned_at_ns: now_ns,
        }
    }

    /// How long to rest now.
    pub(super) fn next(&mut self, now_ns: MonoNs) -> Duration {
        let each_ns = self.long.as_nanos() as u64;
        let earned = now_ns.saturating_since(self.earned_at_ns) / each_ns;
        self.saved = self.saved.saturating_add(earned).min(MAX_SAVED);
        self.earned_at_ns += earned * each_ns;
        if self.saved == 0 {
            return self.long;
        }
        self.saved -= 1;
        BRIEF
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brief_rests_run_out_and_come_back() {
        // Check that a burst gets brief rests, a storm long ones, and a quiet second all brief ones
        // again.
        let mut backoff = Backoff::new(false, MonoNs::ZERO);
        let brief = (0..100)
            .filter(|_| backoff.next(MonoNs::new(1_000_000)) == BRIEF)
            .count() as u64;
        assert_eq!(brief, MAX_SAVED);
        assert_eq!(backoff.next(MonoNs::new(11_000_000)), BRIEF);
        assert_eq!(backoff.next(MonoNs::new(11_000_000)), BRIEF);
        assert_eq!(backoff.next(MonoNs::new(11_000_000)), LONG);
        let later = (0..100)
            .filter(|_| backoff.next(MonoNs::new(2_000_000_000)) == BRIEF)
            .count() as u64;
        assert_eq!(later, MAX_SAVED);
    }

    #[test]
    fn longer_where_mappings_are_found() {
        // Check that one brief rest is earned in 50 ms there.
        let mut backoff = Backoff::new(true, MonoNs::ZERO);
        while backoff.next(MonoNs::ZERO) == BRIEF {}
        assert_eq!(backoff.next(MonoNs::new(49_999_999)), LONG_IF_FOUND);
        assert_eq!(backoff.next(MonoNs::new(50_000_000)), BRIEF);
        assert_eq!(backoff.next(MonoNs::new(50_000_000)), LONG_IF_FOUND);
    }
}
