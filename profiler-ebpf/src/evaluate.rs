//! Evaluates the filter for threads: is this one a target, and who may change its record? That is
//! done at a thread's first event, and anew when targets change: by its own next event, or by the
//! scan of all tasks, which also reaches those that sleep.
//!
//! No two change a record at once, because of three rules:
//! - Only a thread's own events write [`TaskRef::generation`]. Once it is the current one, the scan
//!   leaves the thread alone.
//! - Whoever evaluates a thread holds its lock, an insertion into `FILTER_LOCKS`: the one thing
//!   that only one of two processors can do. (Nor does an event evaluate where a program of the
//!   same thread was preempted at it.) An event that finds the lock taken goes without, and the
//!   next one evaluates.
//! - The daemon waits between the new generation and the scan ([`Control::scanning`]) until no
//!   program runs that began before.
//!
//! Where nothing has changed but whose system calls are traced, a thread that is off its
//! processor is left alone: its wait goes on, and ends as it began.
//!
//! What the answer is says `filter`.

use aya_ebpf::bindings::BPF_NOEXIST;
use core::hint::cold_path;
use core::sync::atomic::{Ordering, compiler_fence};
use profiler_common::Counter;
use profiler_common::clock::{KERNEL_THREAD, NO_CALL, Phase};
use profiler_common::marks::is_inside;
use profiler_common::records::{
    Control, EVALUATE_ITSELF, FIRST_GENERATION, GONE_SLOT, NO_SLOT, REF_CALLS, REF_TARGET, TaskRef,
    ThreadRecord, scanning,
};

use crate::attribute;
use crate::calls;
use crate::counters::count;
use crate::filter;
use crate::maps::FILTER_LOCKS;
use crate::queue;
use crate::settings;
use crate::task::{self, Task, record, update};

/// Where a thread is *before* the event that found it, as far as the hook knows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// On a processor; in a system call if its saved registers say so.
    Running,
    /// On a processor, at the entry of a system call: in none yet.
    AtEntry,
    /// It was just made, and sleeps.
    Born,
    /// Nothing is known: look at the task.
    Outside,
}

impl Found {
    #[inline(always)]
    fn phase(self, task: Task) -> Phase {
        match self {
            Self::Running | Self::AtEntry => Phase::Running,
            Self::Born => Phase::Blocked,
            Self::Outside => task.phase(),
        }
    }

    /// The system call its clock begins in, if its calls are traced (`flags`).
    #[inline(always)]
    fn call(self, task: Task, flags: u32) -> u32 {
        if matches!(self, Self::AtEntry) {
            NO_CALL
        } else {
            task.traced_call(flags)
        }
    }
}

/// At an event of the thread's own: what is kept with its task, evaluated for the current targets;
/// at its first event as a target its record is made. `None`: no room for it, or the scan is just
/// evaluating it.
#[inline(always)]
pub fn evaluated(
    task: Task,
    control: &Control,
    now_ns: u64,
    found: Found,
) -> Option<&'static mut TaskRef> {
    let reference = task.storage(true)?;
    evaluate_once(task, reference, control, now_ns, found)?;
    Some(reference)
}

/// The same at a switch, which holds the lock of a run queue. On kernels on which making task
/// storage may then wait for that very lock (`settings::create_at_switch`), it is only looked up,
/// and a thread that has none is counted: the daemon has all tasks scanned.
#[inline(always)]
pub fn evaluated_at_switch(
    task: Task,
    control: &Control,
    now_ns: u64,
    found: Found,
) -> Option<&'static mut TaskRef> {
    if settings::create_at_switch() != 0 {
        return evaluated(task, control, now_ns, found);
    }
    let Some(reference) = task.storage(false) else {
        // Before the first scan nobody has any.
        if control.generation > FIRST_GENERATION
            && control.scanning == scanning::NO
            && !task.is_exiting()
        {
            count(Counter::ThreadsLate);
        }
        return None;
    };
    evaluate_once(task, reference, control, now_ns, found)?;
    Some(reference)
}

/// Evaluates the thread for the current targets unless that was done. `None`: another processor is
/// just evaluating it.
#[inline(always)]
fn evaluate_once(
    task: Task,
    reference: &mut TaskRef,
    control: &Control,
    now_ns: u64,
    found: Found,
) -> Option<()> {
    let generation = word(&control.generation);
    if reference.generation != generation && reference.slot != GONE_SLOT {
        cold_path();
        let lock = FilterLock::take(task)?;
        if word(&reference.exited) != 0 {
            end(reference, control, now_ns);
        } else {
            evaluate(task, reference, control, now_ns, found);
        }
        reference.generation = generation;
        lock.give_back();
    }
    Some(())
}

/// In the scan of all tasks: evaluates the thread of `task`, unless an event of its own has done
/// so.
#[inline(always)]
pub fn scan(task: Task, control: &Control, now_ns: u64) -> Option<()> {
    if word(&control.scanning) == scanning::RUNNING && !task.is_on_processor() {
        return None;
    }
    let reference = task.storage(true)?;
    let (generation, evaluated) = (word(&control.generation), word(&reference.generation));
    // One that was renamed by another processor may be at work on its record, and finds out at its
    // next switch.
    if evaluated == generation || evaluated == EVALUATE_ITSELF || word(&reference.slot) == GONE_SLOT
    {
        return None;
    }
    let lock = FilterLock::take(task)?;
    // It may have evaluated itself before the lock was taken.
    if word(&reference.generation) == evaluated && word(&reference.exited) == 0 {
        evaluate(task, reference, control, now_ns, Found::Outside);
    }
    lock.give_back();
    // Its exit may have found the lock taken, and left the end of the record to whoever had it.
    if word(&reference.exited) != 0 {
        let lock = FilterLock::take(task)?;
        if word(&reference.generation) != generation {
            end(reference, control, now_ns);
        }
        lock.give_back();
    }
    Some(())
}

