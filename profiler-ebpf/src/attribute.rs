//! Gives ticks, marks and waits to stacks: the rows of `SUMS_0` and `SUMS_1`, and where a row
//! cannot be had, of `RESERVES`.
//!
//! Where marks fall and which waits are walked says `profiler_common::marks`.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::bpf_get_prandom_u32;
use core::ffi::c_void;
use core::hint::cold_path;
use profiler_common::Counter;
use profiler_common::kinds::{BLOCKED, MARKS, RUNNABLE, Tick, WaitNs, excess};
use profiler_common::marks::{Ended, WaitSums, is_inside};
use profiler_common::outside::may_come_further;
use profiler_common::records::{Control, Reserve, SumKey, SumValue, ThreadRecord};

use crate::calls;
use crate::capture;
use crate::counters::count;
use crate::look;
use crate::maps::{RESERVES, SUMS_0, SUMS_1};
use crate::settings;
use crate::task::{self, Task};

/// At which kind of event the stack is walked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WalkEvent {
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

/// Drawn anew at each call.
#[inline(always)]
pub fn random() -> u32 {
    // SAFETY: takes nothing.
    unsafe { bpf_get_prandom_u32() }
}

/// Walks the stack of the current thread: its row has the walk, the tick if it is one, and, inside
/// a call or at its end, the marks that have fallen. A tick stands for `1 << shift` ticks; where
/// there is none, each mark stands for so many. `None` if no row could be had, or the stack of the
/// call's entry, which is its, was not kept: the thread's reserve has them.
#[inline(always)]
pub fn walk(
    ctx: *mut c_void,
    task: Task,
    record: &mut ThreadRecord,
    slot: u32,
    moment: WalkEvent,
    (tick, shift): (Option<Tick>, u32),
    control: &Control,
) -> Option<SumKey> {
    // Whole from the start: before 6.3 the verifier refuses to copy what only one way has written.
    let mut key = SumKey {
        user: 0,
        kernel: 0,
        slot,
        end: 0,
    };
    let event = (moment, tick, shift);
    let kept = walk_and_add(ctx, task, record, &mut key, event, control).is_some();
    // A tick within an update does not know when it began: the update's own walk has its time.
    if moment != WalkEvent::NestedTick
        && let Some(current) = task::on_processor()
    {
        // SAFETY: takes nothing.
        let now_ns = unsafe { bpf_ktime_get_ns() };
        let cost_ns = now_ns.saturating_sub(record.clock.last_ns);
        record.walk_cost_ns += cost_ns;
        current.walks.spend(cost_ns, tick.is_some());
        if tick.is_none()
            && let Some(walks) = task::process_walks(record.pid)
        {
            walks.budget.spend(cost_ns, false);
        }
        if matches!(moment, WalkEvent::Enter | WalkEvent::Leave) {
            current.call_walks_ns += cost_ns;
        }
    }
    if kept { Some(key) } else { None }
}

