//! What the control of the walker's maps says of itself.

use crate::kernel::UnwindFill;
use crate::unwind::worker::WorkerCounts;

/// What happened so far, and how full it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnwindingState {
    /// Tables made and found, files without.
    pub worker: WorkerCounts,
    /// Files whose table waits to be made, or is being made.
    pub tables_waiting: usize,
    /// The maps.
    pub fill: UnwindFill,
    /// Processes that the walker knows.
    pub processes: usize,
    /// Tables given up for others.
    pub evicted: u64,
    /// Tables that found no room.
    pub refused: u64,
    /// Times that a process's mappings found no room, or more than the share of the process or its
    /// user.
    pub mappings_full: u64,
    /// Times that the kernel refused something else.
    pub failures: u64,
}
