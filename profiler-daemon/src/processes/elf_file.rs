//! The tables of a program file: what is loaded where, and which sections there are. Only those
//! tables are read, with reads that a shrinking file merely cuts short; nothing is mapped, so a
//! gigabyte of debug information costs nothing. Hostile bytes: every table is bounded. It does not
//! look into sections.

use std::{fs::File, os::unix::fs::FileExt as _};

/// Most program headers looked at.
const MAX_SEGMENTS: usize = 256;
/// Most section headers looked at.
const MAX_SECTIONS: usize = 16_384;
/// Most bytes of section names looked at.
const MAX_NAME_BYTES: u64 = 1 << 20;

/// A segment that is loaded.
pub const PT_LOAD: u32 = 1;
/// A segment that holds code.
pub const PF_X: u32 = 1;
/// A section without bytes in the file.
const SHT_NOBITS: u32 = 8;
/// A section of code that is loaded.
const SHF_LOADED_CODE: u64 = 2 | 4;
/// A section whose bytes are compressed.
const SHF_COMPRESSED: u64 = 1 << 11;
const EM_X86_64: u16 = 62;
const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;

/// Reads parts of a file.
pub trait ReadAt {
    /// Fills `into` from that offset on, or answers false.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> bool;
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> bool {
        self.read_exact_at(into, offset).is_ok()
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> bool {
        let range = usize::try_from(offset)
            .ok()
            .and_then(|from| self.get(from..from.checked_add(into.len())?));
        range.is_some_and(|range| {
            into.copy_from_slice(range);
            true
        })
    }
}

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
    pub address: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes of it in the file.
    pub size_bytes: u64,
}

impl Segment {
    /// The first address behind it.
    #[must_use]
    pub const fn end(&self) -> u64 {
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

/// An entry of the section header table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    /// Virtual address; 0 for what is not loaded.
    pub address: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes of it in the file.
    pub size_bytes: u64,
}

impl Section {
    /// Whether its bytes are compressed: a header that says how, and then the stream.
    #[must_use]
    pub const fn is_compressed(&self) -> bool {
        self.flags & SHF_COMPRESSED != 0
    }

    /// Whether it is loaded and holds code, be its bytes in this file or, of a debug file, in the
    /// program.
    #[must_use]
    pub const fn is_code(&self) -> bool {
        self.flags & SHF_LOADED_CODE == SHF_LOADED_CODE
    }

