//! The tables of a program file: what is loaded where, and which sections there are. Only those
//! tables are read. Hostile bytes: every table is bounded. It does not look into sections.

use object::elf::{
    DF_1_PIE, DT_FLAGS_1, Dyn64, ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_X86_64, ET_DYN, ET_EXEC,
    FileHeader64, Ident, PF_W, PF_X, PT_DYNAMIC, PT_LOAD, ProgramHeader64, SHF_ALLOC,
    SHF_COMPRESSED, SHF_EXECINSTR, SHN_XINDEX, SHT_NOBITS, SectionHeader64,
};
use object::pod::bytes_of_mut;
use object::read::elf::{FileHeader, Note, NoteIterator};

use super::{
    LE,
    read::{FileRange, ReadAt, entries, entry, zeros},
};
use crate::units::{FileOffset, ModuleAddress};

/// Most program headers looked at.
const MAX_SEGMENTS: usize = 256;
/// Most section headers looked at.
const MAX_SECTIONS: usize = 16_384;
/// Most bytes of section names looked at.
const MAX_NAME_BYTES: usize = 1 << 20;

/// Why a file's tables cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoElf {
    /// Some other file.
    NotElf,
    /// Not a linked 64-bit program of this machine.
    OtherMachine,
    /// It begins like one and makes no sense.
    Corrupt,
}

/// A part of the file that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Virtual address where it begins.
    pub address: ModuleAddress,
    /// Offset in the file.
    pub offset: FileOffset,
    /// Bytes of it in the file.
    pub size_bytes: u64,
}

impl Segment {
    /// The first address behind it.
    #[must_use]
    pub const fn end(&self) -> ModuleAddress {
        self.address.saturating_add(self.size_bytes)
    }
}

/// An entry of the program header table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// `PT_…`.
    pub kind: u32,
    /// `PF_…`.
    pub flags: u32,
    /// Where it is.
    pub segment: Segment,
}

impl Program {
    fn of(header: &ProgramHeader64<LE>) -> Self {
        Self {
            kind: header.p_type.get(LE),
            flags: header.p_flags.get(LE),
            segment: Segment {
                address: ModuleAddress::new(header.p_vaddr.get(LE)),
                offset: FileOffset::new(header.p_offset.get(LE)),
                size_bytes: header.p_filesz.get(LE),
            },
        }
    }
}

/// An entry of the section header table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    /// Virtual address; 0 for what is not loaded.
    pub address: ModuleAddress,
    /// Offset in the file.
    pub offset: FileOffset,
    /// Bytes of it in the file.
    pub size_bytes: u64,
}

impl Section {
    fn of(header: &SectionHeader64<LE>) -> Self {
        Self {
            name: header.sh_name.get(LE),
            kind: header.sh_type.get(LE),
            flags: header.sh_flags.get(LE),
            address: ModuleAddress::new(header.sh_addr.get(LE)),
            offset: FileOffset::new(header.sh_offset.get(LE)),
            size_bytes: header.sh_size.get(LE),
        }
    }

    /// Where its bytes are in the file.
    #[must_use]
    pub const fn bytes(&self) -> FileRange {
        FileRange {
            offset: self.offset,
            size_bytes: self.size_bytes,
        }
    }

    /// Whether its bytes are compressed: a header that says how, and then the stream.
    #[must_use]
    pub const fn is_compressed(&self) -> bool {
        self.flags & SHF_COMPRESSED as u64 != 0
    }

    /// Whether it is loaded and holds code, be its bytes in this file or, of a debug file, in the
    /// program.
    #[must_use]
    pub const fn is_code(&self) -> bool {
        const LOADED_CODE: u64 = (SHF_ALLOC | SHF_EXECINSTR) as u64;
        self.flags & LOADED_CODE == LOADED_CODE
    }

    /// The first address behind it.
    #[must_use]
    pub const fn end(&self) -> ModuleAddress {
        self.address.saturating_add(self.size_bytes)
    }
}

