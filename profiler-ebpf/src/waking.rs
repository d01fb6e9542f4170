//! Wakes: the words of a record that others than its own thread write.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::bpf_get_smp_processor_id;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use profiler_common::records::{GONE_SLOT, NO_SLOT, idle};

use crate::queue;
use crate::task::{self, Task, control, record};

/// A sleeping thread is about to be made runnable.
#[btf_tracepoint(function = "sched_waking")]
pub fn sched_waking(ctx: BtfTracePointContext) -> i32 {
    wake(&ctx);
    0
}

/// A new thread is made runnable for the first time.
#[btf_tracepoint(function = "sched_wakeup_new")]
pub fn sched_wakeup_new(ctx: BtfTracePointContext) -> i32 {
    wake(&ctx);
    0
}

/// Stores when the thread was woken. What it means is decided when it runs (see
/// `ThreadClock::woken_ns`): the thread may be on its way out on another processor at this moment.
#[inline(always)]
fn wake(ctx: &BtfTracePointContext) -> Option<()> {
    control()?;
    let task = Task::new(ctx.arg(0));
    if !queue::is_wake_wanted(task) {
        return None;
    }
    // A thread without storage was never seen: its clock will start when it runs.
    let reference = task.storage(false)?;
    if reference.slot == NO_SLOT || reference.slot == GONE_SLOT {
        return None;
    }
    let record = record(reference.slot)?;
    // SAFETY: takes nothing. The store is one aligned word.
    unsafe { core::ptr::write_volatile(&raw mut record.clock.woken_ns, bpf_ktime_get_ns()) };
    if record.marks.walk_ns != 0
        && let Some(here) = task::on_processor()
        && here.idle == idle::AT_WORK
    {
        // SAFETY: takes nothing.
        let cpu = unsafe { bpf_get_smp_processor_id() };
        if record.marks.is_woken_behind(cpu, here.idle_ns) {
            // SAFETY: one aligned word.
            unsafe { core::ptr::write_volatile(&raw mut record.marks.woken_behind, 1) };
        }
    }
    Some(())
}
