//! When something is told to the profile.

/// The moment of an update.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// When the growing piece of the recent past began, monotonic nanoseconds.
    pub segment_ns: u64,
    /// The time of the pass before, monotonic nanoseconds.
    pub last_ns: u64,
    /// The time of the pass, monotonic nanoseconds.
    pub now_ns: u64,
    /// The number of the pass.
    pub pass: u64,
}