/// The section header table, with the names.
#[derive(Clone, Debug, Default)]
pub struct Sections {
    sections: Vec<Section>,
    names: Vec<u8>,
}

impl Sections {
    /// The first section of that name that has bytes in the file.
    #[must_use]
    pub fn find(&self, wanted: &str) -> Option<&Section> {
        self.sections.iter().find(|section| {
            section.kind != SHT_NOBITS && section.size_bytes > 0 && self.is_named(section, wanted)
        })
    }

    /// The sections of code, also those whose bytes are in another file.
    pub fn code(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(|section| section.is_code())
    }

    /// Whether this is the name of a section of this file.
    #[must_use]
    pub fn is_named(&self, section: &Section, wanted: &str) -> bool {
        let name = self.names.get(section.name as usize..).unwrap_or_default();
        name.strip_prefix(wanted.as_bytes())
            .is_some_and(|rest| rest.starts_with(b"\0"))
    }
}

/// The beginning of a 64-bit program file of this machine.
#[derive(Debug)]
pub struct ElfFile(FileHeader64<LE>);

impl ElfFile {
    /// Reads the header.
    ///
    /// # Errors
    /// What the file is instead.
    pub fn read(file: &(impl ReadAt + ?Sized)) -> Result<Self, NoElf> {
        let ident = ident(file).ok_or(NoElf::NotElf)?;
        if (ident.class, ident.data) != (ELFCLASS64, ELFDATA2LSB) {
            return Err(NoElf::OtherMachine);
        }
        let header: FileHeader64<LE> = entry(file, FileOffset::ZERO).ok_or(NoElf::Corrupt)?;
        let linked = matches!(header.e_type.get(LE), ET_EXEC | ET_DYN);
        if header.e_machine.get(LE) != EM_X86_64 || !linked {
            return Err(NoElf::OtherMachine);
        }
        Ok(Self(header))
    }

    /// The virtual address where the program begins; 0: nowhere.
    #[must_use]
    pub fn entry(&self) -> ModuleAddress {
        ModuleAddress::new(self.0.e_entry.get(LE))
    }

    /// The program header table; empty where there is none.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn programs(&self, file: &(impl ReadAt + ?Sized)) -> Result<Vec<Program>, NoElf> {
        let headers = program_headers(file, &self.0, LE).ok_or(NoElf::Corrupt)?;
        Ok(headers.iter().map(Program::of).collect())
    }

    /// Whether it is a program and no library: it lies at fixed addresses, or its linker says so.
    /// (The C library can be run too, and is none.)
    #[must_use]
    pub fn is_program(&self, file: &(impl ReadAt + ?Sized)) -> bool {
        if self.0.e_type.get(LE) == ET_EXEC {
            return true;
        }
        let programs = self.programs(file).unwrap_or_default();
        let dynamic = programs.iter().find(|program| program.kind == PT_DYNAMIC);
        let entries = dynamic.map(|program| FileRange {
            offset: program.segment.offset,
            size_bytes: program.segment.size_bytes,
        });
        let entries: Vec<Dyn64<LE>> = entries.unwrap_or_default().piece(file, 0);
        let mut flags = entries
            .iter()
            .filter(|entry| entry.d_tag.get(LE) == DT_FLAGS_1);
        flags.any(|entry| entry.d_val.get(LE) & u64::from(DF_1_PIE) != 0)
    }

    /// The sections; `None` if they were stripped or make no sense.
    #[must_use]
    pub fn sections(&self, file: &(impl ReadAt + ?Sized)) -> Option<Sections> {
        let at = FileOffset::new(self.0.e_shoff.get(LE));
        let entry_bytes = usize::from(self.0.e_shentsize.get(LE));
        if at == FileOffset::ZERO || entry_bytes != size_of::<SectionHeader64<LE>>() {
            return None;
        }
        // Numbers that do not fit the header stand in the first section.
        let first: SectionHeader64<LE> = entry(file, at)?;
        let count = match self.0.e_shnum.get(LE) {
            0 => usize::try_from(first.sh_size.get(LE)).ok()?,
            count => count.into(),
        };
        let names = match self.0.e_shstrndx.get(LE) {
            SHN_XINDEX => first.sh_link.get(LE),
            names => names.into(),
        };
        let headers = entries(file, at, count.min(MAX_SECTIONS))?;
        let sections: Vec<Section> = headers.iter().map(Section::of).collect();
        let names = sections.get(names as usize)?.bytes();
        Some(Sections {
            names: names.read(file, MAX_NAME_BYTES)?,
            sections,
        })
    }
}

