//! Birth, new image, new name and death of threads.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::warn;
use profiler_common::clock::Phase;
use profiler_common::records::{Control, GONE_SLOT, NO_SLOT};

use crate::filter;
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
        let thread = task::thread(
            child,
            control,
            unsafe { bpf_ktime_get_ns() },
            Some(Phase::Blocked),
        );
        if thread.is_none() && task::is_turned_away(child) {
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
    control()?;
    // SAFETY: takes nothing.
    kernel::replace_process(task, unsafe { bpf_ktime_get_ns() });
    let reference = task.storage(false)?;
    // A new name, a new cgroup perhaps: judged anew at the next event.
    reference.generation = 0;
    task::clear_on_processor();
    if reference.slot == NO_SLOT || reference.slot == GONE_SLOT {
        return None;
    }
    let record = record(reference.slot)?;
    task::update(record, |record| {
        // A thread that is not the leader takes the leader's id over. A kernel thread that executes becomes a process.
        record.tid = task.tid();
        record.clock.set_flags(task.clock_flags());
        record.exec_count += 1;
        record.comm = read_comm(task.comm_ptr());
    });
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
    reference.generation = 0;
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
    let reference = task.storage(false)?;
    let slot = reference.slot;
    reference.slot = GONE_SLOT;
    task::clear_on_processor();
    if slot == NO_SLOT || slot == GONE_SLOT {
        return None;
    }
    let record = record(slot)?;
    task::update(record, |record| {
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
    });
    Some(())
}
