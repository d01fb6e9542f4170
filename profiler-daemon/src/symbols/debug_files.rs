//! Which other file has the symbols and the debug information that were taken out of a program: by
//! its build ID, or by the name and checksum that it carries (`.gnu_debuglink`), in the folders
//! where debuggers look, first as the process sees them and then as this one does. It does not read
//! what it finds.
//!
//! A process can put whatever it likes where it is looked for. So a file counts only if it belongs
//! to root or to the owner of the program, and bears the program's build ID; where there is none,
//! the checksum decides.

use std::{
    collections::HashMap,
    fs::File,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    sync::Arc,
};

use super::request::Request;
use crate::{
    elf::{
        ElfFile, Program, Sections, address_of,
        build_id::{self, ElfIdentity},
    },
    processes::{files::only_root_writes, module::ModuleId},
    sys::open_in_root::{LastLink, Root},
    units::FileOffset,
    units::ModuleAddress,
    units::MonoNs,
};

/// Where packages put debug files.
const DEBUG_FOLDER: &str = "/usr/lib/debug";
/// What was not found is looked for again after this time, nanoseconds.
const AGAIN_NS: u64 = 60_000_000_000;
/// Most programs remembered, and so most debug files held open.
const MAX_PROGRAMS: usize = 256;
/// Largest file whose checksum is computed, bytes. Larger ones need a build ID.
const MAX_CHECKED_BYTES: u64 = 256 << 20;
/// Longest link section read, bytes.
const MAX_LINK_BYTES: u64 = 4096;

/// What of interest a file has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Has {
    /// A full symbol table.
    pub(super) symbols: bool,
    /// Lines of source.
    pub(super) lines: bool,
}

impl Has {
    fn of(sections: &Sections) -> Self {
        let has = |name| sections.find(name).is_some();
        Self {
            symbols: has(".symtab"),
            lines: has(".debug_info") && has(".debug_line"),
        }
    }
}

/// A file beside a program.
#[derive(Debug)]
pub(super) struct DebugFile {
    /// Open for reading.
    pub(super) file: File,
    /// When it was opened, bytes.
    pub(super) size_bytes: u64,
    /// What it has.
    pub(super) has: Has,
}

/// What is known of a program's file.
#[derive(Clone, Debug)]
pub(super) struct ProgramFacts {
    /// What it has itself.
    pub(super) has: Has,
    /// The file that has the rest, if there is one.
    pub(super) debug: Option<Arc<DebugFile>>,
    programs: Arc<[Program]>,
}

impl ProgramFacts {
    /// The virtual address of a file offset.
    pub(super) fn address(&self, offset: FileOffset) -> Option<ModuleAddress> {
        address_of(&self.programs, offset)
    }

    fn is_whole(&self) -> bool {
        self.debug.is_some() || (self.has.symbols && self.has.lines)
    }
}

#[derive(Debug)]
struct KnownFile {
    facts: ProgramFacts,
    checked_ns: MonoNs,
    used_ns: MonoNs,
}

/// What is known of programs, those used lately.
#[derive(Debug, Default)]
pub(super) struct DebugFiles {
    known: HashMap<ModuleId, KnownFile>,
}

impl DebugFiles {
    /// What is known of the program of a request; `None` where it has no file, or one that makes no
    /// sense.
    pub(super) fn facts(&mut self, request: &Request, now_ns: MonoNs) -> Option<ProgramFacts> {
        let module = request.place.module;
        if let Some(known) = self.known.get_mut(&module) {
            known.used_ns = now_ns;
            return Some(known.facts.clone());
        }
        let facts = look_at(request)?;
        if self.known.len() >= MAX_PROGRAMS {
            self.forget_idle();
        }
        let known = KnownFile {
            facts: facts.clone(),
            checked_ns: now_ns,
            used_ns: now_ns,
        };
        self.known.insert(module, known);
        Some(facts)
    }

