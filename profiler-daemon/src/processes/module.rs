//! Modules: the files (and the few things that are not files) that code runs from, each under one small number.
//!
//! The table only remembers; finding out which file an address belongs to is `mappings`, reading its build ID is
//! `files`. Copies share their contents until one of them grows, so a snapshot costs two reference counts.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

/// Most modules the table holds; the ones beyond are `[unknown]` and counted.
pub const MAX_MODULES: usize = 65_536;
/// Most bytes of text that the table holds, and that others hold for its modules; beyond, new modules are `[unknown]` and
/// counted.
pub const MAX_MODULE_TEXT_BYTES: usize = 16 << 20;
/// Longest module name kept; longer ones lose their beginning.
pub const MAX_NAME_BYTES: usize = 1024;

/// The number of a module in the [`ModuleTable`]; never reused while the daemon runs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct ModuleId(pub u32);

impl ModuleId {
    /// `[unknown]`: nobody knows what the address belonged to.
    pub const UNKNOWN: Self = Self(0);
    /// `[kernel]`: the kernel itself; offsets are addresses.
    pub const KERNEL: Self = Self(1);
    /// `[jit]`: code made at run time, in memory that belongs to no file; offsets are addresses.
    pub const JIT: Self = Self(2);
}

/// What sort of code a module holds, which decides what its offsets mean and how they get names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ModuleKind {
    /// A mapped file: offsets are file offsets.
    User,
    /// The kernel: offsets are addresses.
    Kernel,
    /// A loaded kernel module: offsets are addresses.
    KernelModule,
    /// The kernel's helper page in every process: offsets are file offsets in its image.
    Vdso,
    /// Code made at run time: offsets are addresses.
    Jit,
    /// Not known: offsets are addresses.
    Unknown,
}

/// The file behind a module, as the kernel tells one file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Device number as `stat` gives it.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes when it was first seen.
    pub size_bytes: u64,
    /// Last change of its contents when it was first seen, nanoseconds since 1970.
    pub modified_unix_ns: i128,
}

/// What makes two mapped things the same module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ModuleIdentity {
    /// The linker's own mark: equal in every copy of the file. Only for files that nobody but root can write: others could
    /// bear the mark of a file that they are not.
    BuildId(Box<[u8]>),
    /// A file without such a mark, or one whose mark is not to be trusted.
    File(FileIdentity),
    /// What is known by name only (a file that could not be opened, a kernel module, a special mapping).
    Named(Box<str>),
}

impl ModuleIdentity {
    /// The same, with the beginning of an overlong name replaced by its hash.
    fn bounded(self) -> Self {
        match self {
            Self::Named(name) if name.len() > MAX_NAME_BYTES => {
                let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&name);
                Self::Named(format!("{hash:016x} {}", bounded_name(name)).into())
            }
            other => other,
        }
    }

    /// Memory of its text, bytes.
    fn text_bytes(&self) -> usize {
        match self {
            Self::BuildId(id) => id.len(),
            Self::File(_) => 0,
            Self::Named(name) => name.len(),
        }
    }
}

/// One module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// The path as the first process that mapped it saw it, or `[kernel]`, `[vdso]`, `[jit]`, `[unknown]`.
    pub name: Box<str>,
    /// The GNU build ID, where the file has one.
    pub build_id: Option<Box<[u8]>>,
    /// What its offsets mean.
    pub kind: ModuleKind,
}

impl Module {
    /// A module without a build ID.
    #[must_use]
    pub fn named(name: &str, kind: ModuleKind) -> Self {
        Self {
            name: name.into(),
            build_id: None,
            kind,
        }
    }

    /// The last part of the path; the name itself where it is not a path.
    #[must_use]
    pub fn basename(&self) -> &str {
        match self.name.rsplit('/').find(|part| !part.is_empty()) {
            Some(last) => last,
            None => &self.name,
        }
    }

