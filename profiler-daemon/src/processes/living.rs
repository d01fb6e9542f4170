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
