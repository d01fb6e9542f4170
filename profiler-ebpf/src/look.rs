//! The look from outside: what the daemon needs to follow the stack of a thread that is off its
//! processor, and later to see that the thread did not run meanwhile. Changes nothing of the
//! thread. At the end of its wait, the stack found is taken (`outside_stack`).

use aya_ebpf::helpers::generated::{bpf_get_task_stack, bpf_probe_read_kernel, bpf_seq_write};
use profiler_common::clock::{KERNEL_THREAD, Phase};
use profiler_common::limits::MAX_KERNEL_FRAMES;
use profiler_common::outside::{
    ASKED_AGAIN, ASKED_ALL, ASKED_NOTHING, Look, LookHead, OutsideStack, SAVED_REGISTERS,
};
use profiler_common::records::{GONE_SLOT, NO_SLOT, ThreadRecord, image_bits};
use profiler_common::unwind::{MAX_PENDING_RETURNS, PendingReturn};

use crate::capture::forget;
use crate::kernel;
use crate::maps::{LOOK, OUTSIDE};
use crate::seed::TaskIteration;
use crate::task::{self, Task, record};

/// Called once per task when the daemon reads the iterator: writes a [`Look`] for each thread that
/// it asks about, unless that one is on a processor.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn look(ctx: *const TaskIteration) -> i32 {
    // SAFETY: the iterator's context.
    let task = unsafe { (*ctx).task };
    if !task.is_null() {
        look_at(ctx, Task::new(task));
    }
    0
}

#[inline(always)]
fn look_at(ctx: *const TaskIteration, task: Task) -> Option<()> {
    let slot = task.storage(false)?.slot;
    if slot == NO_SLOT || slot == GONE_SLOT {
        return None;
    }
    let asked = forget(&raw const outside(slot)?.asked);
    if asked == ASKED_NOTHING || task.is_exiting() || task.is_on_processor() {
        return None;
    }
    let record = record(slot)?;
    if task::is_in_update(record) || !is_off_cpu(record) {
        return None;
    }
    let look = LOOK.get_ptr_mut(0)?;
    // SAFETY: the one element of an array map; only the daemon reads this iterator, one at a time.
    let look = unsafe { &mut *look };
    let head = &mut look.head;
    head.slot = slot;
    head.tid = record.tid;
    head.pid = record.pid;
    head.since_ns = record.clock.last_ns;
    head.switches = task.switches();
    head.image = image_bits(record.exec_count);
    head.kernel_len = 0;
    head.probes_page = 0;
    head.returns_len = 0;
    if asked == ASKED_ALL {
        head.process_start_boot_ns = record.process_start_boot_ns;
        head.process_start_ns = record.process_start_ns;
        head.kernel_thread = record.clock.flags & KERNEL_THREAD;
        read_registers(task, head);
        kernel::note_probes(task, look);
        let stack = look.kernel.as_mut_ptr();
        // SAFETY: a task that is not about to be freed, and as many bytes as there are.
        let bytes = unsafe {
            bpf_get_task_stack(
                task.pointer().cast_mut().cast(),
                stack.cast(),
                (MAX_KERNEL_FRAMES * 8) as u32,
                0,
            )
        };
        if bytes > 0 {
            look.head.kernel_len = (bytes as u64 / 8) as u32;
        }
        // It came onto a processor in the middle of this.
        if task.is_on_processor() || task.switches() != look.head.switches {
            return None;
        }
    }
    write(ctx, look);
    Some(())
}

/// Writes as much of the record as there is into the iterator's file. What finds no room there is
/// written again: the kernel then calls this program for the same task once more.
#[inline(always)]
fn write(ctx: *const TaskIteration, look: &Look) {
    let frames = (forget(&raw const look.head.kernel_len) as usize).min(MAX_KERNEL_FRAMES);
    // SAFETY: the iterator's context, its file, and as many bytes of the record as it has at least.
    unsafe {
        let file = (*(*ctx).meta).file;
        bpf_seq_write(
            file.cast_mut().cast(),
            core::ptr::from_ref(look).cast(),
            (size_of::<LookHead>() + frames * 8) as u32,
        );
        let returns = (forget(&raw const look.head.returns_len) as usize).min(MAX_PENDING_RETURNS);
        if returns != 0 {
            bpf_seq_write(
                file.cast_mut().cast(),
                look.returns.as_ptr().cast(),
                (returns * size_of::<PendingReturn>()) as u32,
            );
        }
    }
}

/// The user registers as saved at the way into the kernel; zeroes where there are none.
#[inline(always)]
fn read_registers(task: Task, head: &mut LookHead) {
    let saved = task.user_registers();
    if head.kernel_thread == 0 && !saved.is_null() {
        // SAFETY: reads kernel memory with a fault-safe helper, which writes as many bytes as there
        // are, zeroes where it fails.
        unsafe {
            bpf_probe_read_kernel(
                (&raw mut head.registers).cast(),
                (SAVED_REGISTERS * 8) as u32,
                saved.cast(),
            );
        }
    } else {
        head.registers = [0; SAVED_REGISTERS];
    }
}

/// Is the thread off its processor, as its record says?
#[inline(always)]
fn is_off_cpu(record: &ThreadRecord) -> bool {
    let phase = forget(&raw const record.clock.phase);
    phase == Phase::Blocked as u32 || phase == Phase::Runnable as u32
}

/// What is asked and found about the thread in a slot.
#[inline(always)]
fn outside(slot: u32) -> Option<&'static OutsideStack> {
    let outside = OUTSIDE.get_ptr(slot)?;
    // SAFETY: an element of an array map. The daemon may be writing it: see `outside_stack`.
    Some(unsafe { &*outside })
}

/// At the end of a wait: the stack that the daemon found for the one that began at `since_ns`, if
/// there is one.
#[inline(always)]
pub fn outside_stack(slot: u32, since_ns: u64) -> Option<OutsideStack> {
    // Nearly every wait is younger than all that have one.
    if since_ns > forget(&raw const outside(NO_SLOT)?.since_ns) {
        return None;
    }
    let place = outside(slot)?;
    if forget(&raw const place.since_ns) != since_ns {
        return None;
    }
    let found = forget(place);
    // The daemon clears the time before it changes the rest: it is the same if nothing changed
    // meanwhile.
    (forget(&raw const place.since_ns) == since_ns).then_some(found)
}

const _: () = assert!(ASKED_AGAIN != ASKED_ALL);
const _: () = assert!(size_of::<aya_ebpf::bindings::pt_regs>() == 8 * SAVED_REGISTERS);
