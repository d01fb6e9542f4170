//! Which module a mapping belongs to, and the open file behind a module. Files are opened while the
//! process lives, because afterwards the path may be gone or mean another file; an open file also
//! keeps its inode from being used again.

use std::{
    collections::{HashMap, HashSet},
    fs::{File, Metadata},
    hash::RandomState,
    ops::Range,
    os::unix::fs::MetadataExt as _,
    sync::Arc,
};

use super::{
    file_key::FileKey,
    module::{
        FileIdentity, Module, ModuleId, ModuleIdentity, ModuleKind, ModuleMarks, ModuleTable,
    },
    perf_map_files::PerfMapFiles,
    seen::{FileOwner, Seen, SeenFiles},
    shares::Owner,
    sort::{Sort, sort_of},
    source::{Mapped, ProcessSource, is_the_file},
};
use crate::{
    elf::build_id::{self, ElfIdentity},
    units::MonoNs,
    units::VirtualAddress,
};

/// Most files kept open unless set otherwise.
pub const DEFAULT_OPEN_FILES: usize = 1024;

/// Who owns a file of which that cannot be told.
const NOBODY: u32 = u32::MAX;

/// The open file of a module.
#[derive(Debug)]
pub struct ModuleFile {
    /// The module.
    pub module: ModuleId,
    /// Open for reading. It may shrink or change at any time: read it, do not trust a mapping of
    /// it.
    pub file: File,
    /// What it was when it was opened.
    pub identity: FileIdentity,
}

/// The open file of a module, and where it was mapped last.
#[derive(Clone, Debug)]
pub struct OpenModule {
    /// The file.
    pub file: Arc<ModuleFile>,
    /// `None` for what was never mapped as a file.
    pub seen: Option<Seen>,
}

/// How file lookups went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Files opened.
    pub opened: u64,
    /// Mapped files that could not be opened any more: known by path only.
    pub not_opened: u64,
    /// Files that begin like ELF and make no sense.
    pub corrupt: u64,
    /// Files closed to stay within the limit.
    pub evicted: u64,
    /// Files that changed while they were mapped.
    pub changed: u64,
}

#[derive(Debug)]
pub(super) struct Kept {
    pub(super) file: Arc<ModuleFile>,
    /// Whether its offsets are file offsets; not for code made at run time in a memory file.
    pub(super) is_file: bool,
    /// In which reading it was seen last that the file is as it was.
    checked: Option<u64>,
    last_used: u64,
}

/// What a file is that was opened.
struct OpenedFile {
    identity: FileIdentity,
    /// `None`: what it holds is told apart by address.
    unique: Option<ModuleIdentity>,
    build_id: Option<Box<[u8]>>,
}

/// A module together with what its offsets mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identified {
    /// The module.
    pub module: ModuleId,
    /// Whether offsets are file offsets rather than addresses.
    pub is_file: bool,
}

impl Identified {
    /// Whether it is a module that the table had no room for.
    pub(super) fn found_no_room(&self) -> bool {
        self.is_file && self.module == ModuleId::UNKNOWN
    }

    const fn by_address(module: ModuleId) -> Self {
        Self {
            module,
            is_file: false,
        }
    }
}

/// The open files, fewest-used-lately closed first.
#[derive(Debug)]
pub struct Files {
    pub(super) kept: HashMap<FileKey, Kept>,
    /// The reading of events that is under way: files are looked at once in each.
    pub(super) reading: Option<u64>,
    pub(super) readings: u64,
    /// Modules of which a file was opened lately.
    pub(super) newly_opened: Vec<ModuleId>,
    seen: SeenFiles,
    pub(super) native_vdso: Option<ModuleId>,
    /// Images of vDSOs; a handful at most.
    pub(super) images: HashMap<ModuleId, Arc<ModuleFile>>,
    /// Tells images apart. A process can write what it likes into its own, but not what hashes like
    /// another.
    pub(super) image_hashes: RandomState,
    /// Files that name code made at run time.
    perf_maps: PerfMapFiles,
    limit: usize,
    uses: u64,
    counts: FileCounts,
}

