//! The clocks of this machine, in nanoseconds. Nothing here converts for display.

use rustix::time::{ClockId, clock_gettime};

use crate::units::{BootNs, MonoNs, UnixNs};

/// Reads one clock. Those asked for below always exist, and none is before its zero.
fn read_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Now by `CLOCK_MONOTONIC`: the clock of every event from the kernel; stands still while the
/// machine sleeps.
#[must_use]
pub fn monotonic_ns() -> MonoNs {
    MonoNs::new(read_ns(ClockId::Monotonic))
}

/// Now since boot, time asleep included: the clock of process start times.
#[must_use]
pub fn boottime_ns() -> BootNs {
    BootNs::new(read_ns(ClockId::Boottime))
}

/// Now by the wall clock.
#[must_use]
pub fn unix_ns() -> UnixNs {
    UnixNs::new(read_ns(ClockId::Realtime))
}

/// Nanoseconds that the calling thread has run on a processor.
#[must_use]
pub fn thread_ns() -> u64 {
    read_ns(ClockId::ThreadCPUTime)
}

/// Nanoseconds that all threads of this process have run on a processor.
#[must_use]
pub fn process_ns() -> u64 {
    read_ns(ClockId::ProcessCPUTime)
}

/// How far the clocks are apart, and the only way from one to another. Taken anew when it matters:
/// the wall clock can be set, and the boot clock runs ahead while the machine sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffsets {
    /// Wall clock minus monotonic clock, nanoseconds.
    pub unix_minus_monotonic_ns: u64,
    /// Boot clock minus monotonic clock, nanoseconds.
    pub boot_minus_monotonic_ns: u64,
}

impl ClockOffsets {
    /// Reads the clocks one after the other; off by the time between two readings (below a
    /// microsecond).
    #[must_use]
    pub fn now() -> Self {
        let monotonic = monotonic_ns().ns();
        Self {
            unix_minus_monotonic_ns: unix_ns().ns().saturating_sub(monotonic),
            boot_minus_monotonic_ns: boottime_ns().ns().saturating_sub(monotonic),
        }
    }

    /// Monotonic to wall-clock time.
    #[must_use]
    pub const fn unix_from_monotonic(self, monotonic: MonoNs) -> UnixNs {
        UnixNs::new(monotonic.ns()).saturating_add(self.unix_minus_monotonic_ns)
    }

    /// Monotonic to boot time.
    #[must_use]
    pub const fn boot_from_monotonic(self, monotonic: MonoNs) -> BootNs {
        BootNs::new(monotonic.ns()).saturating_add(self.boot_minus_monotonic_ns)
    }

    /// Boot to monotonic time.
    #[must_use]
    pub const fn monotonic_from_boot(self, boot: BootNs) -> MonoNs {
        MonoNs::new(boot.ns()).saturating_sub(self.boot_minus_monotonic_ns)
    }

    /// Boot to wall-clock time.
    #[must_use]
    pub const fn unix_from_boot(self, boot: BootNs) -> UnixNs {
        self.unix_from_monotonic(self.monotonic_from_boot(boot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that the offsets lead from one clock to the next reading of the other.
    #[test]
    fn offsets_agree_with_clocks() {
        let offsets = ClockOffsets::now();
        let before = monotonic_ns();
        let boot = boottime_ns();
        let after = monotonic_ns();
        let slack_ns = 1_000_000;
        assert!(offsets.boot_from_monotonic(before) <= boot + slack_ns);
        assert!(offsets.boot_from_monotonic(after) + slack_ns >= boot);
        assert_eq!(
            offsets.unix_from_boot(offsets.boot_from_monotonic(before)),
            offsets.unix_from_monotonic(before)
        );
    }
}
