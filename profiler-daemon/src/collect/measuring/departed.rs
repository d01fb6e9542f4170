//! Threads that a pass has found to be gone, to have taken over the id of their process's first
//! thread, or to execute another program: rows of what they did before are over.

use std::collections::{HashMap, HashSet};

use profiler_common::Phase;
use profiler_common::measured::{MeasuredKey, MeasuredThread};

use crate::kernel::ThreadSnapshot;
use crate::units::BootNs;

/// A thread by its id, or by that of its process, and its start.
type Started = (u32, BootNs);

/// Threads that have the id of their process's first thread and are not it: they have executed a
/// program, and had another id before. By their process's id.
pub(in crate::collect) type Moved = HashSet<Started>;

/// See the module. By default nobody is.
#[derive(Default)]
pub(in crate::collect) struct Departed {
    exited: HashSet<Started>,
    /// Those that were not known to be.
    moved: Moved,
    /// How often threads have executed a program, of those that have.
    programs: HashMap<Started, u32>,
}

impl Departed {
    /// `moved`: as of the last pass; afterwards of this one.
    pub(in crate::collect) fn of(threads: &[ThreadSnapshot], moved: &mut Moved) -> Self {
        let mut departed = Self::default();
        let mut now = Moved::new();
        for thread in threads {
            let id = (thread.tid, thread.start_boot_ns);
            if thread.phase == Phase::Exited {
                departed.exited.insert(id);
            }
            if thread.exec_count > 0 {
                departed.programs.insert(id, thread.exec_count);
                if thread.tid == thread.pid && thread.start_boot_ns != thread.process_start_boot_ns
                {
                    now.insert(id);
                }
            }
        }
        departed.moved = now.difference(moved).copied().collect();
        *moved = now;
        departed
    }

    /// Whether there may be threads that are gone.
    pub(in crate::collect) fn any_gone(&self) -> bool {
        !(self.exited.is_empty() && self.moved.is_empty())
    }

    /// Whether there is no thread of that id and start any more.
    pub(in crate::collect) fn is_gone(&self, thread: &MeasuredThread) -> bool {
        let start = BootNs::new(thread.start_boot_ns);
        self.exited.contains(&(thread.tid, start)) || self.has_moved(thread)
    }

    /// Whether it has another id by now. (A second thread of that start, and of another id, would
    /// not have outlived the exec.)
    fn has_moved(&self, thread: &MeasuredThread) -> bool {
        let start = BootNs::new(thread.start_boot_ns);
        thread.tid != thread.pid && self.moved.contains(&(thread.pid, start))
    }

    /// Whether nothing is added to that row any more.
    pub(in crate::collect) fn is_over(&self, key: &MeasuredKey) -> bool {
        self.is_gone(&key.thread) || self.has_executed(key)
    }

    /// Whether the program that the row is of was replaced by another.
    pub(in crate::collect) fn has_executed(&self, key: &MeasuredKey) -> bool {
        let id = (key.thread.tid, BootNs::new(key.thread.start_boot_ns));
        let now = self.programs.get(&id);
        now.is_some_and(|now| *now > key.exec_count) || self.has_moved(&key.thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::made_up;

    fn key(tid: u32, start_ns: u64, exec_count: u32) -> MeasuredKey {
        MeasuredKey {
            thread: MeasuredThread {
                start_boot_ns: start_ns,
                tid,
                pid: 7,
            },
            process_start_boot_ns: 100,
            function: 16,
            exec_count,
        }
    }

    fn thread(tid: u32, start_ns: u64, exec_count: u32, phase: Phase) -> ThreadSnapshot {
        let mut thread = made_up(1, tid, phase);
        thread.pid = 7;
        thread.start_boot_ns = BootNs::new(start_ns);
        thread.process_start_boot_ns = BootNs::new(100);
        thread.exec_count = exec_count;
        thread
    }

    // Check that the rows of a thread which executes a program, and takes over the id of the first
    // thread, are over under its old id, that it is told once, and that what it does in the new
    // program is not over; and that the first thread, which ended, is gone.
    #[test]
    fn a_thread_that_takes_the_first_ones_id_over() {
        let mut moved = Moved::new();
        let before = [
            thread(7, 100, 0, Phase::Blocked),
            thread(9, 200, 0, Phase::Running),
        ];
        let departed = Departed::of(&before, &mut moved);
        assert!(!departed.any_gone() && !departed.is_over(&key(9, 200, 0)));

        let after = [
            thread(7, 100, 0, Phase::Exited),
            thread(7, 200, 1, Phase::Running),
        ];
        let departed = Departed::of(&after, &mut moved);
        assert!(departed.any_gone());
        let old = key(9, 200, 0);
        assert!(departed.is_over(&old) && departed.has_executed(&old));
        let new = key(7, 200, 1);
        assert!(!departed.is_over(&new) && !departed.is_gone(&new.thread));
        let first = key(7, 100, 0);
        assert!(departed.is_over(&first) && !departed.has_executed(&first));
        let other = key(10, 300, 0);
        assert!(!departed.is_over(&other));

        let later = [thread(7, 200, 1, Phase::Running)];
        assert!(!Departed::of(&later, &mut moved).any_gone());
    }

    // Check that of a first thread that executes a program what it did before is over, and the
    // thread is not gone.
    #[test]
    fn a_first_thread_that_executes_a_program() {
        let mut moved = Moved::new();
        let after = [thread(7, 100, 2, Phase::Blocked)];
        let departed = Departed::of(&after, &mut moved);
        assert!(!departed.any_gone());
        assert!(departed.is_over(&key(7, 100, 1)) && departed.has_executed(&key(7, 100, 1)));
        assert!(!departed.is_over(&key(7, 100, 2)));
    }
}
