//! Tells the walker the tables of files by what the kernel knows of a file that is mapped: so it
//! finds them in processes whose mappings it has not been told of yet.

use std::collections::{HashMap, HashSet};
use std::io;

use crate::kernel::UnwindMaps;
use crate::processes::live::Processes;
use crate::processes::module::ModuleId;

use super::table_state::{TableState, file_table};

/// Modules whose files the walker is to be told of.
#[derive(Debug, Default)]
pub(super) struct WalkedFiles {
    changed: HashSet<ModuleId>,
}

impl WalkedFiles {
    /// It is known by now how the code of a module is unwound.
    pub(super) fn note(&mut self, module: ModuleId) {
        self.changed.insert(module);
    }

    /// Tells of the modules noted, and of those of which another copy was opened.
    ///
    /// # Errors
    /// The kernel refuses; of the other files it is told.
    pub(super) fn tell(
        &mut self,
        maps: &mut UnwindMaps,
        processes: &mut Processes,
        tables: &HashMap<ModuleId, TableState>,
    ) -> io::Result<()> {
        self.changed.extend(processes.take_newly_opened());
        let mut told = Ok(());
        for module in self.changed.drain() {
            let Some(table) = tables.get(&module).and_then(file_table) else {
                // Noted again once there is one.
                continue;
            };
            for file in processes.copies(module) {
                told = told.and(maps.tell_file(file, table));
            }
        }
        told
    }
}