#[inline(always)]
fn walk_and_add(
    ctx: *mut c_void,
    task: Task,
    record: &mut ThreadRecord,
    key: &mut SumKey,
    (moment, tick, shift): (WalkEvent, Option<Tick>, u32),
    control: &Control,
) -> Option<()> {
    count(Counter::Walks);
    let slot = key.slot;
    if tick.is_some() {
        count(Counter::Samples);
    }
    let scratch = capture::scratch(moment)?;
    if let Some(tick) = tick {
        // Kept over the walk, it would have the verifier check that once for each kind.
        scratch.tick = tick as u64 | (shift as u64) << 32;
    }
    let entered = capture::is_in_walked_entry(ctx, record, moment);
    *key = capture::walk(ctx, task, record, slot, (moment, entered), scratch);
    let lost = entered && record.entry_lost != 0;
    let mut found = if lost { None } else { find(key, control) };
    if found.is_none() {
        // A row of its own is new in this drain period: its frames travel first, so that no row is
        // without them.
        if !lost && !capture::send(&mut scratch.stack) {
            count(if tick.is_some() {
                Counter::SamplesRingFull
            } else {
                Counter::WalksRingFull
            });
        } else {
            found = if lost { None } else { make(key, control) };
            if found.is_none() {
                count(if tick.is_some() {
                    Counter::SamplesMapFull
                } else {
                    Counter::WalksMapFull
                });
            }
        }
    }
    let kept = found.is_some();
    let row = match found {
        Some(row) => row,
        None => &mut reserve(slot)?.not_kept,
    };
    row.walks += 1;
    if tick.is_some() {
        let found = capture::forget(&raw const scratch.tick);
        let shift = (found >> 32) as u32 & 31;
        if let Some(ticks) = row.ticks.get_mut(found as u32 as usize) {
            *ticks += 1 << shift;
        }
        row.tick_excess = row.tick_excess.saturating_add(excess(1, shift));
    }
    let takes = moment != WalkEvent::NestedTick
        && (moment == WalkEvent::Leave || moment == WalkEvent::Exit || is_inside(&record.clock));
    if !takes {
        return if kept { Some(()) } else { None };
    }
    // Also where nothing has fallen: from where the next walk counts depends on no mark.
    let marks = record
        .marks
        .take_fallen(&record.clock, settings::min_interval_ns(), &mut random);
    if marks != [0; MARKS] {
        // They stand for the whole call, of which the kernel frames here are one moment. The user
        // frames have travelled.
        let of_call = SumKey { kernel: 0, ..*key };
        let row = if key.kernel == 0 || !kept {
            row
        } else if let Some(row) = find(&of_call, control) {
            row
        } else if let Some(row) = make(&of_call, control) {
            row
        } else {
            count(Counter::WalksMapFull);
            &mut reserve(slot)?.not_kept
        };
        // Those of a tick that is not walked wait for the next walk: they stand for themselves.
        let shift = if tick.is_some() { 0 } else { shift };
        add_marks(&mut row.marks, &marks, shift);
        if shift != 0 {
            add_excess(row, &marks, shift);
        }
    }
    if kept { Some(()) } else { None }
}

/// Walks the thread at the entry of a call whose exit has another stack, or never comes.
#[inline(always)]
pub fn walk_entry(
    ctx: *mut c_void,
    task: Task,
    record: &mut ThreadRecord,
    slot: u32,
    control: &Control,
) {
    record.entry_ns = 0;
    match walk(
        ctx,
        task,
        record,
        slot,
        WalkEvent::Enter,
        (None, 0),
        control,
    ) {
        Some(key) => {
            record.entry_user = key.user;
            record.entry_end = key.end;
            record.entry_lost = 0;
        }
        None => record.entry_lost = 1,
    }
    record.entry_ns = record.clock.call_entered_ns;
}

/// The call has ended, or is held to have ended, without a walk: what has fallen in it was not
/// sampled.
#[inline(always)]
pub fn abandon_marks(record: &mut ThreadRecord, slot: u32) {
    let marks = record
        .marks
        .take_fallen(&record.clock, settings::min_interval_ns(), &mut random);
    if marks != [0; MARKS]
        && let Some(reserve) = reserve(slot)
    {
        add_marks(&mut reserve.not_sampled, &marks, 0);
    }
}

