//! What is fixed before the programs are loaded.

use profiler_common::limits::CALLS_PER_THREAD;
use profiler_common::records::system_calls;

/// Which threads' system calls are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedSystemCalls {
    /// Those of every target.
    All,
    /// Those of targets named by number, name or control group of their process.
    Named,
    /// None: the hooks are not attached.
    Off,
}

impl TracedSystemCalls {
    /// The number by which the programs are told.
    pub(super) const fn number(self) -> u32 {
        match self {
            Self::All => system_calls::ALL,
            Self::Named => system_calls::NAMED,
            Self::Off => system_calls::OFF,
        }
    }
}

/// What is fixed before the programs are loaded.
#[derive(Clone, Debug)]
pub struct KernelSettings {
    /// Timer ticks per second and processor.
    pub frequency_hz: u32,
    /// The mean gap between two marks, nanoseconds; 0 = all that can be walked is.
    pub min_interval_ns: u64,
    /// Which threads' system calls are traced.
    pub system_calls: TracedSystemCalls,
    /// Thread records.
    pub max_threads: u32,
    /// Rows of time per stack in one drain period.
    pub stacks_per_drain: u32,
    /// Bytes of the ring of stacks; a power of two of at least a page.
    pub ring_bytes: u32,
    /// User frames of one walk.
    pub user_frames: u32,
    /// Mapping rows of all processes.
    pub mappings: u32,
    /// Megabytes of unwind rows.
    pub unwind_chunks: u32,
}

impl KernelSettings {
    /// Rows of system calls, of all threads.
    pub(super) const fn call_rows(&self) -> u32 {
        self.max_threads.saturating_mul(CALLS_PER_THREAD)
    }
}