/// The thread's last event: `change` ends its record, if it has one.
#[inline(always)]
pub fn exit(
    task: Task,
    control: &Control,
    change: impl FnOnce(&mut ThreadRecord, u32),
) -> Option<()> {
    // Made where there is none: the scan may be about to make the thread known.
    let reference = task.storage(true)?;
    // SAFETY: a word of a map value; volatile: it is to be there before the lock is tried.
    unsafe { core::ptr::write_volatile(&raw mut reference.exited, 1) };
    let lock = if reference.generation == word(&control.generation) {
        None
    } else {
        Some(FilterLock::take(task)?)
    };
    let slot = word(&reference.slot);
    reference.slot = GONE_SLOT;
    if slot != NO_SLOT
        && slot != GONE_SLOT
        && let Some(record) = record(slot)
    {
        update(record, |record| change(record, slot));
    }
    if let Some(lock) = lock {
        lock.give_back();
    }
    Some(())
}

/// May the scan be changing the thread's record at this moment? Asked by the tick, which evaluates
/// nobody.
#[inline(always)]
pub fn may_be_in_scan(reference: &TaskRef, control: &Control) -> bool {
    reference.generation != word(&control.generation) && word(&control.scanning) != scanning::NO
}

/// Is it a target without a record?
#[inline(always)]
pub fn is_turned_away(reference: &TaskRef) -> bool {
    reference.flags & REF_TARGET != 0 && reference.slot == NO_SLOT
}

/// The right to evaluate a thread, and to change its record before it has been evaluated.
struct FilterLock(u64);

impl FilterLock {
    /// Takes it. `None`: another has it (counted).
    #[inline(always)]
    fn take(task: Task) -> Option<Self> {
        let key = task.address();
        if FILTER_LOCKS.insert(key, 0, u64::from(BPF_NOEXIST)).is_err() {
            count(Counter::ThreadsContended);
            return None;
        }
        compiler_fence(Ordering::SeqCst);
        Some(Self(key))
    }

    /// Gives it back.
    #[inline(always)]
    fn give_back(self) {
        compiler_fence(Ordering::SeqCst);
        if FILTER_LOCKS.remove(self.0).is_err() {
            count(Counter::ThreadsContended);
        }
    }
}

/// Decides whether the thread is a target under the current targets, and starts or stops its clock
/// accordingly.
#[inline(always)]
fn evaluate(task: Task, reference: &mut TaskRef, control: &Control, now_ns: u64, found: Found) {
    if reference.image_ns == 0 {
        reference.image_ns = now_ns;
    }
    let flags = filter::evaluate(task, control);
    // As they are now that the lock is taken.
    let (slot, before) = (word(&reference.slot), word(&reference.flags));
    if flags & REF_TARGET == 0 {
        reference.flags = flags;
        if slot != NO_SLOT
            && let Some(record) = record(slot)
            && record.clock.phase != Phase::Unobserved as u32
        {
            update(record, |record| {
                let inside = is_inside(&record.clock);
                queue::note_queued(task, record);
                let waited = record.clock.suspend(now_ns);
                attribute::end_unseen(record, slot, inside, waited, control);
            });
        }
        return;
    }
    if slot == NO_SLOT {
        task::make_record(
            task,
            reference,
            flags,
            now_ns,
            found.phase(task),
            found.call(task, flags),
        );
    } else if let Some(record) = record(slot) {
        let call = found.call(task, flags);
        let clock_flags = task.clock_flags(flags);
        if record.clock.phase == Phase::Unobserved as u32 {
            let phase = found.phase(task);
            update(record, |record| {
                record.clock.resume(now_ns, phase, call, clock_flags);
                let faults = task.faults();
                record.first_faults[0] += faults[0] - record.faults[0];
                record.first_faults[1] += faults[1] - record.faults[1];
                record.faults = faults;
                record.queued_base_ns = queue::waited_ns(task);
            });
        } else if (before ^ flags) & REF_CALLS != 0 {
            queue::note_queued(task, record);
            update(record, |record| {
                let inside = is_inside(&record.clock);
                let (waited, finished) = record.clock.assume_call(now_ns, call, clock_flags);
                // Here: kept over what follows, it would be read where there is none, which the
                // verifier of 5.15 refuses.
                if let Some(call) = finished {
                    calls::leave_call(record, &call);
                }
                attribute::end_unseen(record, slot, inside, waited, control);
                record.clock.begin_assumed_call();
            });
        } else if (record.clock.flags ^ clock_flags) & KERNEL_THREAD != 0 {
            // A kernel thread that executes a program becomes a process.
            update(record, |record| {
                // What it ran so far was of the other kind.
                record.clock.tick(now_ns);
                record.clock.set_flags(clock_flags);
            });
        }
    }
    // Last: a thread that is a target has its record by then, or was turned away.
    reference.flags = flags;
}

/// Ends the record of a thread whose last event found its lock taken.
#[inline(always)]
fn end(reference: &mut TaskRef, control: &Control, now_ns: u64) {
    let slot = word(&reference.slot);
    reference.slot = GONE_SLOT;
    if slot != NO_SLOT
        && slot != GONE_SLOT
        && let Some(record) = record(slot)
    {
        update(record, |record| {
            let inside = is_inside(&record.clock);
            let waited = record.clock.exit(now_ns);
            attribute::end_unseen(record, slot, inside, waited, control);
        });
    }
}

/// A word that another processor, or the daemon, may write meanwhile, as it is now.
#[inline(always)]
fn word(word: &u32) -> u32 {
    // SAFETY: a reference to a word of a map value.
    unsafe { core::ptr::read_volatile(word) }
}