    /// The first address behind it.
    #[must_use]
    pub const fn end(&self) -> u64 {
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
pub struct ElfFile {
    header: [u8; 64],
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl ElfFile {
    /// Reads the header.
    ///
    /// # Errors
    /// What the file is instead.
    pub fn read(file: &(impl ReadAt + ?Sized)) -> Result<Self, NoElf> {
        let mut header = [0; 64];
        if !file.read_at(0, &mut header[..16]) || !header.starts_with(b"\x7fELF") {
            return Err(NoElf::NotElf);
        }
        if header[4] != 2 || header[5] != 1 {
            return Err(NoElf::OtherMachine);
        }
        if !file.read_at(0, &mut header) {
            return Err(NoElf::Corrupt);
        }
        let linked = matches!(u16_at(&header, 16), Some(ET_EXEC | ET_DYN));
        if u16_at(&header, 18) != Some(EM_X86_64) || !linked {
            return Err(NoElf::OtherMachine);
        }
        Ok(Self { header })
    }

    fn u16(&self, at: usize) -> u16 {
        u16_at(&self.header, at).unwrap_or(0)
    }

    fn u64(&self, at: usize) -> u64 {
        u64_at(&self.header, at).unwrap_or(0)
    }

    /// The virtual address where the program begins; 0: nowhere.
    #[must_use]
    pub fn entry(&self) -> u64 {
        self.u64(24)
    }

    /// The program header table; empty where there is none.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn programs(&self, file: &(impl ReadAt + ?Sized)) -> Result<Vec<Program>, NoElf> {
        let count = usize::from(self.u16(56)).min(MAX_SEGMENTS);
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.u16(54) != 56 {
            return Err(NoElf::Corrupt);
        }
        let mut table = vec![0; count * 56];
        if !file.read_at(self.u64(32), &mut table) {
            return Err(NoElf::Corrupt);
        }
        let programs = table.chunks_exact(56).map(|entry| {
            Some(Program {
                kind: u32_at(entry, 0)?,
                flags: u32_at(entry, 4)?,
                segment: Segment {
                    offset: u64_at(entry, 8)?,
                    address: u64_at(entry, 16)?,
                    size_bytes: u64_at(entry, 32)?,
                },
            })
        });
        programs.collect::<Option<_>>().ok_or(NoElf::Corrupt)
    }

    /// The sections; `None` if they were stripped or make no sense.
    #[must_use]
    pub fn sections(&self, file: &(impl ReadAt + ?Sized)) -> Option<Sections> {
        let at = self.u64(40);
        if at == 0 || self.u16(58) != 64 {
            return None;
        }
        let mut first = [0; 64];
        if !file.read_at(at, &mut first) {
            return None;
        }
        // Numbers that do not fit the header stand in the first section.
        let mut count = u64::from(self.u16(60));
        if count == 0 {
            count = u64_at(&first, 32)?;
        }
        let mut names = usize::from(self.u16(62));
        if names == 0xffff {
            names = u32_at(&first, 40)? as usize;
        }
        let count = usize::try_from(count).ok()?.min(MAX_SECTIONS);
        let mut table = vec![0; count * 64];
        if !file.read_at(at, &mut table) {
            return None;
        }
        let sections: Vec<Section> = table
            .chunks_exact(64)
            .map(|entry| {
                Some(Section {
                    name: u32_at(entry, 0)?,
                    kind: u32_at(entry, 4)?,
                    flags: u64_at(entry, 8)?,
                    address: u64_at(entry, 16)?,
                    offset: u64_at(entry, 24)?,
                    size_bytes: u64_at(entry, 32)?,
                })
            })
            .collect::<Option<_>>()?;
        let names = sections.get(names)?;
        let mut text = vec![0; usize::try_from(names.size_bytes.min(MAX_NAME_BYTES)).ok()?];
        file.read_at(names.offset, &mut text).then_some(Sections {
            sections,
            names: text,
        })
    }
}

/// The virtual address of what stands at a file offset: in code, else in whatever else is loaded.
#[must_use]
pub fn address_of(programs: &[Program], offset: u64) -> Option<u64> {
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
pub fn code_offset(programs: &[Program], address: u64, size_bytes: u64) -> Option<u64> {
    offset_in(programs, PF_X, address, size_bytes)
}

/// The same of bytes that are loaded at all.
#[must_use]
pub fn loaded_offset(programs: &[Program], address: u64, size_bytes: u64) -> Option<u64> {
    offset_in(programs, 0, address, size_bytes)
}

/// How many writable segments map the page of the file that has this offset: linkers let the end of
/// one and the beginning of the next share a page of the file.
#[must_use]
pub fn writable_segments_at(programs: &[Program], offset: u64) -> usize {
    const PF_W: u32 = 2;
    const PAGE_BYTES: u64 = 4096;
    let page = offset / PAGE_BYTES;
    let maps_it = |program: &&Program| {
        let segment = program.segment;
        let last = segment
            .offset
            .saturating_add(segment.size_bytes)
            .saturating_sub(1);
        program.kind == PT_LOAD
            && program.flags & PF_W != 0
            && segment.size_bytes > 0
            && (segment.offset / PAGE_BYTES..=last / PAGE_BYTES).contains(&page)
    };
    programs.iter().filter(maps_it).count()
}

fn offset_in(programs: &[Program], flags: u32, address: u64, size_bytes: u64) -> Option<u64> {
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

    // Check that a page of the file that two writable segments share is told, and that those that
    // are not writable do not count.
    #[test]
    fn shared_pages_are_told() {
        let load = |flags, offset, size_bytes| Program {
            kind: PT_LOAD,
            flags,
            segment: Segment {
                address: 0x10_0000 + offset,
                offset,
                size_bytes,
            },
        };
        let programs = [
            load(4, 0, 0x1800),
            load(6, 0x1800, 0x900),
            load(6, 0x2100, 0x2000),
        ];
        let at = |offset| writable_segments_at(&programs, offset);
        assert_eq!(
            (at(0x100), at(0x1900), at(0x2110), at(0x3000), at(0x5000)),
            (0, 1, 2, 1, 0)
        );
    }

    // Check that this program is read: its sections are found by their whole names only, and its
    // entry is a place in the file.
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
        assert_eq!(address_of(&programs, u64::MAX), None);
        assert!((text.address..text.address + text.size_bytes).contains(&elf.entry()));
    }

    // Check that code is preferred where two segments share a part of the file, and that wild
    // segments do not overflow.
    #[test]
    fn offsets() {
        let program = |flags, offset, address, size_bytes| Program {
            kind: PT_LOAD,
            flags,
            segment: Segment {
                address,
                offset,
                size_bytes,
            },
        };
        let programs = [
            program(4, 0, 0, 0x2000),
            program(5, 0x1000, 0x5000, 0x1000),
            program(4, 0x9000, u64::MAX, 0x1000),
        ];
        assert_eq!(address_of(&programs, 0x1010), Some(0x5010));
        assert_eq!(address_of(&programs, 0x10), Some(0x10));
        assert_eq!(address_of(&programs, 0x9001), None);
        assert_eq!(address_of(&programs, 0x3000), None);
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
