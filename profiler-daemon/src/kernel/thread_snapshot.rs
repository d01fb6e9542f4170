//! A thread as passes tell it: its record, closed at the time of the pass, with the stack that its
//! wait has.

use profiler_common::clock::{CALL_SEEN, Class, KERNEL_THREAD, NO_CALL};
use profiler_common::kinds::KindNs;
use profiler_common::limits::COMM_BYTES;
use profiler_common::outside::{OutsideStack, may_come_further};
use profiler_common::records::{END_MASK, IMAGE_SHIFT, ThreadRecord};
use profiler_common::unwind::UnwindFailure;
use profiler_common::{CLASS_COUNT, ClassNs, Phase, StackEnd, ThreadClock};

use crate::units::{BootNs, MonoNs};

/// A thread as it stood at the pass, with its open interval closed.
#[derive(Clone, Copy, Debug)]
pub struct ThreadSnapshot {
    /// The record's place: unique among living threads.
    pub slot: u32,
    /// The thread's id.
    pub tid: u32,
    /// The process's id.
    pub pid: u32,
    /// The parent process's id when the thread was first seen.
    pub parent_pid: u32,
    /// Start of the thread since boot.
    pub start_boot_ns: BootNs,
    /// Start of the process since boot.
    pub process_start_boot_ns: BootNs,
    /// Start of the process, monotonic.
    pub process_start_ns: MonoNs,
    /// Its name, zero-terminated.
    pub comm: [u8; COMM_BYTES],
    /// Where it is.
    pub phase: Phase,
    /// First event.
    pub first_event_ns: MonoNs,
    /// Last event, or the pass.
    pub last_event_ns: MonoNs,
    /// Time in between in which it was no target.
    pub unobserved_ns: u64,
    /// Totals by class.
    pub classes: ClassNs,
    /// Totals of what marks divide, by kind: running time up to the pass, waits that have ended.
    pub kinds: KindNs,
    /// Page faults that waited for no device, as of the thread's last tick or switch-out.
    pub minor_faults: u64,
    /// Those that did.
    pub major_faults: u64,
    /// How often it came, or left, without being seen.
    pub switches_missed: u32,
    /// How often it was switched out. Modulo 2^32.
    pub switches: u32,
    /// How often it, or the thread that made it, has executed a program while it was observed.
    pub exec_count: u32,
    /// What walks of its stacks have cost, nanoseconds.
    pub walk_cost_ns: u64,
    /// It has no user mode.
    pub kernel_thread: bool,
    /// The system call it is in.
    pub call: Option<CallUnderWay>,
    /// While it is off the processor and the wait is exactly a stack's as far as it has come: that
    /// stack.
    pub off_cpu: Option<OffCpuStack>,
    /// While it is off the processor and its stack was not walked as it left, or not far for want
    /// of mappings or tables: that wait.
    pub unwalked: Option<UnwalkedWait>,
    /// In a call that was walked at its entry: the user stack that its marks and waits are going to
    /// refer to.
    pub entry: Option<AwaitedStack>,
    /// While it is off the processor and was walked as it left, but which stack has the wait, or
    /// what it is worth, is known only at its end.
    pub drawn: Option<AwaitedStack>,
}

/// A stack that a later pass is going to refer to.
#[derive(Clone, Copy, Debug)]
pub struct AwaitedStack {
    /// Id of the user stack, 0 = none.
    pub user: u64,
    /// Id of the kernel stack, 0 = none.
    pub kernel: u64,
    /// Which program of its thread was walked.
    pub image: u16,
}

/// The system call that a thread is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallUnderWay {
    /// Its number. With `UNTRACED_CALL`: calls are not traced, and what is told of it is the wait
    /// that is open.
    pub number: u32,
    /// When the thread entered it, or was first observed in it, monotonic nanoseconds.
    pub since_ns: MonoNs,
    /// Whether it was seen to enter it: only such a call is counted when it returns.
    pub entry_seen: bool,
    /// Nanoseconds of it on a processor.
    pub running_ns: u64,
    /// Nanoseconds of it blocked.
    pub blocked_ns: u64,
}

/// A wait that may have a stack found from outside, or has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwalkedWait {
    /// When it began, or was first seen.
    pub since_ns: MonoNs,
    /// Whether its beginning was seen.
    pub begin_seen: bool,
    /// Whether it was walked as it began, and came no further for want of mappings or tables.
    pub cut_short: bool,
}

/// The stack of a thread that is off the processor, and the time it waits for.
#[derive(Clone, Copy, Debug)]
pub struct OffCpuStack {
    /// Id of the user stack, 0 = none.
    pub user: u64,
    /// Id of the kernel stack, 0 = none.
    pub kernel: u64,
    /// How the user walk ended.
    pub end: StackEnd,
    /// Which program of its thread was walked.
    pub image: u16,
    /// The wait so far, by class.
    pub classes: ClassNs,
}

