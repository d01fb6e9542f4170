//! Takes the stack of the current thread into the scratch record, and sends it.

use aya_ebpf::bindings::{bpf_perf_event_data, pt_regs};
use aya_ebpf::helpers::generated::{bpf_get_stack, bpf_ringbuf_output};
use core::ffi::c_void;
use core::mem::offset_of;
use profiler_common::Counter;
use profiler_common::clock::KERNEL_THREAD;
use profiler_common::limits::{MAX_KERNEL_FRAMES, MAX_USER_FRAMES};
use profiler_common::marks::is_inside;
use profiler_common::records::{
    NESTED_TICK, StackHead, StackRecord, SumKey, ThreadRecord, image_bits,
};
use profiler_common::unwind::{HASH_SEED, Registers, StackEnd, WalkState, hash_frame, stack_id};

use crate::attribute::WalkEvent;
use crate::counters::{self, count};
use crate::kernel;
use crate::maps::{SCRATCH, STACKS};
use crate::task::Task;
use crate::unwind::{self, UserRegisters};

/// `BPF_RB_NO_WAKEUP`: the daemon looks by itself.
const NO_WAKEUP: u64 = 1;

/// A stack being walked.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Scratch {
    /// What travels to the daemon.
    pub stack: StackRecord,
    /// How far the user walk is.
    pub walk: WalkState,
    /// What a tick has found.
    pub tick: u64,
}

/// The scratch record of this processor and of the program that walks at that moment.
#[inline(always)]
pub fn scratch(moment: WalkEvent) -> Option<&'static mut Scratch> {
    let program = match moment {
        WalkEvent::Tick | WalkEvent::NestedTick => 0,
        WalkEvent::SwitchOut => 1,
        WalkEvent::Enter => 2,
        WalkEvent::Leave => 3,
        WalkEvent::Exit => 4,
    };
    let scratch = SCRATCH.get_ptr_mut(program)?;
    // SAFETY: this processor's element, for one program, which does not run a second time on a
    // processor before it has ended.
    Some(unsafe { &mut *scratch })
}

/// Did the tick interrupt user mode? (The two low bits of the code segment are the privilege
/// level.)
#[inline(always)]
pub fn is_user_mode(ctx: *mut c_void) -> bool {
    let data = ctx.cast::<bpf_perf_event_data>();
    // SAFETY: the context of a perf event program.
    unsafe { (*data).regs.cs & 3 == 3 }
}

/// Is the user stack that of the entry of the thread's call, which was walked?
#[inline(always)]
pub fn is_in_walked_entry(ctx: *mut c_void, record: &ThreadRecord, moment: WalkEvent) -> bool {
    record.entry_ns != 0
        && record.entry_ns == record.clock.call_entered_ns
        && (moment == WalkEvent::Leave || is_inside(&record.clock))
        && !(is_tick(moment) && is_user_mode(ctx))
}

#[inline(always)]
fn is_tick(moment: WalkEvent) -> bool {
    moment == WalkEvent::Tick || moment == WalkEvent::NestedTick
}

/// Walks the current thread, in a call that was `entered` where a walk was made or not. Returns
/// whose row the walk is of.
#[inline(always)]
pub fn walk(
    ctx: *mut c_void,
    task: Task,
    record: &ThreadRecord,
    slot: u32,
    (moment, entered): (WalkEvent, bool),
    scratch: &mut Scratch,
) -> SumKey {
    let is_tick = is_tick(moment);
    let mut in_kernel = moment == WalkEvent::SwitchOut || moment == WalkEvent::Exit;
    let head = &mut scratch.stack.head;
    head.user = 0;
    head.kernel = 0;
    head.user_len = 0;
    head.kernel_len = 0;
    head.end = StackEnd::None.to_u32();
    head.image = image_bits(record.exec_count);
    if record.clock.flags & KERNEL_THREAD != 0 {
        in_kernel = true;
    } else if entered {
        // Its frames have travelled, and by now there may be others in their place.
        in_kernel |= is_tick;
    } else {
        let registers = if is_tick {
            tick_registers(ctx, task, &mut in_kernel)
        } else {
            saved_registers(task)
        };
        unwind::walk(registers, record, scratch);
    }
    let stack = &mut scratch.stack;
    if in_kernel {
        walk_kernel(ctx, stack);
    }
    stack.head.time_ns = record.clock.last_ns;
    stack.head.pid = record.pid;
    stack.head.process_start_boot_ns = record.process_start_boot_ns;
    stack.head.process_start_ns = record.process_start_ns;
    let mut key = SumKey {
        user: stack.head.user,
        kernel: stack.head.kernel,
        slot,
        end: forget(&raw const stack.head.end),
    };
    counters::count_end(key.end);
    if key.end == StackEnd::TRUNCATED.to_u32() {
        count(Counter::WalksTruncated);
    } else if key.end > StackEnd::Complete.to_u32() {
        count(Counter::WalksFailed);
    }
    if entered {
        key.user = record.entry_user;
        key.end = record.entry_end;
    } else {
        key.end |= stack.head.image;
    }
    if moment == WalkEvent::NestedTick {
        // It may have interrupted the thread's work on a row: it has rows of its own.
        key.end |= NESTED_TICK;
    }
    key
}

