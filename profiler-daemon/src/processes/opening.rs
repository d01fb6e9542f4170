//! The open file of a module: the one that is kept, or opened again through a process that has it.

use std::sync::Arc;

use super::{
    files::{FileOwner, ModuleFile, Seen},
    live::Processes,
    module::{ModuleId, ModuleKind},
};

impl Processes {
    /// The open file of a module; `None` where it is no file or gone.
    pub fn file(&mut self, module: ModuleId) -> Option<Arc<ModuleFile>> {
        if let Some(file) = self.files.file(&self.table, &*self.source, module) {
            return Some(file);
        }
        match self.table.get(module).kind {
            ModuleKind::Jit => self.perf_map_again(module),
            _ => None,
        }
    }

    /// Whose the file of a module is; `None` for what is no file or was never opened. Opens nothing.
    #[must_use]
    pub fn file_owner(&self, module: ModuleId) -> Option<FileOwner> {
        self.files.owner(module)
    }

    /// Where the file of a module was mapped last; `None` for what is no file or was never opened.
    #[must_use]
    pub fn seen(&self, module: ModuleId) -> Option<Seen> {
        self.files.seen(module)
    }

    /// The file that names the code a process makes, closed because there were too many, while the process lives.
    fn perf_map_again(&mut self, module: ModuleId) -> Option<Arc<ModuleFile>> {
        let id = *self.jits.get(&module)?;
        let instance = self.instances.get(&id)?;
        let owner = instance.owner(id);
        if instance.exited_ns.is_some() || self.reopenings.take(owner, 1).is_err() {
            return None;
        }
        self.files.perf_map(
            (&mut self.table, owner),
            &*self.source,
            instance.pid,
            instance.start_ns,
        )?;
        self.files.file(&self.table, &*self.source, module)
    }
}