/// A record as of `at_ns`, with the stack that was found from outside, if it is of this wait;
/// `None` for a phase that no program writes.
pub(super) fn snapshot(
    slot: u32,
    record: &ThreadRecord,
    outside: &OutsideStack,
    at_ns: MonoNs,
) -> Option<ThreadSnapshot> {
    let view = record.clock.view(at_ns.ns());
    // As it was seen, which decides what is known of its stack, and as it is told: it may have left
    // unseen.
    let seen = Phase::from_u32(record.clock.phase)?;
    let phase = Phase::from_u32(view.phase)?;
    let is_off_cpu = matches!(seen, Phase::Blocked | Phase::Runnable);
    let since_ns = record.clock.last_ns;
    let is_walked = record.marks.has_stack();
    let is_exact = record.marks.is_open_exact(view.last_ns - since_ns);
    let may_be_found = record.marks.may_be_found();
    let cut_short = !may_be_found && may_come_further(record.off_cpu_end);
    let is_found = outside.since_ns == since_ns && (may_be_found || cut_short);
    let stack = if is_found {
        Some((outside.user, outside.kernel, outside.end))
    } else if is_exact {
        Some((
            record.off_cpu_user,
            record.off_cpu_kernel,
            record.off_cpu_end,
        ))
    } else {
        None
    };
    let off_cpu = stack.filter(|_| is_off_cpu).map(|(user, kernel, end)| {
        let mut classes = [0; CLASS_COUNT];
        for class in Class::ALL {
            classes[class as usize] =
                view.totals[class as usize] - record.clock.totals[class as usize];
        }
        OffCpuStack {
            user,
            kernel,
            end: stack_end(end & END_MASK),
            image: image(end),
            classes,
        }
    });
    let is_inside = view.call != NO_CALL && phase != Phase::Exited;
    let entered = is_inside
        && record.entry_ns != 0
        && record.entry_ns == view.call_entered_ns
        && record.entry_lost == 0;
    // Also where another stack was found since: the switch that ends the wait may miss that one.
    let is_drawn = is_off_cpu && is_walked && (off_cpu.is_none() || is_found);
    // Woken, but not yet on a processor.
    let woken = phase == Phase::Blocked && record.clock.woken_ns >= record.clock.last_ns;
    Some(ThreadSnapshot {
        slot,
        tid: record.tid,
        pid: record.pid,
        parent_pid: record.parent_pid,
        start_boot_ns: BootNs::new(record.start_boot_ns),
        process_start_boot_ns: BootNs::new(record.process_start_boot_ns),
        process_start_ns: MonoNs::new(record.process_start_ns),
        comm: record.comm,
        phase: if woken { Phase::Runnable } else { phase },
        first_event_ns: MonoNs::new(view.first_ns),
        last_event_ns: MonoNs::new(view.last_ns),
        unobserved_ns: view.unobserved_ns,
        classes: view.totals,
        kinds: record.marks.kinds(&view),
        minor_faults: record.faults[0].saturating_sub(record.first_faults[0]),
        major_faults: record.faults[1].saturating_sub(record.first_faults[1]),
        switches_missed: view.switches_missed,
        switches: record.switches,
        exec_count: record.exec_count,
        walk_cost_ns: record.walk_cost_ns,
        kernel_thread: view.flags & KERNEL_THREAD != 0,
        call: is_inside
            .then(|| CallUnderWay {
                number: view.call,
                since_ns: MonoNs::new(view.call_entered_ns),
                entry_seen: view.flags & CALL_SEEN != 0,
                running_ns: view.totals[Class::Syscall as usize]
                    .saturating_sub(view.call_running_base_ns),
                blocked_ns: view.totals[Class::Blocked as usize]
                    .saturating_sub(view.call_blocked_base_ns),
            })
            .or_else(|| untraced_wait(record, &view).filter(|_| is_off_cpu)),
        off_cpu,
        unwalked: (is_off_cpu && (may_be_found || cut_short)).then_some(UnwalkedWait {
            since_ns: MonoNs::new(since_ns),
            begin_seen: record.clock.resumed_ns != since_ns && !record.marks.is_unseen(is_inside),
            cut_short,
        }),
        entry: entered.then_some(AwaitedStack {
            user: record.entry_user,
            kernel: 0,
            image: image(record.entry_end),
        }),
        drawn: is_drawn.then_some(AwaitedStack {
            user: record.off_cpu_user,
            kernel: record.off_cpu_kernel,
            image: image(record.off_cpu_end),
        }),
    })
}

/// A thread that did nothing, for tests.
#[cfg(test)]
pub(crate) fn made_up(slot: u32, tid: u32, phase: Phase) -> ThreadSnapshot {
    // SAFETY: plain numbers.
    let (mut record, outside): (ThreadRecord, OutsideStack) = unsafe { std::mem::zeroed() };
    (record.tid, record.pid) = (tid, tid);
    record.clock.phase = phase as u32;
    snapshot(slot, &record, &outside, MonoNs::new(1)).expect("a phase")
}

/// The wait that is open in a call that is not traced. When it ends it is counted.
fn untraced_wait(record: &ThreadRecord, view: &ThreadClock) -> Option<CallUnderWay> {
    (record.wait_call != 0).then(|| CallUnderWay {
        number: record.wait_call,
        since_ns: MonoNs::new(record.clock.last_ns),
        entry_seen: true,
        running_ns: 0,
        blocked_ns: view.totals[Class::Blocked as usize]
            .saturating_sub(record.clock.totals[Class::Blocked as usize]),
    })
}

/// Which program of its thread the row of a stack is of.
pub(super) const fn image(end: u32) -> u16 {
    (end >> IMAGE_SHIFT) as u16
}

/// How a walk ended, by its number; one that no program writes is no walk to rely on.
pub(super) fn stack_end(number: u32) -> StackEnd {
    StackEnd::from_u32(number).unwrap_or(StackEnd::Incomplete(UnwindFailure::UnknownKind))
}
