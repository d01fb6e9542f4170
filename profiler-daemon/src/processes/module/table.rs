//! The table of modules: numbers, and what leaves.

use std::{collections::HashSet, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    MAX_MODULES, MAX_NAME_BYTES, Module, ModuleId, ModuleIdentity, ModuleKind, bounded_name,
    register::Register,
};
use crate::processes::shares::{HolderId, Owner, RefusedCounts};

/// One place in the table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct ModuleSlot {
    /// How many modules have left it.
    before: u32,
    module: Option<Arc<Module>>,
}

/// Which modules something names, and who has them.
#[derive(Debug)]
pub struct ModuleMarks(Vec<SlotMark>);

#[derive(Clone, Copy, Debug)]
struct SlotMark {
    is_named: bool,
    /// Who it takes room of; `None` where that does not change.
    owner: Option<Owner>,
    /// Who has it: its owner, before another process of the same user, before anybody.
    holder: Option<Owner>,
}

impl ModuleMarks {
    /// This one stays.
    pub fn keep(&mut self, id: ModuleId) {
        if let Some(mark) = self.0.get_mut(id.place()) {
            mark.is_named = true;
        }
    }

    /// This one stays, and this process has it.
    pub fn keep_for(&mut self, id: ModuleId, holder: Owner) {
        let Some(mark) = self.0.get_mut(id.place()) else {
            return;
        };
        mark.is_named = true;
        let fits = |of: Option<Owner>| match (of, mark.owner) {
            (None, _) => 0,
            (of, owner) if of == owner => 3,
            (Some(of), Some(owner)) if of.user() == owner.user() => 2,
            _ => 1,
        };
        if fits(Some(holder)) > fits(mark.holder) {
            mark.holder = Some(holder);
        }
    }
}

/// Bytes of text that somebody keeps for a module, counted until they are released.
#[derive(Debug)]
pub struct HeldText {
    by: HolderId,
    bytes: usize,
}

/// The modules there are, by number. Cloning is cheap: the contents are shared until one copy
/// grows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModuleTable {
    slots: Arc<Vec<ModuleSlot>>,
    /// Missing in copies that take no more modules.
    #[serde(skip)]
    register: Option<Arc<Register>>,
    #[serde(skip)]
    refused: RefusedCounts,
}

impl Default for ModuleTable {
    fn default() -> Self {
        Self::new()
    }
}

impl ModuleTable {
    /// A table that holds the three modules with fixed numbers.
    #[must_use]
    pub fn new() -> Self {
        let mut table = Self {
            slots: Arc::default(),
            register: Some(Arc::default()),
            refused: RefusedCounts::default(),
        };
        for (name, kind) in [
            ("[unknown]", ModuleKind::Unknown),
            ("[kernel]", ModuleKind::Kernel),
            ("[jit]", ModuleKind::Jit),
        ] {
            table.intern(ModuleIdentity::Named(name.into()), || {
                Module::named(name, kind)
            });
        }
        table
    }

    /// A copy for readers: it takes no more modules, and costs nothing when the table does.
    #[must_use]
    pub fn view(&self) -> Self {
        Self {
            slots: Arc::clone(&self.slots),
            register: None,
            refused: self.refused,
        }
    }

    /// The module with this number; `[unknown]` for a number this copy of the table has not seen,
    /// or that has left.
    #[must_use]
    pub fn get(&self, id: ModuleId) -> &Module {
        self.module(id)
    }

    /// The same, to keep beyond the life of this copy.
    #[must_use]
    pub fn share(&self, id: ModuleId) -> Arc<Module> {
        Arc::clone(self.module(id))
    }

    fn module(&self, id: ModuleId) -> &Arc<Module> {
        self.find_slot(id)
            .or_else(|| self.find_slot(ModuleId::UNKNOWN))
            .expect("the fixed modules are always there")
    }

    /// Whether a module has this number.
    #[must_use]
    pub fn holds(&self, id: ModuleId) -> bool {
        self.find_slot(id).is_some()
    }

    /// Whether a module is known to be a certain file; false for what is known by a name only, and
    /// in copies for readers.
    #[must_use]
    pub fn is_file(&self, id: ModuleId) -> bool {
        let register = self.register.as_ref().filter(|_| self.holds(id));
        register.is_some_and(|register| register.is_file(id.place()))
    }

    fn find_slot(&self, id: ModuleId) -> Option<&Arc<Module>> {
        let slot = self.slots.get(id.place());
        slot.filter(|slot| slot.before == id.before())?
            .module
            .as_ref()
    }

    /// The number of this module, if it is there.
    #[must_use]
    pub fn find(&self, identity: &ModuleIdentity) -> Option<ModuleId> {
        let register = self.register.as_ref()?;
        register.ids.get(&identity.clone().bounded()).copied()
    }

    /// The number of a module that is nobody's in particular; see [`Self::intern_for`].
    pub fn intern(
        &mut self,
        identity: ModuleIdentity,
        describe: impl FnOnce() -> Module,
    ) -> ModuleId {
        self.intern_for(Owner::System, identity, describe)
    }

