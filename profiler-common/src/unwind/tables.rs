//! What the walker looks up on its way from a code address to an unwind row: values of maps that
//! the daemon fills through mappings. Process -> its code mappings -> table -> page -> rows. It
//! does not say how rows are made.

use super::{MappedFile, Node, PendingReturn, Registers, UnwindRow};

/// Value of the process map: which of the mapping rows are a process's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMappings {
    /// Its first mapping row.
    pub first: u32,
    /// How many there are, by ascending address.
    pub count: u32,
    /// The process's id again, to be read last: an element of the map may be given to another
    /// process while it is read.
    pub pid: u32,
    /// Zero.
    pub padding: u32,
    /// When it executed the program that these are mappings of, monotonic nanoseconds by the record
    /// of that exec; 0 = it has executed none since it was first heard of.
    pub exec_ns: u64,
}

/// [`MappingRow::kind`]: how code of a mapping is unwound.
pub mod mapping {
    /// There is no table (yet).
    pub const NO_TABLE: u32 = 0;
    /// By the table that the row names.
    pub const TABLE: u32 = 1;
    /// By frame pointers ([`FRAME_POINTER`](super::super::kind::FRAME_POINTER) of rows): code made
    /// at run time, and code of files that can have no table.
    pub const FRAME_POINTER: u32 = 2;
    /// By [`trampoline_row`](super::super::trampoline_row): an `[uprobes-trampoline]`.
    pub const PROBE_TRAMPOLINE: u32 = 3;
}

/// One stretch of code in a process's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingRow {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Address less virtual address in the file.
    pub bias: u64,
    /// The table's [`TableRow::id`].
    pub table: u32,
    /// See [`mapping`].
    pub kind: u32,
}

/// Bits of a table id that are the index of its row; those above count how often the row was used.
pub const TABLE_SLOT_BITS: u32 = 13;
/// Tables that can be loaded at a time.
pub const MAX_TABLES: u32 = 1 << TABLE_SLOT_BITS;

/// The index of the row of a table with that id.
#[must_use]
#[inline(always)]
pub const fn table_slot(id: u32) -> u32 {
    id & (MAX_TABLES - 1)
}

/// One loaded table: the pages of one file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableRow {
    /// The table's id, written last; 0 = none. Ids are not reused, so a mapping that outlives its
    /// table finds none.
    pub id: u32,
    /// Index of its first page.
    pub first_page: u32,
    /// The page number (virtual address / 64 KiB) of that one.
    pub base_page: u32,
    /// How many pages there are, one for each page number.
    pub page_count: u32,
}

/// Rows in one chunk of row memory: 1 MiB. A power of two; the rows of a page lie in one chunk.
pub const CHUNK_ROWS: usize = 131_072;

/// Row memory, allocated one chunk at a time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RowChunk {
    /// Rows of many pages, each page's in one piece.
    pub rows: [UnwindRow; CHUNK_ROWS],
}

/// Mappings of one process that are searched: 12 steps.
pub const MAX_PROCESS_MAPPINGS: u32 = 4096;
/// Steps of that search.
pub const MAPPING_SEARCH_STEPS: u32 = 12;

/// A walk under way. Lies in a map, so that the verifier need not follow its values.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WalkState {
    /// Registers of the frame that comes next.
    pub registers: Registers,
    /// The mapping of the frame before; `end` 0: none.
    pub mapping: MappingRow,
    /// The table of that mapping.
    pub table: TableRow,
    /// The process's first mapping row.
    pub first: u32,
    /// And their count.
    pub count: u32,
    /// Kernel address of the root of the tree of the process's areas, 0 = it is not read.
    pub areas: u64,
    /// Where the search in that tree is: a slot of the node before.
    pub slot: u64,
    /// The address that is looked for there.
    pub wanted_address: u64,
    /// The node of it that is looked at.
    pub node: Node,
    /// The file that was found there.
    pub file: MappedFile,
    /// Kernel address of the saved user registers.
    pub saved_registers: u64,
    /// Address of the process's `[uprobes]` page, if the thread has met a probe; 0: it has not.
    pub probes_page: u64,
    /// Kernel address of what the kernel remembers of the thread's probes, 0 = nothing.
    pub probes: u64,
    /// Kernel address of the next return address that was replaced, 0 = none.
    pub next_return: u64,
    /// Where on the stack one is looked for.
    pub wanted_slots: [u64; 2],
    /// The one that was found; its slot is 0 if there is none.
    pub found_return: PendingReturn,
    /// Running hash of the frames.
    pub hash: u64,
    /// Frames so far.
    pub len: u32,
    /// How it ended (a [`crate::StackEnd`]).
    pub end: u32,
}

const _: () = assert!(size_of::<ProcessMappings>() == 24);
const _: () = assert!(size_of::<MappingRow>() == 32);
const _: () = assert!(size_of::<TableRow>() == 16);
const _: () = assert!(size_of::<RowChunk>() == 1 << 20);
const _: () = assert!(CHUNK_ROWS.is_power_of_two());
const _: () = assert!(1 << MAPPING_SEARCH_STEPS == MAX_PROCESS_MAPPINGS);
const _: () = assert!(size_of::<WalkState>() == 40 + 32 + 16 + 24 + 256 + 40 + 88);
