//! What the table of modules knows beside the modules: who takes their room, and by what they are
//! found.

use std::collections::HashMap;

use super::{MAX_FILE_VERSIONS, MAX_MODULE_TEXT_BYTES, MAX_MODULES, ModuleId, ModuleIdentity};
use crate::processes::shares::{CapacityError, HolderId, Owner, Shares};

/// What only the table itself needs to know of a module.
#[derive(Clone, Debug)]
pub(super) struct RegisteredModule {
    identity: ModuleIdentity,
    by: HolderId,
    text_by: HolderId,
    text_bytes: usize,
}

/// What only the table itself needs to know: copies for readers do without.
#[derive(Clone, Debug)]
pub(super) struct Register {
    pub(super) ids: HashMap<ModuleIdentity, ModuleId>,
    /// By place.
    pub(super) kept: Vec<Option<RegisteredModule>>,
    pub(super) free: Vec<u32>,
    pub(super) room: Shares,
    pub(super) text: Shares,
    /// Versions of each file: device and inode.
    versions: HashMap<(u64, u64), u32>,
    /// What the last sweep left, and what had been refused by then.
    pub(super) swept: (usize, u64),
}

impl Default for Register {
    fn default() -> Self {
        Self {
            ids: HashMap::new(),
            kept: Vec::new(),
            free: Vec::new(),
            room: Shares::new(MAX_MODULES),
            text: Shares::new(MAX_MODULE_TEXT_BYTES),
            versions: HashMap::new(),
            swept: (0, 0),
        }
    }
}

impl Register {
    /// Takes room for a module.
    pub(super) fn take(
        &mut self,
        owner: Owner,
        identity: &ModuleIdentity,
        text_bytes: usize,
    ) -> Result<RegisteredModule, CapacityError> {
        let file = identity.file();
        let versions = file.and_then(|file| self.versions.get(&file));
        if versions.is_some_and(|versions| *versions >= MAX_FILE_VERSIONS) {
            return Err(CapacityError::OverShare);
        }
        let by = self.room.take(owner, 1)?;
        let text_by = match self.text.take(owner, text_bytes) {
            Ok(text_by) => text_by,
            Err(why) => {
                self.room.give_back(by, 1);
                return Err(why);
            }
        };
        if let Some(file) = file {
            *self.versions.entry(file).or_default() += 1;
        }
        Ok(RegisteredModule {
            identity: identity.clone(),
            by,
            text_by,
            text_bytes,
        })
    }

    /// Who a module takes room of; `None` for a place that has none.
    pub(super) fn owner(&self, place: usize) -> Option<Owner> {
        let kept = self.kept.get(place)?.as_ref()?;
        Some(self.room.owner(kept.by))
    }

    /// Whether the module of a place is a file.
    pub(super) fn is_file(&self, place: usize) -> bool {
        let kept = self.kept.get(place).and_then(Option::as_ref);
        kept.is_some_and(|kept| !matches!(kept.identity, ModuleIdentity::Named(_)))
    }

    /// Has a module take room of another owner from now on, as far as that one has room.
    pub(super) fn pass_on(&mut self, place: usize, to: Owner) {
        let Some(kept) = self.kept.get_mut(place).and_then(Option::as_mut) else {
            return;
        };
        if let Ok(by) = self.room.exchange((kept.by, 1), to, 1) {
            kept.by = by;
        }
        let bytes = kept.text_bytes;
        if let Ok(by) = self.text.exchange((kept.text_by, bytes), to, bytes) {
            kept.text_by = by;
        }
    }

    /// Gives back what a module had.
    pub(super) fn give_back(&mut self, kept: &RegisteredModule) {
        self.ids.remove(&kept.identity);
        self.room.give_back(kept.by, 1);
        self.text.give_back(kept.text_by, kept.text_bytes);
        let file = kept.identity.file();
        if let Some(file) = file
            && let Some(versions) = self.versions.get_mut(&file)
        {
            *versions -= 1;
            if *versions == 0 {
                self.versions.remove(&file);
            }
        }
    }
}