    /// The build ID in lower-case hexadecimal.
    #[must_use]
    pub fn build_id_hex(&self) -> Option<String> {
        use std::fmt::Write as _;
        self.build_id.as_ref().map(|id| {
            id.iter()
                .fold(String::with_capacity(id.len() * 2), |mut hex, byte| {
                    write!(hex, "{byte:02x}").expect("a String takes all text");
                    hex
                })
        })
    }
}

/// Every module seen so far, by number. Cloning is cheap: the contents are shared until one copy grows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModuleTable {
    modules: Arc<Vec<Arc<Module>>>,
    /// Not kept in recorded profiles, where no module is added.
    #[serde(skip)]
    ids: Arc<HashMap<ModuleIdentity, ModuleId>>,
    text_bytes: usize,
    refused: u64,
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
            modules: Arc::default(),
            ids: Arc::default(),
            text_bytes: 0,
            refused: 0,
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

    /// The module with this number; `[unknown]` for a number this copy of the table has not seen.
    #[must_use]
    pub fn get(&self, id: ModuleId) -> &Module {
        match self.modules.get(id.0 as usize) {
            Some(module) => module,
            None => &self.modules[0],
        }
    }

    /// The same, to keep beyond the life of this copy.
    #[must_use]
    pub fn share(&self, id: ModuleId) -> Arc<Module> {
        Arc::clone(self.modules.get(id.0 as usize).unwrap_or(&self.modules[0]))
    }

    /// The number of this module, if it was ever interned.
    #[must_use]
    pub fn find(&self, identity: &ModuleIdentity) -> Option<ModuleId> {
        self.ids.get(&identity.clone().bounded()).copied()
    }

    /// The number of the module with this identity; `describe` is asked only for one not seen before. A full table
    /// answers `[unknown]` and counts it.
    pub fn intern(
        &mut self,
        identity: ModuleIdentity,
        describe: impl FnOnce() -> Module,
    ) -> ModuleId {
        let identity = identity.bounded();
        if let Some(id) = self.ids.get(&identity) {
            return *id;
        }
        let mut module = describe();
        module.name = bounded_name(module.name);
        let text_bytes = identity.text_bytes()
            + module.name.len()
            + module.build_id.as_ref().map_or(0, |id| id.len());
        if self.modules.len() >= MAX_MODULES {
            self.refused += 1;
            return ModuleId::UNKNOWN;
        }
        if !self.hold(text_bytes) {
            return ModuleId::UNKNOWN;
        }
        let id = ModuleId(u32::try_from(self.modules.len()).expect("MAX_MODULES fits u32"));
        Arc::make_mut(&mut self.modules).push(Arc::new(module));
        Arc::make_mut(&mut self.ids).insert(identity, id);
        id
    }

    /// Counts bytes of text that are kept for a module from now on, here or by others. False, and counted, where there is no
    /// room for them.
    #[must_use]
    pub fn hold(&mut self, bytes: usize) -> bool {
        let text_bytes = self.text_bytes.saturating_add(bytes);
        let fits = text_bytes <= MAX_MODULE_TEXT_BYTES;
        if fits {
            self.text_bytes = text_bytes;
        } else {
            self.refused += 1;
        }
        fits
    }

    /// How many modules there are, the three fixed ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.modules.len()
    }

    /// Never true: the fixed modules are always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    /// Whether the fixed modules are in their places and all is within bounds: what a file holds may be otherwise.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let fixed = Self::new();
        let begins = self.modules.iter().zip(fixed.modules.iter());
        self.modules.len() >= fixed.modules.len()
            && begins.into_iter().all(|(module, fixed)| module == fixed)
            && self.modules.len() <= MAX_MODULES
            && self
                .modules
                .iter()
                .all(|module| module.name.len() <= MAX_NAME_BYTES)
    }

    /// How many times a module became `[unknown]`, or something of one was not remembered, because the table was full.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// All modules with their numbers, in the order they were first seen.
    pub fn iter(&self) -> impl Iterator<Item = (ModuleId, &Module)> {
        (0..)
            .map(ModuleId)
            .zip(self.modules.iter().map(Arc::as_ref))
    }
}

