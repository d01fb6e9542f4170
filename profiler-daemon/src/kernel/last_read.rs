//! What each thread was when it was last read, so that passes can leave out those that sleep on:
//! most threads of a machine. Pure.

use std::collections::HashSet;

use profiler_common::Phase;
use profiler_common::records::ThreadRecord;

/// The words of a thread's record that say whether it has had an event, and whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Peeked {
    /// [`ThreadRecord::sequence`]: changed by each event of the thread.
    pub(super) sequence: u32,
    /// 0: the record is empty.
    pub(super) pid: u32,
    /// Written by who wakes it.
    pub(super) woken_ns: u64,
}

impl Peeked {
    const fn of(record: &ThreadRecord) -> Self {
        Self {
            sequence: record.sequence,
            pid: record.pid,
            woken_ns: record.clock.woken_ns,
        }
    }
}

/// A thread as it was last read.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadLastRead {
    was: Peeked,
    lives: bool,
    /// It slept as it was read, and had had no event since it was read before. So what it did
    /// between the two, which parts of a pass may have seen and others not, is read too.
    is_settled: bool,
}

/// See the module. By slot.
#[derive(Debug, Default)]
pub(super) struct LastRead(Vec<ThreadLastRead>);

impl LastRead {
    /// So many slots are in use.
    pub(super) fn grow(&mut self, slots: usize) {
        self.0
            .resize(slots.max(self.0.len()), ThreadLastRead::default());
    }

    /// Threads that have a record.
    pub(super) fn in_use(&self) -> usize {
        self.0.iter().filter(|thread| thread.was.pid != 0).count()
    }

    /// Those of them that have not ended.
    pub(super) fn living(&self) -> usize {
        self.0.iter().filter(|thread| thread.lives).count()
    }

    /// Sets `wanted` for all threads of processes of which one has had an event since it was last
    /// read, or may have, as `peek` finds them now.
    pub(super) fn changed(&self, peek: impl Fn(usize) -> Peeked, wanted: &mut [bool]) {
        let mut awake: HashSet<u32> = HashSet::new();
        for (slot, thread) in self.0.iter().enumerate().take(wanted.len()) {
            let now = peek(slot);
            if now != thread.was || (now.pid != 0 && !thread.is_settled) {
                awake.extend([thread.was.pid, now.pid].iter().filter(|pid| **pid != 0));
                wanted[slot] = true;
            }
        }
        for (thread, wanted) in self.0.iter().zip(wanted) {
            *wanted |= awake.contains(&thread.was.pid);
        }
    }

    /// Sets `wanted` for all threads of the process of the one in `slot`.
    pub(super) fn want_process(&self, slot: u32, wanted: &mut [bool]) {
        let Some(pid) = self.0.get(slot as usize).map(|thread| thread.was.pid) else {
            return;
        };
        for (thread, wanted) in self.0.iter().zip(wanted) {
            *wanted |= thread.was.pid == pid;
        }
    }

    /// The thread in `slot` was read, as this record has it.
    pub(super) fn read(&mut self, slot: u32, record: &ThreadRecord) {
        let phase = Phase::from_u32(record.clock.phase);
        let was = Peeked::of(record);
        let is_woken = was.woken_ns >= record.clock.last_ns;
        if let Some(thread) = self.0.get_mut(slot as usize) {
            *thread = ThreadLastRead {
                was,
                lives: was.pid != 0 && phase != Some(Phase::Exited),
                is_settled: phase == Some(Phase::Blocked) && !is_woken && thread.was == was,
            };
        }
    }

    /// The thread in `slot` could not be read: the next pass reads it.
    pub(super) fn unsettle(&mut self, slot: u32) {
        if let Some(thread) = self.0.get_mut(slot as usize) {
            thread.is_settled = false;
        }
    }

    /// The thread in `slot` is taken to have ended, whatever its record says.
    pub(super) fn end(&mut self, slot: u32) {
        if let Some(thread) = self.0.get_mut(slot as usize) {
            (thread.lives, thread.is_settled) = (false, false);
        }
    }

