//! Run queues: when threads were woken, by what the scheduler has noted already. So no program need
//! store a time at each wake. Where the scheduler keeps no such account, the programs at wakes tell
//! (`waking`).

use core::hint::cold_path;
use profiler_common::clock::Phase;
use profiler_common::records::{GONE_SLOT, NO_SLOT, OnProcessor, ThreadRecord};

use crate::kernel;
use crate::maps::WALKED;
use crate::seed::TaskIteration;
use crate::task::{self, Task, record};

/// Places of [`WALKED`].
pub const WALKED_PLACES: u32 = 1024;

/// What the scheduler keeps of a task's waits in run queues, by their clocks.
#[derive(Clone, Copy, Default)]
pub struct QueueAccount {
    /// Since when it is in one without a processor, nanoseconds; 0 = it is not.
    pub since_ns: u64,
    /// How long it was since its birth, nanoseconds, up to its last arrival on a processor or move
    /// from one queue to another.
    pub waited_ns: u64,
}

/// A switch to `come` at `now_ns` on this processor: keeps its run queue's clock known.
///
/// The scheduler has read that clock as the switch began, but not where a wake had asked for the
/// switch before, and it was read for that: some microseconds ago.
#[inline(always)]
pub fn follow_clock(current: &mut OnProcessor, come: Task, now_ns: u64) {
    if !kernel::reads_queues() || !current.queue_clock.is_due(now_ns) {
        return;
    }
    cold_path();
    let queue_ns = kernel::queue_clock_ns(come);
    if queue_ns != kernel::queue_account(come).since_ns {
        current.queue_clock.compare(queue_ns, now_ns);
    }
}

/// How long the task has waited in run queues before; 0 where that is not known.
#[inline(always)]
pub fn waited_ns(task: Task) -> u64 {
    if kernel::reads_queues() {
        kernel::queue_account(task).waited_ns
    } else {
        0
    }
}

/// How long the task was in run queues by `now_ns`, since it had been for `base_ns` in all; with
/// `None`, the last time only. It comes onto this processor, or is there. `None`: not known.
#[inline(always)]
pub fn queued_ns(
    task: Task,
    base_ns: Option<u64>,
    current: &OnProcessor,
    now_ns: u64,
) -> Option<u64> {
    if !kernel::reads_queues() {
        return None;
    }
    let account = kernel::queue_account(task);
    let before_ns = match base_ns {
        Some(base_ns) => account.waited_ns.wrapping_sub(base_ns),
        None => 0,
    };
    if account.since_ns == 0 {
        Some(before_ns)
    } else {
        Some(before_ns + current.queue_clock.elapsed_ns(account.since_ns, now_ns))
    }
}

/// The task comes onto this processor, and was walked as it left: its wake was noted.
#[inline(always)]
pub fn end_walked(task: Task, record: &mut ThreadRecord) {
    if record.marks.walk_ns == 0 || !kernel::reads_queues() {
        return;
    }
    cold_path();
    let (woken_ns, left_ns) = (record.clock.woken_ns, record.clock.last_ns);
    record.marks.queued_late(if woken_ns < left_ns {
        None
    } else {
        Some(woken_ns - left_ns)
    });
    forget_walked(task);
}

/// From outside: if the task is in a run queue, notes in its record when it was woken, as far as
/// the queue that it is in tells.
#[inline(always)]
pub fn note_queued(task: Task, record: &mut ThreadRecord) {
    if !kernel::reads_queues() {
        return;
    }
    let account = kernel::queue_account(task);
    // A thread that sleeps on may be left in its queue for a while.
    if account.since_ns == 0
        || task.has_given_up()
        || task::is_in_update(record)
        || !is_blocked(record)
    {
        return;
    }
    let Some(here) = task::on_processor() else {
        return;
    };
    if !here.queue_clock.is_compared() {
        return;
    }
    let before_ns = account.waited_ns.wrapping_sub(record.queued_base_ns);
    let woken_ns = here
        .queue_clock
        .monotonic(account.since_ns)
        .wrapping_sub(before_ns);
    // SAFETY: one aligned word, which others than its thread may write.
    unsafe { core::ptr::write_volatile(&raw mut record.clock.woken_ns, woken_ns) };
}

#[inline(always)]
fn is_blocked(record: &ThreadRecord) -> bool {
    // SAFETY: a word of the record.
    unsafe { core::ptr::read_volatile(&raw const record.clock.phase) == Phase::Blocked as u32 }
}

/// Called once per task when the daemon reads the iterator, before it reads the records: a thread
/// that was woken and has not come onto a processor yet has had no event of its own.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn queued(ctx: *const TaskIteration) -> i32 {
    // SAFETY: the iterator's context.
    let task = unsafe { (*ctx).task };
    if !task.is_null() {
        note(Task::new(task));
    }
    0
}

#[inline(always)]
fn note(task: Task) -> Option<()> {
    // Asked first: of nearly every task there is nothing else to ask.
    if !kernel::reads_queues() || kernel::queue_account(task).since_ns == 0 || task.is_exiting() {
        return None;
    }
    let slot = task.storage(false)?.slot;
    if slot != NO_SLOT && slot != GONE_SLOT {
        note_queued(task, record(slot)?);
    }
    Some(())
}

/// The thread's place in [`WALKED`].
#[inline(always)]
fn place(tid: u32) -> Option<*mut u32> {
    WALKED.get_ptr_mut(tid % WALKED_PLACES)
}

/// The task leaves its processor and is about to be walked: if it was drawn, its wake is to be
/// noted.
#[inline(always)]
pub fn note_walked(task: Task, record: &ThreadRecord) {
    let tid = task.tid();
    if kernel::reads_queues()
        && task::is_drawn_now(record)
        && let Some(place) = place(tid)
    {
        // SAFETY: one aligned word.
        unsafe { core::ptr::write_volatile(place, tid) };
    }
}

/// It has come back.
#[inline(always)]
fn forget_walked(task: Task) {
    let tid = task.tid();
    if let Some(place) = place(tid)
        && is_noted(place, tid)
    {
        // SAFETY: one aligned word.
        unsafe { core::ptr::write_volatile(place, 0) };
    }
}

#[inline(always)]
fn is_noted(place: *mut u32, tid: u32) -> bool {
    // SAFETY: one aligned word of a map's element.
    unsafe { core::ptr::read_volatile(place) == tid }
}

/// Is the task's wake to be noted, beside what run queues tell?
#[inline(always)]
pub fn is_wake_wanted(task: Task) -> bool {
    if !kernel::reads_queues() {
        return true;
    }
    let tid = task.tid();
    place(tid).is_some_and(|place| is_noted(place, tid))
}
