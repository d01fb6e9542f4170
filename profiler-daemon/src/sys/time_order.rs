//! Puts records from several sources, each in its own order, into one order of time. Holds them
//! back until no older one can come. Knows nothing of what the records are.

use crate::units::MonoNs;

/// Records waiting until everything older has been read.
#[derive(Debug)]
pub struct TimeOrder<T> {
    waiting: Vec<(MonoNs, T)>,
    limit: usize,
    forced: u64,
}

impl<T> TimeOrder<T> {
    /// Holds at most about `limit` records back; a release with more lets them all go, and counts
    /// those that went early.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            waiting: Vec::new(),
            limit,
            forced: 0,
        }
    }

    /// Adds a record of this time.
    pub fn push(&mut self, time_ns: MonoNs, record: T) {
        self.waiting.push((time_ns, record));
    }

    /// Hands over all records older than `before_ns`, oldest first; those of one time in the order
    /// they were added.
    pub fn release(&mut self, before_ns: MonoNs, mut each: impl FnMut(T)) {
        self.waiting.sort_by_key(|(time_ns, _)| *time_ns);
        let mut ready = self
            .waiting
            .partition_point(|(time_ns, _)| *time_ns < before_ns);
        if self.waiting.len() - ready > self.limit {
            self.forced += (self.waiting.len() - ready) as u64;
            ready = self.waiting.len();
        }
        for (_, record) in self.waiting.drain(..ready) {
            each(record);
        }
        if self.waiting.is_empty() && self.waiting.capacity() > self.limit {
            self.waiting = Vec::new();
        }
    }

    /// How many records wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many records were let go before their time because too many waited.
    #[must_use]
    pub fn forced(&self) -> u64 {
        self.forced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released(order: &mut TimeOrder<&'static str>, before_ns: u64) -> Vec<&'static str> {
        let mut out = Vec::new();
        order.release(MonoNs::new(before_ns), |record| out.push(record));
        out
    }

    // Check that two sources merge by time and that what is not older than the limit waits for the
    // next release.
    #[test]
    fn merges_and_holds_back() {
        let mut order = TimeOrder::new(10);
        for (time_ns, record) in [(10, "a10"), (30, "a30"), (5, "b5"), (20, "b20")] {
            order.push(MonoNs::new(time_ns), record);
        }
        assert_eq!(released(&mut order, 20), ["b5", "a10"]);
        order.push(MonoNs::new(19), "late");
        assert_eq!(released(&mut order, 31), ["late", "b20", "a30"]);
        assert!(order.is_empty());
    }

    // Check that records of one time keep the order in which they came.
    #[test]
    fn equal_times_keep_their_order() {
        let mut order = TimeOrder::new(10);
        for record in ["fork", "comm", "mmap"] {
            order.push(MonoNs::new(7), record);
        }
        assert_eq!(released(&mut order, 8), ["fork", "comm", "mmap"]);
    }

    // Check that too many waiting records are let go in order, and counted.
    #[test]
    fn overflow_is_counted() {
        let mut order = TimeOrder::new(2);
        for (time_ns, record) in [(3, "c"), (1, "a"), (2, "b")] {
            order.push(MonoNs::new(time_ns), record);
        }
        assert_eq!(released(&mut order, 0), ["a", "b", "c"]);
        assert_eq!(order.forced(), 3);
    }
}
