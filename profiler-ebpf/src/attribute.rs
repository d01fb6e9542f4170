//! Gives pending time to stacks: the rows of `SUMS_0` and `SUMS_1`.

use core::ffi::c_void;
use profiler_common::Counter;
use profiler_common::StackEnd;
use profiler_common::clock::{Absence, CLASS_COUNT, Class, ClassNs, NO_CALL};
use profiler_common::records::{Control, NESTED_TICK, SumKey, SumValue, ThreadRecord};

use crate::capture;
use crate::counters::{self, count};
use crate::maps::{SUMS_0, SUMS_1};
use crate::settings;
use crate::task::Task;

/// At which kind of event the stack is walked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// On a timer tick: a sample. The thread may be anywhere.
    Tick,
    /// On a timer tick that interrupted an update of the thread's record: a sample only.
    NestedTick,
    /// As it leaves its processor, in the kernel.
    SwitchOut,
    /// At the entry of a system call: there are no kernel frames worth walking.
    Enter,
    /// At its exit: the same.
    Leave,
    /// As the thread ends, in the kernel.
    Exit,
}

/// Walks the stack of the current thread and gives it all that is pending. `None` if no row could be had: the time stays
/// pending and goes to the next walk; a sample is lost, and counted.
#[inline(always)]
pub fn walk(
    ctx: *mut c_void,
    task: Task,
    record: &mut ThreadRecord,
    slot: u32,
    moment: Moment,
    control: &Control,
) -> Option<SumKey> {
    count(Counter::Walks);
    let is_sample = moment == Moment::Tick || moment == Moment::NestedTick;
    if moment != Moment::NestedTick {
        record
            .attribution
            .note_walk(record.clock.last_ns, settings::min_interval_ns());
    }
    let scratch = capture::scratch(moment)?;
    let end = capture::walk(ctx, task, record, moment, scratch);
    counters::count_end(end);
    if end == StackEnd::TRUNCATED.to_u32() {
        count(Counter::WalksTruncated);
    } else if end > StackEnd::Complete.to_u32() {
        count(Counter::WalksFailed);
    }
    // A tick that interrupted an update of this thread may have interrupted its work on a row: it has rows of its own.
    let nested = if moment == Moment::NestedTick {
        NESTED_TICK
    } else {
        0
    };
    let key = SumKey {
        user: scratch.stack.head.user,
        kernel: scratch.stack.head.kernel,
        slot,
        end: end | nested,
    };
    let mut value = SumValue {
        classes: if moment == Moment::NestedTick {
            [0; 5]
        } else {
            record.attribution.pending(&record.clock)
        },
        samples: is_sample as u64,
        walks: 1,
    };
    // Time in user mode before a system call is none of the kernel frames of the call.
    let before_call_ns = if key.kernel != 0 && record.clock.call != NO_CALL {
        core::mem::take(&mut value.classes[Class::User as usize])
    } else {
        0
    };
    if !add(&key, &value, control) {
        // A row of its own is new in this drain period: its frames travel first, so that no row is without them.
        if !capture::send(&mut scratch.stack) {
            count(if is_sample {
                Counter::SamplesRingFull
            } else {
                Counter::WalksRingFull
            });
            return None;
        }
        if !insert(&key, &value, control) {
            count(if is_sample {
                Counter::SamplesMapFull
            } else {
                Counter::WalksMapFull
            });
            return None;
        }
    }
    if is_sample {
        count(Counter::Samples);
    }
    if moment != Moment::NestedTick {
        record.attribution.take_all(&record.clock);
        if before_call_ns != 0 {
            give_user_time(record, &key, before_call_ns, control);
        }
    }
    Some(key)
}

/// Gives time in user mode to the user part of the stack `key`, whose frames have travelled.
#[inline(always)]
fn give_user_time(record: &mut ThreadRecord, key: &SumKey, user_ns: u64, control: &Control) {
    let key = SumKey { kernel: 0, ..*key };
    let mut value = SumValue::default();
    value.classes[Class::User as usize] = user_ns;
    if !add(&key, &value, control) && !insert(&key, &value, control) {
        count(Counter::WalksMapFull);
        record.attribution.give_back(Class::User, user_ns);
    }
}

/// Gives an absence to the stack of its switch-out.
#[inline(always)]
pub fn give_absence(record: &mut ThreadRecord, slot: u32, absence: &Absence, control: &Control) {
    let key = SumKey {
        user: record.away_user,
        kernel: record.away_kernel,
        slot,
        end: record.away_end,
    };
    let mut classes: ClassNs = [0; 5];
    classes[Class::Blocked as usize] = absence.blocked_ns;
    classes[Class::Runnable as usize] = absence.runnable_ns;
    let value = SumValue {
        classes,
        samples: 0,
        walks: 0,
    };
    // The frames travelled when the thread left; the daemon keeps the stacks of absent threads.
    if add(&key, &value, control) || insert(&key, &value, control) {
        record
            .attribution
            .take_absence(absence.blocked_ns, absence.runnable_ns);
    } else {
        count(Counter::AbsencesDeferred);
    }
    record.away_user = 0;
    record.away_kernel = 0;
}

/// Adds to a row that is there. Plain additions: a thread is on one processor at a time, and nested ticks have other rows.
#[inline(always)]
fn add(key: &SumKey, value: &SumValue, control: &Control) -> bool {
    let half = if control.half == 0 { &SUMS_0 } else { &SUMS_1 };
    let Some(row) = half.get_ptr_mut(key) else {
        return false;
    };
    // SAFETY: a map value, valid for the program's run.
    let row = unsafe { &mut *row };
    let mut class = 0;
    while class < CLASS_COUNT {
        row.classes[class] += value.classes[class];
        class += 1;
    }
    row.samples += value.samples;
    row.walks += value.walks;
    true
}

/// Makes a row. False if the map is full.
#[inline(always)]
fn insert(key: &SumKey, value: &SumValue, control: &Control) -> bool {
    /// `BPF_NOEXIST`.
    const NEW_ONLY: u64 = 1;
    let half = if control.half == 0 { &SUMS_0 } else { &SUMS_1 };
    half.insert(key, value, NEW_ONLY).is_ok()
}
