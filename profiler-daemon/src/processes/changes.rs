//! Which processes have other mappings than when it was last asked: for whoever keeps something in
//! step with them.

use std::sync::Arc;

use super::{live::Processes, mappings::Mapping};
use crate::units::MonoNs;

/// One program in one process: another one after each exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChangedImage {
    instance: u64,
    execs: u32,
    exec_ns: MonoNs,
    forked: bool,
}

impl ChangedImage {
    /// Tells the process apart from all others.
    pub(super) const fn instance(self) -> u64 {
        self.instance
    }

    /// Whether it began as a copy of another process and is still the same program.
    #[must_use]
    pub const fn is_forked(self) -> bool {
        self.forked && self.execs == 0
    }

    /// When the process executed it, monotonic nanoseconds; 0 = it was there, or was its parent's.
    #[must_use]
    pub const fn exec_ns(self) -> MonoNs {
        self.exec_ns
    }
}

/// What a process number means now.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The number.
    pub pid: u32,
    /// The program and what it has mapped; `None`: there is no such process, or it has no memory of
    /// its own.
    pub now: Option<(ChangedImage, Arc<Vec<Mapping>>)>,
}

impl Processes {
    /// The processes that changed since the last call.
    pub fn take_changed(&mut self) -> Vec<Changed> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|pid| self.look_up(pid)).collect()
    }

    /// What a process number means now.
    #[must_use]
    pub fn look_up(&self, pid: u32) -> Changed {
        let newest = self.by_pid.get(&pid).and_then(|ids| ids.last());
        let instance = newest.and_then(|id| Some((*id, self.instances.get(id)?)));
        let living = instance
            .filter(|(_, instance)| instance.exited_ns.is_none() && !instance.kernel_thread);
        Changed {
            pid,
            now: living.map(|(id, instance)| {
                let image = ChangedImage {
                    instance: id,
                    execs: instance.execs,
                    exec_ns: instance.exec_ns,
                    forked: instance.forked_ns.is_some(),
                };
                (image, Arc::clone(instance.mappings.present_shared()))
            }),
        }
    }
}
