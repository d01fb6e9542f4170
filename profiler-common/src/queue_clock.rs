//! The clock of a processor's run queue beside the monotonic one: the scheduler notes by the one
//! since when a thread is in a queue.
//!
//! Both are the same counter, of which the monotonic clock is steered by whoever keeps the time,
//! by 500 parts in a million at most. A comparison finds the run queue's a little old (it was read
//! as the scheduler began), so the difference is never found too small; too large, it is taken over
//! no faster than the monotonic clock can be steered. An error within these bounds moves the border
//! between blocked and runnable, and changes no sum.

/// The clocks are compared after so long.
const COMPARED_EVERY_NS: u64 = 1_000_000;
/// Beside one part in 1024 of the time since the last comparison, the difference may grow so much.
const GROWTH_NS: u64 = 500;
/// A difference that has grown by more than this is no old reading: the machine was suspended.
const JUMP_NS: u64 = 100_000_000;

/// See the module. Of one processor, written by the switch program there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueClock {
    /// What the monotonic clock is ahead by, modulo 2^64.
    ahead_ns: u64,
    /// When they were compared last, by the monotonic clock; 0 = never.
    compared_ns: u64,
}

impl QueueClock {
    /// Are the clocks to be compared again?
    #[must_use]
    #[inline(always)]
    pub const fn is_due(&self, now_ns: u64) -> bool {
        now_ns.wrapping_sub(self.compared_ns) > COMPARED_EVERY_NS
    }

    /// The monotonic clock shows `now_ns`; the run queue's showed `queue_ns` a little before.
    #[inline(always)]
    pub fn compare(&mut self, queue_ns: u64, now_ns: u64) {
        let ahead_ns = now_ns.wrapping_sub(queue_ns);
        let grown_ns = ahead_ns.wrapping_sub(self.ahead_ns);
        let growth_ns = GROWTH_NS + (now_ns.wrapping_sub(self.compared_ns) >> 10);
        // What has shrunk is larger than any jump, modulo 2^64.
        let is_old = grown_ns > growth_ns && grown_ns < JUMP_NS;
        self.ahead_ns = if self.is_compared() && is_old {
            self.ahead_ns.wrapping_add(growth_ns)
        } else {
            ahead_ns
        };
        self.compared_ns = now_ns;
    }

    /// Were they ever compared? Before that, no time is known.
    #[must_use]
    #[inline(always)]
    pub const fn is_compared(&self) -> bool {
        self.compared_ns != 0
    }

    /// The time from the run queue's `queue_ns` to `now_ns`; 0 before they were ever compared.
    #[must_use]
    #[inline(always)]
    pub const fn elapsed_ns(&self, queue_ns: u64, now_ns: u64) -> u64 {
        if self.is_compared() {
            now_ns.saturating_sub(self.monotonic(queue_ns))
        } else {
            0
        }
    }

    /// The run queue's time `queue_ns` on the monotonic clock.
    #[must_use]
    #[inline(always)]
    pub const fn monotonic(&self, queue_ns: u64) -> u64 {
        queue_ns.wrapping_add(self.ahead_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares when that is due, and tells the time.
    fn tell(clock: &mut QueueClock, queue_ns: u64, now_ns: u64) -> u64 {
        if clock.is_due(now_ns) {
            clock.compare(queue_ns, now_ns);
        }
        clock.monotonic(queue_ns)
    }

    #[test]
    fn the_time_follows_a_steered_clock() {
        // Check that, whichever clock is ahead and while the monotonic one is steered by up to 500
        // parts in a million, either way, the time told is off by no more than such steering comes
        // to between two comparisons.
        for ahead in [0, 5_000_000_000, u64::MAX - 40_000_000_000] {
            for steered in [-500_i64, -20, 0, 20, 500] {
                let mut clock = QueueClock::default();
                for step in 1..200_000_u64 {
                    let since_ns = step * 7_919;
                    let queue_ns = 50_000_000_000 + since_ns;
                    let steered_ns = since_ns as i64 * steered / 1_000_000;
                    let now_ns = queue_ns.wrapping_add(ahead).wrapping_add_signed(steered_ns);
                    let told = tell(&mut clock, queue_ns, now_ns);
                    let off = told.wrapping_sub(now_ns).cast_signed();
                    assert!(off.abs() <= 600, "{ahead} {steered} {step}: off by {off}");
                }
            }
        }
    }

    #[test]
    fn an_old_reading_moves_the_time_little() {
        // Check that a reading of the run queue's clock that was 50 us old as the clocks were
        // compared moves the time by less than 2 us, and that the next comparison puts it right;
        // and that where the clocks have jumped apart, as by a suspend, the difference is taken
        // over at once, either way.
        let mut clock = QueueClock::default();
        let mut queue_ns = 1_000_000_000;
        let mut ahead_ns: u64 = 3_000_000_000;
        assert_eq!(clock.elapsed_ns(queue_ns, queue_ns + ahead_ns), 0);
        assert_eq!(
            tell(&mut clock, queue_ns, queue_ns + ahead_ns),
            4_000_000_000
        );
        let elapsed_ns = clock.elapsed_ns(queue_ns, queue_ns + ahead_ns + 700);
        assert_eq!((clock.is_compared(), elapsed_ns), (true, 700));
        queue_ns += 1_100_000;
        let told = tell(&mut clock, queue_ns, queue_ns + ahead_ns + 50_000);
        let off = told - queue_ns - ahead_ns;
        assert!(off > 0 && off < 2_000, "off by {off}");
        queue_ns += 1_100_000;
        assert_eq!(
            tell(&mut clock, queue_ns, queue_ns + ahead_ns),
            queue_ns + ahead_ns
        );
        for jump_ns in [3_600_000_000_000_i64, -7_200_000_000_000] {
            queue_ns += 8_000_000_000_000;
            ahead_ns = ahead_ns.wrapping_add_signed(jump_ns);
            let now_ns = queue_ns.wrapping_add(ahead_ns);
            assert_eq!(tell(&mut clock, queue_ns, now_ns), now_ns);
        }
    }
}
