//! Who a process or a thread is: its number together with its start time, because the kernel reuses
//! numbers.
//!
//! `pid` is the process (what the kernel calls tgid), `tid` the thread. Nothing here reads
//! anything.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::units::BootNs;

/// Length of one `/proc/PID/stat` start-time tick in nanoseconds: user space always sees 100 ticks
/// a second.
pub const START_TICK_NS: u64 = 10_000_000;

/// The tick in which a start falls, as `/proc` tells it.
pub(super) const fn start_ticks(start: BootNs) -> u64 {
    start.ns() / START_TICK_NS
}

/// The beginning of such a tick.
pub(super) const fn start_of(ticks: u64) -> BootNs {
    BootNs::new(ticks * START_TICK_NS)
}

/// One process: a reused pid is another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessKey {
    /// The process number (the kernel's tgid) in the daemon's pid namespace.
    pub pid: u32,
    /// Start of the process's first thread, nanoseconds since boot (time asleep included).
    pub start_ns: BootNs,
}

impl ProcessKey {
    /// The start time as `/proc/PID/stat` tells it: 10 ms ticks since boot.
    #[must_use]
    pub fn start_ticks(self) -> u64 {
        start_ticks(self.start_ns)
    }
}

/// Written the way a report names one process: `pid.start_ticks`.
impl fmt::Display for ProcessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pid, self.start_ticks())
    }
}

/// One thread: a reused tid is another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadKey {
    /// The thread number (the kernel's pid) in the daemon's pid namespace.
    pub tid: u32,
    /// Start of the thread, nanoseconds since boot (time asleep included).
    pub start_ns: BootNs,
}

/// A file that processes execute: what makes them the same program, whatever they call themselves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Image {
    /// The device of its file system, as it shows in mappings: major number << 32 | minor; 0 = not
    /// known.
    pub device: u64,
    /// Its number there; 0 = not known.
    pub inode: u64,
    /// Its path when it was executed.
    pub path: Arc<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that a key is written with the start time that /proc shows, rounded down.
    #[test]
    fn display_uses_ticks() {
        let key = ProcessKey {
            pid: 12,
            start_ns: BootNs::new(3 * START_TICK_NS + START_TICK_NS - 1),
        };
        assert_eq!(key.start_ticks(), 3);
        assert_eq!(key.to_string(), "12.3");
    }
}
