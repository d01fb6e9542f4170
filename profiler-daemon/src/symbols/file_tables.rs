//! What the tables of a program file say: where its code lies, and each symbol in turn. Read piece
//! by piece, with reads that a shrinking file merely cuts short; nothing of the symbols stays in
//! memory. Hostile bytes: what may take long ends at a deadline.

use std::{fs::File, ops::ControlFlow, rc::Rc};

use super::demangle::MAX_NAME_BYTES;
use crate::{
    processes::elf_file::{
        ElfFile, Program, ReadAt as _, Section, address_of, code_offset, loaded_offset,
        writable_segments_at,
    },
    sys::clock::thread_ns,
};

/// Most sections of code looked at, far more than linkers make.
const MAX_CODE_SECTIONS: usize = 1024;
/// Bytes of an entry of a symbol table, and of a table of relocations. They are equally long.
const ENTRY_BYTES: usize = 24;
/// Entries read at a time.
const PIECE_ENTRIES: usize = 2048;
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

/// A part of the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bytes {
    offset: u64,
    size_bytes: u64,
}

impl Bytes {
    fn of(section: &Section) -> Self {
        Self {
            offset: section.offset,
            size_bytes: section.size_bytes,
        }
    }

    /// All of them, or as many as there may be.
    pub(super) fn read(self, file: &File, at_most: usize) -> Option<Vec<u8>> {
        let size_bytes = usize::try_from(self.size_bytes).unwrap_or(usize::MAX);
        let mut bytes = vec![0; size_bytes.min(at_most)];
        file.read_at(self.offset, &mut bytes).then_some(bytes)
    }

    /// The text that begins there; `None` where it does not end, is too long, or is none.
    fn text(self, file: &File, at: u32) -> Option<Rc<str>> {
        let rest = Self {
            offset: self.offset.checked_add(at.into())?,
            size_bytes: self.size_bytes.checked_sub(at.into())?,
        };
        let mut bytes = rest.read(file, MAX_NAME_BYTES + 1)?;
        bytes.truncate(bytes.iter().position(|byte| *byte == 0)?);
        let text = String::from_utf8(bytes).ok()?;
        (!text.is_empty()).then(|| text.into())
    }

    /// Gives each entry of this table to `take` until that breaks off, with its number.
    pub(super) fn each_entry(
        self,
        file: &File,
        deadline: Deadline,
        mut take: impl FnMut(u64, &[u8; ENTRY_BYTES]) -> ControlFlow<()>,
    ) -> Result<(), TooSlow> {
        let mut piece = vec![0; PIECE_ENTRIES * ENTRY_BYTES];
        let entries = self.size_bytes / ENTRY_BYTES as u64;
        let mut number = 0;
        while number < entries {
            deadline.check()?;
            let count = (entries - number).min(PIECE_ENTRIES as u64);
            let read = &mut piece[..count as usize * ENTRY_BYTES];
            let Some(offset) = self.offset.checked_add(number * ENTRY_BYTES as u64) else {
                break;
            };
            if !file.read_at(offset, read) {
                break;
            }
            for entry in read.as_chunks().0 {
                if take(number, entry).is_break() {
                    return Ok(());
                }
                number += 1;
            }
        }
        Ok(())
    }
}

/// A number that stands in an entry.
pub(super) fn number<const N: usize>(entry: &[u8; ENTRY_BYTES], at: usize) -> [u8; N] {
    entry[at..at + N]
        .try_into()
        .expect("fields lie within an entry")
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
    symbols: Bytes,
    strings: Bytes,
    /// Two bytes for each symbol.
    versions: Bytes,
}

/// A symbol that stands for code.
#[derive(Clone, Copy, Debug)]
pub(super) struct SymbolEntry {
    pub(super) address: u64,
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
    fn parse(entry: &[u8; ENTRY_BYTES], number_in: u64, table: SymbolTable) -> Option<Self> {
        const UNDEFINED: u16 = 0;
        let is_function = match entry[4] & 15 {
            0 => false,
            // A function, and one that says which function it stands for.
            2 | 10 => true,
            _ => return None,
        };
        (u16::from_le_bytes(number(entry, 6)) != UNDEFINED).then(|| Self {
            address: u64::from_le_bytes(number(entry, 8)),
            size_bytes: u64::from_le_bytes(number(entry, 16)),
            binding: match entry[4] >> 4 {
                0 => Binding::Local,
                2 => Binding::Weak,
                _ => Binding::Global,
            },
            is_function,
            is_chosen_at_start: entry[4] & 15 == 10,
            name: u32::from_le_bytes(number(entry, 0)),
            number: number_in,
            table,
        })
    }

    /// The first address behind it.
    pub(super) fn end(&self) -> u64 {
        self.address.saturating_add(self.size_bytes)
    }

