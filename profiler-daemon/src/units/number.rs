//! What the types of numbers have in common.

/// Defines a type of numbers of one scale, on which the distance of two is a plain number: each is
/// written and read as its number.
///
/// `+` and `-` are for what cannot leave the range of `u64`; the others say what they do there.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $get:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize,
        )]
        #[serde(transparent)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The least: the beginning of the scale.
            pub const ZERO: Self = Self(0);

            /// Of a number that is known to be of this scale.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The number: for what is written, shown or given to the kernel.
            #[must_use]
            pub const fn $get(self) -> u64 {
                self.0
            }

            /// So much further on, at most the end of the scale.
            #[must_use]
            pub const fn saturating_add(self, distance: u64) -> Self {
                Self(self.0.saturating_add(distance))
            }

            /// So much before, at least [`Self::ZERO`].
            #[must_use]
            pub const fn saturating_sub(self, distance: u64) -> Self {
                Self(self.0.saturating_sub(distance))
            }
        }

        /// So much further on.
        impl std::ops::Add<u64> for $name {
            type Output = Self;

            fn add(self, distance: u64) -> Self {
                Self(self.0 + distance)
            }
        }

        /// So much further on.
        impl std::ops::AddAssign<u64> for $name {
            fn add_assign(&mut self, distance: u64) {
                self.0 += distance;
            }
        }

        /// So much before.
        impl std::ops::Sub<u64> for $name {
            type Output = Self;

            fn sub(self, distance: u64) -> Self {
                Self(self.0 - distance)
            }
        }

        /// The distance from one that is not behind.
        impl std::ops::Sub for $name {
            type Output = u64;

            fn sub(self, start: Self) -> u64 {
                self.0 - start.0
            }
        }
    };
}

pub(super) use number;
