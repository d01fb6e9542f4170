//! All maps. Each says key, value, who writes, who reads, and why it is this large.

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::helpers::generated::bpf_map_lookup_elem;
use aya_ebpf::macros::{btf_map, map};
use aya_ebpf::maps::{Array, HashMap, PerCpuArray, RingBuf, Stack};
use profiler_common::counter::COUNTERS;
use profiler_common::limits::{
    CALLS_PER_THREAD, COMM_BYTES, DEFAULT_MAPPINGS, DEFAULT_RING_BYTES, DEFAULT_SUMS,
    DEFAULT_THREADS, MAX_MAPPED_PROCESSES, MAX_PAGES, MAX_ROW_CHUNKS, MAX_TARGET_CGROUPS,
    MAX_TARGET_COMMS, MAX_TARGET_PIDS,
};
use profiler_common::records::{
    Control, OnProcessor, SumKey, SumValue, SyscallKey, SyscallRow, TaskRef, ThreadRecord,
};
use profiler_common::unwind::{
    MAX_TABLES, MappingRow, ProcessMappings, RowChunk, TableRow, UnwindPage,
    WALK_ENDS as WALK_ENDS_LEN,
};

use crate::capture::Scratch;

/// Task storage, spelled out because aya has no type for it: freed by the kernel with its task, no size to choose.
#[repr(C)]
pub struct TaskStorage<T> {
    r#type: *const [i32; 29],
    key: *const i32,
    value: *const T,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; 1],
}

// SAFETY: only the definition of a map; its pointers are never followed.
unsafe impl<T> Sync for TaskStorage<T> {}

/// Key: a task. Value: where its record is and whether it is a target. Writer and reader: the programs.
/// Size: one per task that was ever looked at; the kernel frees it with the task.
#[btf_map]
pub static TASKS: TaskStorage<TaskRef> = TaskStorage {
    r#type: core::ptr::null(),
    key: core::ptr::null(),
    value: core::ptr::null(),
    max_entries: core::ptr::null(),
    map_flags: core::ptr::null(),
};

/// Keeps the value type of [`TASKS`] complete in the BTF: behind a pointer alone it would be a forward declaration.
#[used]
static TASK_REF: TaskRef = TaskRef {
    slot: 0,
    generation: 0,
    flags: 0,
    padding: 0,
};

/// Key: 0. Value: the thread on this processor, per processor. Writers: the switch, and whoever judges or ends the current
/// thread. Reader: the system-call programs, which then need not ask the task's storage.
#[map]
pub static CURRENT: PerCpuArray<OnProcessor> = PerCpuArray::with_max_entries(1, 0);

/// Key: 0. Value: what the daemon changes while the programs run. Writer: the daemon.
/// Reader: every program.
#[map]
pub static CONTROL: Array<Control> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Key: slot. Value: a thread's record. Writers: the programs, on the thread's processor; the daemon empties it after the
/// thread's exit. Reader: the daemon, through a mapping. Size: configuration `limits.max_threads`; a thread without a
/// record is counted and not observed.
#[map]
pub static THREADS: Array<ThreadRecord> = Array::with_max_entries(DEFAULT_THREADS, BPF_F_MMAPABLE);

/// Free slots, the last given back first. Writer: the daemon fills it at start and after a thread's exit. Reader: the
/// programs take from it. Size: as many as there are slots.
#[map]
pub static FREE_SLOTS: Stack<u32> = Stack::with_max_entries(DEFAULT_THREADS, 0);

/// Key: address of a task. Value: nothing. Writers: the programs, while they make a task's record, so that no two do.
/// Size: more than there are processors.
#[map]
pub static CLAIMS: HashMap<u64, u8> = HashMap::with_max_entries(4096, 0);

/// Key: row. Value: counts of one system call of one thread. Writer: the program at the exit of a call, on the thread's
/// processor. Reader: the daemon, through a mapping. Size: some calls per thread record (`limits::CALLS_PER_THREAD`).
#[map]
pub static CALL_ROWS_BY_INDEX: Array<SyscallRow> =
    Array::with_max_entries(DEFAULT_THREADS * CALLS_PER_THREAD, BPF_F_MMAPABLE);

/// Key: slot and system-call number. Value: index of the row. Writers: the programs insert, the daemon deletes after the
/// thread's exit. Reader: the programs, when the cache in the thread's record does not know. Size: as many as rows.
#[map]
pub static CALL_ROW_INDEX: HashMap<SyscallKey, u32> =
    HashMap::with_max_entries(DEFAULT_THREADS * CALLS_PER_THREAD, 0);

/// Free rows, as [`FREE_SLOTS`]. Size: as many as rows.
#[map]
pub static FREE_CALL_ROWS: Stack<u32> =
    Stack::with_max_entries(DEFAULT_THREADS * CALLS_PER_THREAD, 0);

