//! The maps of the walk by tables, as in `maps.rs`.

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::helpers::generated::bpf_map_lookup_elem;
use aya_ebpf::macros::{btf_map, map};
use aya_ebpf::maps::{Array, HashMap, LruHashMap};
use profiler_common::limits::{
    DEFAULT_MAPPINGS, MAX_MAPPED_PROCESSES, MAX_PAGES, MAX_ROW_CHUNKS, MAX_WALKED_FILES,
};
use profiler_common::unwind::{
    FileTable, MAX_TABLES, MappedFile, MappingRow, ProcessMappings, RowChunk, TableRow, UnwindPage,
};

/// Key: process id. Value: which mapping rows are the process's. Writers: the daemon, when it
/// learns of a mapping; the programs copy the parent's at a fork, and remove what is of an earlier
/// program at an exec and all at the end; the daemon removes what it wrote too late. Reader: the
/// walker. Size: `limits::MAX_MAPPED_PROCESSES`.
#[map]
pub static PROCESSES: HashMap<u32, ProcessMappings> =
    HashMap::with_max_entries(MAX_MAPPED_PROCESSES, 0);

/// Key: index. Value: a stretch of code of one process. Writer: the daemon, through a mapping, into
/// rows that no process has yet. Reader: the walker. Size: configuration `limits.mappings`.
#[map]
pub static MAPPINGS: Array<MappingRow> = Array::with_max_entries(DEFAULT_MAPPINGS, BPF_F_MMAPABLE);

/// Key: a file as the kernel knows it. Value: how its code is unwound. Writer: the daemon, when a
/// table is loaded and when another copy of its file is mapped. Reader: the walker, where a process
/// has no mapping row for an address. Size: `limits::MAX_WALKED_FILES`; those not written or found
/// for longest leave.
#[map]
pub static FILES: LruHashMap<MappedFile, FileTable> =
    LruHashMap::with_max_entries(MAX_WALKED_FILES, 0);

/// Key: slot of a table. Value: where its pages are. Writer: the daemon, through a mapping. Reader:
/// the walker. Size: `MAX_TABLES`.
#[map]
pub static TABLES: Array<TableRow> = Array::with_max_entries(MAX_TABLES, BPF_F_MMAPABLE);

/// Key: index. Value: where the rows of 64 KiB of code are. Writer: the daemon, through a mapping,
/// before the table. Reader: the walker. Size: `limits::MAX_PAGES`.
#[map]
pub static PAGES: Array<UnwindPage> = Array::with_max_entries(MAX_PAGES, BPF_F_MMAPABLE);

/// A chunk of unwind rows: a map with one element. Sizes stand in place of types, because before
/// Linux 6.2 a map that has types cannot be replaced by one that has none, as those that the daemon
/// makes.
#[repr(C)]
pub struct ChunkMap {
    r#type: *const [i32; 2],
    key_size: *const [i32; 4],
    value_size: *const [i32; size_of::<RowChunk>()],
    max_entries: *const [i32; 1],
    map_flags: *const [i32; BPF_F_MMAPABLE as usize],
}

// SAFETY: only the definition of a map; its pointers are never followed.
unsafe impl Sync for ChunkMap {}

/// Keeps the type complete in the BTF: behind a pointer alone it would be a forward declaration.
#[used]
static CHUNK_MAP: ChunkMap = ChunkMap {
    r#type: core::ptr::null(),
    key_size: core::ptr::null(),
    value_size: core::ptr::null(),
    max_entries: core::ptr::null(),
    map_flags: core::ptr::null(),
};

/// An array of such maps.
#[repr(C)]
pub struct ChunkMaps {
    r#type: *const [i32; 12],
    key_size: *const [i32; 4],
    value_size: *const [i32; 4],
    max_entries: *const [i32; MAX_ROW_CHUNKS as usize],
    values: [*const ChunkMap; 0],
}

// SAFETY: as above.
unsafe impl Sync for ChunkMaps {}

impl ChunkMaps {
    /// The rows of a chunk; `None` if there is none yet.
    #[inline(always)]
    pub fn rows(&self, chunk: u32) -> Option<&RowChunk> {
        // SAFETY: lookups with keys of four bytes. What is found is an array's element: it stays
        // where it is as long as the program runs, and is written only while nothing points to the
        // rows written.
        unsafe {
            let map = bpf_map_lookup_elem(
                core::ptr::from_ref(self).cast_mut().cast(),
                (&raw const chunk).cast(),
            );
            if map.is_null() {
                return None;
            }
            let first = 0_u32;
            bpf_map_lookup_elem(map, (&raw const first).cast())
                .cast::<RowChunk>()
                .as_ref()
        }
    }
}

/// Key: chunk. Value: a map with unwind rows. Writer: the daemon adds chunks as they are needed,
/// and fills them through mappings, before the pages. Reader: the walker. Size:
/// `limits::MAX_ROW_CHUNKS`; configuration `limits.unwind_table_bytes`.
#[btf_map]
pub static ROW_CHUNKS: ChunkMaps = ChunkMaps {
    r#type: core::ptr::null(),
    key_size: core::ptr::null(),
    value_size: core::ptr::null(),
    max_entries: core::ptr::null(),
    values: [],
};