/// Reads a word back from the scratch record. The verifier then no longer knows which of a loop's
/// many ends it came from, and checks what follows once instead of once per end.
#[inline(always)]
pub fn forget<T: Copy>(place: *const T) -> T {
    // SAFETY: a field of the scratch record.
    unsafe { core::ptr::read_volatile(place) }
}

/// The registers a tick interrupted, if it interrupted user mode; else the saved ones.
#[inline(always)]
fn tick_registers(ctx: *mut c_void, task: Task, in_kernel: &mut bool) -> UserRegisters {
    let data = ctx.cast::<bpf_perf_event_data>();
    if is_user_mode(ctx) {
        // SAFETY: the context of a perf event program.
        unsafe {
            UserRegisters {
                pc: (*data).regs.rip,
                sp: (*data).regs.rsp,
                fp: (*data).regs.rbp,
                code_segment: (*data).regs.cs,
                exact: true,
                saved: task.user_registers() as u64,
            }
        }
    } else {
        *in_kernel = true;
        saved_registers(task)
    }
}

/// The user registers of the current thread as saved at the way into the kernel.
#[inline(always)]
fn saved_registers(task: Task) -> UserRegisters {
    let saved = task.user_registers();
    let read = |offset| kernel::saved_register(saved, offset).unwrap_or(0);
    let pc = read(offset_of!(pt_regs, rip));
    UserRegisters {
        pc,
        sp: read(offset_of!(pt_regs, rsp)),
        fp: read(offset_of!(pt_regs, rbp)),
        code_segment: read(offset_of!(pt_regs, cs)),
        exact: Registers::is_elsewhere(
            read(offset_of!(pt_regs, orig_rax)),
            read(offset_of!(pt_regs, rcx)),
            pc,
        ),
        saved: saved as u64,
    }
}

/// The kernel walk: the kernel's own walker, behind the user frames.
#[inline(always)]
fn walk_kernel(ctx: *mut c_void, scratch: &mut StackRecord) {
    let user_len = forget(&raw const scratch.head.user_len) as usize;
    if user_len > MAX_USER_FRAMES {
        return;
    }
    // SAFETY: room for MAX_KERNEL_FRAMES words lies behind at most MAX_USER_FRAMES ones.
    let bytes = unsafe {
        let start = scratch.addresses.as_mut_ptr().add(user_len);
        bpf_get_stack(ctx, start.cast(), (MAX_KERNEL_FRAMES * 8) as u32, 0)
    };
    if bytes <= 0 {
        count(Counter::KernelWalksFailed);
        return;
    }
    scratch.head.kernel_len = (bytes as u64 / 8) as u16;
    let len = u32::from(forget(&raw const scratch.head.kernel_len));
    scratch.head.kernel = HASH_SEED;
    kernel::add_kernel_frames(scratch, len);
    scratch.head.kernel = stack_id(scratch.head.kernel);
}

/// Adds the kernel frame of this index to the hash of the stack. Not 0: there is none.
#[inline(always)]
pub fn add_kernel_frame(index: u64, scratch: &mut StackRecord) -> i64 {
    let user_len = forget(&raw const scratch.head.user_len) as usize;
    if index >= MAX_KERNEL_FRAMES as u64 || user_len > MAX_USER_FRAMES {
        return 1;
    }
    // SAFETY: at most MAX_USER_FRAMES + MAX_KERNEL_FRAMES - 1.
    let address = unsafe {
        let kernel = scratch.addresses.as_ptr().add(user_len);
        *kernel.add(index as usize)
    };
    scratch.head.kernel = hash_frame(scratch.head.kernel, address);
    0
}

/// Sends the scratch record. False if the ring is full.
#[inline(always)]
pub fn send(scratch: &mut StackRecord) -> bool {
    if scratch.head.user | scratch.head.kernel == 0 {
        return true;
    }
    let frames = (forget(&raw const scratch.head.user_len) as usize).min(MAX_USER_FRAMES)
        + (forget(&raw const scratch.head.kernel_len) as usize).min(MAX_KERNEL_FRAMES);
    let bytes = size_of::<StackHead>() + frames * 8;
    // SAFETY: the ring, and as many bytes of the scratch record as it has at least.
    unsafe {
        bpf_ringbuf_output(
            (&raw const STACKS).cast_mut().cast(),
            core::ptr::from_mut(scratch).cast(),
            bytes as u64,
            NO_WAKEUP,
        ) == 0
    }
}
