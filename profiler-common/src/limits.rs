//! Every bound that the two sides must agree on, with the ones that depend on each other asserted
//! together.

/// User frames of one walk; a deeper stack is cut at its outer end, and counted.
/// A power of two.
pub const MAX_USER_FRAMES: usize = 512;
/// User frames of one walk on kernels before 5.17, without `bpf_loop`: the verifier follows each of
/// them.
pub const MAX_FRAME_POINTER_FRAMES: usize = 256;
/// Kernel frames of one walk: the kernel's own default bound (`kernel.perf_event_max_stack`).
pub const MAX_KERNEL_FRAMES: usize = 127;
/// Frames of both kinds.
pub const MAX_FRAMES: usize = MAX_USER_FRAMES + MAX_KERNEL_FRAMES;

/// System calls that a thread finds without a lookup: the size of the direct-mapped cache in its
/// record. A power of two.
pub const CALL_CACHE: usize = 16;
/// System-call numbers at or above this are counted as this one number: they are not real.
pub const MAX_CALL_NUMBER: u32 = 1023;

/// Bit of a call's number: it is a number of the 32-bit table. Above all numbers.
pub const COMPAT_CALL: u32 = 1 << 16;

/// Bit of a call's number: the row of waits inside calls that were not traced. Above all numbers.
pub const UNTRACED_CALL: u32 = 1 << 17;

/// Bytes of a thread name, its terminating zero included (the kernel's TASK_COMM_LEN).
pub const COMM_BYTES: usize = 16;

/// Thread records, unless configured: 16384 x (512 bytes, 176 for what has no stack, 32 for what is
/// found from outside) = 11.3 MiB of kernel memory.
pub const DEFAULT_THREADS: u32 = 16_384;
/// Rows of time per stack in one of the two buffers, unless configured.
pub const DEFAULT_SUMS: u32 = 16_384;
/// Tasks that can be known per thread record on kernels before 5.17, where they are kept in a hash:
/// more than are observed, because threads that are no targets, and those that have ended but were
/// not waited for, have their place too.
pub const TASKS_PER_THREAD: u32 = 2;
/// Rows of system-call counts per thread record: what threads use on average, with room.
pub const CALLS_PER_THREAD: u32 = 4;
/// Bytes of the ring that carries frames, unless configured. Like all its sizes a power of two and
/// a multiple of the page size.
pub const DEFAULT_RING_BYTES: u32 = 4 << 20;
/// The least that may be configured.
pub const MIN_RING_BYTES: u32 = 256 << 10;
/// The most.
pub const MAX_RING_BYTES: u32 = 256 << 20;
/// Processes whose mappings the walker knows.
pub const MAX_MAPPED_PROCESSES: u32 = 16_384;
/// Files that the walker knows by what the kernel knows of them, with copies: 1.7 MB. As many as
/// there can be tables.
pub const MAX_WALKED_FILES: u32 = 8192;
/// Mapping rows of all processes, unless configured: 32 bytes each, 2 MiB; a process has 30 on
/// average.
pub const DEFAULT_MAPPINGS: u32 = 65_536;
/// Pages of 64 KiB of code that can have rows at a time: 4 GiB of code, 512 KiB of memory.
pub const MAX_PAGES: u32 = 65_536;
/// Chunks of rows, of 1 MiB each: the bound on the memory of tables that are loaded. The
/// configuration may set it lower.
pub const MAX_ROW_CHUNKS: u32 = 1024;
/// Processes whose walks are bounded at a time: such as use more than a twentieth of a processor,
/// or did within a minute, and live. Of more, only the processor's budget holds.
pub const MAX_BOUNDED_PROCESSES: u32 = 8_192;
/// Processes that may be named as targets, their children included.
pub const MAX_TARGET_PIDS: u32 = 16_384;
/// Process names that may be named as targets.
pub const MAX_TARGET_COMMS: u32 = 256;
/// Control groups that may be targets, the ones below a named one included.
pub const MAX_TARGET_CGROUPS: u32 = 4_096;

/// Threads that can have open calls of measured functions at a time.
pub const MAX_MEASURED_THREADS: u32 = 1024;
/// Goroutines that can have calls of measured functions, until their process is gone or nothing is
/// measured: 46 MB when there are so many. Go uses the `g` of one that is over again, so they are
/// as many as there were at once.
pub const MAX_GOROUTINES: u32 = 8192;
/// Rows of calls per thread, program and measured function.
pub const MAX_MEASURED_ROWS: u32 = 16_384;
/// Places that measured functions were called from, of all processes and functions.
pub const MAX_MEASURED_CALLERS: u32 = 16_384;
/// Processes that may be named as measured, their children included.
pub const MAX_MEASURED_PIDS: u32 = 4096;
/// Places at which USDT points are hit and spans start and end.
pub const MAX_PLACES: u32 = 4096;
/// Rows per thread and USDT point.
pub const MAX_USDT_ROWS: u32 = 8192;
/// Rows per thread and span: larger ones.
pub const MAX_SPAN_ROWS: u32 = 2048;
/// Spans that can be under way at a time.
pub const MAX_OPEN_SPANS: u32 = 16_384;

const _: () = assert!(CALL_CACHE.is_power_of_two());
const _: () = assert!(MAX_CALL_NUMBER < COMPAT_CALL && COMPAT_CALL < UNTRACED_CALL);
const _: () = assert!(MAX_USER_FRAMES.is_power_of_two());
const _: () = assert!(MAX_FRAME_POINTER_FRAMES <= MAX_USER_FRAMES);
const _: () = assert!(MAX_USER_FRAMES >= 127 && MAX_KERNEL_FRAMES >= 127);
const _: () = assert!(DEFAULT_RING_BYTES.is_power_of_two());
const _: () = assert!(MIN_RING_BYTES.is_power_of_two() && MAX_RING_BYTES.is_power_of_two());
const _: () = assert!(MIN_RING_BYTES <= DEFAULT_RING_BYTES && DEFAULT_RING_BYTES <= MAX_RING_BYTES);
// The smallest ring takes the largest record many times over, or some deep stacks could fill it: 50
// times, with the ring's own 8 bytes for each.
const _: () =
    assert!(MIN_RING_BYTES as usize >= 50 * (size_of::<crate::records::StackRecord>() + 8));
