//! What unwinding needs of an ELF file: where its code is, where it begins, and the section with unwind information. Only
//! those parts are read, with reads that a shrinking file merely cuts short; nothing is mapped, so a gigabyte of debug
//! information costs nothing. Hostile bytes: every table is bounded.

use std::{fs::File, os::unix::fs::FileExt as _};

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};

use super::NoTable;

/// Most program headers looked at.
const MAX_SEGMENTS: usize = 256;
/// Most section headers looked at.
const MAX_SECTIONS: usize = 16_384;
/// Most bytes of section names looked at.
const MAX_NAME_BYTES: u64 = 1 << 20;
/// Most bytes of a symbol table looked at.
const MAX_SYMBOL_BYTES: u64 = 32 << 20;
/// Bytes of one symbol.
const SYMBOL_BYTES: usize = 24;
/// Most bytes of the `.eh_frame_hdr` looked at: its beginning says where `.eh_frame` is.
const HEADER_BYTES: u64 = 64;

const PT_LOAD: u32 = 1;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
const STT_FUNC: u8 = 2;
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

/// A part of the file that is loaded as code.
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

/// Which of the two forms unwind information has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameForm {
    /// `.eh_frame`, found by its section header.
    EhFrame,
    /// `.eh_frame`, found by the loader's header: it ends with an entry of length zero.
    EhFrameToTerminator,
    /// `.debug_frame`.
    DebugFrame,
}

/// The unwind information of a file.
#[derive(Clone, Debug)]
pub struct FrameSection {
    /// Which form.
    pub form: FrameForm,
    /// Virtual address of its first byte.
    pub address: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What of an ELF file was read.
#[derive(Clone, Debug)]
pub struct Elf {
    /// Loaded code, by address.
    pub segments: Vec<Segment>,
    /// Where the program begins; 0: nowhere.
    pub entry: u64,
    /// Its unwind information.
    pub frames: FrameSection,
    /// Offsets and sizes of its symbol tables.
    symbols: Vec<(u64, u64)>,
}

struct Header {
    bytes: [u8; 64],
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

impl Elf {
    /// Reads what is needed. `max_section_bytes` bounds the unwind information.
    ///
    /// # Errors
    ///
    /// Why the file can have no table.
    pub fn read(file: &(impl ReadAt + ?Sized), max_section_bytes: u64) -> Result<Self, NoTable> {
        let header = Header::read(file)?;
        let loaded = header.program_headers(file)?;
        let mut segments: Vec<Segment> = loaded
            .iter()
            .filter(|program| program.kind == PT_LOAD && program.flags & PF_X != 0)
            .map(|program| program.segment)
            .filter(|segment| segment.size_bytes > 0)
            .collect();
        segments.sort_unstable_by_key(|segment| segment.address);
        if segments.is_empty() {
            return Err(NoTable::NoCode);
        }
        let sections = header.sections(file);
        Ok(Self {
            segments,
            entry: u64_at(&header.bytes, 24).unwrap_or(0),
            frames: frames(file, sections.as_ref(), &loaded, max_section_bytes)?,
            symbols: symbol_tables(sections.as_ref()),
        })
    }

    /// Addresses where symbols say that functions begin, as far as they are `wanted`, at most `max` of each table.
    pub fn function_starts(
        &self,
        file: &(impl ReadAt + ?Sized),
        max: usize,
        wanted: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let mut starts = Vec::new();
        let mut piece = vec![0; SYMBOL_BYTES << 10];
        for (offset, size_bytes) in &self.symbols {
            let before = starts.len();
            let mut done = 0;
            while done < *size_bytes && starts.len() - before < max {
                let length = (size_bytes - done).min(piece.len() as u64);
                let symbols = &mut piece[..length as usize];
                if !file.read_at(offset.saturating_add(done), symbols) {
                    break;
                }
                let functions = symbols
                    .chunks_exact(SYMBOL_BYTES)
                    .filter(|symbol| symbol[4] & 15 == STT_FUNC)
                    .filter_map(|symbol| u64_at(symbol, 8));
                starts.extend(functions.filter(|address| wanted(*address)));
                done += length;
            }
        }
        starts
    }

