//! Files that are named otherwise than by what processes have mapped: functions of them are to be
//! measured.

use std::fs::File;

use super::{live::Processes, module::ModuleId};

impl Processes {
    /// The module that an open file is, whether it is mapped or not; `path` is its name where it is
    /// new. `[unknown]` where there is no room for it.
    pub fn module_of_file(&mut self, file: &File, path: &str) -> ModuleId {
        self.files.module_of_file(&mut self.table, file, path)
    }
}