/// A wait has ended, inside a call or outside: gives it to the stack of its switch-out, if it was
/// walked.
#[inline(always)]
pub fn end_wait(
    record: &mut ThreadRecord,
    slot: u32,
    inside: bool,
    waited: WaitNs,
    control: &Control,
) {
    calls::leave_wait(record, waited);
    // When it began: the clock has come to its end.
    let since_ns = record.clock.last_ns - waited[BLOCKED] - waited[RUNNABLE];
    if (record.marks.may_be_found() || may_come_further(record.off_cpu_end))
        && let Some(found) = look::outside_stack(slot, since_ns)
    {
        cold_path();
        record.off_cpu_user = found.user;
        record.off_cpu_kernel = found.kernel;
        record.off_cpu_end = found.end;
        record.marks.find();
    }
    let min_interval_ns = settings::min_interval_ns();
    let not_kept = match record
        .marks
        .end_wait(inside, waited, min_interval_ns, &mut random)
    {
        Ended::Divided => return,
        Ended::Walked(sums) => {
            cold_path();
            let key = SumKey {
                user: record.off_cpu_user,
                kernel: record.off_cpu_kernel,
                slot,
                end: record.off_cpu_end,
            };
            // The frames travelled when the thread left; the daemon keeps the stacks that
            // threads were walked at as they left.
            let row = match find(&key, control) {
                Some(row) => Some(row),
                None => make(&key, control),
            };
            if let Some(row) = row {
                row.waits.add(&sums);
                return;
            }
            count(Counter::WaitsMapFull);
            match record
                .marks
                .cannot_keep(inside, &sums, min_interval_ns, &mut random)
            {
                Ended::NotKept(sums) => sums,
                _ => return,
            }
        }
        Ended::NotKept(sums) => {
            cold_path();
            sums
        }
        Ended::NotSampled(waited) => {
            cold_path();
            if let Some(reserve) = reserve(slot) {
                reserve.not_sampled_ns[BLOCKED] += waited[BLOCKED];
                reserve.not_sampled_ns[RUNNABLE] += waited[RUNNABLE];
            }
            return;
        }
    };
    give_reserve(slot, &not_kept);
}

/// From outside, what the thread was in has ended: a wait perhaps, and the call it was in.
#[inline(always)]
pub fn end_unseen(
    record: &mut ThreadRecord,
    slot: u32,
    inside: bool,
    waited: WaitNs,
    control: &Control,
) {
    if waited[BLOCKED] | waited[RUNNABLE] != 0 {
        end_wait(record, slot, inside, waited, control);
    }
    abandon_marks(record, slot);
}

#[inline(always)]
fn give_reserve(slot: u32, sums: &WaitSums) {
    if let Some(reserve) = reserve(slot) {
        reserve.not_kept.waits.add(sums);
    }
}

#[inline(always)]
fn add_marks(to: &mut [u64; MARKS], marks: &[u64; MARKS], shift: u32) {
    let mut kind = 0;
    while kind < MARKS {
        to[kind] += marks[kind] << shift;
        kind += 1;
    }
}

#[inline(always)]
fn add_excess(row: &mut SumValue, marks: &[u64; MARKS], shift: u32) {
    let mut kind = 0;
    while kind < MARKS {
        row.excess[kind] = row.excess[kind].saturating_add(excess(marks[kind], shift));
        kind += 1;
    }
}

/// A row that is there. It is changed by plain additions: a thread is on one processor at a time,
/// and nested ticks have other rows.
#[inline(always)]
fn find(key: &SumKey, control: &Control) -> Option<&'static mut SumValue> {
    let buffer = if control.buffer == 0 {
        &SUMS_0
    } else {
        &SUMS_1
    };
    // SAFETY: a map value, valid for the program's run.
    buffer.get_ptr_mut(key).map(|row| unsafe { &mut *row })
}

/// A new row, empty. `None` if the map is full.
#[inline(always)]
fn make(key: &SumKey, control: &Control) -> Option<&'static mut SumValue> {
    /// `BPF_NOEXIST`.
    const NEW_ONLY: u64 = 1;
    let buffer = if control.buffer == 0 {
        &SUMS_0
    } else {
        &SUMS_1
    };
    // By its place: a copy would take a fifth of the program stack.
    let empty: &SumValue = &EMPTY;
    buffer.insert(key, empty, NEW_ONLY).ok()?;
    find(key, control)
}

/// What a new row holds.
static EMPTY: SumValue = SumValue {
    waits: WaitSums {
        exact: [0; 2],
        weighted: [0; 2],
        squares_ms2: [0; 2],
    },
    marks: [0; MARKS],
    excess: [0; MARKS],
    tick_excess: 0,
    ticks: [0; 7],
    walks: 0,
};

/// What of the thread has no stack.
#[inline(always)]
fn reserve(slot: u32) -> Option<&'static mut Reserve> {
    let reserve = RESERVES.get_ptr_mut(slot)?;
    // SAFETY: an element of an array map; see `Reserve` for who writes when.
    Some(unsafe { &mut *reserve })
}
