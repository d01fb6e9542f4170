//! What the tables of a program file say: where its code lies, and each symbol in turn. Read piece
//! by piece, with reads that a shrinking file merely cuts short; nothing of the symbols stays in
//! memory. Hostile bytes: what may take long ends at a deadline.

use std::{fs::File, rc::Rc};

use super::demangle::MAX_NAME_BYTES;
use crate::{
    elf::{
        self, ElfFile, FileRange, LE, Pod, Program, ReadAt as _, Relocation, Section, Symbol,
        SymbolVersion, address_of, code_offset, loaded_offset, writable_segments_at,
    },
    sys::clock::thread_ns,
    units::FileOffset,
    units::ModuleAddress,
};

/// Most sections of code looked at, far more than linkers make.
const MAX_CODE_SECTIONS: usize = 1024;
/// The sections in which each entry jumps to a function of elsewhere.
const JUMP_SECTIONS: [&str; 3] = [".plt", ".plt.got", ".plt.sec"];

/// When to give up, in processor time of this thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(u64);

/// It was over before the work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooSlow;

impl Deadline {
    /// When this thread has worked for so long from now on.
    pub(super) fn after(work_ns: u64) -> Self {
        Self(thread_ns().saturating_add(work_ns))
    }

    pub(super) fn check(self) -> Result<(), TooSlow> {
        if thread_ns() < self.0 {
            Ok(())
        } else {
            Err(TooSlow)
        }
    }
}

/// The text that begins there; `None` where it does not end, is too long, or is none.
fn text(strings: FileRange, file: &File, at: u32) -> Option<Rc<str>> {
    let rest = FileRange {
        offset: strings.offset.checked_add(at.into())?,
        size_bytes: strings.size_bytes.checked_sub(at.into())?,
    };
    let mut bytes = rest.read(file, MAX_NAME_BYTES + 1)?;
    bytes.truncate(bytes.iter().position(|byte| *byte == 0)?);
    let text = String::from_utf8(bytes).ok()?;
    (!text.is_empty()).then(|| text.into())
}

/// Gives each entry of a table to `take`, with its number.
fn each_entry<T: Pod>(
    table: FileRange,
    file: &File,
    deadline: Deadline,
    mut take: impl FnMut(u64, &T),
) -> Result<(), TooSlow> {
    let mut number = 0;
    while number < table.count::<T>() {
        deadline.check()?;
        let piece = table.piece(file, number);
        if piece.is_empty() {
            break;
        }
        for entry in &piece {
            take(number, entry);
            number += 1;
        }
    }
    Ok(())
}

/// How widely a symbol is known, most widely first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Binding {
    Global,
    Weak,
    Local,
}

/// A symbol table and what belongs to it.
#[derive(Clone, Copy, Debug)]
struct SymbolTable {
    symbols: FileRange,
    strings: FileRange,
    /// Two bytes for each symbol.
    versions: FileRange,
}

/// A symbol that stands for code.
#[derive(Clone, Copy, Debug)]
pub(super) struct SymbolEntry {
    pub(super) address: ModuleAddress,
    pub(super) size_bytes: u64,
    pub(super) binding: Binding,
    /// Whether it is said to be a function, rather than some place.
    pub(super) is_function: bool,
    /// Whether it is called by the loader, and says which function it stands for.
    pub(super) is_chosen_at_start: bool,
    name: u32,
    number: u64,
    table: SymbolTable,
}

impl SymbolEntry {
    /// `None` for what is defined elsewhere, and for what is no code.
    fn of(symbol: &Symbol, number: u64, table: SymbolTable) -> Option<Self> {
        let is_function = match symbol.st_type() {
            elf::STT_NOTYPE => false,
            elf::STT_FUNC | elf::STT_GNU_IFUNC => true,
            _ => return None,
        };
        (symbol.st_shndx.get(LE) != elf::SHN_UNDEF).then(|| Self {
            address: ModuleAddress::new(symbol.st_value.get(LE)),
            size_bytes: symbol.st_size.get(LE),
            binding: match symbol.st_bind() {
                elf::STB_LOCAL => Binding::Local,
                elf::STB_WEAK => Binding::Weak,
                _ => Binding::Global,
            },
            is_function,
            is_chosen_at_start: symbol.st_type() == elf::STT_GNU_IFUNC,
            name: symbol.st_name.get(LE),
            number,
            table,
        })
    }

