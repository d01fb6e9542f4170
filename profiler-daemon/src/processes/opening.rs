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
use crate::units::VirtualAddress;

/// Most processes that the file of a module is opened through, and most of one user.
const MAX_MAPPERS: usize = 4;
const MAX_MAPPERS_OF_USER: usize = 2;

/// To look through so many mappings takes some milliseconds: what was found in more of them serves
/// for more sweeps.
const MAPPINGS_PER_SWEEP: usize = 1 << 16;

/// A process that has a module mapped.
#[derive(Clone, Debug)]
pub(super) struct Mapper {
    id: u64,
    user: Option<u32>,
    range: Range<VirtualAddress>,
}

/// Some living processes that have each module mapped.
#[derive(Debug, Default)]
pub(super) struct Mappers {
    of: HashMap<ModuleId, Vec<Mapper>>,
    /// Sweeps for which it is as good as new.
    sweeps_left: usize,
}

impl Mappers {
    /// A sweep begins. `None`: they are to be found anew.
    pub(super) fn swept(mut self) -> Option<Self> {
        self.sweeps_left = self.sweeps_left.checked_sub(1)?;
        Some(self)
    }
}

impl Processes {
    /// Events are read from here on: what was mapped several times need not be looked at as often.
    pub fn begin_reading(&mut self) {
        self.files.readings += 1;
        self.files.reading = Some(self.files.readings);
    }

    /// They were read.
    pub fn end_reading(&mut self) {
        self.files.reading = None;
    }
}

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

    /// Whose the file of a module is; `None` for what is no file or was never opened. Opens
    /// nothing.
    #[must_use]
    pub fn file_owner(&self, module: ModuleId) -> Option<FileOwner> {
        self.files.owner(module)
    }

    /// Where the file of a module was mapped last; `None` for what is no file or was never opened.
    #[must_use]
    pub fn seen(&self, module: ModuleId) -> Option<Seen> {
        self.files.seen(module)
    }

    /// The file of a module that the process that mapped it last does not lead to any more: some
    /// other one may.
    fn file_of_another(&mut self, module: ModuleId) -> Option<Arc<ModuleFile>> {
        if self.mappers.is_none() {
            self.mappers = Some(self.find_mappers());
        }
        let mappers = self.mappers.as_ref()?.of.get(&module)?.clone();
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
        let mut mappers = Mappers::default();
        let (mut seen, mut looked_at) = (HashSet::new(), 0);
        for (id, instance) in &self.instances {
            // Children share what their parent has mapped.
            if instance.exited_ns.is_some() || !seen.insert(Arc::as_ptr(&instance.mappings)) {
                continue;
            }
            let user = instance.owner(*id).user();
            for mapping in instance.mappings.present() {
                looked_at += 1;
                let known = mappers.of.entry(mapping.module).or_default();
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
        mappers.sweeps_left = looked_at / MAPPINGS_PER_SWEEP;
        mappers
    }

    /// The file that names the code a process makes, closed because there were too many, while the
    /// process lives.
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

#[cfg(test)]
mod tests {
    use super::*;

    // Check that what was found among few mappings is found anew at each sweep, and among many less
    // often.
    #[test]
    fn many_mappings_are_looked_at_less_often() {
        assert!(Mappers::default().swept().is_none());
        let mut found = Some(Mappers {
            sweeps_left: 15,
            ..Mappers::default()
        });
        let mut kept = 0;
        while let Some(next) = found.and_then(Mappers::swept) {
            kept += 1;
            found = Some(next);
        }
        assert_eq!(kept, 15);
    }
}
