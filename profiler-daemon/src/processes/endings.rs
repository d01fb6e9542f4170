//! When a process has ended. Records tell of threads that end, and not which is a process's last:
//! `/proc` is asked. It still counts a thread whose record was read before the kernel was done with
//! it, and no later record tells of that one's end, so processes without their first thread are
//! looked at again.

use super::{ids::ProcessKey, live::Processes};
use crate::units::MonoNs;

/// Processes without their first thread that are looked at in one pass.
const MAX_LOOKS: usize = 32;

impl Processes {
    /// A thread ended. Only the last one ends the process, and records do not say which is the
    /// last.
    pub(super) fn exit(&mut self, pid: u32, tid: u32, time_ns: MonoNs) {
        let Some(id) = self.by_pid.get(&pid).and_then(|ids| {
            let mut ids = ids.iter().rev();
            ids.find(|id| self.instances[*id].start_ns <= time_ns)
                .copied()
        }) else {
            return;
        };
        let Some(instance) = self.instances.get_mut(&id) else {
            return;
        };
        if tid != pid && !instance.leader_gone {
            return;
        }
        instance.leader_gone = true;
        // A process watched since its fork that never made a thread need not be looked up.
        let may_go_on = instance.threaded || instance.forked_ns.is_none();
        self.end_unless(may_go_on, id, time_ns);
    }

    /// Looks again at processes without their first thread, some in each pass.
    pub(super) fn look_at_leaderless(&mut self, now_ns: MonoNs) {
        for _ in 0..self.leaderless.len().min(MAX_LOOKS) {
            let Some(id) = self.leaderless.next() else {
                return;
            };
            let is_leaderless = |id| {
                let instance = self.instances.get(&id)?;
                (instance.leader_gone && instance.exited_ns.is_none()).then_some(())
            };
            if is_leaderless(id).is_some() {
                self.end_unless(true, id, now_ns);
            } else {
                self.leaderless.remove(id);
            }
        }
    }

    /// A process whose first thread is gone has ended, unless it `may_go_on` and `/proc` counts
    /// other threads of it.
    fn end_unless(&mut self, may_go_on: bool, id: u64, time_ns: MonoNs) {
        let Some(instance) = self.instances.get_mut(&id) else {
            return;
        };
        let pid = instance.pid;
        let goes_on = may_go_on
            && self
                .source
                .stat(pid)
                .is_some_and(|stat| instance.is_listed(stat.start_ticks) && stat.threads > 1);
        if goes_on {
            self.leaderless.insert(id);
        } else {
            self.leaderless.remove(id);
            instance.exited_ns = Some(time_ns);
            self.changed.insert(pid);
        }
    }

    /// The kernel side is done with a process: it may be forgotten once its end is some seconds
    /// ago.
    pub fn retire(&mut self, key: ProcessKey) {
        if let Some(instance) = self
            .by_key
            .get(&key)
            .and_then(|id| self.instances.get_mut(id))
        {
            instance.retired = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::live::ProcessOptions, *};
    use crate::processes::{
        made_up::{Machine, sweep},
        source::ProcessSource as _,
    };
    use crate::sys::clock::ClockOffsets;

    const SECOND: u64 = 1_000_000_000;

    fn processes(machine: &Machine) -> Processes {
        let options = ProcessOptions {
            cmdline: false,
            open_files: 10,
        };
        let mut processes =
            Processes::new(Box::new(machine.clone()), options, ClockOffsets::default());
        processes.seed_from_proc();
        processes
    }

    fn living(processes: &Processes, pid: u32) -> bool {
        processes.look_up(pid).now.is_some()
    }

    // Check that a process whose threads all ended while the kernel still counted two of them is
    // found to have ended, without another record, and is then forgotten like others.
    #[test]
    fn the_last_thread_is_counted_late() {
        let machine = Machine::default();
        machine.show(4, 0, &[(0x1000, "/bin/threads")]);
        machine.threads(4, 2);
        let mut processes = processes(&machine);
        processes.exit(4, 5, MonoNs::new(SECOND));
        processes.exit(4, 4, MonoNs::new(SECOND + 1));
        assert!(living(&processes, 4));
        sweep(&mut processes, 2 * SECOND);
        assert!(living(&processes, 4), "it goes on");
        machine.hide(4);
        sweep(&mut processes, 3 * SECOND);
        assert!(!living(&processes, 4));
        assert!(
            processes
                .take_changed()
                .iter()
                .any(|changed| changed.pid == 4)
        );
        sweep(&mut processes, 30 * SECOND);
        assert!(processes.is_empty() && processes.leaderless.len() == 0);
    }

    // Check that of many processes that go on without their first thread a bounded number is looked
    // at in a pass, and that all have their turn.
    #[test]
    fn all_have_their_turn() {
        let machine = Machine::default();
        let pids = 1..=100;
        for pid in pids.clone() {
            machine.show(pid, 0, &[]);
            machine.threads(pid, 2);
        }
        let mut processes = processes(&machine);
        for pid in pids.clone() {
            processes.exit(pid, pid, MonoNs::new(SECOND));
        }
        assert_eq!(processes.leaderless.len(), 100);
        for pid in pids.clone() {
            machine.hide(pid);
        }
        let left =
            |processes: &Processes| pids.clone().filter(|pid| living(processes, *pid)).count();
        for (pass, expected) in [68, 36, 4, 0].into_iter().enumerate() {
            processes.sweep(
                MonoNs::new((2 + pass as u64) * SECOND),
                ClockOffsets::default(),
            );
            assert_eq!(left(&processes), expected);
        }
        assert!(machine.stat(1).is_none());
    }
}
