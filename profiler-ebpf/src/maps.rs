//! The maps. Each says key, value, who writes, who reads, and why it is this large. Those that not
//! all kernels need are beside what needs them: `table_maps.rs`, and `TASKS` in `since_5_17.rs` and
//! `before_5_17.rs`.

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, PerCpuArray, RingBuf, Stack};
use profiler_common::counter::COUNTERS;
use profiler_common::limits::{
    CALLS_PER_THREAD, COMM_BYTES, DEFAULT_RING_BYTES, DEFAULT_SUMS, DEFAULT_THREADS,
    MAX_BOUNDED_PROCESSES, MAX_TARGET_CGROUPS, MAX_TARGET_COMMS, MAX_TARGET_PIDS,
};
use profiler_common::outside::{Look, OutsideStack};
use profiler_common::records::{
    Control, OnProcessor, Reserve, SumKey, SumValue, SyscallKey, SyscallRecord, ThreadRecord,
};
use profiler_common::unwind::WALK_ENDS as WALK_ENDS_LEN;
use profiler_common::walk_budget::ProcessWalks;

use crate::capture::Scratch;
use crate::queue::WALKED_PLACES;

/// Key: 0. Value: the thread on this processor, per processor. Writers: the switch, the tick and
/// the system-call programs, and whoever evaluates or ends the current thread. Readers: these, the
/// wake, and the daemon, for how long processors were idle. With it the system-call programs need
/// not ask the task's storage.
#[map]
pub static CURRENT: PerCpuArray<OnProcessor> = PerCpuArray::with_max_entries(1, 0);

/// Key: 0. Value: what the daemon changes while the programs run. Writer: the daemon.
/// Reader: every program.
#[map]
pub static CONTROL: Array<Control> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Key: slot. Value: a thread's record. Writers: the programs, at the thread's own events or in the
/// scan of all tasks (`evaluate`); the daemon empties it after the thread's exit. Reader: the
/// daemon, through a mapping. Size: configuration `limits.max_threads`; a thread without a record
/// is counted and not observed.
#[map]
pub static THREADS: Array<ThreadRecord> = Array::with_max_entries(DEFAULT_THREADS, BPF_F_MMAPABLE);

/// Key: slot. Value: what the daemon asks about the slot's thread, and the stack that it found for
/// the thread's wait; in that of no thread (`NO_SLOT`), when the latest wait began that has one.
/// Writer: the daemon, through a mapping. Readers: the look from outside, and whatever ends the
/// wait: the switch, and the programs that find that the thread came unseen.
/// Size: as many as there are slots.
#[map]
pub static OUTSIDE: Array<OutsideStack> = Array::with_max_entries(DEFAULT_THREADS, BPF_F_MMAPABLE);

/// Key: thread id modulo the size. Value: the id of a thread that waits outside calls and was
/// walked as it left, of those with this key the last; 0 = none. Writer: the switch. Reader: the
/// wake, which has something to note of these alone where run queues tell when threads were woken.
/// Size: many more than there are such waits of microseconds at a time; of one that is not found
/// the walk's delay stays in its length.
#[map]
pub static WALKED: Array<u32> = Array::with_max_entries(WALKED_PLACES, 0);

/// Key: 0. Value: the look that is being written, too large for the program stack. Writer and
/// reader: the look. Size: one, because the daemon runs one at a time.
#[map]
pub static LOOK: Array<Look> = Array::with_max_entries(1, 0);

/// Key: slot. Value: what of the thread has no stack: marks that no walk took, and what found
/// no room in [`SUMS_0`] or [`STACKS`]. Writers: the programs, at the thread's own events or in the
/// scan of all tasks; the daemon empties it with the record. Reader: the daemon, through a mapping.
/// Size: as many as records, so that no mark is ever dropped.
#[map]
pub static RESERVES: Array<Reserve> = Array::with_max_entries(DEFAULT_THREADS, BPF_F_MMAPABLE);

/// Key: process id. Value: what may be spent on walks of the process at switches and at calls; none
/// where that is not bounded. Writers: the daemon says in each pass what processes that are busy
/// earn, and the programs that walk them what that has cost. Readers: both. Size:
/// `limits::MAX_BOUNDED_PROCESSES`; of processes beyond that only the processor's budget holds.
#[map]
pub static PROCESS_WALKS: HashMap<u32, ProcessWalks> =
    HashMap::with_max_entries(MAX_BOUNDED_PROCESSES, 0);

/// Free slots, the last given back first. Writer: the daemon fills it at start and after a thread's
/// exit. Reader: the programs take from it. Size: as many as there are slots.
#[map]
pub static FREE_SLOTS: Stack<u32> = Stack::with_max_entries(DEFAULT_THREADS, 0);

