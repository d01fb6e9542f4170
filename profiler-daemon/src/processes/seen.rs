//! By which path and process the file of each module was mapped, to open it again, and to find what
//! belongs to it.
//!
//! Whoever can read a file can map it, by a path of his own, and end. So of those who map one the
//! last is remembered, but nobody else comes in the place of root or of whoever owns the file.

use std::collections::{HashMap, HashSet};

use super::{
    file_key::FileKey,
    module::{HeldText, ModuleId, ModuleTable},
    shares::Owner,
    source::Mapped,
};

/// Where a module's file was mapped last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// By which process. It may be gone, and its number be another's.
    pub pid: u32,
    /// Path as that process sees it.
    pub path: Box<[u8]>,
}

/// Whose a file is, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    /// The user who owns it, by the kernel's own number.
    pub uid: u32,
    /// Its size when it was mapped last, bytes.
    pub size_bytes: u64,
}

/// A way to a file.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) pid: u32,
    pub(super) mapped: Mapped,
    pub(super) key: FileKey,
    pub(super) file: FileOwner,
    /// Whether root or the file's owner mapped it so.
    is_trusted: bool,
    /// What is counted for the path, by whoever mapped it so.
    held: Option<HeldText>,
}

/// See the module. The text of paths is counted by the table of modules.
#[derive(Debug, Default)]
pub(super) struct SeenFiles(HashMap<ModuleId, Way>);

impl SeenFiles {
    /// How the file of a module was mapped; `None` for what is no file or was never opened.
    pub(super) fn get(&self, module: ModuleId) -> Option<&Way> {
        self.0.get(&module)
    }

    /// Whether a process of this owner may come in the place of who is remembered.
    pub(super) fn may_replace(&self, module: ModuleId, owner: Owner) -> bool {
        let way = self.0.get(&module);
        way.is_none_or(|way| !way.is_trusted || is_trusted(owner, way.file))
    }

    /// Remembers how a process of this owner has the file of a module mapped. Where there is no
    /// room for the path, what was remembered before stays.
    pub(super) fn note(
        &mut self,
        (table, owner): (&mut ModuleTable, Owner),
        (module, file): (ModuleId, FileOwner),
        key: &FileKey,
        (pid, mapped): (u32, &Mapped),
    ) {
        let before = self.0.get_mut(&module);
        let mut none = None;
        let held = before.map_or(&mut none, |way| &mut way.held);
        if table.hold(held, owner, mapped.path.len()) {
            let way = Way {
                pid,
                mapped: mapped.clone(),
                key: key.clone(),
                file,
                is_trusted: is_trusted(owner, file),
                held: held.take(),
            };
            self.0.insert(module, way);
        }
    }

    /// Forgets modules that have left.
    pub(super) fn forget(&mut self, table: &mut ModuleTable, gone: &HashSet<ModuleId>) {
        for way in gone.iter().filter_map(|module| self.0.remove(module)) {
            way.held.iter().for_each(|held| table.release(held));
        }
    }
}

fn is_trusted(owner: Owner, file: FileOwner) -> bool {
    let user = owner.user();
    user == Owner::System.user() || user == Some(file.uid)
}