    /// The number of the module with this identity; `describe` is asked only for one that is not
    /// there, which takes room of `owner`. Where there is none, the answer is `[unknown]`, and
    /// counted.
    pub fn intern_for(
        &mut self,
        owner: Owner,
        identity: ModuleIdentity,
        describe: impl FnOnce() -> Module,
    ) -> ModuleId {
        let Some(register) = &mut self.register else {
            return ModuleId::UNKNOWN;
        };
        let identity = identity.bounded();
        if let Some(id) = register.ids.get(&identity) {
            return *id;
        }
        let mut module = describe();
        module.name = bounded_name(module.name);
        let text_bytes = identity.text_bytes()
            + module.name.len()
            + module.build_id.as_ref().map_or(0, |id| id.len());
        let register = Arc::make_mut(register);
        // Each takes a byte at least: what is given back must have been taken.
        let kept = match register.take(owner, &identity, text_bytes.max(1)) {
            Ok(kept) => kept,
            Err(why) => {
                self.refused.count(why);
                return ModuleId::UNKNOWN;
            }
        };
        let slots = Arc::make_mut(&mut self.slots);
        let place = register.free.pop().unwrap_or_else(|| {
            slots.push(ModuleSlot::default());
            register.kept.push(None);
            u32::try_from(slots.len() - 1).expect("MAX_MODULES fits u32")
        });
        let slot = &mut slots[place as usize];
        slot.module = Some(Arc::new(module));
        let id = ModuleId::new(place, slot.before);
        register.kept[place as usize] = Some(kept);
        register.ids.insert(identity, id);
        id
    }

    /// Counts bytes of text (one at least) that others keep for a module by this owner, in the
    /// place of what they kept for it `before`. False, and counted, where there is no room for
    /// them: `before` stays as it was.
    #[must_use]
    pub fn hold(&mut self, before: &mut Option<HeldText>, owner: Owner, bytes: usize) -> bool {
        let Some(register) = &mut self.register else {
            return false;
        };
        let text = &mut Arc::make_mut(register).text;
        let bytes = bytes.max(1);
        let taken = match before {
            Some(held) => text.exchange((held.by, held.bytes), owner, bytes),
            None => text.take(owner, bytes),
        };
        match taken {
            Ok(by) => *before = Some(HeldText { by, bytes }),
            Err(why) => self.refused.count(why),
        }
        taken.is_ok()
    }

    /// They keep it no longer.
    pub fn release(&mut self, held: &HeldText) {
        if let Some(register) = &mut self.register {
            Arc::make_mut(register).text.give_back(held.by, held.bytes);
        }
    }

    /// Whether a sweep is worth its time: the table has grown by half of what the last one left, or
    /// by a sixteenth of all there is room for, or found no room for something since.
    #[must_use]
    pub fn wants_sweep(&self) -> bool {
        let Some(register) = &self.register else {
            return false;
        };
        let (left, refused) = register.swept;
        let grown = self.len().saturating_sub(left);
        self.refused.total() > refused || grown >= (left / 2).max(MAX_MODULES / 16)
    }

    /// Forgets all modules but the fixed ones and those that `name` marks: it is to mark every one
    /// that anything names. Answers which left. What copies hold does not change. Of those that
    /// stay, who brought it pays as long as he has it; then one of those who have it does, if there
    /// is room for them.
    pub fn sweep(&mut self, name: impl FnOnce(&mut ModuleMarks)) -> HashSet<ModuleId> {
        let owner = |place| {
            let owner = self.register.as_ref()?.owner(place)?;
            (owner != Owner::System).then_some(owner)
        };
        let marks = (0..self.slots.len()).map(|place| SlotMark {
            is_named: false,
            owner: owner(place),
            holder: None,
        });
        let mut marks = ModuleMarks(marks.collect());
        for fixed in [ModuleId::UNKNOWN, ModuleId::KERNEL, ModuleId::JIT] {
            marks.keep(fixed);
        }
        name(&mut marks);
        let refused = self.refused.total();
        let gone: HashSet<ModuleId> = self
            .iter()
            .map(|(id, _)| id)
            .filter(|id| !marks.0[id.place()].is_named)
            .collect();
        let Some(register) = &mut self.register else {
            return HashSet::new();
        };
        let register = Arc::make_mut(register);
        if !gone.is_empty() {
            let slots = Arc::make_mut(&mut self.slots);
            for id in &gone {
                let slot = &mut slots[id.place()];
                slot.module = None;
                slot.before += 1;
                register.free.push(id.place() as u32);
                if let Some(kept) = register.kept[id.place()].take() {
                    register.give_back(&kept);
                }
            }
        }
        // After these: there is more room now.
        for (place, mark) in marks.0.into_iter().enumerate() {
            if let (Some(owner), Some(holder)) = (mark.owner, mark.holder)
                && owner != holder
            {
                register.pass_on(place, holder);
            }
        }
        register.swept = (register.room.used(), refused);
        gone
    }

    /// How many modules there are, the three fixed ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.register {
            Some(register) => register.room.used(),
            None => self.iter().count(),
        }
    }

    /// Never true: the fixed modules are always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Memory held, bytes, roughly: text, and of each module its row, its place and its identity.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        const MODULE_BYTES: usize = 320;
        self.text_bytes() + self.len() * MODULE_BYTES
    }

    /// Bytes of text that are kept for modules, here or by others; 0 in copies for readers.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let register = self.register.as_ref();
        register.map_or(0, |register| register.text.used())
    }

    /// Whether the fixed modules are in their places and all is within bounds: what a file holds
    /// may be otherwise.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let fixed = Self::new();
        fixed
            .iter()
            .all(|(id, module)| self.find_slot(id).is_some_and(|known| **known == *module))
            && self.slots.len() <= MAX_MODULES
            && self
                .iter()
                .all(|(_, module)| module.name.len() <= MAX_NAME_BYTES)
    }

    /// How many times a module became `[unknown]`, or something of one was not remembered, by why.
    #[must_use]
    pub const fn refused(&self) -> RefusedCounts {
        self.refused
    }

    /// All modules with their numbers, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (ModuleId, &Module)> {
        let slots = (0..).zip(self.slots.iter());
        slots.filter_map(|(place, slot)| {
            Some((ModuleId::new(place, slot.before), &**slot.module.as_ref()?))
        })
    }
}