/// Keeps the end of an overlong name: the last path component says the most.
fn bounded_name(name: Box<str>) -> Box<str> {
    if name.len() <= MAX_NAME_BYTES {
        return name;
    }
    let mut from = name.len() - MAX_NAME_BYTES;
    while !name.is_char_boundary(from) {
        from += 1;
    }
    name[from..].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> ModuleIdentity {
        ModuleIdentity::File(FileIdentity {
            device: 1,
            inode,
            size_bytes: 10,
            modified_unix_ns: 5,
        })
    }

    // Check that the fixed modules have their fixed numbers and that unseen numbers read as unknown.
    #[test]
    fn fixed_numbers() {
        let table = ModuleTable::new();
        assert_eq!(&*table.get(ModuleId::UNKNOWN).name, "[unknown]");
        assert_eq!(&*table.get(ModuleId::KERNEL).name, "[kernel]");
        assert_eq!(&*table.get(ModuleId::JIT).name, "[jit]");
        assert_eq!(&*table.get(ModuleId(77)).name, "[unknown]");
    }

    // Check that a copy does not see what is added later, and that one identity keeps one number.
    #[test]
    fn copies_are_snapshots() {
        let mut table = ModuleTable::new();
        let before = table.clone();
        let id = table.intern(file(1), || Module::named("/bin/a", ModuleKind::User));
        assert_eq!(id, ModuleId(3));
        assert_eq!(table.intern(file(1), || unreachable!("known already")), id);
        assert_eq!(&*before.get(id).name, "[unknown]");
        assert_eq!(table.get(id).basename(), "a");
        assert_eq!(before.len() + 1, table.len());
    }

    // Check that a table full of text refuses the next module, counts it, and cuts overlong names at a character.
    #[test]
    fn full_table_counts() {
        let mut table = ModuleTable::new();
        let long = format!("x{}", "é".repeat(MAX_NAME_BYTES));
        for inode in 0.. {
            let id = table.intern(file(inode), || Module::named(&long, ModuleKind::User));
            if id == ModuleId::UNKNOWN {
                break;
            }
            assert!(table.get(id).name.len() <= MAX_NAME_BYTES);
        }
        assert_eq!(table.refused(), 1);
        assert!(table.len() <= 3 + MAX_MODULE_TEXT_BYTES / (MAX_NAME_BYTES - 1));
    }

    // Check that modules known by overlong names only are told apart, and that what they are told apart by is bounded and
    // counted.
    #[test]
    fn overlong_identities() {
        let mut table = ModuleTable::new();
        let long = |number: u64| format!("/{number:08}{}", "é".repeat(2000));
        let add = |table: &mut ModuleTable, number| {
            let name: Box<str> = long(number).into();
            table.intern(ModuleIdentity::Named(name.clone()), || {
                Module::named(&name, ModuleKind::User)
            })
        };
        let [first, second, again] = [1, 2, 1].map(|number| add(&mut table, number));
        assert!(first != second && first == again);
        let name = ModuleIdentity::Named(long(2).into());
        assert_eq!(table.find(&name), Some(second));
        let mut number = 3;
        while add(&mut table, number) != ModuleId::UNKNOWN {
            number += 1;
        }
        let held_bytes = table.modules.iter().map(|module| module.name.len());
        let held_bytes = held_bytes.sum::<usize>()
            + table
                .ids
                .keys()
                .map(ModuleIdentity::text_bytes)
                .sum::<usize>();
        assert!(held_bytes <= MAX_MODULE_TEXT_BYTES && table.refused() == 1);
        assert!(table.hold(100) && !table.hold(MAX_MODULE_TEXT_BYTES));
    }

    // Check that a build ID is written as two lower-case digits a byte.
    #[test]
    fn hex() {
        let mut module = Module::named("/", ModuleKind::User);
        assert_eq!(module.basename(), "/");
        module.build_id = Some(vec![0x0a, 0xff].into());
        assert_eq!(module.build_id_hex().as_deref(), Some("0aff"));
    }
}