    /// Reads code at a virtual address; false if there is none.
    pub fn read_code(&self, file: &(impl ReadAt + ?Sized), address: u64, into: &mut [u8]) -> bool {
        self.segments.iter().any(|segment| {
            let end = address.checked_add(into.len() as u64);
            address >= segment.address
                && end.is_some_and(|end| end <= segment.end())
                && segment
                    .offset
                    .checked_add(address - segment.address)
                    .is_some_and(|offset| file.read_at(offset, into))
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Program {
    kind: u32,
    flags: u32,
    segment: Segment,
}

#[derive(Clone, Copy, Debug)]
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size_bytes: u64,
}

impl Header {
    fn read(file: &(impl ReadAt + ?Sized)) -> Result<Self, NoTable> {
        let mut bytes = [0; 64];
        if !file.read_at(0, &mut bytes[..16]) || !bytes.starts_with(b"\x7fELF") {
            return Err(NoTable::NotElf);
        }
        if bytes[4] != 2 || bytes[5] != 1 {
            return Err(NoTable::OtherMachine);
        }
        if !file.read_at(0, &mut bytes) {
            return Err(NoTable::Corrupt);
        }
        let linked = matches!(u16_at(&bytes, 16), Some(ET_EXEC | ET_DYN));
        if u16_at(&bytes, 18) != Some(EM_X86_64) || !linked {
            return Err(NoTable::OtherMachine);
        }
        Ok(Self { bytes })
    }

    fn u16(&self, at: usize) -> u16 {
        u16_at(&self.bytes, at).unwrap_or(0)
    }

    fn u64(&self, at: usize) -> u64 {
        u64_at(&self.bytes, at).unwrap_or(0)
    }

    fn program_headers(&self, file: &(impl ReadAt + ?Sized)) -> Result<Vec<Program>, NoTable> {
        let count = usize::from(self.u16(56)).min(MAX_SEGMENTS);
        if count == 0 {
            return Err(NoTable::NoCode);
        }
        if self.u16(54) != 56 {
            return Err(NoTable::Corrupt);
        }
        let mut table = vec![0; count * 56];
        if !file.read_at(self.u64(32), &mut table) {
            return Err(NoTable::Corrupt);
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
        programs.collect::<Option<_>>().ok_or(NoTable::Corrupt)
    }

    /// The section headers and the bytes of their names; nothing if they were stripped or make no sense.
    fn sections(&self, file: &(impl ReadAt + ?Sized)) -> Option<(Vec<Section>, Vec<u8>)> {
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
        file.read_at(names.offset, &mut text)
            .then_some((sections, text))
    }
}

fn symbol_tables(sections: Option<&(Vec<Section>, Vec<u8>)>) -> Vec<(u64, u64)> {
    let sections = sections.into_iter().flat_map(|(sections, _)| sections);
    sections
        .filter(|section| matches!(section.kind, SHT_SYMTAB | SHT_DYNSYM))
        .map(|section| (section.offset, section.size_bytes.min(MAX_SYMBOL_BYTES)))
        .take(2)
        .collect()
}

fn frames(
    file: &(impl ReadAt + ?Sized),
    sections: Option<&(Vec<Section>, Vec<u8>)>,
    loaded: &[Program],
    max_bytes: u64,
) -> Result<FrameSection, NoTable> {
    let find = |wanted: &[u8]| {
        let (sections, names) = sections.as_ref()?;
        sections.iter().find(|section| {
            let name = names.get(section.name as usize..).unwrap_or_default();
            section.kind != SHT_NOBITS
                && section.size_bytes > 4
                && name
                    .strip_prefix(wanted)
                    .is_some_and(|rest| rest.starts_with(b"\0"))
        })
    };
    let read = |form, address, offset, size_bytes: u64| {
        if size_bytes > max_bytes {
            return Err(NoTable::SectionTooLarge);
        }
        let mut bytes = vec![0; usize::try_from(size_bytes).map_err(|_| NoTable::SectionTooLarge)?];
        if !file.read_at(offset, &mut bytes) {
            return Err(NoTable::Unreadable);
        }
        Ok(FrameSection {
            form,
            address,
            bytes,
        })
    };
    if let Some(section) = find(b".eh_frame").filter(|section| section.flags & SHF_COMPRESSED == 0)
    {
        return read(
            FrameForm::EhFrame,
            section.address,
            section.offset,
            section.size_bytes,
        );
    }
    if let Some((address, offset, size_bytes)) = by_loader_header(file, loaded) {
        // Where it ends is not known; the rest of its segment holds it.
        let size_bytes = size_bytes.min(max_bytes);
        return read(FrameForm::EhFrameToTerminator, address, offset, size_bytes);
    }
    match find(b".debug_frame") {
        Some(section) if section.flags & SHF_COMPRESSED != 0 => Err(NoTable::Compressed),
        Some(section) => read(
            FrameForm::DebugFrame,
            section.address,
            section.offset,
            section.size_bytes,
        ),
        None if find(b".zdebug_frame").is_some() => Err(NoTable::Compressed),
        None => Err(NoTable::NoUnwindInformation),
    }
}

/// Address, offset and most bytes of the `.eh_frame` that the loader's header points to.
fn by_loader_header(file: &(impl ReadAt + ?Sized), loaded: &[Program]) -> Option<(u64, u64, u64)> {
    let header = loaded
        .iter()
        .find(|program| program.kind == PT_GNU_EH_FRAME)?
        .segment;
    let mut bytes = vec![0; usize::try_from(header.size_bytes.min(HEADER_BYTES)).ok()?];
    if !file.read_at(header.offset, &mut bytes) {
        return None;
    }
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.address);
    let parsed = EhFrameHdr::new(&bytes, LittleEndian)
        .parse(&bases, 8)
        .ok()?;
    let Pointer::Direct(address) = parsed.eh_frame_ptr() else {
        return None;
    };
    loaded.iter().find_map(|program| {
        let segment = program.segment;
        let inside =
            program.kind == PT_LOAD && address >= segment.address && address < segment.end();
        inside.then(|| {
            let skipped = address - segment.address;
            (
                address,
                segment.offset.saturating_add(skipped),
                segment.size_bytes - skipped,
            )
        })
    })
}
