//! Instants, a type for each clock. Each is a number of nanoseconds since the zero of its clock and
//! is written and read as that number.

use super::number::number;

/// Defines an instant of one clock.
macro_rules! instant {
    ($(#[$doc:meta])* $name:ident) => {
        number! {
            $(#[$doc])*
            $name, ns
        }

        impl $name {
            /// After everything: never.
            pub const MAX: Self = Self(u64::MAX);

            /// Nanoseconds from `earlier` to this instant; 0 if it is not earlier.
            #[must_use]
            pub const fn saturating_since(self, earlier: Self) -> u64 {
                self.0.saturating_sub(earlier.0)
            }

            /// Nanoseconds from `earlier` to this instant; nothing if that is later.
            #[must_use]
            pub const fn checked_since(self, earlier: Self) -> Option<u64> {
                self.0.checked_sub(earlier.0)
            }

            /// Nanoseconds between the two, whichever is earlier.
            #[must_use]
            pub const fn abs_diff(self, other: Self) -> u64 {
                self.0.abs_diff(other.0)
            }
        }
    };
}

instant! {
    /// An instant of `CLOCK_MONOTONIC`, the clock of every event from the kernel: it stands still
    /// while the machine sleeps.
    MonoNs
}

instant! {
    /// An instant of `CLOCK_BOOTTIME`, the clock of the start times of processes and threads: time
    /// since boot, time asleep included.
    BootNs
}

instant! {
    /// An instant of `CLOCK_REALTIME`, the wall clock: time since 1970, which may be set at any
    /// moment.
    UnixNs
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that differences and shifts are those of the numbers, and stop at both ends.
    #[test]
    fn arithmetic_stops_at_the_ends() {
        let (early, late) = (MonoNs::new(3), MonoNs::new(10));
        assert_eq!(late - early, 7);
        assert_eq!(early + 7, late);
        assert_eq!(late - 7, early);
        assert_eq!(late.saturating_since(early), 7);
        assert_eq!(early.saturating_since(late), 0);
        assert_eq!(early.checked_since(late), None);
        assert_eq!(early.abs_diff(late), 7);
        assert_eq!(early.saturating_sub(4), MonoNs::ZERO);
        assert_eq!(late.saturating_add(u64::MAX), MonoNs::MAX);
    }

    // Check that an instant is written as its number, in text and in bytes.
    #[test]
    fn an_instant_is_written_as_its_number() {
        let instant = UnixNs::new(1_000_000_007);
        let text = serde_json::to_string(&instant).expect("it is written");
        assert_eq!(text, "1000000007");
        let bytes = postcard::to_allocvec(&instant).expect("it is written");
        assert_eq!(Ok(bytes), postcard::to_allocvec(&instant.ns()));
    }
}
