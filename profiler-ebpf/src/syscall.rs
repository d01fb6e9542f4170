//! System calls: the two borders of the class `syscall`. The busiest hooks of all; nothing is
//! looked up twice.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use core::hint::cold_path;
use profiler_common::Counter;
use profiler_common::call_numbers;
use profiler_common::marks::is_inside;
use profiler_common::records::{Control, OnProcessor, REF_CALLS, ThreadRecord};

use crate::attribute::{self, WalkEvent};
use crate::calls;
use crate::counters::count;
use crate::evaluate::{self, Found};
use crate::settings;
use crate::task::{self, Task, control};

/// `sys_enter(regs, number)`.
#[btf_tracepoint(function = "sys_enter")]
pub fn sys_enter(ctx: BtfTracePointContext) -> i32 {
    let number = ctx.arg::<u64>(1) as u32;
    border(&ctx, Found::AtEntry, |record, slot, _, control, now_ns| {
        let number = Task::current().call_number(number);
        if is_inside(&record.clock) {
            cold_path();
            record.clock.tick(now_ns);
            attribute::abandon_marks(record, slot);
            count(Counter::CallsNested);
        }
        record.clock.enter_call(now_ns, number);
        if call_numbers::leaves_elsewhere(number) {
            cold_path();
            attribute::walk_entry(ctx.as_ptr(), Task::current(), record, slot, control);
        }
    });
    0
}

/// `sys_exit(regs, result)`.
#[btf_tracepoint(function = "sys_exit")]
pub fn sys_exit(ctx: BtfTracePointContext) -> i32 {
    border(
        &ctx,
        Found::Running,
        |record, slot, current, control, now_ns| {
            let number = record.clock.call;
            if let Some(call) = record.clock.leave_call(now_ns) {
                calls::count_call(record, slot, &call);
            }
            if record.marks.is_due(&record.clock) {
                cold_path();
                if call_numbers::leaves_to_signal(number) {
                    attribute::abandon_marks(record, slot);
                    return;
                }
                let shift = task::walk_shift(record.pid, current, control, now_ns);
                let min_interval_ns = settings::min_interval_ns();
                let afforded = (shift, now_ns);
                let shift = record
                    .marks
                    .shift_at_exit(&record.clock, afforded, min_interval_ns);
                let random = &mut attribute::random;
                if record
                    .marks
                    .leaves_call(&record.clock, shift, min_interval_ns, random)
                {
                    attribute::walk(
                        ctx.as_ptr(),
                        Task::current(),
                        record,
                        slot,
                        WalkEvent::Leave,
                        (None, shift),
                        control,
                    );
                } else {
                    count(Counter::WalksOverBudget);
                }
            }
        },
    );
    0
}

/// What both borders share: find the thread, drive its clock.
#[inline(always)]
fn border(
    ctx: &BtfTracePointContext,
    found: Found,
    cross: impl FnOnce(&mut ThreadRecord, u32, &mut OnProcessor, &Control, u64),
) -> Option<()> {
    let control = control()?;
    let current = task::on_processor()?;
    current.call_hooks += 1;
    // Where the call's registers lie tells whose call it is, without a question to the kernel.
    let registers = ctx.arg::<u64>(0);
    if current.registers != registers || current.generation != control.generation {
        cold_path();
        let task = Task::current();
        if current.task != task.address() || current.generation != control.generation {
            // The first call since the thread came here unseen, or since targets changed.
            // SAFETY: takes nothing.
            let now_ns = unsafe { bpf_ktime_get_ns() };
            task::notice_unseen_switch(current, task, now_ns);
            task::clear_on_processor(current);
            let reference = evaluate::evaluated(task, control, now_ns, found)?;
            task::set_on_processor(current, task, reference);
            if current.flags != 0
                && let Some(record) = task::record(current.slot)
            {
                let slot = current.slot;
                task::update(record, |record| {
                    task::arrive_unseen(Task::current(), record, slot, current, control, now_ns);
                });
            }
        }
        current.registers = registers;
    }
    // A thread that is no target, or whose calls are not traced, costs three comparisons: no clock
    // is read.
    if current.flags & REF_CALLS == 0 {
        return None;
    }
    let slot = current.slot;
    let record = task::record(slot)?;
    // SAFETY: takes nothing.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    task::update(record, |record| {
        cross(record, slot, current, control, now_ns);
        task::account_preemption(record, slot, current, control, now_ns);
    });
    Some(())
}
