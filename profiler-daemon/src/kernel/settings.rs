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

/// Threads that are followed where no other number is wanted: with what the kernel keeps for each,
/// somewhat more than a thousandth of memory.
const THREADS: std::ops::RangeInclusive<u64> = 16_384..=65_536;
/// Memory for each of them, bytes.
const MEMORY_PER_THREAD: u64 = 1 << 20;

/// How many threads are followed on a machine with so much memory, where no other number is wanted.
#[must_use]
pub fn threads_for(memory_bytes: u64) -> u32 {
    let threads = memory_bytes / MEMORY_PER_THREAD;
    threads.clamp(*THREADS.start(), *THREADS.end()) as u32
}

impl KernelSettings {
    /// Rows of system calls, of all threads.
    pub(super) const fn call_rows(&self) -> u32 {
        self.max_threads.saturating_mul(CALLS_PER_THREAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_more_memory_follows_more_threads() {
        // Check the number on small and on large machines, and where memory is not known.
        let cases = [
            (0, 16_384),
            (8, 16_384),
            (24, 24_576),
            (64, 65_536),
            (6_000, 65_536),
        ];
        for (gib, threads) in cases {
            assert_eq!(threads_for(gib << 30), threads, "{gib} GiB");
        }
    }
}
