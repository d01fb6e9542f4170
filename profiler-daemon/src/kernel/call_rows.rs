//! The system-call rows of one pass, each thread's as they stood when its record was read.
//!
//! A call that returns between the reading of its row and that of its thread's record would be under way at neither: its time would be
//! in the classes of this pass and in the calls of the next, so a window between the two would have more in calls than at all.

use std::ops::Range;

use profiler_common::records::{SyscallRow, ThreadRecord};

use super::records::Records;

/// Counts of one system call of one thread, since the thread was first seen.
#[derive(Clone, Copy, Debug)]
pub struct SyscallSnapshot {
    /// The thread's place.
    pub slot: u32,
    /// System-call number.
    pub number: u32,
    /// Calls that returned.
    pub count: u64,
    /// Nanoseconds from entry to exit.
    pub total_ns: u64,
    /// Of these, running.
    pub running_ns: u64,
    /// Of these, blocked.
    pub blocked_ns: u64,
    /// The longest one.
    pub max_ns: u64,
}

/// Readings of a thread whose calls return all the time. Such calls are short, and it matters little where one of them goes.
const TRIES: usize = 4;

/// See the module.
pub(super) struct CallRows {
    /// What was found, by slot.
    found: Vec<SyscallSnapshot>,
    /// The row of each.
    indexes: Vec<usize>,
}

impl CallRows {
    /// The rows in use among the first `used` but the first.
    pub(super) fn read(rows: &Records<SyscallRow>, used: usize) -> Self {
        let found = (1..used).filter_map(|index| Some((snapshot(&rows.read(index))?, index)));
        let mut found: Vec<_> = found.collect();
        found.sort_unstable_by_key(|(of, index)| (of.slot, *index));
        let (found, indexes) = found.into_iter().unzip();
        Self { found, indexes }
    }

    /// Reads the rows of `slot` again where calls have returned since, and then the record, until both are of one moment.
    pub(super) fn settle(
        &mut self,
        (rows, records): (&Records<SyscallRow>, &Records<ThreadRecord>),
        slot: u32,
        mut record: ThreadRecord,
    ) -> ThreadRecord {
        for _ in 0..TRIES {
            if !self.renew(rows, slot) {
                break;
            }
            let Some(again) = records.read_again(slot as usize) else {
                break;
            };
            record = again;
        }
        record
    }

    /// Reads the rows of `slot` again; whether calls have returned since.
    pub(super) fn renew(&mut self, rows: &Records<SyscallRow>, slot: u32) -> bool {
        let mut returned = false;
        for place in self.of(slot) {
            let row = rows.read(self.indexes[place]);
            if let Some(now) = snapshot(&row)
                && now.slot == slot
                && now.count != self.found[place].count
            {
                self.found[place] = now;
                returned = true;
            }
        }
        returned
    }

    fn of(&self, slot: u32) -> Range<usize> {
        let from = self.found.partition_point(|each| each.slot < slot);
        let len = self.found[from..].partition_point(|each| each.slot == slot);
        from..from + len
    }

    /// All of them.
    pub(super) fn into_snapshots(self) -> Vec<SyscallSnapshot> {
        self.found
    }
}

/// What a row says; `None` where it is free or no call has returned.
fn snapshot(row: &SyscallRow) -> Option<SyscallSnapshot> {
    (row.slot != 0 && row.count != 0).then_some(SyscallSnapshot {
        slot: row.slot,
        number: row.number,
        count: row.count,
        total_ns: row.total_ns,
        running_ns: row.running_ns,
        blocked_ns: row.blocked_ns,
        max_ns: row.max_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memory_file::memory_file;

    fn mapped<T: aya::Pod>(len: u32) -> Records<T> {
        let file = memory_file(&vec![0; size_of::<T>() * len as usize]).expect("a memory file");
        Records::map(&file, len).expect("it can be mapped")
    }

    fn row(slot: u32, count: u64, total_ns: u64) -> SyscallRow {
        SyscallRow {
            slot,
            number: 35,
            count,
            total_ns,
            blocked_ns: total_ns,
            ..SyscallRow::default()
        }
    }

    #[test]
    fn a_call_that_returns_between_two_readings_is_in_both() {
        // Check that where a call returns after its row was read, the row and the record are read again, that other threads' rows stay as they
        // were, and that a record that is not changed is the one that was read.
        let (rows, records) = (mapped(4), mapped::<ThreadRecord>(4));
        rows.write(1, row(2, 1, 10));
        rows.write(2, row(1, 1, 10));
        let mut record = records.read(1);
        record.tid = 77;
        let mut calls = CallRows::read(&rows, 4);
        assert_eq!(calls.settle((&rows, &records), 1, record).tid, 77);

        rows.write(1, row(2, 2, 30));
        rows.write(2, row(1, 2, 40));
        record.tid = 78;
        records.write(1, record);
        record.tid = 77;
        assert_eq!(calls.settle((&rows, &records), 1, record).tid, 78);
        let told: Vec<_> = calls
            .into_snapshots()
            .iter()
            .map(|of| (of.slot, of.count, of.blocked_ns))
            .collect();
        assert_eq!(told, [(1, 2, 40), (2, 1, 10)]);
    }
}
