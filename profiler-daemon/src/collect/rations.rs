//! How many mapping rows a process may have written between two passes. Rows are written anew whenever something is mapped, and
//! those before are free some passes later: without this, one process that maps all the time would take everybody's room.

use std::collections::HashMap;

use profiler_common::limits::DEFAULT_MAPPINGS;

/// A process's share. It may exceed it once, so that the largest process has its rows too.
const ROWS: usize = DEFAULT_MAPPINGS as usize / 8;

/// Rows written since the last pass, by process number.
#[derive(Debug, Default)]
pub(super) struct Rations {
    written: HashMap<u32, usize>,
}

impl Rations {
    /// Whether a process may have so many rows written now; counts them if so.
    pub(super) fn take(&mut self, pid: u32, rows: usize) -> bool {
        let written = self.written.entry(pid).or_default();
        let allowed = *written == 0 || *written + rows <= ROWS;
        if allowed {
            *written += rows;
        }
        allowed
    }

    /// A pass is over: all begin anew.
    pub(super) fn renew(&mut self) {
        self.written.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_leaves_room_for_others() {
        // Check that a process gets no more than its share, or what it has if that is more, that others do not mind, and that it
        // gets as much after the next pass.
        let mut rations = Rations::default();
        let taken = (0..1000).filter(|_| rations.take(1, 100)).count();
        assert_eq!(taken, ROWS / 100);
        assert!(rations.take(2, ROWS + 1));
        assert!(!rations.take(2, 1));
        rations.renew();
        assert!(rations.take(1, 100));
    }
}