    /// What it is called.
    pub(super) fn name(&self, file: &File) -> Option<Rc<str>> {
        self.table.strings.text(file, self.name)
    }

    /// Whether it is there for old programs only: new ones cannot be linked with this version of
    /// it.
    pub(super) fn is_old(&self, file: &File) -> bool {
        const HIDDEN: u16 = 1 << 15;
        let versions = self.table.versions;
        let at = self.number.saturating_mul(2);
        let mut version = [0; 2];
        at < versions.size_bytes
            && file.read_at(versions.offset.saturating_add(at), &mut version)
            && u16::from_le_bytes(version) & HIDDEN != 0
    }
}

/// A section of code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Its bytes, if it consists of jumps to functions of elsewhere.
    pub(super) jumps: Option<Bytes>,
    /// Whether these jumps are followed by no room for another instruction, unless they begin with
    /// a mark of their own.
    pub(super) short: bool,
}

/// Where the tables of a file are.
#[derive(Debug)]
pub(super) struct FileTables {
    programs: Box<[Program]>,
    code: Box<[Code]>,
    /// Those of the linker and of the loader.
    symbols: [SymbolTable; 2],
    /// What the loader fills in.
    pub(super) relocations: [Bytes; 2],
    /// Notes of USDT points.
    usdt_notes: Option<Bytes>,
    /// The address of the section that moves with what these notes name.
    usdt_base: Option<u64>,
}

impl FileTables {
    /// `None` for what is no 64-bit program of this machine, and for one without sections.
    pub(super) fn read(file: &File) -> Option<Self> {
        let elf = ElfFile::read(file).ok()?;
        let sections = elf.sections(file)?;
        let bytes = |name| sections.find(name).map(Bytes::of).unwrap_or_default();
        let code = sections.code().take(MAX_CODE_SECTIONS).map(|section| {
            let name = JUMP_SECTIONS
                .iter()
                .find(|name| sections.is_named(section, name));
            Code {
                start: section.address,
                end: section.end(),
                jumps: name.map(|_| Bytes::of(section)),
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
            usdt_notes: sections.find(".note.stapsdt").map(Bytes::of),
            usdt_base: sections.find(".stapsdt.base").map(|base| base.address),
        })
    }

    /// The virtual address of a file offset.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        address_of(&self.programs, offset)
    }

    /// So many bytes of code at this virtual address, and where they are in the file; `None` where
    /// that is not mapped as code.
    pub(super) fn code_bytes(
        &self,
        file: &File,
        address: u64,
        size: usize,
    ) -> Option<(Vec<u8>, u64)> {
        let offset = code_offset(&self.programs, address, size as u64)?;
        let mut bytes = vec![0; size];
        file.read_at(offset, &mut bytes).then_some((bytes, offset))
    }

    /// Where so many bytes at this virtual address are in the file, and whether the program has
    /// them in no other writable memory besides; `None` where they are not loaded from it.
    pub(super) fn data_offset(&self, address: u64, size_bytes: u64) -> Option<(u64, bool)> {
        let offset = loaded_offset(&self.programs, address, size_bytes)?;
        Some((offset, writable_segments_at(&self.programs, offset) == 1))
    }

    /// The notes of USDT points, as many bytes of them as may be, and where the section is that
    /// moves with what they name; `None` where there are none.
    pub(super) fn usdt_notes(&self, file: &File, at_most: usize) -> Option<(Vec<u8>, Option<u64>)> {
        Some((self.usdt_notes?.read(file, at_most)?, self.usdt_base))
    }

    /// The section of code that an address is in; of several the one that consists of jumps.
    pub(super) fn code_at(&self, address: u64) -> Option<&Code> {
        let mut around = self
            .code
            .iter()
            .filter(|code| (code.start..code.end).contains(&address));
        let first = around.clone().next();
        around.find(|code| code.jumps.is_some()).or(first)
    }

    /// The sections that consist of jumps.
    pub(super) fn jumps(&self) -> impl Iterator<Item = (&Code, Bytes)> {
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
            let symbols = table.symbols;
            symbols.each_entry(file, deadline, |number, entry| {
                if let Some(symbol) = SymbolEntry::parse(entry, number, table) {
                    take(&symbol);
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    }

    /// What the symbol of that number is called, of those that the loader knows.
    pub(super) fn loader_name(&self, file: &File, symbol: u32) -> Option<Rc<str>> {
        let [
            _,
            SymbolTable {
                symbols, strings, ..
            },
        ] = self.symbols;
        let at = u64::from(symbol) * ENTRY_BYTES as u64;
        let mut name = [0; 4];
        (at < symbols.size_bytes && file.read_at(symbols.offset.checked_add(at)?, &mut name))
            .then_some(())?;
        strings.text(file, u32::from_le_bytes(name))
    }
}