    /// Looks again for what was not found some time ago. Whether it is there now: what was said
    /// without it may be wrong.
    pub(super) fn look_again(&mut self, request: &Request, now_ns: MonoNs) -> bool {
        let Some(known) = self.known.get_mut(&request.place.module) else {
            return false;
        };
        if known.facts.is_whole() || now_ns.saturating_since(known.checked_ns) < AGAIN_NS {
            return false;
        }
        known.checked_ns = now_ns;
        let facts = look_at(request);
        let found = facts.filter(|facts| facts.debug.is_some());
        let is_found = found.is_some();
        if let Some(facts) = found {
            known.facts = facts;
        }
        is_found
    }

    /// Drops the half that was not used for longest.
    fn forget_idle(&mut self) {
        let mut uses: Vec<MonoNs> = self.known.values().map(|known| known.used_ns).collect();
        uses.sort_unstable();
        let median = uses.get(uses.len() / 2).copied().unwrap_or(MonoNs::ZERO);
        self.known.retain(|_, known| known.used_ns > median);
    }
}

/// Reads the program's tables, and looks for a debug file where it lacks something.
fn look_at(request: &Request) -> Option<ProgramFacts> {
    let program = &request.file.as_ref()?.file;
    let elf = ElfFile::read(program).ok()?;
    let programs = elf.programs(program).ok()?.into();
    let sections = elf.sections(program).unwrap_or_default();
    let mut facts = ProgramFacts {
        has: Has::of(&sections),
        debug: None,
        programs,
    };
    if !facts.is_whole() {
        let search = DebugFileSearch::new(request)?;
        facts.debug = search.debug_file(program, &sections).map(Arc::new);
    }
    Some(facts)
}

/// The file with what the debug information of `file` shares with other files (dwz), if it says
/// that there is one.
pub(super) fn supplementary(request: &Request, file: &File) -> Option<File> {
    let sections = ElfFile::read(file).ok()?.sections(file)?;
    let link = link(file, &sections, ".gnu_debugaltlink")?;
    let (path, id) = link.split_at(link.iter().position(|byte| *byte == 0)?);
    let wanted = FileMatch::BuildId(id.get(1..)?.into());
    let search = DebugFileSearch::new(request)?;
    let mut paths = vec![build_id_path(id.get(1..)?)?];
    if path.starts_with(b"/") {
        paths.push(path.to_vec());
    } else {
        // As seen from the folder that the debug file of a package is in.
        paths.push([search.folder, b"/", path].concat());
        paths.push([DEBUG_FOLDER.as_bytes(), search.folder, b"/", path].concat());
    }
    search.first(&paths, &wanted)
}

/// How a file is known to be the right one.
enum FileMatch {
    BuildId(Box<[u8]>),
    Checksum(u32),
}

impl FileMatch {
    fn is(&self, file: &File) -> bool {
        match self {
            Self::BuildId(wanted) => {
                matches!(build_id::of_file(file), ElfIdentity::BuildId(build) if build.id == *wanted)
            }
            Self::Checksum(wanted) => checksum(file) == Some(*wanted),
        }
    }
}

/// Where files of one program are looked for.
struct DebugFileSearch<'a> {
    roots: Vec<Root>,
    /// The program's folder, as its process sees it.
    folder: &'a [u8],
    /// The program's name in it.
    name: &'a [u8],
    build_id: Option<&'a [u8]>,
    owner: u32,
}

impl<'a> DebugFileSearch<'a> {
    fn new(request: &'a Request) -> Option<Self> {
        let path: &[u8] = match &request.seen {
            Some(seen) => &seen.path,
            None => request.module.name.as_bytes(),
        };
        let last = path.iter().rposition(|byte| *byte == b'/')?;
        let own = Root::own().ok()?;
        let of_process = request.seen.as_ref().and_then(|seen| {
            let root = Root::of_process(seen.pid).ok()?;
            (!root.is_same(&own)).then_some(root)
        });
        Some(Self {
            roots: of_process.into_iter().chain([own]).collect(),
            folder: &path[..last],
            name: &path[last + 1..],
            build_id: request.module.build_id.as_deref(),
            owner: request.file.as_ref()?.file.metadata().ok()?.uid(),
        })
    }