    /// The first address behind it.
    pub(super) fn end(&self) -> ModuleAddress {
        self.address.saturating_add(self.size_bytes)
    }

    /// What it is called.
    pub(super) fn name(&self, file: &File) -> Option<Rc<str>> {
        text(self.table.strings, file, self.name)
    }

    /// Whether it is there for old programs only: new ones cannot be linked with this version of
    /// it.
    pub(super) fn is_old(&self, file: &File) -> bool {
        let versions = self.table.versions;
        let at = self
            .number
            .saturating_mul(size_of::<SymbolVersion>() as u64);
        at < versions.size_bytes
            && elf::entry::<SymbolVersion>(file, versions.offset.saturating_add(at))
                .is_some_and(|version| version.0.get(LE) & elf::VERSYM_HIDDEN != 0)
    }
}

/// A section of code.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodeSection {
    pub(super) start: ModuleAddress,
    pub(super) end: ModuleAddress,
    /// Its bytes, if it consists of jumps to functions of elsewhere.
    pub(super) jumps: Option<FileRange>,
    /// Whether these jumps are followed by no room for another instruction, unless they begin with
    /// a mark of their own.
    pub(super) short: bool,
}

/// The section of Go's table of functions, in programs at fixed addresses and in others.
const GO_TABLES: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// Where the tables of a file are.
#[derive(Debug)]
pub(super) struct FileTables {
    programs: Box<[Program]>,
    code: Box<[CodeSection]>,
    /// Those of the linker and of the loader.
    symbols: [SymbolTable; 2],
    /// What the loader fills in.
    relocations: [FileRange; 2],
    /// Whether Go's runtime finds its functions in it.
    pub(super) has_go: bool,
    /// Notes of USDT points.
    usdt_notes: Option<FileRange>,
    /// The address of the section that moves with what these notes name.
    usdt_base: Option<ModuleAddress>,
}

impl FileTables {
    /// `None` for what is no 64-bit program of this machine, and for one without sections.
    pub(super) fn read(file: &File) -> Option<Self> {
        let elf = ElfFile::read(file).ok()?;
        let sections = elf.sections(file)?;
        let bytes = |name| sections.find(name).map(Section::bytes).unwrap_or_default();
        let code = sections.code().take(MAX_CODE_SECTIONS).map(|section| {
            let name = JUMP_SECTIONS
                .iter()
                .find(|name| sections.is_named(section, name));
            CodeSection {
                start: section.address,
                end: section.end(),
                jumps: name.map(|_| section.bytes()),
                short: name == Some(&".plt.got"),
            }
        });
        Some(Self {
            programs: elf.programs(file).ok()?.into(),
            code: code.collect(),
            symbols: [
                (".symtab", ".strtab", ""),
                (".dynsym", ".dynstr", ".gnu.version"),
            ]
            .map(|(symbols, strings, versions)| SymbolTable {
                symbols: bytes(symbols),
                strings: bytes(strings),
                versions: bytes(versions),
            }),
            relocations: [".rela.plt", ".rela.dyn"].map(bytes),
            has_go: GO_TABLES.iter().any(|name| sections.find(name).is_some()),
            usdt_notes: sections.find(".note.stapsdt").map(Section::bytes),
            usdt_base: sections.find(".stapsdt.base").map(|base| base.address),
        })
    }

    /// The virtual address of a file offset.
    pub(super) fn address(&self, offset: FileOffset) -> Option<ModuleAddress> {
        address_of(&self.programs, offset)
    }

