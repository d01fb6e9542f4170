//! What the programs ask of kernels from 5.10 to 5.16, which lack some or all of task storage,
//! tasks that the verifier knows and `bpf_loop`: a hash of tasks, reads with checks, user stacks by
//! frame pointers.
//!
//! `since_5_17.rs` has the same functions for newer kernels. All else is the same program for both.

use aya_ebpf::bindings::{BPF_NOEXIST, pt_regs};
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::bpf_get_current_task;
use aya_ebpf::macros::{btf_tracepoint, map};
use aya_ebpf::maps::HashMap;
use aya_ebpf::programs::BtfTracePointContext;
use core::ffi::c_void;
use profiler_common::Counter;
use profiler_common::limits::{
    DEFAULT_THREADS, MAX_FRAME_POINTER_FRAMES, MAX_KERNEL_FRAMES, TASKS_PER_THREAD,
};
use profiler_common::outside::Look;
use profiler_common::records::{StackRecord, TaskRef, ThreadRecord};
use profiler_common::unwind::{StepResult, step_by_frame_pointer};

use crate::capture::{Scratch, add_kernel_frame};
use crate::counters::count;
use crate::queue::QueueAccount;
use crate::settings;
use crate::task::Task;
use crate::unwind::{ThreadMemory, end, fail, push};

/// No flag of these kernels: the tasks it would mark are none yet, and its bit means something else
/// (`PF_USED_ASYNC`).
pub const PF_USER_WORKER: u32 = 0;

/// Key: address of a task. Value: where its record is and whether it is a target. Writer and
/// reader: the programs, which make an element at a task's first event and remove it when the
/// kernel frees the task. Size: some tasks per thread record (`limits::TASKS_PER_THREAD`), since
/// the threads of others are here too. Preallocated: ticks must not allocate before 6.1.
#[map]
pub static TASKS: HashMap<u64, TaskRef> =
    HashMap::with_max_entries(DEFAULT_THREADS * TASKS_PER_THREAD, 0);

/// The task that a program interrupts or runs for.
#[inline(always)]
pub fn current_task() -> *const c_void {
    // SAFETY: takes nothing, gives the address of the current task.
    unsafe { bpf_get_current_task() as *const c_void }
}

/// Reads a field. Not directly: the verifier knows the current task as a number only
/// (`bpf_get_current_task_btf`: 5.11).
#[inline(always)]
pub fn field<T: Copy>(task: Task, offset: u32) -> T {
    let place = task.pointer().wrapping_byte_add(offset as usize);
    // SAFETY: reads kernel memory with a fault-safe helper. A task lives as long as a program runs
    // that was given it, so this cannot fail; zeroes are a value of all types that are asked for:
    // numbers and addresses.
    unsafe { bpf_probe_read_kernel(place.cast::<T>()).unwrap_or(core::mem::zeroed()) }
}

/// Where the task's user registers are saved: at the upper end of its kernel stack
/// (`bpf_task_pt_regs`: 5.15).
#[inline(always)]
pub fn user_registers(task: Task) -> *const pt_regs {
    let stack: u64 = field(task, settings::task_stack());
    let end = stack + u64::from(settings::kernel_stack_bytes());
    (end - size_of::<pt_regs>() as u64) as *const pt_regs
}

/// Reads a register that was saved at the way into the kernel, `offset` bytes into them.
#[inline(always)]
pub fn saved_register(saved: *const pt_regs, offset: usize) -> Option<u64> {
    // SAFETY: reads kernel memory with a fault-safe helper.
    unsafe { bpf_probe_read_kernel(saved.byte_add(offset).cast::<u64>()) }.ok()
}

/// What the scheduler knows of run queues is not read: each field would cost a helper, and older
/// kernels keep it only on request.
#[inline(always)]
pub fn reads_queues() -> bool {
    false
}

/// See above.
#[inline(always)]
pub fn queue_account(_: Task) -> QueueAccount {
    QueueAccount::default()
}

/// See above.
#[inline(always)]
pub fn queue_clock_ns(_: Task) -> u64 {
    0
}

/// What is kept with a task; with `create`, made where there was none. `None`: none, or the hash is
/// full (counted).
///
/// Programs run with preemption off and a task is freed after a grace period, so an element that
/// was found here is its task's as long as the program runs. Whoever calls this for a task that may
/// be past its end asks first (`seed`).
#[inline(always)]
pub fn task_ref(task: Task, create: bool) -> Option<&'static mut TaskRef> {
    let key = task.address();
    let mut found = TASKS.get_ptr_mut(key);
    if found.is_none() && create {
        // Refused if another processor was faster, which is as good, or if the hash is full.
        TASKS
            .insert(key, TaskRef::default(), u64::from(BPF_NOEXIST))
            .ok();
        found = TASKS.get_ptr_mut(key);
        if found.is_none() {
            count(Counter::ThreadsNoStorage);
        }
    }
    // SAFETY: a map value of this type; see above.
    found.map(|value| unsafe { &mut *value })
}

/// A task was just made: what is there under its address is another's, whose end was not seen.
#[inline(always)]
pub fn task_is_new(task: Task) {
    forget_task(task);
}

/// `sched_process_free(task)`: nobody has the task any more. Its address will be another's.
#[btf_tracepoint(function = "sched_process_free")]
pub fn sched_process_free(ctx: BtfTracePointContext) -> i32 {
    forget_task(Task::new(ctx.arg(0)));
    0
}

#[inline(always)]
fn forget_task(task: Task) {
    // Not there if the task has had no event: nothing to count.
    TASKS.remove(task.address()).ok();
}

/// The user walk from `scratch.walk.registers` on: by frame pointers, frame by frame under the
/// verifier's eyes.
#[inline(always)]
pub fn follow(scratch: &mut Scratch, _: &ThreadRecord) {
    let mut registers = scratch.walk.registers;
    let mut memory = ThreadMemory { saved: 0 };
    let mut frames = 0;
    while frames < MAX_FRAME_POINTER_FRAMES {
        push(scratch, registers.lookup_pc());
        match step_by_frame_pointer(&mut registers, &mut memory) {
            StepResult::Caller => {}
            StepResult::End => {
                end(&mut scratch.walk);
                return;
            }
            StepResult::Failed(failure) => {
                fail(&mut scratch.walk, failure);
                return;
            }
        }
        frames += 1;
    }
}

/// Adds so many kernel frames to the hash of the stack.
#[inline(always)]
pub fn add_kernel_frames(stack: &mut StackRecord, count: u32) {
    let mut index = 0;
    while index < MAX_KERNEL_FRAMES as u64 && index < u64::from(count) {
        add_kernel_frame(index, stack);
        index += 1;
    }
}

/// Stacks are followed by frame pointers, which return probes leave alone.
#[inline(always)]
pub fn note_probes(_: Task, _: &mut Look) {}

/// A process was made. Nothing is kept of a process's memory.
#[inline(always)]
pub fn inherit_process(_: Task, _: Task) {}

/// A process has other memory now: the same.
#[inline(always)]
pub fn replace_process(_: Task, _: u64) {}

/// A process has no memory any more: the same.
#[inline(always)]
pub fn forget_process(_: u32) {}
