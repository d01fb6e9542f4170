//! Tables that unwind code without frame pointers: from a file's `.eh_frame`, Go's own tables, or
//! its very code, to rows in pages, on a thread of its own, kept on disk. x86-64 only. It does not
//! unwind: `profiler_common::unwind::step` does, over these rows. It does not know processes or
//! maps of the kernel: a table is per file, in the file's own virtual addresses.
//!
//! Files are anybody's: every size, count and the time spent is bounded, and a hostile file costs
//! its own table only.

pub mod build;
pub mod cache;
mod code;
pub mod elf;
mod format;
mod frames;
mod go;
mod holes;
mod limits;
pub mod points;
mod rows;
mod rule;
mod section;
pub mod table;
pub mod worker;

pub use build::{build, build_file};
pub use limits::BuildLimits;
pub use table::{BuildStats, UnwindTable};

#[cfg(test)]
mod code_tests;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
#[cfg(test)]
pub(crate) mod go_tests;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod made_files;
#[cfg(test)]
mod section_tests;
#[cfg(test)]
mod tests;

profiler_common::named_enum! {
    /// Why a file's unwind information cannot be used. Without a table its code is followed by
    /// frame pointers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum NoTable {
        /// The file could not be read, or is shorter than it says.
        Unreadable => "unreadable",
        /// It is no ELF file.
        NotElf => "not_elf",
        /// An ELF file, but not for 64-bit x86, or one that is not linked yet.
        OtherMachine => "other_machine",
        /// Its headers make no sense.
        Corrupt => "corrupt",
        /// It holds no code.
        NoCode => "no_code",
        /// It holds no unwind information.
        NoUnwindInformation => "no_unwind_information",
        /// Its unwind information is compressed with something other than zlib.
        Compressed => "compressed",
        /// Its compressed unwind information is damaged, or does not unpack to the size that its
        /// header says.
        CompressionDamaged => "compression_damaged",
        /// Its compressed unwind information claims to be more than a hundred times as large
        /// unpacked.
        CompressionRatio => "compression_ratio",
        /// Its unwind information is larger than the bound.
        SectionTooLarge => "section_too_large",
        /// It describes more functions than the bound.
        TooManyFunctions => "too_many_functions",
        /// It needs more rows than the bound.
        TooManyRows => "too_many_rows",
        /// Its code spreads over more addresses than the bound.
        TooWide => "too_wide",
        /// It took longer than the bound.
        TooSlow => "too_slow",
        /// The reader broke over it.
        Panicked => "panicked",
    }
}