impl Files {
    /// Keeps at most `limit` files open (at least one).
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            kept: HashMap::new(),
            reading: None,
            readings: 0,
            newly_opened: Vec::new(),
            seen: SeenFiles::default(),
            native_vdso: None,
            images: HashMap::new(),
            image_hashes: RandomState::new(),
            perf_maps: PerfMapFiles::default(),
            limit: limit.max(1),
            uses: 0,
            counts: FileCounts::default(),
        }
    }

    /// How lookups went so far.
    #[must_use]
    pub fn counts(&self) -> FileCounts {
        self.counts
    }

    /// How many files are open.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.kept.len() + self.images.len() + self.perf_maps.len()
    }

    /// The module of a mapping, which takes room of `owner` if it is new; opens its file then.
    pub fn identify(
        &mut self,
        (table, owner): (&mut ModuleTable, Owner),
        source: &dyn ProcessSource,
        (pid, ppid): (u32, u32),
        mapped: &Mapped,
    ) -> Identified {
        match sort_of(mapped) {
            Sort::Vdso => self.vdso((table, owner), source, mapped),
            Sort::Anonymous => Identified::by_address(ModuleId::JIT),
            Sort::Special => {
                Identified::by_address(named((table, owner), &mapped.path, ModuleKind::Unknown))
            }
            Sort::File { memory } => {
                let of_all = FileKey::of(mapped);
                let of_user = of_all.of_user(owner);
                for key in [&of_all, &of_user] {
                    if let Some(known) = self.known(key) {
                        self.see((table, owner), key, pid, mapped);
                        return known;
                    }
                }
                let Some(file) = source.open(pid, ppid, mapped) else {
                    self.counts.not_opened += 1;
                    let module = named((table, owner), mapped.plain_path(), ModuleKind::User);
                    return Identified {
                        module,
                        is_file: true,
                    };
                };
                let is_exact = file
                    .metadata()
                    .is_ok_and(|metadata| is_the_file(&metadata, mapped));
                let key = if is_exact { of_all } else { of_user };
                let identified = self.take_in((table, owner), key.clone(), file, mapped, memory);
                self.see((table, owner), &key, pid, mapped);
                identified
            }
        }
    }

    /// Notes that an open file was mapped: the process that mapped it first may have ended long
    /// ago. Of copies of one file the first one that is still open stays. Where there is no room
    /// for a path, what was noted before stays.
    fn see(
        &mut self,
        (table, owner): (&mut ModuleTable, Owner),
        key: &FileKey,
        pid: u32,
        mapped: &Mapped,
    ) {
        let kept = self.kept.get(key).filter(|kept| kept.is_file);
        let Some(file) = kept.map(|kept| Arc::clone(&kept.file)) else {
            return;
        };
        let module = file.module;
        if module == ModuleId::UNKNOWN {
            return;
        }
        if let Some(way) = self.seen.get(module) {
            let is_open = |kept: &Kept| {
                kept.file.module == module
                    && file_identity(&kept.file.file) == Some(kept.file.identity)
            };
            let stays = if way.key == *key {
                way.pid == pid
            } else {
                self.kept.get(&way.key).is_some_and(is_open)
            };
            if stays || !self.seen.may_replace(module, owner) {
                return;
            }
        }
        let found = (module, file_owner(&file));
        self.seen.note((table, owner), found, key, (pid, mapped));
    }

    /// Where the file of a module was mapped last; `None` for what is no file or was never opened.
    #[must_use]
    pub fn seen(&self, module: ModuleId) -> Option<Seen> {
        let way = self.seen.get(module)?;
        Some(Seen {
            pid: way.pid,
            path: way.mapped.plain_path().into(),
        })
    }

    /// Whose the file of a module is; `None` for what is no file or was never opened. Opens
    /// nothing.
    #[must_use]
    pub fn owner(&self, module: ModuleId) -> Option<FileOwner> {
        if let Some(image) = self.images.get(&module) {
            return Some(FileOwner {
                uid: 0,
                size_bytes: image.identity.size_bytes,
            });
        }
        let way = self.seen.get(module).map(|way| way.file);
        let open = || Some(file_owner(&self.open_copy(module)?.1.file));
        way.or_else(open)
    }

    /// An open file of a module that is a file.
    fn open_copy(&self, module: ModuleId) -> Option<(&FileKey, &Kept)> {
        let is_it = |kept: &Kept| kept.is_file && kept.file.module == module;
        let way = self.seen.get(module);
        let by_key = way.and_then(|way| self.kept.get_key_value(&way.key));
        by_key
            .filter(|(_, kept)| is_it(kept))
            .or_else(|| self.kept.iter().find(|(_, kept)| is_it(kept)))
    }

    /// A file already open under this key, unless its contents changed since.
    fn known(&mut self, key: &FileKey) -> Option<Identified> {
        let kept = self.kept.get_mut(key)?;
        let is_checked = self.reading.is_some() && kept.checked == self.reading;
        if !is_checked && file_identity(&kept.file.file) != Some(kept.file.identity) {
            self.kept.remove(key);
            self.counts.changed += 1;
            return None;
        }
        kept.checked = self.reading;
        self.uses += 1;
        kept.last_used = self.uses;
        Some(Identified {
            module: kept.file.module,
            is_file: kept.is_file,
        })
    }

    fn take_in(
        &mut self,
        (table, owner): (&mut ModuleTable, Owner),
        key: FileKey,
        file: File,
        mapped: &Mapped,
        memory: bool,
    ) -> Identified {
        self.counts.opened += 1;
        let Some(looked) = self.look_at(&file, memory) else {
            self.counts.not_opened += 1;
            return Identified {
                module: named((table, owner), mapped.plain_path(), ModuleKind::User),
                is_file: true,
            };
        };
        let module = match looked.unique {
            Some(unique) => table.intern_for(owner, unique, || Module {
                name: printable(mapped.plain_path()),
                build_id: looked.build_id,
                kind: ModuleKind::User,
            }),
            None => ModuleId::JIT,
        };
        let is_file = module != ModuleId::JIT;
        // What found no room may find some later.
        if module != ModuleId::UNKNOWN {
            self.keep(key, file, looked.identity, module);
        }
        Identified { module, is_file }
    }

    /// The module that a file is which nobody need have mapped; it is the system's where it is new.
    pub(super) fn module_of_file(
        &mut self,
        table: &mut ModuleTable,
        file: &File,
        path: &str,
    ) -> ModuleId {
        let looked = self.look_at(file, false);
        let unique = looked.and_then(|looked| Some((looked.unique?, looked.build_id)));
        let Some((unique, build_id)) = unique else {
            return ModuleId::UNKNOWN;
        };
        table.intern(unique, || Module {
            name: printable(path.as_bytes()),
            build_id,
            kind: ModuleKind::User,
        })
    }

    /// What a file is.
    fn look_at(&mut self, file: &File, memory: bool) -> Option<OpenedFile> {
        let metadata = file.metadata().ok()?;
        let identity = identity_of(&metadata);
        let elf = build_id::of_file(file);
        self.counts.corrupt += u64::from(elf == ElfIdentity::Corrupt);
        let is_file = !(memory && elf == ElfIdentity::NotElf);
        let build = match elf {
            ElfIdentity::BuildId(build) => Some(build),
            ElfIdentity::NoBuildId | ElfIdentity::NotElf | ElfIdentity::Corrupt => None,
        };
        let build_id = build.as_ref().map(|build| build.id.clone());
        let shared = build.filter(|_| only_root_writes(&metadata));
        let unique = shared.map_or(ModuleIdentity::File(identity), ModuleIdentity::Build);
        Some(OpenedFile {
            identity,
            unique: is_file.then_some(unique),
            build_id,
        })
    }

    /// Keeps a file open.
    fn keep(&mut self, key: FileKey, file: File, identity: FileIdentity, module: ModuleId) {
        self.uses += 1;
        if self.kept.len() >= self.limit {
            self.close_idle();
        }
        let kept = Kept {
            file: Arc::new(ModuleFile {
                module,
                file,
                identity,
            }),
            is_file: module != ModuleId::JIT,
            checked: None,
            last_used: self.uses,
        };
        self.kept.insert(key, kept);
        // More than can be open are known no longer, or are told when they are used.
        if self.newly_opened.len() < self.limit {
            self.newly_opened.push(module);
        }
    }

    /// Marks the modules that are needed whatever is mapped.
    pub(super) fn mark(&self, marks: &mut ModuleMarks) {
        let images = self.images.keys().copied();
        let modules = images.chain(self.perf_maps.modules());
        let modules = modules.chain(self.native_vdso);
        modules.for_each(|module| marks.keep(module));
    }

    /// Closes the files of modules that have left, and forgets where they were.
    pub(super) fn forget(&mut self, table: &mut ModuleTable, gone: &HashSet<ModuleId>) {
        self.kept
            .retain(|_, kept| !gone.contains(&kept.file.module));
        self.seen.forget(table, gone);
        self.perf_maps.close(|module| gone.contains(&module));
    }

    /// Closes the quarter that was not used for longest.
    fn close_idle(&mut self) {
        let mut uses: Vec<u64> = self.kept.values().map(|kept| kept.last_used).collect();
        uses.sort_unstable();
        let Some(limit) = uses.get(uses.len() / 4).copied() else {
            return;
        };
        let before = self.kept.len();
        self.kept.retain(|_, kept| kept.last_used > limit);
        self.counts.evicted += (before - self.kept.len()) as u64;
    }

    /// The file of a module, opened again if it had been closed and still is the same. `None`: it
    /// never could be opened, or is gone, or is no file.
    pub fn file(
        &mut self,
        table: &ModuleTable,
        source: &dyn ProcessSource,
        module: ModuleId,
    ) -> Option<Arc<ModuleFile>> {
        if let Some(image) = self.images.get(&module) {
            return Some(Arc::clone(image));
        }
        if let Some(map) = self.perf_maps.get(module) {
            return Some(map);
        }
        self.uses += 1;
        let open = self.open_copy(module).map(|(key, _)| key.clone());
        if let Some(kept) = open.and_then(|key| self.kept.get_mut(&key)) {
            kept.last_used = self.uses;
            return Some(Arc::clone(&kept.file));
        }
        let way = self.seen.get(module)?;
        let file = source.open(way.pid, way.pid, &way.mapped)?;
        let key = way.key.clone();
        self.keep_again(table, module, key, file)
    }

    /// Keeps a file that was opened again, if it still is that of the module.
    fn keep_again(
        &mut self,
        table: &ModuleTable,
        module: ModuleId,
        key: FileKey,
        file: File,
    ) -> Option<Arc<ModuleFile>> {
        self.counts.opened += 1;
        let looked = self.look_at(&file, false)?;
        if looked.unique.and_then(|unique| table.find(&unique)) != Some(module) {
            return None;
        }
        self.keep(key.clone(), file, looked.identity, module);
        self.kept.get(&key).map(|kept| Arc::clone(&kept.file))
    }

    /// The file of a module, opened through another process that has it at this place, and
    /// remembered so.
    pub(super) fn file_of(
        &mut self,
        (table, owner): (&mut ModuleTable, Owner),
        source: &dyn ProcessSource,
        module: ModuleId,
        (pid, range): (u32, Range<VirtualAddress>),
    ) -> Option<Arc<ModuleFile>> {
        let (file, mapped) = source.open_mapped(pid, range)?;
        let key = FileKey::of(&mapped);
        let file = self.keep_again(table, module, key.clone(), file)?;
        let found = (module, file_owner(&file));
        self.seen.note((table, owner), found, &key, (pid, &mapped));
        Some(file)
    }

    /// A module of its own for the code that a process makes at run time, if the process says how
    /// it is called. `start_ns` tells processes of one number apart.
    pub fn perf_map(
        &mut self,
        (table, owner): (&mut ModuleTable, Owner),
        source: &dyn ProcessSource,
        pid: u32,
        start_ns: MonoNs,
    ) -> Option<ModuleId> {
        let file = source.perf_map(pid)?;
        let identity = file_identity(&file)?;
        let unique = format!("[jit] {pid} {}", start_ns.ns());
        let module = table.intern_for(owner, ModuleIdentity::Named(unique.into()), || {
            Module::named(&format!("[jit] /tmp/perf-{pid}.map"), ModuleKind::Jit)
        });
        if module == ModuleId::UNKNOWN {
            return None;
        }
        let file = ModuleFile {
            module,
            file,
            identity,
        };
        let closed = self.perf_maps.keep(owner, Arc::new(file));
        self.counts.evicted += u64::from(closed);
        Some(module)
    }
}

