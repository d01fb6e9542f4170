//! What was last told of each thread, so that passes can leave out those that sleep on: most
//! threads of a machine. Pure.

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

/// A thread as it was told.
#[derive(Clone, Copy, Debug, Default)]
struct ToldThread {
    was: Peeked,
    lives: bool,
    /// It slept as it was told, and had had no event since it was told before. So what it did
    /// between the two, which parts of a pass may have seen and others not, is told too.
    is_settled: bool,
}

/// See the module. By slot.
#[derive(Debug, Default)]
pub(super) struct Told(Vec<ToldThread>);

impl Told {
    /// So many slots are in use.
    pub(super) fn grow(&mut self, slots: usize) {
        self.0
            .resize(slots.max(self.0.len()), ToldThread::default());
    }

    /// Threads that have a record.
    pub(super) fn in_use(&self) -> usize {
        self.0.iter().filter(|thread| thread.was.pid != 0).count()
    }

    /// Those of them that have not ended.
    pub(super) fn living(&self) -> usize {
        self.0.iter().filter(|thread| thread.lives).count()
    }

    /// Sets `wanted` for all threads of processes of which one has had an event since it was told,
    /// or may have, as `peek` finds them now.
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

    /// The thread in `slot` is told as this record has it.
    pub(super) fn tell(&mut self, slot: u32, record: &ThreadRecord) {
        let phase = Phase::from_u32(record.clock.phase);
        let was = Peeked::of(record);
        let is_woken = was.woken_ns >= record.clock.last_ns;
        if let Some(thread) = self.0.get_mut(slot as usize) {
            *thread = ToldThread {
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

    /// The thread in `slot` is told to have ended, whatever its record says.
    pub(super) fn end(&mut self, slot: u32) {
        if let Some(thread) = self.0.get_mut(slot as usize) {
            (thread.lives, thread.is_settled) = (false, false);
        }
    }

    /// Its record is given back.
    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(thread) = self.0.get_mut(slot as usize) {
            *thread = ToldThread::default();
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

    fn wanted(told: &Told, records: &[ThreadRecord]) -> Vec<usize> {
        let mut wanted = vec![false; records.len()];
        told.changed(|slot| Peeked::of(&records[slot]), &mut wanted);
        let of = wanted.iter().enumerate();
        of.filter_map(|(slot, wanted)| wanted.then_some(slot))
            .collect()
    }

    fn tell_all(told: &mut Told, records: &[ThreadRecord]) {
        told.grow(records.len());
        for (slot, record) in records.iter().enumerate() {
            told.tell(slot as u32, record);
        }
    }

    #[test]
    fn processes_that_sleep_on_are_left_out() {
        // Check that a process is left out once all of its threads were told twice without an event
        // in between, and that an event of one, its being woken, a new thread of it or one that
        // could not be read brings all of it back.
        let mut records = [asleep(0, 0), asleep(5, 2), asleep(5, 4), asleep(6, 2)];
        let mut told = Told::default();
        told.grow(records.len());
        assert_eq!(wanted(&told, &records), [1, 2, 3], "nothing is told yet");
        tell_all(&mut told, &records);
        assert_eq!(wanted(&told, &records), [1, 2, 3], "told once");
        tell_all(&mut told, &records);
        assert!(wanted(&told, &records).is_empty());
        assert_eq!((told.in_use(), told.living()), (3, 3));

        records[1].sequence += 2;
        assert_eq!(wanted(&told, &records), [1, 2]);
        tell_all(&mut told, &records);
        assert_eq!(wanted(&told, &records), [1, 2], "may have been half told");
        tell_all(&mut told, &records);
        records[3].clock.woken_ns = 1000;
        assert_eq!(wanted(&told, &records), [3]);
        tell_all(&mut told, &records);
        tell_all(&mut told, &records);
        assert_eq!(wanted(&told, &records), [3], "it runs any moment");
        told.unsettle(2);
        assert_eq!(wanted(&told, &records), [1, 2, 3]);
        tell_all(&mut told, &records);

        let mut more = records.to_vec();
        more.push(asleep(5, 0));
        told.grow(more.len());
        assert_eq!(wanted(&told, &more), [1, 2, 3, 4]);
    }

    #[test]
    fn who_has_ended_is_told_until_the_record_is_given_back() {
        // Check that a thread that has ended, as its record says or as was found otherwise, is
        // never left out, and that its place is free when it is given back.
        let mut records = [asleep(0, 0), asleep(5, 2), asleep(6, 2)];
        let mut told = Told::default();
        records[1].clock.phase = Phase::Exited as u32;
        tell_all(&mut told, &records);
        tell_all(&mut told, &records);
        told.end(2);
        assert_eq!(wanted(&told, &records), [1, 2]);
        assert_eq!((told.in_use(), told.living()), (2, 0));
        told.forget(1);
        records[1] = asleep(0, 0);
        assert_eq!(wanted(&told, &records), [2]);
        assert_eq!(told.in_use(), 1);
        let mut of_one = vec![false; 3];
        told.want_process(2, &mut of_one);
        assert_eq!(of_one, [false, false, true]);
    }
}