/// Key: thread and stack. Value: time by class and samples, of one drain period. Writers: the programs, into the half that
/// [`Control::half`] names. Reader: the daemon empties the other half once no program can still be writing to it.
/// Size: configuration `limits.stacks_per_drain`; full, time stays pending and samples are counted as lost. Preallocated:
/// programs on timer ticks must not allocate before 6.1.
#[map]
pub static SUMS_0: HashMap<SumKey, SumValue> = HashMap::with_max_entries(DEFAULT_SUMS, 0);

/// The other half of [`SUMS_0`].
#[map]
pub static SUMS_1: HashMap<SumKey, SumValue> = HashMap::with_max_entries(DEFAULT_SUMS, 0);

/// Records of stacks that are new in this drain period. Writers: the programs that walk. Reader: the daemon, some times a
/// second. Size: configuration `limits.ring_bytes`; full, the walk's time stays pending, its sample is counted as lost.
#[map]
pub static STACKS: RingBuf = RingBuf::with_byte_size(DEFAULT_RING_BYTES, 0);

/// Key: the program that walks (`capture::scratch`): one may be interrupted, or from Linux 7.2 on preempted, by another, but
/// none by itself. Value: the stack being walked and the walk's state, too large for the program stack. Per processor.
#[map]
pub static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(5, 0);

/// Key: process id. Value: which mapping rows are the process's. Writers: the daemon, when it learns of a mapping; the
/// programs copy the parent's at a fork and remove it at an exec and at the end. Reader: the walker.
/// Size: `limits::MAX_MAPPED_PROCESSES`.
#[map]
pub static PROCESSES: HashMap<u32, ProcessMappings> =
    HashMap::with_max_entries(MAX_MAPPED_PROCESSES, 0);

/// Key: index. Value: a stretch of code of one process. Writer: the daemon, through a mapping, into rows that no process has
/// yet. Reader: the walker. Size: configuration `limits.mappings`.
#[map]
pub static MAPPINGS: Array<MappingRow> = Array::with_max_entries(DEFAULT_MAPPINGS, BPF_F_MMAPABLE);

/// Key: slot of a table. Value: where its pages are. Writer: the daemon, through a mapping. Reader: the walker.
/// Size: `MAX_TABLES`.
#[map]
pub static TABLES: Array<TableRow> = Array::with_max_entries(MAX_TABLES, BPF_F_MMAPABLE);

/// Key: index. Value: where the rows of 64 KiB of code are. Writer: the daemon, through a mapping, before the table.
/// Reader: the walker. Size: `limits::MAX_PAGES`.
#[map]
pub static PAGES: Array<UnwindPage> = Array::with_max_entries(MAX_PAGES, BPF_F_MMAPABLE);

/// A chunk of unwind rows: a map with one element. Sizes stand in place of types, because before Linux 6.2 a map that has types
/// cannot be replaced by one that has none, as those that the daemon makes.
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

/// Keeps the type complete in the BTF, as above.
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
        // SAFETY: lookups with keys of four bytes. What is found is an array's element: it stays where it is as long as the
        // program runs, and is written only while nothing points to the rows written.
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

/// Key: chunk. Value: a map with unwind rows. Writer: the daemon adds chunks as they are needed, and fills them through
/// mappings, before the pages. Reader: the walker. Size: `limits::MAX_ROW_CHUNKS`; configuration `limits.unwind_table_bytes`.
#[btf_map]
pub static ROW_CHUNKS: ChunkMaps = ChunkMaps {
    r#type: core::ptr::null(),
    key_size: core::ptr::null(),
    value_size: core::ptr::null(),
    max_entries: core::ptr::null(),
    values: [],
};

/// Key: a `Counter`. Value: its count. Writers: the programs. Reader: the daemon sums the processors.
#[map]
pub static COUNTS: PerCpuArray<u64> = PerCpuArray::with_max_entries(COUNTERS, 0);

/// Key: a `StackEnd`. Value: walks that ended so. Writers: the programs. Reader: the daemon sums the processors.
#[map]
pub static WALK_ENDS: PerCpuArray<u64> = PerCpuArray::with_max_entries(WALK_ENDS_LEN, 0);

/// Key: process id. Value: nothing. Writers: the daemon on a change of targets; the programs add children of targets and
/// remove processes that exit. Reader: the programs, when a thread is judged. Size: `limits::MAX_TARGET_PIDS`.
#[map]
pub static TARGET_PIDS: HashMap<u32, u8> = HashMap::with_max_entries(MAX_TARGET_PIDS, 0);

/// Key: process name, zero-padded. Value: nothing. Writer: the daemon. Reader: as above. Size: `limits::MAX_TARGET_COMMS`.
#[map]
pub static TARGET_COMMS: HashMap<[u8; COMM_BYTES], u8> =
    HashMap::with_max_entries(MAX_TARGET_COMMS, 0);

/// Key: id of a control group (version 2). Value: nothing. Writer: the daemon, which adds the groups below the named ones.
/// Reader: as above. Size: `limits::MAX_TARGET_CGROUPS`.
#[map]
pub static TARGET_CGROUPS: HashMap<u64, u8> = HashMap::with_max_entries(MAX_TARGET_CGROUPS, 0);
