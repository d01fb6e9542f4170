//! Birth, new image, new name and death of threads.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::warn;
use profiler_common::clock::Phase;
use profiler_common::records::{Control, GONE_SLOT, JUDGE_ITSELF, NO_SLOT};

use crate::filter;
use crate::judge;
use crate::kernel;
use crate::task::{self, Task, control, read_comm, record};

/// `sched_process_fork(parent, child)`: a thread is born. It sleeps until it is woken for the first time.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn sched_process_fork(ctx: BtfTracePointContext) -> i32 {
    if let Some(control) = control() {
        let (parent, child) = (Task::new(ctx.arg(0)), Task::new(ctx.arg(1)));
        kernel::task_is_new(child);
        filter::inherit(parent, child, control);
        kernel::inherit_process(parent, child);
        // SAFETY: takes nothing.
        let now_ns = unsafe { bpf_ktime_get_ns() };
        if let Some(reference) = judge::judged(child, control, now_ns, Some(Phase::Blocked))
            && judge::is_turned_away(reference)
        {
            warn!(
                &ctx,
                "no record is free for thread {} of process {}: it is not observed",
                child.tid(),
                child.pid()
            );
        }
    }
    0
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
        // A thread that is not the leader takes the leader's id over.
        record.tid = task.tid();
        record.exec_count += 1;
        record.comm = read_comm(task.comm_ptr());
    }
    // A new name, a new control group perhaps.
    reference.generation = JUDGE_ITSELF;
    task::forget_on_processor(task);
    judge::judged(task, control, now_ns, Some(Phase::Running));
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
    let reference = task.storage(false)?;
    // Judged anew at its next event.
    reference.generation = JUDGE_ITSELF;
    task::forget_on_processor(task);
    if reference.slot == NO_SLOT || reference.slot == GONE_SLOT {
        return None;
    }
    record(reference.slot)?.comm = read_comm(comm);
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
            kernel::forget_process(task.pid());
        }
    }
    0
}

#[inline(always)]
fn leave(ctx: &BtfTracePointContext, task: Task, control: &Control) -> Option<()> {
    task::forget_on_processor(task);
    judge::exit(task, control, |record, slot| {
        // SAFETY: takes nothing.
        let now_ns = unsafe { bpf_ktime_get_ns() };
        record.clock.tick(now_ns);
        // What is pending has no later walk to wait for.
        crate::attribute::walk(
            ctx.as_ptr(),
            task,
            record,
            slot,
            crate::attribute::Moment::Exit,
            control,
        );
        record.clock.exit(now_ns);
    })
}
