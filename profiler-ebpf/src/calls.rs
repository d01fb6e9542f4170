//! Counts of system calls: one row per thread and number, found through a small cache in the
//! thread's record.

use aya_ebpf::bindings::BPF_NOEXIST;
use core::hint::cold_path;
use profiler_common::Counter;
use profiler_common::clock::FinishedCall;
use profiler_common::kinds::{BLOCKED, RUNNABLE, WaitNs};
use profiler_common::limits::CALL_CACHE;
use profiler_common::records::{LeftCall, SyscallKey, SyscallRecord, ThreadRecord};

use crate::counters::count;
use crate::maps::{CALL_ROW_INDEX, CALL_ROWS_BY_INDEX, FREE_CALL_ROWS};

/// Adds a call that has returned.
///
/// A row whose number has `UNTRACED_CALL` is of waits in calls that are not traced.
#[inline(always)]
pub fn count_call(record: &mut ThreadRecord, slot: u32, call: &FinishedCall) {
    let Some(row) = row(record, slot, call.number) else {
        cold_path();
        count(Counter::CallRowsFull);
        return;
    };
    row.count += 1;
    row.total_ns += call.total_ns;
    row.running_ns += call.running_ns;
    row.blocked_ns += call.blocked_ns;
    if call.total_ns > row.max_ns {
        row.max_ns = call.total_ns;
    }
}

/// A wait has ended: if it was in a call that is not traced, it is counted later.
#[inline(always)]
pub fn leave_wait(record: &mut ThreadRecord, waited: WaitNs) {
    if record.wait_call != 0 {
        record.left = LeftCall {
            number: record.wait_call.into(),
            total_ns: waited[BLOCKED] + waited[RUNNABLE],
            running_ns: 0,
            blocked_ns: waited[BLOCKED],
        };
        record.wait_call = 0;
    }
}

/// A call is taken to be over because its exit will not be seen: it is counted later.
#[inline(always)]
pub fn leave_call(record: &mut ThreadRecord, call: &FinishedCall) {
    if record.left.total_ns != 0 {
        // The thread has not been switched out since something else was over.
        count(Counter::CallsNested);
        return;
    }
    record.left = LeftCall {
        number: call.number.into(),
        total_ns: call.total_ns,
        running_ns: call.running_ns,
        blocked_ns: call.blocked_ns,
    };
}

/// Counts what was left, at one place only: the code is long.
#[inline(always)]
pub fn count_left(record: &mut ThreadRecord, slot: u32) {
    let left = record.left;
    if left.total_ns == 0 {
        return;
    }
    record.left.total_ns = 0;
    let call = FinishedCall {
        number: left.number as u32,
        total_ns: left.total_ns,
        running_ns: left.running_ns,
        blocked_ns: left.blocked_ns,
    };
    count_call(record, slot, &call);
}

/// The row of that number: from the cache, else from the index, else a new one.
#[inline(always)]
fn row(record: &mut ThreadRecord, slot: u32, number: u32) -> Option<&'static mut SyscallRecord> {
    let place = number as usize & (CALL_CACHE - 1);
    if let Some(row) = at(record.call_rows[place])
        && row.slot == slot
        && row.number == number
    {
        return Some(row);
    }
    cold_path();
    let key = SyscallKey { slot, number };
    // SAFETY: a lookup; the value is copied at once.
    let index = match unsafe { CALL_ROW_INDEX.get(key) } {
        Some(index) => *index,
        None => new_row(&key)?,
    };
    record.call_rows[place] = index;
    at(index)
}

/// The row at an index.
#[inline(always)]
fn at(index: u32) -> Option<&'static mut SyscallRecord> {
    let row = CALL_ROWS_BY_INDEX.get_ptr_mut(index)?;
    // SAFETY: an element of an array map, written only on the processor of its thread.
    Some(unsafe { &mut *row })
}

/// Takes a free row.
#[inline(always)]
fn new_row(key: &SyscallKey) -> Option<u32> {
    let Ok(Some(index)) = FREE_CALL_ROWS.pop() else {
        return None;
    };
    let row = at(index)?;
    row.number = key.number;
    row.slot = key.slot;
    // Cannot be full: it is as large as there are rows. If the kernel refuses all the same, the row
    // is taken anew each time.
    CALL_ROW_INDEX
        .insert(key, index, u64::from(BPF_NOEXIST))
        .ok()?;
    Some(index)
}
