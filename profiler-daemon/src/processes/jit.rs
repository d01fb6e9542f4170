//! Which module code is in that a process makes at run time.

use super::{
    files::printable,
    ids::ProcessKey,
    live::Processes,
    module::{Module, ModuleId, ModuleIdentity, ModuleKind, ModuleTable},
    shares::Owner,
};
use crate::units::MonoNs;

/// Shortest wait between two looks for the file in which a process names the code it makes,
/// nanoseconds.
const JIT_WAIT_NS: u64 = 1_000_000_000;

impl Processes {
    /// The module of the code that a linked process makes at run time: one that bears the process's
    /// name, until the process says how this code is called, which is looked at once a second at
    /// most. [`ModuleId::JIT`] where neither is known, or has room.
    pub fn jit(&mut self, key: ProcessKey, time_ns: MonoNs) -> ModuleId {
        let Some(id) = self.by_key.get(&key).copied() else {
            return ModuleId::JIT;
        };
        let Some(instance) = self.instances.get_mut(&id) else {
            return ModuleId::JIT;
        };
        if !instance.jit_has_names && time_ns.saturating_since(instance.jit_looked_ns) > JIT_WAIT_NS
        {
            instance.jit_looked_ns = time_ns;
            let owner = instance.owner(id);
            let named = self.files.perf_map(
                (&mut self.table, owner),
                &*self.source,
                instance.pid,
                instance.start_ns,
            );
            instance.jit_has_names = named.is_some();
            if let Some(named) = named {
                instance.jit = named;
                self.jits.insert(named, id);
            } else if instance.jit == ModuleId::JIT {
                instance.jit = nameless_code((&mut self.table, owner), &instance.comm);
            }
        }
        instance.jit
    }

    /// Whether this is the code of a process that does not say how it is called.
    #[must_use]
    pub fn is_nameless(&self, module: ModuleId) -> bool {
        self.modules().get(module).kind == ModuleKind::Jit && !self.jits.contains_key(&module)
    }

    /// Whether code of this module, where it is some that the process made, is still in that one.
    pub fn holds_jit(&mut self, key: ProcessKey, time_ns: MonoNs, module: ModuleId) -> bool {
        let is_jit = self.modules().get(module).kind == ModuleKind::Jit;
        !is_jit || self.jit(key, time_ns) == module
    }
}

/// One module for the code that all programs of this name make and do not name: as a whole it is
/// one function.
fn nameless_code((table, owner): (&mut ModuleTable, Owner), comm: &[u8]) -> ModuleId {
    let comm = printable(comm.split(|byte| *byte == 0).next().unwrap_or_default());
    if comm.is_empty() {
        return ModuleId::JIT;
    }
    // No other name begins so: a process cannot take that of the code of another one.
    let identity = ModuleIdentity::Named(format!("[jit] of {comm}").into());
    let module = || Module::named(&format!("[jit] {comm}"), ModuleKind::Jit);
    match table.intern_for(owner, identity, module) {
        ModuleId::UNKNOWN => ModuleId::JIT,
        module => module,
    }
}