/// What says how the rest of the header is to be read; `None` where no ELF file begins.
pub(super) fn ident(file: &(impl ReadAt + ?Sized)) -> Option<Ident> {
    let mut header: FileHeader64<LE> = zeros();
    let begin = &mut bytes_of_mut(&mut header)[..size_of::<Ident>()];
    (file.read_at(FileOffset::ZERO, begin) && header.e_ident.magic == ELFMAG)
        .then_some(header.e_ident)
}

/// The program header table of a file for any machine; empty where there is none, `None` where it
/// cannot be read, or is none.
pub(super) fn program_headers<Header: FileHeader>(
    file: &(impl ReadAt + ?Sized),
    header: &Header,
    endian: Header::Endian,
) -> Option<Vec<Header::ProgramHeader>> {
    let count = usize::from(header.e_phnum(endian)).min(MAX_SEGMENTS);
    if count == 0 {
        return Some(Vec::new());
    }
    let entry_bytes = usize::from(header.e_phentsize(endian));
    (entry_bytes == size_of::<Header::ProgramHeader>())
        .then(|| entries(file, FileOffset::new(header.e_phoff(endian).into()), count))?
}

/// The notes in a section. Ends where the bytes make no sense.
pub fn notes(bytes: &[u8]) -> impl Iterator<Item = Note<'_, FileHeader64<LE>>> {
    let notes = NoteIterator::new(LE, 4, bytes).into_iter().flatten();
    notes.map_while(Result::ok)
}

/// The virtual address of what stands at a file offset: in code, else in whatever else is loaded.
#[must_use]
pub fn address_of(programs: &[Program], offset: FileOffset) -> Option<ModuleAddress> {
    let inside = |program: &&Program| {
        let segment = program.segment;
        program.kind == PT_LOAD
            && offset >= segment.offset
            && offset - segment.offset < segment.size_bytes
    };
    let program = programs
        .iter()
        .find(|program| program.flags & PF_X != 0 && inside(program))
        .or_else(|| programs.iter().find(inside))?;
    let segment = program.segment;
    segment.address.checked_add(offset - segment.offset)
}

/// Where so many bytes of code at a virtual address are in the file; `None` where they are not all
/// mapped from it as code.
#[must_use]
pub fn code_offset(
    programs: &[Program],
    address: ModuleAddress,
    size_bytes: u64,
) -> Option<FileOffset> {
    offset_in(programs, PF_X, address, size_bytes)
}

/// The same of bytes that are loaded at all.
#[must_use]
pub fn loaded_offset(
    programs: &[Program],
    address: ModuleAddress,
    size_bytes: u64,
) -> Option<FileOffset> {
    offset_in(programs, 0, address, size_bytes)
}

/// How many writable segments map the page of the file that has this offset: linkers let the end of
/// one and the beginning of the next share a page of the file.
#[must_use]
pub fn writable_segments_at(programs: &[Program], offset: FileOffset) -> usize {
    const PAGE_BYTES: u64 = 4096;
    let page = |of: FileOffset| of.get() / PAGE_BYTES;
    let maps_it = |program: &&Program| {
        let segment = program.segment;
        let behind = segment.offset.saturating_add(segment.size_bytes);
        program.kind == PT_LOAD
            && program.flags & PF_W != 0
            && segment.size_bytes > 0
            && (page(segment.offset)..=page(behind - 1)).contains(&page(offset))
    };
    programs.iter().filter(maps_it).count()
}

