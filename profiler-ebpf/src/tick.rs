//! The timer tick of each processor: a sample, and inside a call the walk that takes the call's
//! marks.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use profiler_common::Counter;
use profiler_common::clock::NO_CALL;
use profiler_common::marks::{is_drawn, tick_kind};
use profiler_common::records::{Control, GONE_SLOT, NO_SLOT, OnProcessor, REF_TARGET};

use crate::attribute::{self, WalkEvent};
use crate::capture;
use crate::counters::count;
use crate::evaluate;
use crate::settings;
use crate::task::{self, Task, control, record};

/// cpu-clock, on every processor, at `frequency_hz`.
#[perf_event]
pub fn tick(ctx: PerfEventContext) -> u32 {
    if sample(&ctx).is_none() {
        count(Counter::SamplesNoRecord);
    }
    0
}

/// `None`: a sample that should have been, and could not be for want of a record.
#[inline(always)]
fn sample(ctx: &PerfEventContext) -> Option<()> {
    let Some(control) = control() else {
        return Some(());
    };
    count(Counter::Ticks);
    if let Some(current) = task::on_processor() {
        current.ticks += 1;
    }
    let task = Task::current();
    if task.tid() == 0 {
        count(Counter::TicksIdle);
        return Some(());
    }
    // A tick makes no record and evaluates nobody: it may have interrupted the program that does. A
    // running thread has been met at its switch-in, or by the scan of all tasks at start.
    let Some(reference) = task.storage(false) else {
        if task.is_exiting() {
            count(Counter::TicksExiting);
            return Some(());
        }
        return None;
    };
    if reference.slot == GONE_SLOT {
        count(Counter::TicksExiting);
        return Some(());
    }
    if reference.flags & REF_TARGET == 0 {
        count(Counter::TicksNotTarget);
        return Some(());
    }
    if reference.slot == NO_SLOT {
        return None;
    }
    let slot = reference.slot;
    let record = record(slot)?;
    let current = task::on_processor()?;
    let user_mode = capture::is_user_mode(ctx.as_ptr());
    let shift = afforded(current, control);
    let in_saved_call = || task.call() != NO_CALL;
    let is_walked = is_drawn(shift, &mut attribute::random);
    if !is_walked {
        count(Counter::TicksOverBudget);
    }
    if task::is_in_update(record) || evaluate::may_be_in_scan(reference, control) {
        count(Counter::TicksNested);
        if !is_walked {
            return Some(());
        }
        // What the update leads to: it notes the call first, and works on rows after that.
        let kind = tick_kind(&record.clock, user_mode, in_saved_call);
        attribute::walk(
            ctx.as_ptr(),
            task,
            record,
            slot,
            WalkEvent::NestedTick,
            (Some(kind), shift),
            control,
        );
    } else {
        task::update(record, |record| {
            // SAFETY: takes nothing.
            let now_ns = unsafe { bpf_ktime_get_ns() };
            task::notice_unseen_switch(current, task, now_ns);
            task::arrive_unseen(task, record, slot, current, control, now_ns);
            record.clock.tick(now_ns);
            record.faults = task.faults();
            if user_mode && record.clock.end_missed_call() {
                count(Counter::CallsNested);
                attribute::abandon_marks(record, slot);
            }
            if !is_walked {
                return;
            }
            let kind = tick_kind(&record.clock, user_mode, in_saved_call);
            attribute::walk(
                ctx.as_ptr(),
                task,
                record,
                slot,
                WalkEvent::Tick,
                (Some(kind), shift),
                control,
            );
        });
    }
    Some(())
}

/// One of `1 << shift` ticks is walked on this processor.
#[inline(always)]
fn afforded(current: &mut OnProcessor, control: &Control) -> u32 {
    if settings::max_tick_shift() == 0 || control.walks.ticks == 0 {
        return 0;
    }
    // Without switches nobody else says that the processor is at work.
    // SAFETY: takes nothing.
    current
        .walks
        .earn(unsafe { bpf_ktime_get_ns() }, control.walks);
    let shift = current
        .walks
        .tick_shift(control.walks, settings::max_tick_shift());
    capture::forget(&shift)
}
