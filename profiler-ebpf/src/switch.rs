//! Context switches: the thread that leaves is still the current one, and its user stack can be
//! walked; the thread that comes has not arrived yet, so its wait goes to the stack it left with,
//! or is divided by marks.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::bpf_get_smp_processor_id;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use core::hint::cold_path;
use profiler_common::Counter;
use profiler_common::clock::{Phase, UNTRACED, Wake};
use profiler_common::marks::{is_inside, wait};
use profiler_common::records::{Control, OnProcessor, idle, system_calls};

use crate::attribute::{self, WalkEvent};
use crate::calls;
use crate::counters::count;
use crate::evaluate::{self, Found};
use crate::queue;
use crate::settings;
use crate::task::{self, Task, control, record};

/// `sched_switch(preempt, prev, next, …)`.
#[btf_tracepoint(function = "sched_switch")]
pub fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    if let Some(control) = control()
        && let Some(current) = task::on_processor()
    {
        // SAFETY: takes nothing.
        let now_ns = unsafe { bpf_ktime_get_ns() };
        let preempted = ctx.arg::<u64>(0) & 0xff != 0;
        let (gone, come) = (Task::new(ctx.arg(1)), Task::new(ctx.arg(2)));
        let gave_up = !preempted && gone.has_given_up();
        current.switches += 1;
        queue::follow_clock(current, come, now_ns);
        task::notice_unseen_switch(current, gone, now_ns);
        leave(&ctx, gone, current, control, now_ns, gave_up);
        arrive(come, current, control, now_ns);
    }
    0
}

#[inline(always)]
fn leave(
    ctx: &BtfTracePointContext,
    task: Task,
    current: &mut OnProcessor,
    control: &Control,
    now_ns: u64,
    gave_up: bool,
) -> Option<()> {
    if current.task != task.address() || current.generation != control.generation {
        cold_path();
        // The idle thread of each processor has id 0: it is no work, and no thread of the ledger.
        if task.tid() == 0 {
            // Whether or not the switch to it was seen: some kernels do not tell of each.
            current.idle = idle::IDLE;
            return None;
        }
        let reference = evaluate::evaluated_at_switch(task, control, now_ns, Found::Running)?;
        task::set_on_processor(current, task, reference);
    }
    if current.flags == 0 {
        return None;
    }
    let slot = current.slot;
    let record = record(slot)?;
    if task::is_in_update(record) {
        cold_path();
        // Some kernels preempt programs (not this one): the thread leaves in the middle of an
        // update of its own record.
        task::note_gone(record, now_ns);
        return None;
    }
    task::update(record, |record| {
        task::arrive_unseen(task, record, slot, current, control, now_ns);
        record.clock.switch_out(now_ns, gave_up);
        record.faults = task.faults();
        record.queued_base_ns = queue::waited_ns(task);
        record.switches = record.switches.wrapping_add(1);
        calls::count_left(record, slot);
        record.wait_call = if record.clock.flags & UNTRACED == 0 {
            0
        } else {
            task.untraced_call()
        };
        let inside = is_inside(&record.clock) && control.system_calls != system_calls::SAMPLED;
        let mut shift = 0;
        let walk_shift = || {
            shift = task::walk_shift(record.pid, current, control, now_ns);
            shift
        };
        if !record.marks.leave(
            inside,
            now_ns,
            walk_shift,
            settings::min_interval_ns(),
            &mut attribute::random,
        ) {
            // It would have been walked.
            if shift != 0 {
                cold_path();
                count(Counter::WalksOverBudget);
            }
            return;
        }
        cold_path();
        queue::note_walked(task, record);
        let stack = attribute::walk(
            ctx.as_ptr(),
            task,
            record,
            slot,
            WalkEvent::SwitchOut,
            (None, 0),
            control,
        );
        if let Some(stack) = stack {
            record.off_cpu_user = stack.user;
            record.off_cpu_kernel = stack.kernel;
            record.off_cpu_end = stack.end;
            record.marks.keep();
        }
        if task::is_drawn_now(record) {
            // SAFETY: take nothing.
            let (walked_ns, cpu) = unsafe { (bpf_ktime_get_ns(), bpf_get_smp_processor_id()) };
            record.marks.walked(now_ns, walked_ns, cpu, current.idle_ns);
        }
    });
    Some(())
}

#[inline(always)]
fn arrive(task: Task, current: &mut OnProcessor, control: &Control, now_ns: u64) -> Option<()> {
    task::clear_on_processor(current);
    let to_idle = task.tid() == 0;
    current.switch(now_ns, to_idle, control.walks);
    if to_idle {
        return None;
    }
    // One that is no target is noted too: its system calls then cost next to nothing.
    let reference = evaluate::evaluated_at_switch(task, control, now_ns, Found::Outside)?;
    task::set_on_processor(current, task, reference);
    if current.flags == 0 {
        return None;
    }
    let slot = current.slot;
    let record = record(slot)?;
    if task::is_in_update(record) {
        cold_path();
        // Its update goes on, and sees that it was interrupted (`task::account_preemption`).
        return None;
    }
    task::update(record, |record| {
        let inside = is_inside(&record.clock);
        queue::end_walked(task, record);
        // Of one that was not seen to leave, earlier waits are in the account too.
        let has_left = record.clock.phase != Phase::Running as u32;
        let base_ns = has_left.then_some(record.queued_base_ns);
        let queued_ns = queue::queued_ns(task, base_ns, current, now_ns);
        let off_cpu = record.clock.switch_in(now_ns, queued_ns);
        match off_cpu.wake {
            Wake::NotNeeded | Wake::Seen => {}
            Wake::Early => {
                cold_path();
                count(Counter::WakesEarly);
            }
            Wake::Missed => {
                cold_path();
                count(Counter::WakesMissed);
            }
            Wake::NeverLeft => {
                cold_path();
                count(Counter::SwitchesMissed);
                record.marks.wait = wait::UNSEEN;
            }
        }
        attribute::end_wait(record, slot, inside, off_cpu.waited(), control);
    });
    Some(())
}
