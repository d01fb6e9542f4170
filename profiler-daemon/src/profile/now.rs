//! When something is told to the profile, and moments.

use serde::{Deserialize, Serialize};

use crate::units::{MonoNs, UnixNs};

/// The moment of an update.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// When the growing bucket of the recent past began, monotonic nanoseconds.
    pub segment_ns: MonoNs,
    /// The time of the pass before, monotonic nanoseconds.
    pub last_ns: MonoNs,
    /// The time of the pass, monotonic nanoseconds.
    pub now_ns: MonoNs,
    /// The number of the pass.
    pub pass: u64,
}

/// A moment by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    /// Monotonic nanoseconds.
    pub ns: MonoNs,
    /// Nanoseconds since 1970.
    pub unix_ns: UnixNs,
}