    /// So many bytes of code at this virtual address, and where they are in the file; `None` where
    /// that is not mapped as code.
    pub(super) fn code_bytes(
        &self,
        file: &File,
        address: ModuleAddress,
        size: usize,
    ) -> Option<(Vec<u8>, FileOffset)> {
        let offset = code_offset(&self.programs, address, size as u64)?;
        let mut bytes = vec![0; size];
        file.read_at(offset, &mut bytes).then_some((bytes, offset))
    }

    /// So many bytes that are loaded from the file at this virtual address; `None` where there are
    /// fewer.
    pub(super) fn loaded_bytes(
        &self,
        file: &File,
        address: ModuleAddress,
        size: usize,
    ) -> Option<Vec<u8>> {
        let offset = loaded_offset(&self.programs, address, size as u64)?;
        let mut bytes = vec![0; size];
        file.read_at(offset, &mut bytes).then_some(bytes)
    }

    /// Where so many bytes at this virtual address are in the file, and whether the program has
    /// them in no other writable memory besides; `None` where they are not loaded from it.
    pub(super) fn data_offset(
        &self,
        address: ModuleAddress,
        size_bytes: u64,
    ) -> Option<(FileOffset, bool)> {
        let offset = loaded_offset(&self.programs, address, size_bytes)?;
        Some((offset, writable_segments_at(&self.programs, offset) == 1))
    }

    /// The notes of USDT points, as many bytes of them as may be, and where the section is that
    /// moves with what they name; `None` where there are none.
    pub(super) fn usdt_notes(
        &self,
        file: &File,
        at_most: usize,
    ) -> Option<(Vec<u8>, Option<ModuleAddress>)> {
        Some((self.usdt_notes?.read(file, at_most)?, self.usdt_base))
    }

    /// The section of code that an address is in; of several the one that consists of jumps.
    pub(super) fn code_at(&self, address: ModuleAddress) -> Option<&CodeSection> {
        let mut around = self
            .code
            .iter()
            .filter(|code| (code.start..code.end).contains(&address));
        let first = around.clone().next();
        around.find(|code| code.jumps.is_some()).or(first)
    }

    /// The sections that consist of jumps.
    pub(super) fn jumps(&self) -> impl Iterator<Item = (&CodeSection, FileRange)> {
        self.code
            .iter()
            .filter_map(|code| Some((code, code.jumps?)))
    }

    /// Gives each symbol of code to `take`.
    pub(super) fn each_symbol(
        &self,
        file: &File,
        deadline: Deadline,
        mut take: impl FnMut(&SymbolEntry),
    ) -> Result<(), TooSlow> {
        for table in self.symbols {
            each_entry(table.symbols, file, deadline, |number, entry| {
                if let Some(symbol) = SymbolEntry::of(entry, number, table) {
                    take(&symbol);
                }
            })?;
        }
        Ok(())
    }

    /// Gives each relocation to `take`. Those by which jumps are bound come first, with their
    /// numbers.
    pub(super) fn each_relocation(
        &self,
        file: &File,
        deadline: Deadline,
        mut take: impl FnMut(Option<u64>, &Relocation),
    ) -> Result<(), TooSlow> {
        let [binding, others] = self.relocations;
        each_entry(binding, file, deadline, |number, entry| {
            take(Some(number), entry);
        })?;
        each_entry(others, file, deadline, |_, entry| take(None, entry))
    }

    /// What the symbol of that number is called, of those that the loader knows.
    pub(super) fn loader_name(&self, file: &File, symbol: u32) -> Option<Rc<str>> {
        let [
            _,
            SymbolTable {
                symbols, strings, ..
            },
        ] = self.symbols;
        let at = u64::from(symbol) * size_of::<Symbol>() as u64;
        (at < symbols.size_bytes).then_some(())?;
        let symbol: Symbol = elf::entry(file, symbols.offset.checked_add(at)?)?;
        text(strings, file, symbol.st_name.get(LE))
    }
}