fn offset_in(
    programs: &[Program],
    flags: u32,
    address: ModuleAddress,
    size_bytes: u64,
) -> Option<FileOffset> {
    let program = programs.iter().find(|program| {
        let segment = program.segment;
        program.kind == PT_LOAD
            && program.flags & flags == flags
            && address >= segment.address
            && address - segment.address < segment.size_bytes
            && size_bytes <= segment.size_bytes - (address - segment.address)
    })?;
    program
        .segment
        .offset
        .checked_add(address - program.segment.address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    // Check that a page of the file that two writable segments share is told, and that those that
    // are not writable do not count.
    #[test]
    fn shared_pages_are_told() {
        let load = |flags, offset: u64, size_bytes| Program {
            kind: PT_LOAD,
            flags,
            segment: Segment {
                address: ModuleAddress::new(0x10_0000 + offset),
                offset: FileOffset::new(offset),
                size_bytes,
            },
        };
        let programs = [
            load(4, 0, 0x1800),
            load(6, 0x1800, 0x900),
            load(6, 0x2100, 0x2000),
        ];
        let at = |offset| writable_segments_at(&programs, FileOffset::new(offset));
        assert_eq!(
            (at(0x100), at(0x1900), at(0x2110), at(0x3000), at(0x5000)),
            (0, 1, 2, 1, 0)
        );
    }

    // Check that this program is read: its sections are found by their whole names only, its entry
    // is a place in the file, and it is a program, which the C library is not.
    #[test]
    fn own_program() {
        let file = File::open("/proc/self/exe").unwrap();
        let elf = ElfFile::read(&file).unwrap();
        let sections = elf.sections(&file).unwrap();
        let text = *sections.find(".text").unwrap();
        assert!(text.size_bytes > 1000 && !text.is_compressed());
        assert!(sections.find(".tex").is_none() && sections.find(".bss").is_none());
        let programs = elf.programs(&file).unwrap();
        assert_eq!(address_of(&programs, text.offset), Some(text.address));
        assert_eq!(address_of(&programs, FileOffset::new(u64::MAX)), None);
        assert!((text.address..text.address + text.size_bytes).contains(&elf.entry()));
        assert!(elf.is_program(&file));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let library = maps.lines().find(|line| line.contains("libc.so")).unwrap();
        let library = File::open(&library[library.find('/').unwrap()..]).unwrap();
        assert!(!ElfFile::read(&library).unwrap().is_program(&library));
    }

    // Check that code is preferred where two segments share a part of the file, and that wild
    // segments do not overflow.
    #[test]
    fn offsets() {
        let program = |flags, offset, address, size_bytes| Program {
            kind: PT_LOAD,
            flags,
            segment: Segment {
                address: ModuleAddress::new(address),
                offset: FileOffset::new(offset),
                size_bytes,
            },
        };
        let programs = [
            program(4, 0, 0, 0x2000),
            program(5, 0x1000, 0x5000, 0x1000),
            program(4, 0x9000, u64::MAX, 0x1000),
        ];
        let address =
            |offset| address_of(&programs, FileOffset::new(offset)).map(ModuleAddress::get);
        assert_eq!(address(0x1010), Some(0x5010));
        assert_eq!(address(0x10), Some(0x10));
        assert_eq!(address(0x9001), None);
        assert_eq!(address(0x3000), None);
    }

    // Check that what is no program file, or one cut short, is told apart.
    #[test]
    fn other_files() {
        let image = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(ElfFile::read(&b"text"[..]).unwrap_err(), NoElf::NotElf);
        assert_eq!(ElfFile::read(&image[..40]).unwrap_err(), NoElf::Corrupt);
        let cut = &image[..64];
        let elf = ElfFile::read(cut).unwrap();
        assert_eq!(elf.programs(cut).unwrap_err(), NoElf::Corrupt);
        assert!(elf.sections(cut).is_none());
        let mut other = image[..64].to_vec();
        other[4] = 1;
        assert_eq!(
            ElfFile::read(other.as_slice()).unwrap_err(),
            NoElf::OtherMachine
        );
    }
}
