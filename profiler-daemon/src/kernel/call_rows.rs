//! The system-call rows of one pass, each thread's as they stood when its record was read.
//!
//! A call that returns between the reading of its row and that of its thread's record would be
//! under way at neither: its time would be in the classes of this pass and in the calls of the
//! next, so a window between the two would have more in calls than at all.

use std::collections::HashSet;
use std::ops::Range;

use profiler_common::records::{NO_SLOT, SyscallRecord, ThreadRecord};

use super::records::Records;

/// Readings of a thread whose calls return all the time. Such calls are short, and it matters
/// little where one of them goes.
const TRIES: usize = 4;

/// See the module.
pub(super) struct CallRows {
    /// What was found, by slot, with the number of each row.
    found: Vec<(SyscallRecord, usize)>,
    /// Rows in use, those of other threads too.
    in_use: usize,
}

impl CallRows {
    /// The rows in use among the first `used` but the first, of threads that are `wanted`.
    pub(super) fn read(rows: &Records<SyscallRecord>, used: usize, wanted: &[bool]) -> Self {
        let mut all = 0;
        let mut found: Vec<_> = in_use(rows, used)
            .inspect(|_| all += 1)
            .filter(|(row, _)| wanted.get(row.slot as usize) == Some(&true))
            .collect();
        found.sort_unstable_by_key(|(row, index)| (row.slot, *index));
        Self { found, in_use: all }
    }

    /// Rows in use, those of other threads too.
    pub(super) const fn in_use(&self) -> usize {
        self.in_use
    }

    /// Where calls of the thread have returned since, its rows are read again, and then its record,
    /// until both are of one moment: that record. `None`: none have, and the record that was read
    /// is of that moment.
    pub(super) fn settle(
        &mut self,
        (rows, records): (&Records<SyscallRecord>, &Records<ThreadRecord>),
        slot: u32,
    ) -> Option<ThreadRecord> {
        let (mut record, mut is_behind) = (None, false);
        for _ in 0..TRIES {
            is_behind |= self.renew(rows, slot);
            if !is_behind {
                break;
            }
            // One that is just being changed is behind its rows, and tried again.
            if let Some(now) = records.read_now(slot as usize) {
                (record, is_behind) = (Some(now), false);
            }
        }
        record
    }

    /// Reads the rows of `slot` again; whether calls have returned since.
    fn renew(&mut self, rows: &Records<SyscallRecord>, slot: u32) -> bool {
        let mut returned = false;
        let of_slot = self.of(slot);
        for (row, index) in &mut self.found[of_slot] {
            let now = rows.read(*index);
            if now.slot == slot && now.count != row.count {
                *row = now;
                returned = true;
            }
        }
        returned
    }

    fn of(&self, slot: u32) -> Range<usize> {
        let from = self.found.partition_point(|(row, _)| row.slot < slot);
        let len = self.found[from..].partition_point(|(row, _)| row.slot == slot);
        from..from + len
    }

    /// All of them; those of the `dying` as they are now, with those that were made since: nothing
    /// is read of them later.
    pub(super) fn finish(
        self,
        rows: &Records<SyscallRecord>,
        used: usize,
        dying: &[u32],
    ) -> Vec<SyscallRecord> {
        let found = self.found.into_iter().map(|(row, _)| row);
        if dying.is_empty() {
            return found.collect();
        }
        let dying: HashSet<u32> = dying.iter().copied().collect();
        let last = in_use(rows, used).map(|(row, _)| row);
        found
            .filter(|row| !dying.contains(&row.slot))
            .chain(last.filter(|row| dying.contains(&row.slot)))
            .collect()
    }
}

/// Rows in which calls were counted, with their numbers.
fn in_use(
    rows: &Records<SyscallRecord>,
    used: usize,
) -> impl Iterator<Item = (SyscallRecord, usize)> {
    (1..used)
        .map(|index| (rows.read(index), index))
        .filter(|(row, _)| row.slot != NO_SLOT && row.count != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memory_file::memory_file;

    fn mapped<T: aya::Pod>(len: u32) -> Records<T> {
        let file = memory_file(&vec![0; size_of::<T>() * len as usize]).expect("a memory file");
        Records::map(&file, len).expect("it can be mapped")
    }

    fn row(slot: u32, count: u64, total_ns: u64) -> SyscallRecord {
        SyscallRecord {
            slot,
            number: 35,
            count,
            total_ns,
            blocked_ns: total_ns,
            ..SyscallRecord::default()
        }
    }

    fn told(rows: &[SyscallRecord]) -> Vec<(u32, u64, u64)> {
        rows.iter()
            .map(|row| (row.slot, row.count, row.blocked_ns))
            .collect()
    }

    #[test]
    fn a_call_that_returns_between_two_readings_is_in_both() {
        // Check that where a call returns after its row was read, the row and the record are read
        // again, that other threads' rows stay as they were, and that a record is not read again
        // where nothing has changed.
        let (rows, records) = (mapped(4), mapped::<ThreadRecord>(4));
        rows.write(1, row(2, 1, 10));
        rows.write(2, row(1, 1, 10));
        let mut calls = CallRows::read(&rows, 4, &[true; 4]);
        assert!(calls.settle((&rows, &records), 1).is_none());

        rows.write(1, row(2, 2, 30));
        rows.write(2, row(1, 2, 40));
        let mut record = records.read(1);
        record.tid = 78;
        records.write(1, record);
        let newer = calls.settle((&rows, &records), 1);
        assert_eq!(newer.map(|record| record.tid), Some(78));
        let all = calls.finish(&rows, 4, &[]);
        assert_eq!(told(&all), [(1, 2, 40), (2, 1, 10)]);
    }

    #[test]
    fn the_last_of_the_dying_is_read() {
        // Check that of a thread that has ended a row is found that was made after the first
        // reading, also behind those in use then, once, and that others' new rows are left for the
        // next pass.
        let rows = mapped(6);
        rows.write(1, row(1, 1, 10));
        rows.write(2, row(2, 1, 10));
        let calls = CallRows::read(&rows, 3, &[true; 3]);
        rows.write(1, row(1, 3, 30));
        rows.write(3, row(2, 7, 70));
        rows.write(4, row(1, 5, 50));
        let all = calls.finish(&rows, 6, &[1]);
        assert_eq!(told(&all), [(2, 1, 10), (1, 3, 30), (1, 5, 50)]);
    }
}