    fn debug_file(&self, program: &File, sections: &Sections) -> Option<DebugFile> {
        let mut paths = Vec::new();
        paths.extend(self.build_id.and_then(build_id_path));
        let link = link(program, sections, ".gnu_debuglink").and_then(|link| debug_link(&link));
        if let Some((name, _)) = &link {
            if **name != *self.name {
                paths.push([self.folder, b"/", name].concat());
            }
            paths.push([self.folder, b"/.debug/", name].concat());
            paths.push([DEBUG_FOLDER.as_bytes(), self.folder, b"/", name].concat());
        }
        let wanted = match (self.build_id, link) {
            (Some(id), _) => FileMatch::BuildId(id.into()),
            (None, Some((_, checksum))) => FileMatch::Checksum(checksum),
            (None, None) => return None,
        };
        let file = self.first(&paths, &wanted)?;
        let sections = ElfFile::read(&file).ok()?.sections(&file)?;
        Some(DebugFile {
            size_bytes: file.metadata().ok()?.size(),
            has: Has::of(&sections),
            file,
        })
    }

    fn first(&self, paths: &[Vec<u8>], wanted: &FileMatch) -> Option<File> {
        self.roots.iter().find_map(|root| {
            let mut files = paths
                .iter()
                .filter_map(|path| root.open(path, LastLink::Follow).ok());
            files.find(|file| self.is_trusted(file) && wanted.is(file))
        })
    }

    fn is_trusted(&self, file: &File) -> bool {
        file.metadata()
            .is_ok_and(|metadata| metadata.uid() == self.owner || only_root_writes(&metadata))
    }
}

/// Where a file of that build ID is.
pub(super) fn build_id_path(id: &[u8]) -> Option<Vec<u8>> {
    use std::fmt::Write as _;
    let (first, rest) = id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let mut path = format!("{DEBUG_FOLDER}/.build-id/{first:02x}/");
    for byte in rest {
        write!(path, "{byte:02x}").expect("a String takes all text");
    }
    path.push_str(".debug");
    Some(path.into_bytes())
}

/// The bytes of a section that names another file.
fn link(file: &File, sections: &Sections, name: &str) -> Option<Vec<u8>> {
    let section = sections.find(name)?;
    if section.size_bytes > MAX_LINK_BYTES || section.is_compressed() {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(section.size_bytes).ok()?];
    file.read_exact_at(&mut bytes, section.offset.get()).ok()?;
    Some(bytes)
}

/// Name and checksum of a `.gnu_debuglink`: a text, zeros up to a multiple of four, four bytes.
pub(super) fn debug_link(section: &[u8]) -> Option<(Box<[u8]>, u32)> {
    let length = section.iter().position(|byte| *byte == 0)?;
    let name = &section[..length];
    let at = (length + 1).next_multiple_of(4);
    let checksum = section.get(at..at.checked_add(4)?)?;
    let is_plain = !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/');
    is_plain.then(|| {
        let checksum = checksum.try_into().expect("four bytes are four");
        (name.into(), u32::from_le_bytes(checksum))
    })
}

/// The checksum that a link has of the file it means; `None` for a file that cannot be read or is
/// too large.
fn checksum(file: &File) -> Option<u32> {
    let size = file.metadata().ok()?.size();
    if size > MAX_CHECKED_BYTES {
        return None;
    }
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < size {
        let length = file.read_at(&mut buffer, at).ok().filter(|n| *n > 0)?;
        hasher.update(&buffer[..length]);
        at += length as u64;
    }
    Some(hasher.finalize())
}

#[cfg(test)]
#[path = "debug_files_tests.rs"]
mod tests;