/// Key: address of a task. Value: nothing. Writers and readers: the programs, while they evaluate a
/// task (`evaluate`). Size: more than there are processors.
#[map]
pub static FILTER_LOCKS: HashMap<u64, u8> = HashMap::with_max_entries(4096, 0);

/// Key: row. Value: counts of one system call of one thread. Writer: the program at the exit of a
/// call, on the thread's processor. Reader: the daemon, through a mapping. Size: some calls per
/// thread record (`limits::CALLS_PER_THREAD`).
#[map]
pub static CALL_ROWS_BY_INDEX: Array<SyscallRecord> =
    Array::with_max_entries(DEFAULT_THREADS * CALLS_PER_THREAD, BPF_F_MMAPABLE);

/// Key: slot and system-call number. Value: index of the row. Writers: the programs insert, the
/// daemon deletes after the thread's exit. Reader: the programs, when the cache in the thread's
/// record does not know. Size: as many as rows.
#[map]
pub static CALL_ROW_INDEX: HashMap<SyscallKey, u32> =
    HashMap::with_max_entries(DEFAULT_THREADS * CALLS_PER_THREAD, 0);

/// Free rows, as [`FREE_SLOTS`]. Size: as many as rows.
#[map]
pub static FREE_CALL_ROWS: Stack<u32> =
    Stack::with_max_entries(DEFAULT_THREADS * CALLS_PER_THREAD, 0);

/// Key: thread and stack. Value: ticks, marks and waits, of one drain period. Writers: the
/// programs, into the buffer that [`Control::buffer`] names. Reader: the daemon empties the other
/// once no program can still be writing to it. Size: configuration `limits.stack_entries`; full,
/// [`RESERVES`] takes what has no room. Preallocated: programs on timer ticks must not allocate
/// before 6.1.
#[map]
pub static SUMS_0: HashMap<SumKey, SumValue> = HashMap::with_max_entries(DEFAULT_SUMS, 0);

/// The other buffer of the two.
#[map]
pub static SUMS_1: HashMap<SumKey, SumValue> = HashMap::with_max_entries(DEFAULT_SUMS, 0);

/// Records of stacks that are new in this drain period. Writers: the programs that walk. Reader:
/// the daemon, some times a second. Size: configuration `limits.stack_ring_bytes`; full, the walk's
/// stack is not kept.
#[map]
pub static STACKS: RingBuf = RingBuf::with_byte_size(DEFAULT_RING_BYTES, 0);

/// Key: the program that walks (`capture::scratch`): one may be interrupted, or from Linux 7.2 on
/// preempted, by another, but none by itself. Value: the stack being walked and the walk's state,
/// too large for the program stack. Writers and readers: these programs. Size: one each, per
/// processor.
#[map]
pub static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(5, 0);

/// Key: 0. Value: the count of each `Counter`. Writers: the programs. Reader: the daemon sums the
/// processors. Size: one, so that one system call reads all counts.
#[map]
pub static COUNTS: PerCpuArray<[u64; COUNTERS as usize]> = PerCpuArray::with_max_entries(1, 0);

/// Key: 0. Value: by the number of a `StackEnd`, walks that ended so. Writers, reader and size: as
/// of [`COUNTS`].
#[map]
pub static WALK_ENDS: PerCpuArray<[u64; WALK_ENDS_LEN as usize]> =
    PerCpuArray::with_max_entries(1, 0);

/// Key: process id. Value: nothing. Writers: the daemon on a change of targets; the programs add
/// children of targets and remove processes that exit. Reader: the programs, when a thread is
/// evaluated. Size: `limits::MAX_TARGET_PIDS`.
#[map]
pub static TARGET_PIDS: HashMap<u32, u8> = HashMap::with_max_entries(MAX_TARGET_PIDS, 0);

/// Key: process name, zero-padded. Value: nothing. Writer: the daemon. Reader: as above. Size:
/// `limits::MAX_TARGET_COMMS`.
#[map]
pub static TARGET_COMMS: HashMap<[u8; COMM_BYTES], u8> =
    HashMap::with_max_entries(MAX_TARGET_COMMS, 0);

/// Key: id of a control group (version 2). Value: nothing. Writer: the daemon, which adds the
/// groups below the named ones. Reader: as above. Size: `limits::MAX_TARGET_CGROUPS`.
#[map]
pub static TARGET_CGROUPS: HashMap<u64, u8> = HashMap::with_max_entries(MAX_TARGET_CGROUPS, 0);
