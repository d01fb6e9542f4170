//! ELF files of programs: what is loaded where, which sections and notes there are. All that knows
//! where a header has which field is here, in the types of `object`; what sections hold is read by
//! those who need it.
//!
//! Hostile bytes: each table is bounded before it is read, and what is not there reads short.
//! `object` by itself would read as many headers as a file claims to have. Nor does its `ReadCache`
//! fit: it keeps all that it was asked for, and moves the place at which a file that others have
//! open too is read next.

pub mod build_id;
mod file;
mod read;
pub mod symbol_tables;

pub use file::{
    ElfFile, NoElf, Program, Section, Sections, Segment, address_of, code_offset, loaded_offset,
    notes, writable_segments_at,
};
pub use object::LittleEndian as LE;
pub use object::elf::{
    ELFCOMPRESS_ZLIB, ELFMAG, PF_X, PT_GNU_EH_FRAME, PT_LOAD, R_X86_64_GLOB_DAT,
    R_X86_64_IRELATIVE, R_X86_64_JUMP_SLOT, SHN_UNDEF, STB_LOCAL, STB_WEAK, STT_FUNC,
    STT_GNU_IFUNC, STT_NOTYPE, VERSYM_HIDDEN,
};
pub use object::pod::{Pod, from_bytes};
pub use read::{FileRange, ReadAt, entry};

/// An entry of a symbol table.
pub type Symbol = object::elf::Sym64<LE>;
/// An entry of a table of relocations.
pub type Relocation = object::elf::Rela64<LE>;
/// The version of a symbol that the loader knows.
pub type SymbolVersion = object::elf::Versym<LE>;
/// What stands before the bytes of a compressed section.
pub type CompressionHeader = object::elf::CompressionHeader64<LE>;
