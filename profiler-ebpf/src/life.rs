//! Birth, new image, new name and death of threads.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::warn;
use profiler_common::Counter;
use profiler_common::clock::Phase;
use profiler_common::records::{Control, EVALUATE_ITSELF, GONE_SLOT, NO_SLOT};

use crate::attribute::{self, WalkEvent};
use crate::calls;
use crate::counters::count;
use crate::evaluate::{self, Found};
use crate::filter;
use crate::kernel;
use crate::measure;
use crate::task::{self, Task, control, read_comm, read_name, record};

/// `sched_process_fork(parent, child)`: a thread is born. It sleeps until it is woken for the first
/// time.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn sched_process_fork(ctx: BtfTracePointContext) -> i32 {
    if let Some(control) = control() {
        let (parent, child) = (Task::new(ctx.arg(0)), Task::new(ctx.arg(1)));
        kernel::task_is_new(child);
        filter::inherit(parent, child, control);
        kernel::inherit_process(parent, child);
        measure::inherit(parent, child, control);
        // SAFETY: takes nothing.
        let now_ns = unsafe { bpf_ktime_get_ns() };
        if let Some(reference) = evaluate::evaluated(child, control, now_ns, Found::Born) {
            if evaluate::is_turned_away(reference) {
                warn!(
                    &ctx,
                    "no record is free for thread {} of process {}: it is not observed",
                    child.tid(),
                    child.pid()
                );
            } else if parent.pid() == child.pid() {
                inherit_image(parent, reference.slot);
            }
        }
    }
    0
}

/// A new thread runs the program that the one which made it runs.
#[inline(always)]
fn inherit_image(parent: Task, slot: u32) -> Option<()> {
    let of_parent = parent.storage(false)?.slot;
    if of_parent != NO_SLOT && of_parent != GONE_SLOT && slot != NO_SLOT && slot != GONE_SLOT {
        record(slot)?.exec_count = record(of_parent)?.exec_count;
    }
    Some(())
}

/// `sched_process_exec(task, old_tid, …)`: the process image was replaced, by its only thread left.
#[btf_tracepoint(function = "sched_process_exec")]
pub fn sched_process_exec(ctx: BtfTracePointContext) -> i32 {
    renew(Task::new(ctx.arg(0)));
    0
}

#[inline(always)]
fn renew(task: Task) -> Option<()> {
    let control = control()?;
    // SAFETY: takes nothing.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    kernel::replace_process(task, now_ns);
    let reference = task.storage(false)?;
    if reference.slot != NO_SLOT
        && reference.slot != GONE_SLOT
        && let Some(record) = record(reference.slot)
    {
        // A thread that is not the leader takes the leader's id over. (What is measured of it is
        // kept under the old one, where the daemon finds it, which has it end.)
        record.tid = task.tid();
        record.exec_count += 1;
        record.comm = read_comm(task.comm_ptr());
    }
    // A new name, a new control group perhaps.
    reference.generation = EVALUATE_ITSELF;
    task::forget_on_processor(task);
    evaluate::evaluated(task, control, now_ns, Found::Running);
    Some(())
}

/// `task_rename(task, comm)`: the name is still the old one in the task.
#[btf_tracepoint(function = "task_rename")]
pub fn task_rename(ctx: BtfTracePointContext) -> i32 {
    rename(Task::new(ctx.arg(0)), ctx.arg(1));
    0
}

#[inline(always)]
fn rename(task: Task, comm: *const u8) -> Option<()> {
    control()?;
    let comm = read_name(comm);
    if task.tid() == task.pid()
        && filter::is_named_comm(&comm) != filter::is_named_comm(&task.process_comm())
    {
        // The name of a process is its leader's: the daemon has the other threads evaluated anew.
        count(Counter::LeadersRenamed);
    }
    let reference = task.storage(false)?;
    // Evaluated anew at its next event.
    reference.generation = EVALUATE_ITSELF;
    task::forget_on_processor(task);
    if reference.slot == NO_SLOT || reference.slot == GONE_SLOT {
        return None;
    }
    record(reference.slot)?.comm = comm;
    Some(())
}

/// `sched_process_exit(task)`: the thread's last event.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn sched_process_exit(ctx: BtfTracePointContext) -> i32 {
    if let Some(control) = control() {
        let task = Task::new(ctx.arg(0));
        leave(&ctx, task, control);
        // After the walk of its last thread, which needs them.
        if task.is_last_of_process() {
            filter::forget(task.pid());
            measure::forget(task.pid());
            kernel::forget_process(task.pid());
        }
    }
    0
}

#[inline(always)]
fn leave(ctx: &BtfTracePointContext, task: Task, control: &Control) -> Option<()> {
    task::forget_on_processor(task);
    evaluate::exit(task, control, |record, slot| {
        // SAFETY: takes nothing.
        let now_ns = unsafe { bpf_ktime_get_ns() };
        if let Some(current) = task::on_processor() {
            task::arrive_unseen(task, record, slot, current, control, now_ns);
        }
        calls::count_left(record, slot);
        // Those of a thread that is no target are not counted.
        if record.clock.phase != Phase::Unobserved as u32 {
            record.faults = task.faults();
        }
        record.clock.exit(now_ns);
        // What has fallen has no later walk to wait for. Most end in a call that was walked at its
        // entry.
        if record.marks.is_due(&record.clock) {
            attribute::walk(
                ctx.as_ptr(),
                task,
                record,
                slot,
                WalkEvent::Exit,
                (None, 0),
                control,
            );
        }
    })
}
