//! The open file of a module: the one that is kept, or opened again through a process that has it.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use super::{
    files::ModuleFile,
    live::Processes,
    module::{ModuleId, ModuleKind},
    seen::{FileOwner, Seen},
};

/// Most processes that the file of a module is opened through, and most of one user.
const MAX_MAPPERS: usize = 4;
const MAX_MAPPERS_OF_USER: usize = 2;

/// A process that has a module mapped.
#[derive(Clone, Debug)]
pub(super) struct Mapper {
    id: u64,
    user: Option<u32>,
    range: Range<u64>,
}

/// Some living processes that have each module mapped.
pub(super) type Mappers = HashMap<ModuleId, Vec<Mapper>>;

impl Processes {
    /// The open file of a module; `None` where it is no file or gone.
    pub fn file(&mut self, module: ModuleId) -> Option<Arc<ModuleFile>> {
        if let Some(file) = self.files.file(&self.table, &*self.source, module) {
            return Some(file);
        }
        match self.table.get(module).kind {
            ModuleKind::Jit => self.perf_map_again(module),
            ModuleKind::User if self.table.is_file(module) => self.file_of_another(module),
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

    /// The file of a module that the process that mapped it last does not lead to any more: some other one may.
    fn file_of_another(&mut self, module: ModuleId) -> Option<Arc<ModuleFile>> {
        if self.mappers.is_none() {
            self.mappers = Some(self.find_mappers());
        }
        let mappers = self.mappers.as_ref()?.get(&module)?.clone();
        mappers.into_iter().find_map(|mapper| {
            let instance = self.instances.get(&mapper.id)?;
            let owner = instance.owner(mapper.id);
            if instance.exited_ns.is_some() || self.reopenings.take(owner, 1).is_err() {
                return None;
            }
            self.files.file_of(
                (&mut self.table, owner),
                &*self.source,
                module,
                (instance.pid, mapper.range),
            )
        })
    }

    fn find_mappers(&self) -> Mappers {
        let mut mappers = Mappers::new();
        let mut seen = HashSet::new();
        for (id, instance) in &self.instances {
            // Children share what their parent has mapped.
            if instance.exited_ns.is_some() || !seen.insert(Arc::as_ptr(&instance.mappings)) {
                continue;
            }
            let user = instance.owner(*id).user();
            for mapping in instance.mappings.present() {
                let known = mappers.entry(mapping.module).or_default();
                let of_user = known.iter().filter(|mapper| mapper.user == user).count();
                if mapping.file_offset.is_some()
                    && known.len() < MAX_MAPPERS
                    && of_user < MAX_MAPPERS_OF_USER
                {
                    known.push(Mapper {
                        id: *id,
                        user,
                        range: mapping.start..mapping.end,
                    });
                }
            }
        }
        mappers
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
