//! Which module code is in that a process makes at run time.

use super::{ids::ProcessKey, live::Processes, module::ModuleId};

/// Shortest wait between two looks for the file in which a process names the code it makes, nanoseconds.
const JIT_WAIT_NS: u64 = 1_000_000_000;

impl Processes {
    /// The module of the code that a linked process makes at run time: [`ModuleId::JIT`] until it says how that is called,
    /// which is looked at once a second at most.
    pub fn jit(&mut self, key: ProcessKey, time_ns: u64) -> ModuleId {
        let Some(id) = self.by_key.get(&key).copied() else {
            return ModuleId::JIT;
        };
        let Some(instance) = self.instances.get_mut(&id) else {
            return ModuleId::JIT;
        };
        if instance.jit == ModuleId::JIT
            && time_ns.saturating_sub(instance.jit_looked_ns) > JIT_WAIT_NS
        {
            instance.jit_looked_ns = time_ns;
            let owner = instance.owner(id);
            let named = self.files.perf_map(
                (&mut self.table, owner),
                &*self.source,
                instance.pid,
                instance.start_ns,
            );
            if let Some(module) = named {
                instance.jit = module;
                self.jits.insert(module, id);
            }
        }
        instance.jit
    }
}
