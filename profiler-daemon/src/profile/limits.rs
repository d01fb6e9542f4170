//! The bounds of a profile. Everything it holds is under one of these.

/// See each field; [`Default`] suits a server with some thousand threads.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Distinct frames.
    pub frames: usize,
    /// Bytes of all call trees.
    pub tree_bytes: usize,
    /// Exited processes kept.
    pub exited_processes: usize,
    /// Bytes of exited processes kept.
    pub exited_bytes: usize,
    /// Rows of exited threads kept per process.
    pub exited_threads: usize,
    /// Dropped processes remembered.
    pub dropped_remembered: usize,
    /// Length of a segment, nanoseconds.
    pub segment_ns: u64,
    /// Segments kept: the longest window is `segment_ns * (segments - 1)`.
    pub segments: usize,
    /// Bytes of all segments.
    pub segment_bytes: usize,
    /// Groups with counters of their own.
    pub groups: usize,
    /// A group that gained nothing for this long is dropped, nanoseconds.
    pub group_idle_ns: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frames: 1 << 20,
            tree_bytes: 128 << 20,
            exited_processes: 1000,
            exited_bytes: 64 << 20,
            exited_threads: 256,
            dropped_remembered: 16_384,
            segment_ns: 10_000_000_000,
            segments: 61,
            segment_bytes: 64 << 20,
            groups: 100,
            group_idle_ns: 600_000_000_000,
        }
    }
}
