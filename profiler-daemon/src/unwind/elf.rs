//! What unwinding needs of an ELF file: where its code is, where it begins, and the section with
//! unwind information. Only those parts are read; how the tables that lead there are read is
//! `crate::elf`'s.

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};

use super::{
    NoTable,
    section::{Packing, contents, read},
};
use crate::elf::{
    self, ElfFile, FileRange, NoElf, PF_X, PT_GNU_EH_FRAME, PT_LOAD, Program, STT_FUNC, Section,
    Sections, Symbol,
};

pub use crate::elf::{ReadAt, Segment};
use crate::units::{FileOffset, ModuleAddress};

/// Most bytes of a symbol table looked at.
const MAX_SYMBOL_BYTES: u64 = 32 << 20;
/// Most bytes of the `.eh_frame_hdr` looked at: its beginning says where `.eh_frame` is.
const HEADER_BYTES: u64 = 64;

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
    /// Of its first byte.
    pub address: ModuleAddress,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What of an ELF file was read.
#[derive(Clone, Debug)]
pub struct Elf {
    /// Loaded code, by address.
    pub segments: Vec<Segment>,
    /// Where the program begins; address 0: nowhere.
    pub entry: ModuleAddress,
    /// Its unwind information, or why there is none.
    pub frames: Result<FrameSection, NoTable>,
    /// What Go's runtime knows of its functions.
    pub(super) go_table: Option<Section>,
    /// Where `.text` begins; address 0: there is none.
    pub(super) text: ModuleAddress,
    /// Its symbol tables.
    pub(super) symbols: Vec<FileRange>,
}

impl From<NoElf> for NoTable {
    fn from(why: NoElf) -> Self {
        match why {
            NoElf::NotElf => Self::NotElf,
            NoElf::OtherMachine => Self::OtherMachine,
            NoElf::Corrupt => Self::Corrupt,
        }
    }
}

impl Elf {
    /// Reads what is needed. `max_section_bytes` bounds the unwind information; `keep_going` is
    /// asked while it is unpacked.
    ///
    /// # Errors
    ///
    /// Why the file can have no table.
    pub fn read(
        file: &(impl ReadAt + ?Sized),
        max_section_bytes: u64,
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<Self, NoTable> {
        let elf = ElfFile::read(file)?;
        let loaded = elf.programs(file)?;
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
        let sections = elf.sections(file);
        let find = |name| sections.as_ref().and_then(|sections| sections.find(name));
        let go_table = find(".gopclntab").or_else(|| find(".data.rel.ro.gopclntab"));
        Ok(Self {
            segments,
            entry: elf.entry(),
            frames: frames(
                file,
                sections.as_ref(),
                &loaded,
                max_section_bytes,
                keep_going,
            ),
            go_table: go_table.copied(),
            text: find(".text").map_or(ModuleAddress::ZERO, |section| section.address),
            symbols: symbol_tables(sections.as_ref()),
        })
    }

    /// Addresses where symbols say that functions begin, as far as they are `wanted`, at most `max`
    /// of each table.
    pub fn function_starts(
        &self,
        file: &(impl ReadAt + ?Sized),
        max: usize,
        wanted: impl Fn(ModuleAddress) -> bool,
    ) -> Vec<ModuleAddress> {
        let mut starts = Vec::new();
        for table in &self.symbols {
            let before = starts.len();
            let mut done = 0;
            while starts.len() - before < max {
                let piece: Vec<Symbol> = table.piece(file, done);
                if piece.is_empty() {
                    break;
                }
                let functions = piece.iter().filter(|symbol| symbol.st_type() == STT_FUNC);
                let addresses =
                    functions.map(|symbol| ModuleAddress::new(symbol.st_value.get(elf::LE)));
                starts.extend(addresses.filter(|address| wanted(*address)));
                done += piece.len() as u64;
            }
        }
        starts
    }

    /// Reads code at a virtual address; false if there is none.
    pub fn read_code(
        &self,
        file: &(impl ReadAt + ?Sized),
        address: ModuleAddress,
        into: &mut [u8],
    ) -> bool {
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

fn symbol_tables(sections: Option<&Sections>) -> Vec<FileRange> {
    let tables = [".symtab", ".dynsym"];
    let found = tables.iter().filter_map(|name| sections?.find(name));
    found
        .map(|table| FileRange {
            offset: table.offset,
            size_bytes: table.size_bytes.min(MAX_SYMBOL_BYTES),
        })
        .collect()
}

fn frames(
    file: &(impl ReadAt + ?Sized),
    sections: Option<&Sections>,
    loaded: &[Program],
    max_bytes: u64,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<FrameSection, NoTable> {
    // No entry is shorter than its own length field.
    let find = |name: &str| {
        sections?
            .find(name)
            .filter(|section| section.size_bytes > 4)
    };
    // What is loaded is never compressed.
    if let Some(section) = find(".eh_frame").filter(|section| !section.is_compressed()) {
        return Ok(FrameSection {
            form: FrameForm::EhFrame,
            address: section.address,
            bytes: read(file, section.offset, section.size_bytes, max_bytes)?,
        });
    }
    if let Some((address, offset, size_bytes)) = by_loader_header(file, loaded) {
        return Ok(FrameSection {
            form: FrameForm::EhFrameToTerminator,
            address,
            // Where it ends is not known; the rest of its segment holds it.
            bytes: read(file, offset, size_bytes.min(max_bytes), max_bytes)?,
        });
    }
    let (section, packing) = find(".debug_frame")
        .map(|section| (section, Packing::AsFlagged))
        .or_else(|| Some((find(".zdebug_frame")?, Packing::Old)))
        .ok_or(NoTable::NoUnwindInformation)?;
    Ok(FrameSection {
        form: FrameForm::DebugFrame,
        address: section.address,
        bytes: contents(file, section, packing, max_bytes, keep_going)?,
    })
}

/// Address, offset and most bytes of the `.eh_frame` that the loader's header points to.
fn by_loader_header(
    file: &(impl ReadAt + ?Sized),
    loaded: &[Program],
) -> Option<(ModuleAddress, FileOffset, u64)> {
    let header = loaded
        .iter()
        .find(|program| program.kind == PT_GNU_EH_FRAME)?
        .segment;
    let mut bytes = vec![0; usize::try_from(header.size_bytes.min(HEADER_BYTES)).ok()?];
    if !file.read_at(header.offset, &mut bytes) {
        return None;
    }
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.address.get());
    let parsed = EhFrameHdr::new(&bytes, LittleEndian)
        .parse(&bases, 8)
        .ok()?;
    let Pointer::Direct(address) = parsed.eh_frame_ptr() else {
        return None;
    };
    let address = ModuleAddress::new(address);
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
