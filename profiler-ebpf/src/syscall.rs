//! System calls: the two borders of the class `syscall`. The busiest hooks of all; nothing is looked up twice.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use profiler_common::Counter;
use profiler_common::clock::Phase;
use profiler_common::limits::MAX_CALL_NUMBER;
use profiler_common::records::{REF_CALLS, ThreadRecord};

use crate::attribute::{self, Moment};
use crate::calls;
use crate::counters::count;
use crate::settings;
use crate::task::{self, Task, control};

/// `sys_enter(regs, number)`.
#[btf_tracepoint(function = "sys_enter")]
pub fn sys_enter(ctx: BtfTracePointContext) -> i32 {
    let number = ctx.arg::<u64>(1) as u32;
    border(&ctx, |record, _, now_ns| {
        let number = if number > MAX_CALL_NUMBER {
            MAX_CALL_NUMBER
        } else {
            number
        };
        if record.clock.enter_call(now_ns, number) {
            count(Counter::CallsNested);
        }
    });
    0
}

/// `sys_exit(regs, result)`.
#[btf_tracepoint(function = "sys_exit")]
pub fn sys_exit(ctx: BtfTracePointContext) -> i32 {
    border(&ctx, |record, slot, now_ns| {
        if let Some(call) = record.clock.leave_call(now_ns) {
            calls::count_call(record, slot, &call);
        }
    });
    0
}

/// What both borders share: find the thread, drive its clock, walk if enough is pending.
#[inline(always)]
fn border(
    ctx: &BtfTracePointContext,
    cross: impl FnOnce(&mut ThreadRecord, u32, u64),
) -> Option<()> {
    let control = control()?;
    let task = Task::current();
    // A thread that is no target, or whose calls are not traced, costs a lookup and a comparison: no clock is read.
    let reference = task.storage(false)?;
    if reference.generation != control.generation {
        // SAFETY: takes nothing.
        task::thread(
            task,
            control,
            unsafe { bpf_ktime_get_ns() },
            Some(Phase::Running),
        )?;
    }
    if reference.flags & REF_CALLS == 0 {
        return None;
    }
    let slot = reference.slot;
    let record = task::record(slot)?;
    // SAFETY: takes nothing.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    task::update(record, |record| {
        cross(record, slot, now_ns);
        if record
            .attribution
            .is_due(now_ns, settings::min_interval_ns())
        {
            attribute::walk(ctx.as_ptr(), task, record, slot, Moment::Call, control);
        }
    });
    Some(())
}