    /// Its record is given back.
    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(thread) = self.0.get_mut(slot as usize) {
            *thread = ThreadLastRead::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sleeping thread of a process.
    fn asleep(pid: u32, sequence: u32) -> ThreadRecord {
        // SAFETY: plain numbers.
        let mut record: ThreadRecord = unsafe { std::mem::zeroed() };
        (record.pid, record.sequence, record.tid) = (pid, sequence, pid);
        record.clock.phase = Phase::Blocked as u32;
        record.clock.last_ns = 1000;
        record
    }

    fn wanted(last_read: &LastRead, records: &[ThreadRecord]) -> Vec<usize> {
        let mut wanted = vec![false; records.len()];
        last_read.changed(|slot| Peeked::of(&records[slot]), &mut wanted);
        let of = wanted.iter().enumerate();
        of.filter_map(|(slot, wanted)| wanted.then_some(slot))
            .collect()
    }

    fn read_all(last_read: &mut LastRead, records: &[ThreadRecord]) {
        last_read.grow(records.len());
        for (slot, record) in records.iter().enumerate() {
            last_read.read(slot as u32, record);
        }
    }

    #[test]
    fn processes_that_sleep_on_are_left_out() {
        // Check that a process is left out once all of its threads were read twice without an event
        // in between, and that an event of one, its being woken, a new thread of it or one that
        // could not be read brings all of it back.
        let mut records = [asleep(0, 0), asleep(5, 2), asleep(5, 4), asleep(6, 2)];
        let mut last_read = LastRead::default();
        last_read.grow(records.len());
        assert_eq!(
            wanted(&last_read, &records),
            [1, 2, 3],
            "nothing is read yet"
        );
        read_all(&mut last_read, &records);
        assert_eq!(wanted(&last_read, &records), [1, 2, 3], "read once");
        read_all(&mut last_read, &records);
        assert!(wanted(&last_read, &records).is_empty());
        assert_eq!((last_read.in_use(), last_read.living()), (3, 3));

        records[1].sequence += 2;
        assert_eq!(wanted(&last_read, &records), [1, 2]);
        read_all(&mut last_read, &records);
        assert_eq!(
            wanted(&last_read, &records),
            [1, 2],
            "may have been half read"
        );
        read_all(&mut last_read, &records);
        records[3].clock.woken_ns = 1000;
        assert_eq!(wanted(&last_read, &records), [3]);
        read_all(&mut last_read, &records);
        read_all(&mut last_read, &records);
        assert_eq!(wanted(&last_read, &records), [3], "it runs any moment");
        last_read.unsettle(2);
        assert_eq!(wanted(&last_read, &records), [1, 2, 3]);
        read_all(&mut last_read, &records);

        let mut more = records.to_vec();
        more.push(asleep(5, 0));
        last_read.grow(more.len());
        assert_eq!(wanted(&last_read, &more), [1, 2, 3, 4]);
    }

    #[test]
    fn who_has_ended_is_told_until_the_record_is_given_back() {
        // Check that a thread that has ended, as its record says or as was found otherwise, is
        // never left out, and that its place is free when it is given back.
        let mut records = [asleep(0, 0), asleep(5, 2), asleep(6, 2)];
        let mut last_read = LastRead::default();
        records[1].clock.phase = Phase::Exited as u32;
        read_all(&mut last_read, &records);
        read_all(&mut last_read, &records);
        last_read.end(2);
        assert_eq!(wanted(&last_read, &records), [1, 2]);
        assert_eq!((last_read.in_use(), last_read.living()), (2, 0));
        last_read.forget(1);
        records[1] = asleep(0, 0);
        assert_eq!(wanted(&last_read, &records), [2]);
        assert_eq!(last_read.in_use(), 1);
        let mut of_one = vec![false; 3];
        last_read.want_process(2, &mut of_one);
        assert_eq!(of_one, [false, false, true]);
    }
}
