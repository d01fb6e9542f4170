//! What the programs ask of a kernel since 5.17: task storage, tasks that the verifier knows, user
//! stacks by tables.
//!
//! `before_5_17.rs` has the same functions for older kernels. All else is the same program for
//! both.

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::bpf_get_current_task_btf;
use aya_ebpf::helpers::generated::{bpf_loop, bpf_task_pt_regs, bpf_task_storage_get};
use aya_ebpf::macros::btf_map;
use core::ffi::c_void;
use core::hint::cold_path;
use profiler_common::Counter;
use profiler_common::records::{StackRecord, TaskRef};

use crate::capture::add_kernel_frame;
use crate::counters::count;
use crate::queue::QueueAccount;
use crate::settings;
use crate::task::Task;

pub use crate::probes::note as note_probes;
pub use crate::tables::{follow, forget_process, inherit_process, replace_process};

/// `PF_USER_WORKER`: a task without a user mode. Older kernels use this bit for something else.
pub const PF_USER_WORKER: u32 = 0x0000_4000;
/// `BPF_LOCAL_STORAGE_GET_F_CREATE`.
const STORAGE_CREATE: u64 = 1;

/// Task storage, spelled out because aya has no type for it: freed by the kernel with its task, no
/// size to choose.
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

/// Key: a task. Value: where its record is and whether it is a target. Writer and reader: the
/// programs. Size: one per task that was ever looked at; the kernel frees it with the task.
#[btf_map]
pub static TASKS: TaskStorage<TaskRef> = TaskStorage {
    r#type: core::ptr::null(),
    key: core::ptr::null(),
    value: core::ptr::null(),
    max_entries: core::ptr::null(),
    map_flags: core::ptr::null(),
};

/// Keeps the value type of [`TASKS`] complete in the BTF: behind a pointer alone it would be a
/// forward declaration.
#[used]
static TASK_REF: TaskRef = TaskRef {
    slot: 0,
    generation: 0,
    flags: 0,
    exited: 0,
    image_ns: 0,
};

/// The task that a program interrupts or runs for.
#[inline(always)]
pub fn current_task() -> *const c_void {
    // SAFETY: takes nothing, gives the current task.
    unsafe { bpf_get_current_task_btf() }.cast()
}

/// Reads a field directly: the verifier knows the pointer and the constant offset.
#[inline(always)]
pub fn field<T: Copy>(task: Task, offset: u32) -> T {
    // SAFETY: a task, and an offset from the kernel's own BTF; the verifier checks the access.
    unsafe { *task.pointer().byte_add(offset as usize).cast::<T>() }
}

/// Where the task's user registers are saved.
#[inline(always)]
pub fn user_registers(task: Task) -> *const pt_regs {
    // SAFETY: a task; what comes back is read with checks.
    unsafe { bpf_task_pt_regs(task.pointer().cast_mut().cast()) as *const pt_regs }
}

/// Reads a register that was saved at the way into the kernel, `offset` bytes into them, of a
/// thread that lives as long as the program runs.
#[inline(always)]
pub fn saved_register(saved: *const pt_regs, offset: usize) -> Option<u64> {
    // SAFETY: the verifier knows what `bpf_task_pt_regs` gave, and checks the access.
    Some(unsafe { *saved.byte_add(offset).cast::<u64>() })
}

/// Is it known where the scheduler keeps what it knows of run queues?
#[inline(always)]
pub fn reads_queues() -> bool {
    settings::task_queued_since() != 0
}

/// What the scheduler keeps of the task's waits in run queues, if [`reads_queues`].
#[inline(always)]
pub fn queue_account(task: Task) -> QueueAccount {
    QueueAccount {
        since_ns: field(task, settings::task_queued_since()),
        waited_ns: field(task, settings::task_queue_waited()),
    }
}

/// The clock of the run queue of the task's processor, as the scheduler read it last, if
/// [`reads_queues`].
#[inline(always)]
pub fn queue_clock_ns(task: Task) -> u64 {
    let part: Task = field(task, settings::task_queue_part());
    let queue: Task = field(part, settings::part_queue());
    field(queue, settings::queue_clock())
}

/// Adds so many kernel frames to the hash of the stack. Not by a loop: the verifier would follow
/// each frame, for each state that comes here.
#[inline(always)]
pub fn add_kernel_frames(stack: &mut StackRecord, count: u32) {
    #[inline(never)]
    extern "C" fn add(index: u64, stack: *mut *mut StackRecord) -> i64 {
        // SAFETY: the pointer that is passed below, to the scratch record.
        add_kernel_frame(index, unsafe { &mut **stack })
    }
    let mut stack: *mut StackRecord = stack;
    // SAFETY: the callback takes a pointer to this pointer, which outlives the loop.
    unsafe { bpf_loop(count, add as *mut c_void, (&raw mut stack).cast(), 0) };
}

/// What is kept with a task; with `create`, made where there was none. `None`: none, or no memory
/// (counted).
#[inline(always)]
pub fn task_ref(task: Task, create: bool) -> Option<&'static mut TaskRef> {
    let get = |flags| {
        // SAFETY: the map and a task; no initial value: zeroes.
        let value = unsafe {
            bpf_task_storage_get(
                (&raw const TASKS).cast_mut().cast(),
                task.pointer().cast_mut().cast(),
                core::ptr::null_mut(),
                flags,
            )
        };
        // SAFETY: a map value of this type, valid for the program's run; or null.
        unsafe { value.cast::<TaskRef>().as_mut() }
    };
    if !create {
        return get(0);
    }
    let mut found = get(STORAGE_CREATE);
    if found.is_none() {
        cold_path();
        // Another processor may have been faster.
        found = get(0);
        if found.is_none() {
            count(Counter::ThreadsNoStorage);
        }
    }
    found
}

/// A task was just made. Its storage is its own: there is nothing to forget.
#[inline(always)]
pub fn task_is_new(_: Task) {}
