//! Instants, a type for each clock. Each is a number of nanoseconds since the zero of its clock and
//! is written and read as that number.
//!
//! Arithmetic with durations is that of `u64`: `+` and `-` are for what cannot leave its range, and
//! the saturating ones for the rest.

use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// Defines an instant of one clock.
macro_rules! instant {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize,
            Deserialize,
        )]
        #[serde(transparent)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The zero of the clock: before everything that is seen.
            pub const ZERO: Self = Self(0);
            /// After everything: never.
            pub const MAX: Self = Self(u64::MAX);

            /// The instant so many nanoseconds after the zero of this clock: of a number that is
            /// known to be of this clock.
            #[must_use]
            pub const fn new(ns: u64) -> Self {
                Self(ns)
            }

            /// Nanoseconds since the zero of this clock: for what is written, shown or given to the
            /// kernel.
            #[must_use]
            pub const fn ns(self) -> u64 {
                self.0
            }

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

            /// The instant so many nanoseconds later, at most [`Self::MAX`].
            #[must_use]
            pub const fn saturating_add(self, ns: u64) -> Self {
                Self(self.0.saturating_add(ns))
            }

            /// The instant so many nanoseconds earlier, at least [`Self::ZERO`].
            #[must_use]
            pub const fn saturating_sub(self, ns: u64) -> Self {
                Self(self.0.saturating_sub(ns))
            }
        }

        /// So many nanoseconds later.
        impl Add<u64> for $name {
            type Output = Self;

            fn add(self, ns: u64) -> Self {
                Self(self.0 + ns)
            }
        }

        impl AddAssign<u64> for $name {
            fn add_assign(&mut self, ns: u64) {
                self.0 += ns;
            }
        }

        /// So many nanoseconds earlier.
        impl Sub<u64> for $name {
            type Output = Self;

            fn sub(self, ns: u64) -> Self {
                Self(self.0 - ns)
            }
        }

        /// Nanoseconds since an instant that is not later.
        impl Sub for $name {
            type Output = u64;

            fn sub(self, earlier: Self) -> u64 {
                self.0 - earlier.0
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