pub(super) fn named(
    (table, owner): (&mut ModuleTable, Owner),
    path: &[u8],
    kind: ModuleKind,
) -> ModuleId {
    let name = printable(path);
    table.intern_for(owner, ModuleIdentity::Named(name.clone()), || {
        Module::named(&name, kind)
    })
}

/// Text of a path that others chose: what is not UTF-8 or steers a terminal becomes U+FFFD.
pub(super) fn printable(path: &[u8]) -> Box<str> {
    let text = String::from_utf8_lossy(path);
    text.chars()
        .map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

/// Whether nobody but root can have written the file: what it says of itself may be believed.
#[must_use]
pub fn only_root_writes(metadata: &Metadata) -> bool {
    metadata.uid() == 0 && metadata.mode() & 0o022 == 0
}

fn file_owner(file: &ModuleFile) -> FileOwner {
    let metadata = file.file.metadata();
    FileOwner {
        uid: metadata.map_or(NOBODY, |metadata| metadata.uid()),
        size_bytes: file.identity.size_bytes,
    }
}

pub(super) fn file_identity(file: &File) -> Option<FileIdentity> {
    Some(identity_of(&file.metadata().ok()?))
}

fn identity_of(metadata: &Metadata) -> FileIdentity {
    FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        size_bytes: metadata.size(),
        modified_unix_ns: i128::from(metadata.mtime()) * 1_000_000_000
            + i128::from(metadata.mtime_nsec()),
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
