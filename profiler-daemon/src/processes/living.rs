//! Who lives now: for those who choose processes by what these are called or where they belong.

use super::{ids::ProcessKey, live::Processes};

/// A process that lives.
#[derive(Clone, Copy, Debug)]
pub struct Living<'a> {
    /// Its number.
    pub pid: u32,
    /// Its name: at most 15 bytes that it chose.
    pub comm: &'a [u8],
    /// Its control group, as far as it was read: that of its parent until then.
    pub cgroup: Option<&'a str>,
    /// Another number than before whenever it has mapped something else.
    pub changes: u64,
}

impl Processes {
    /// Whether it is known that the process has ended.
    #[must_use]
    pub fn has_ended(&self, process: ProcessKey) -> bool {
        let id = self.by_key.get(&process);
        let instance = id.and_then(|id| self.instances.get(id));
        instance.is_some_and(|instance| instance.exited_ns.is_some())
    }

    /// All processes that live and are none of the kernel's, in no order.
    pub fn living(&self) -> impl Iterator<Item = Living<'_>> {
        let living = self.instances.values();
        let living =
            living.filter(|instance| instance.exited_ns.is_none() && !instance.kernel_thread);
        living.map(|instance| {
            let comm = &instance.comm;
            let length = comm.iter().position(|byte| *byte == 0);
            let mappings = &instance.mappings;
            Living {
                pid: instance.pid,
                comm: &comm[..length.unwrap_or(comm.len())],
                cgroup: instance.facts.cgroup.as_deref(),
                changes: u64::from(instance.execs) << 32 | u64::from(mappings.changes()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ids::START_TICK_NS, live::ProcessOptions, made_up::Machine};
    use super::*;
    use crate::sys::{clock::ClockOffsets, perf_record::Event};
    use crate::units::MonoNs;

    // Check that a process of which nothing but its fork is known lives on when records are lost
    // after a suspend, which moves the clocks apart, and that one which took its number does not.
    #[test]
    fn suspended() {
        let machine = Machine::default();
        let options = ProcessOptions {
            cmdline: false,
            open_files: 10,
        };
        let mut clocks = ClockOffsets::default();
        let mut processes = Processes::new(Box::new(machine.clone()), options, clocks);
        machine.show(1, 0, &[]);
        processes.seed_from_proc();
        let ticks = [200, 201];
        for (pid, ticks) in [2, 3].into_iter().zip(ticks) {
            processes.apply(&Event::Fork {
                pid,
                ppid: 1,
                tid: pid,
                ptid: 1,
                time_ns: MonoNs::new(ticks * START_TICK_NS + 5),
            });
        }
        machine.show(2, ticks[0], &[]);
        machine.show(3, ticks[1] + 1000, &[]);
        let now_ns = MonoNs::new(9_000_000_000);
        clocks.boot_minus_monotonic_ns += 3_600_000_000_000;
        processes.apply(&Event::Lost {
            records: 1,
            time_ns: now_ns,
        });
        processes.sweep(now_ns, clocks);
        let mut living: Vec<u32> = processes.living().map(|living| living.pid).collect();
        living.sort_unstable();
        assert_eq!(living, [1, 2]);
    }
}
