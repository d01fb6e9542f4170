//! The bounds of a profile. Everything it holds is under one of these.

/// How coarse buckets of the recent past are from some age on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grade {
    /// The age from which on, nanoseconds.
    pub older_than_ns: u64,
    /// Their length, nanoseconds.
    pub width_ns: u64,
}

/// The grades of a profile that is read once a second.
pub const GRADES: [Grade; 2] = [
    Grade {
        older_than_ns: 120_000_000_000,
        width_ns: 10_000_000_000,
    },
    Grade {
        older_than_ns: 600_000_000_000,
        width_ns: 60_000_000_000,
    },
];

/// See each field; [`Default`] suits a server with some thousand threads.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Distinct frames.
    pub frames: usize,
    /// Bytes of all call trees.
    pub tree_bytes: usize,
    /// Exited processes kept.
    pub exited_processes: usize,
    /// Images that processes which are not kept are merged by.
    pub images: usize,
    /// Bytes of exited processes kept.
    pub exited_bytes: usize,
    /// Rows of exited threads kept per process.
    pub exited_threads: usize,
    /// Dropped processes remembered.
    pub dropped_remembered: usize,
    /// Shortest bucket of the recent past, nanoseconds: a little less than the time between two
    /// passes.
    pub segment_ns: u64,
    /// How buckets become coarser with age, finest first.
    pub grades: Vec<Grade>,
    /// How long the recent past is kept in buckets, nanoseconds.
    pub recent_past_ns: u64,
    /// Bytes of all buckets.
    pub segment_bytes: usize,
    /// Named sessions kept.
    pub sessions: usize,
    /// Spans of all named sessions together.
    pub session_spans: usize,
    /// Groups with counters of their own.
    pub groups: usize,
    /// A group that gained nothing for this long is dropped, nanoseconds.
    pub group_idle_ns: u64,
    /// The mean time between two ticks of a processor, nanoseconds: 1 / `frequency_hz`.
    pub tick_ns: u64,
    /// The mean time between two marks at drawn gaps, nanoseconds: `min_interval`.
    pub gap_ns: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frames: 1 << 20,
            tree_bytes: 128 << 20,
            exited_processes: 1000,
            images: 256,
            exited_bytes: 64 << 20,
            exited_threads: 256,
            dropped_remembered: 16_384,
            segment_ns: 900_000_000,
            grades: GRADES.to_vec(),
            recent_past_ns: 3_600_000_000_000,
            segment_bytes: 64 << 20,
            sessions: 64,
            session_spans: 1_000,
            groups: 100,
            group_idle_ns: 600_000_000_000,
            tick_ns: 1_000_000_000 / 99,
            gap_ns: 1_000_000,
        }
    }
}
