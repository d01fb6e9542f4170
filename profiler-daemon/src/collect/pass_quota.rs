//! How many mapping rows a process may have written between two passes. Rows are written anew
//! whenever something is mapped, and those before are free some passes later: without this, one
//! process that maps all the time would take everybody's room.

use std::collections::HashMap;

/// Processes that share the room.
const SHARES: u32 = 8;

/// Rows written since the last pass, by process number.
#[derive(Debug)]
pub(super) struct PassQuota {
    /// A process's share. It may exceed it once, so that the largest process has its rows too.
    share: usize,
    written: HashMap<u32, usize>,
}

impl PassQuota {
    /// Where there is room for so many rows in all.
    pub(super) fn new(rows: u32) -> Self {
        Self {
            share: (rows / SHARES) as usize,
            written: HashMap::new(),
        }
    }

    /// Whether a process may have so many rows written now; counts them if so.
    pub(super) fn take(&mut self, pid: u32, rows: usize) -> bool {
        let written = self.written.entry(pid).or_default();
        let allowed = *written == 0 || *written + rows <= self.share;
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
        // Check that a process gets no more than its share of the room there is, or what it has if
        // that is more, that others do not mind, and that it gets as much after the next pass; also
        // where the room is small.
        for rows in [65_536, 4_096] {
            let share = rows as usize / 8;
            let mut pass_quota = PassQuota::new(rows);
            let taken = (0..1000).filter(|_| pass_quota.take(1, 100)).count();
            assert_eq!(taken, share / 100);
            assert!(pass_quota.take(2, share + 1));
            assert!(!pass_quota.take(2, 1));
            pass_quota.renew();
            assert!(pass_quota.take(1, 100));
        }
    }
}
