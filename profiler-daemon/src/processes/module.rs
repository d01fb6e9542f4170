//! Modules: the files (and the few things that are not files) that code runs from, each under one
//! small number.
//!
//! The table only remembers; finding out which file an address belongs to is `mappings`, reading
//! its build ID is `files`. Copies share their contents until one of them grows, so a snapshot
//! costs a reference count.
//!
//! The table is bounded, and so is what one process, user or file may have of it. Modules that
//! nothing names leave ([`ModuleTable::sweep`]). Their numbers never come back, so whoever
//! remembers something by a module's number need not know.

mod register;
mod table;

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use serde::{Deserialize, Serialize};

pub use table::{HeldText, ModuleMarks, ModuleTable};

use crate::elf::build_id::Build;

/// Most modules the table holds; the ones beyond are `[unknown]` and counted.
pub const MAX_MODULES: usize = 65_536;
/// Most bytes of text that the table holds, and that others hold for its modules; beyond, new
/// modules are `[unknown]` and counted.
pub const MAX_MODULE_TEXT_BYTES: usize = 16 << 20;
/// Longest module name kept; longer ones lose their beginning.
pub const MAX_NAME_BYTES: usize = 1024;

/// Most versions of one file that are modules at a time: whoever writes a file can make as many of
/// them as he likes.
pub const MAX_FILE_VERSIONS: u32 = 1024;

/// The number of a module in the [`ModuleTable`]: its place in the lower half, in the upper one how
/// many modules have left that place before it. Never reused while the daemon runs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct ModuleId(pub u64);

impl ModuleId {
    /// `[unknown]`: nobody knows what the address belonged to.
    pub const UNKNOWN: Self = Self(0);
    /// `[kernel]`: the kernel itself; offsets are addresses.
    pub const KERNEL: Self = Self(1);
    /// `[jit]`: code made at run time, in memory that belongs to no file; offsets are addresses.
    pub const JIT: Self = Self(2);

    const fn new(place: u32, before: u32) -> Self {
        Self((before as u64) << 32 | place as u64)
    }

    const fn place(self) -> usize {
        (self.0 & u32::MAX as u64) as usize
    }

    const fn before(self) -> u32 {
        (self.0 >> 32) as u32
    }
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
    /// What is equal in every copy of a file that bears the linker's mark. Only for files that
    /// nobody but root can write: others could bear the mark of a file that they are not.
    Build(Build),
    /// A file without such a mark, or one whose mark is not to be trusted.
    File(FileIdentity),
    /// What is known by name only (a file that could not be opened, a kernel module, a special
    /// mapping).
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

    /// Device and inode of a file that is told apart by its version.
    const fn file(&self) -> Option<(u64, u64)> {
        match self {
            Self::File(file) => Some((file.device, file.inode)),
            Self::Build(_) | Self::Named(_) => None,
        }
    }

    /// Memory of its text, bytes.
    fn text_bytes(&self) -> usize {
        match self {
            Self::Build(build) => build.id.len() + size_of_val(&*build.code),
            Self::File(_) => 0,
            Self::Named(name) => name.len(),
        }
    }
}

/// One module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// The path as the first process that mapped it saw it, or `[kernel]`, `[vdso]`, `[jit]`,
    /// `[unknown]`.
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
mod tests;
