//! Exact functions: the program at their entries and exits.
//!
//! It runs on the thread's way back to user mode, may be preempted, and so keeps nothing per
//! processor. It reads the thread's record and never changes it: times are those of the clock,
//! closed at this moment. What it takes is charged to the thread's user time, and subtracted by the
//! daemon.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::helpers::generated::bpf_get_attach_cookie;
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_user};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, ProgramArray};
use aya_ebpf::programs::ProbeContext;
use core::ffi::c_void;
use core::sync::atomic::{Ordering, compiler_fence};
use profiler_common::Counter;
use profiler_common::limits::{
    MAX_MEASURED_CALLERS, MAX_MEASURED_PIDS, MAX_MEASURED_ROWS, MAX_MEASURED_THREADS,
};
use profiler_common::measured::row::CompleteCall;
use profiler_common::measured::{
    CALIBRATION, CallCosts, CallerKey, CallerRow, Cookie, EnteredCall, MAX_CALLERS, MeasuredKey,
    MeasuredRow, MeasuredThread, OTHER_CALLERS, PROBE_KINDS, Rows, ShadowStack, ThreadUsage,
    probe_kind,
};
use profiler_common::records::{Control, GONE_SLOT, NO_SLOT, REF_TARGET, ThreadRecord};

use crate::counters::count;
use crate::task::{self, Task, control};

/// Key: thread. Value: its open calls. Writer: the thread, by this program. Reader: the daemon,
/// which removes those of threads that are gone, and all once nothing is measured. Size:
/// `limits::MAX_MEASURED_THREADS`; calls of other threads are counted only (and that they are). Not
/// preallocated: nobody measures, mostly; before Linux 6.1 the daemon makes another in its place
/// that is, as of all these, when somebody does.
#[map]
static MEASURED_FRAMES: HashMap<MeasuredThread, ShadowStack> =
    HashMap::with_max_entries(MAX_MEASURED_THREADS, BPF_F_NO_PREALLOC);

/// Key: thread, program and function. Value: its calls. Writer: the thread, by this program.
/// Reader: the daemon at each pass, which removes those of threads that are gone and of functions
/// that are not measured any more. Size: `limits::MAX_MEASURED_ROWS`; calls beyond are not measured
/// (counted).
#[map]
static MEASURED_ROWS: HashMap<MeasuredKey, MeasuredRow> =
    HashMap::with_max_entries(MAX_MEASURED_ROWS, BPF_F_NO_PREALLOC);

/// Key: process, program, function and the place that it was called from. Value: these calls.
/// Writers: the threads of the process, by this program, each by adding. Reader: the daemon at each
/// pass, which removes those of processes that are gone and of functions that are not measured any
/// more. Size: `limits::MAX_MEASURED_CALLERS`; calls from further places are in the function's row
/// of others, or, where it has none, in none (counted).
#[map]
static MEASURED_CALLERS: HashMap<CallerKey, CallerRow> =
    HashMap::with_max_entries(MAX_MEASURED_CALLERS, BPF_F_NO_PREALLOC);

/// Key: process id. Value: a bit for each instrumentation that measures it. Writers: the daemon;
/// the programs add children and remove processes that exit. Reader: this program. Size:
/// `limits::MAX_MEASURED_PIDS`. Preallocated, as all that programs at probes use must be before
/// Linux 6.1, and this one others use too: 300 KiB.
#[map]
static MEASURED_PIDS: HashMap<u32, u32> = HashMap::with_max_entries(MAX_MEASURED_PIDS, 0);

/// Key: 0. Value: what probes cost. Writer: the daemon, each time that it has measured that.
/// Readers: this program and that of goroutines. Size: one.
#[map]
static PROBE_COSTS: Array<CallCosts> = Array::with_max_entries(1, 0);

/// Never has an element. A program that mentions a tail call keeps its own stack: from Linux 6.13
/// on others may have one for each processor, and this one, which may be preempted, shares a
/// processor with itself. (Linux 7.2 was seen to break over that.) Size: the least.
#[map]
pub static NO_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(1, 0);

pub static NO_FRAMES: ShadowStack = ShadowStack::EMPTY;
static NO_CALLS: MeasuredRow = MeasuredRow::EMPTY;
static NO_CALLER: CallerRow = CallerRow::EMPTY;

/// `BPF_NOEXIST`.
pub const NEW_ONLY: u64 = 1;

/// At the entry of a function, or at an exit: the cookie says which. (Not by aya's macro, which
/// makes a function of what it is given: only the program itself may mention a tail call.)
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub fn measure(context: *mut c_void) -> u32 {
    let ctx = ProbeContext::new(context);
    // SAFETY: the context of this program.
    let cookie = Cookie::from_bits(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    // SAFETY: as above: the registers at the probed instruction.
    let (sp, flags) = unsafe { ((*ctx.regs).rsp, (*ctx.regs).eflags) };
    if cookie.function == 0 {
        // No function has this number.
        // SAFETY: the array is empty: it returns.
        unsafe { NO_PROGRAMS.tail_call(&ctx, 0) };
        return 0;
    }
    hit(cookie, sp, flags);
    0
}

#[inline(always)]
fn hit(cookie: Cookie, sp: u64, flags: u64) -> Option<()> {
    let control = control()?;
    let task = Task::current();
    if !is_measured(task, cookie.instrumentation, control) {
        return None;
    }
    count(Counter::ProbeHits);
    let Some(record) = record_of(task, cookie) else {
        count(Counter::ProbesNotObserved);
        return None;
    };
    // Forgotten what it is made of, and masked at once: where it is an index, the verifier has to
    // see that it is small (that of 5.15 forgets what was found of a copy).
    let kind = core::hint::black_box(probe_kind(cookie)) & (PROBE_KINDS - 1);
    if cookie.exit && !cookie.condition.holds(flags) {
        pass(&cookie, frames(record, false), &mut ThreadRows::now(record));
        return Some(());
    }
    if cookie.exit {
        let costs = costs()?;
        let mut now = ThreadUsage::default();
        if !snapshot(record, task, &mut now) {
            return None;
        }
        let frames = frames(record, false)?;
        let mut rows = ThreadRows::now(record);
        end_last_program(frames, record);
        frames.exit((cookie.function, sp), (kind, costs), &now, &mut rows);
        return Some(());
    }
    let mut rows = ThreadRows::now(record);
    let call = EnteredCall {
        function: cookie.function,
        sp,
        caller: caller_at(sp),
        stepped: cookie.stepped,
    };
    if cookie.counted_only {
        // It needs no place for its calls, and leaves those of others alone: what has ended is
        // found when one of them begins or ends. (The verifier would follow that here once more.)
        match frames(record, false) {
            Some(frames) => frames.count(cookie.function, call.caller, kind, &mut rows),
            None => rows.alone(&cookie, call.caller, kind),
        }
        return Some(());
    }
    let Some(frames) = frames(record, true) else {
        rows.alone(&cookie, call.caller, kind);
        return None;
    };
    end_last_program(frames, record);
    if cookie.loops && frames.is_turn(&call) {
        pass(&cookie, Some(frames), &mut rows);
        return Some(());
    }
    frames.drop_dead(sp, &mut rows);
    if frames.enter(&call, &mut rows) {
        // Last: what comes before is not the call's.
        let mut now = ThreadUsage::default();
        if snapshot(record, task, &mut now) {
            frames.started(&now);
        } else {
            frames.cancel(&mut rows);
        }
    }
    Some(())
}

/// A probe was hit that begins no call and ends none.
#[inline(always)]
fn pass(cookie: &Cookie, frames: Option<&mut ShadowStack>, rows: &mut ThreadRows<'_>) {
    if let Some(frames) = frames {
        frames.passed(cookie.stepped);
    }
    if let Some(row) = rows.row(cookie.function) {
        row.pass(cookie.stepped);
    }
}

/// What probes cost, as far as it is known.
#[inline(always)]
pub fn costs() -> Option<&'static CallCosts> {
    // SAFETY: a map value; its words are read each alone.
    PROBE_COSTS.get_ptr(0).map(|costs| unsafe { &*costs })
}

/// Does the instrumentation measure this process?
#[inline(always)]
pub fn is_measured(task: Task, instrumentation: u8, control: &Control) -> bool {
    let bit = 1 << (instrumentation & 31);
    if control.measured_all & bit != 0 {
        return true;
    }
    // SAFETY: a lookup by value.
    unsafe { MEASURED_PIDS.get(task.pid()) }.is_some_and(|mask| *mask & bit != 0)
}

/// The thread's record, if it is observed.
#[inline(always)]
pub fn observed(task: Task) -> Option<&'static ThreadRecord> {
    let slot = observed_slot(task)?;
    task::record(slot).map(|record| &*record)
}

#[inline(always)]
fn observed_slot(task: Task) -> Option<u32> {
    let reference = task.storage(false)?;
    let is_observed = reference.flags & REF_TARGET != 0
        && reference.slot != NO_SLOT
        && reference.slot != GONE_SLOT;
    is_observed.then_some(reference.slot)
}

/// The same, or of calibration the record that is nobody's.
#[inline(always)]
pub fn record_of(task: Task, cookie: Cookie) -> Option<&'static ThreadRecord> {
    let slot = match observed_slot(task) {
        // After the question: it is a part of the cost.
        _ if cookie.instrumentation == CALIBRATION => NO_SLOT,
        slot => slot?,
    };
    task::record(slot).map(|record| &*record)
}

/// What came of reading what a thread has had.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    Whole,
    /// The record was changed meanwhile.
    Torn,
    /// The thread is not observed.
    NotObserved,
}

/// Sets `now` to what the thread has had up to now. False: its record was changed at each try, or
/// is one of a thread that is not observed (counted).
///
/// Four tries, spelled out: of a loop the compiler lets the end fall through into the beginning,
/// which Linux 6.1 refuses (a back-edge that is no jump). Into a place that holds something: of an
/// `Option` without a value the compiler copies what was never written, which 5.15 refuses.
#[inline(always)]
fn snapshot(record: &ThreadRecord, task: Task, now: &mut ThreadUsage) -> bool {
    let mut read = read_once(record, task, now);
    if read == Read::Torn {
        read = read_once(record, task, now);
    }
    if read == Read::Torn {
        read = read_once(record, task, now);
    }
    if read == Read::Torn {
        read = read_once(record, task, now);
    }
    if read != Read::Whole {
        count(Counter::ProbesNoTimes);
    }
    read == Read::Whole
}

/// One try.
#[inline(always)]
fn read_once(record: &ThreadRecord, task: Task, now: &mut ThreadUsage) -> Read {
    // SAFETY: a word of the record. Volatile and fenced, so that the copy stays between the two
    // readings.
    let before = unsafe { core::ptr::read_volatile(&raw const record.sequence) };
    compiler_fence(Ordering::SeqCst);
    // SAFETY: takes nothing.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let since_ns = task::on_processor().map_or(0, |current| current.since_ns);
    let is_observed = match ThreadUsage::of(&record.clock, task.faults(), now_ns, since_ns) {
        Some(found) => {
            *now = found;
            true
        }
        None => false,
    };
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as above.
    let after = unsafe { core::ptr::read_volatile(&raw const record.sequence) };
    if before != after || before & 1 != 0 {
        Read::Torn
    } else if is_observed {
        Read::Whole
    } else {
        Read::NotObserved
    }
}

#[inline(always)]
fn thread_of(record: &ThreadRecord) -> MeasuredThread {
    MeasuredThread {
        start_boot_ns: record.start_boot_ns,
        tid: record.tid,
        pid: record.pid,
    }
}

/// The thread's open calls; with `create`, made where there are none. `None`: none, or no room
/// (counted).
#[inline(always)]
fn frames(record: &ThreadRecord, create: bool) -> Option<&'static mut ShadowStack> {
    let thread = thread_of(record);
    let found = MEASURED_FRAMES.get_ptr_mut(thread);
    let found = match found {
        Some(found) => Some(found),
        None if create => {
            // By its place: it is larger than the program stack.
            let empty: &ShadowStack = &NO_FRAMES;
            MEASURED_FRAMES.insert(thread, empty, NEW_ONLY).ok();
            let made = MEASURED_FRAMES.get_ptr_mut(thread);
            if made.is_none() {
                count(Counter::ProbesNoFrames);
            }
            made
        }
        None => None,
    };
    // SAFETY: a map value that only this thread writes; it is removed once the thread is gone.
    found.map(|frames| unsafe { &mut *frames })
}

/// Where a call that begins returns to: the call has put it on the stack. Where it is not, it is
/// one of the others.
#[inline(always)]
pub fn caller_at(sp: u64) -> u64 {
    // SAFETY: an address in user space, read as such.
    unsafe { bpf_probe_read_user(sp as *const u64) }.unwrap_or(OTHER_CALLERS)
}

/// If the thread has executed another program since: the calls of the last one are over.
#[inline(always)]
fn end_last_program(frames: &mut ShadowStack, record: &ThreadRecord) {
    let mut rows = ThreadRows {
        record,
        exec_count: frames.exec_count,
    };
    frames.exec(record.exec_count, &mut rows);
}

/// The rows of a thread while it executes one program.
pub struct ThreadRows<'a> {
    pub record: &'a ThreadRecord,
    pub exec_count: u32,
}

impl<'a> ThreadRows<'a> {
    /// Those of the program that it executes now.
    #[inline(always)]
    pub fn now(record: &'a ThreadRecord) -> Self {
        Self {
            record,
            exec_count: record.exec_count,
        }
    }

    #[inline(always)]
    fn key(&self, function: u32) -> MeasuredKey {
        MeasuredKey {
            thread: thread_of(self.record),
            process_start_boot_ns: self.record.process_start_boot_ns,
            function,
            exec_count: self.exec_count,
        }
    }

    /// A call that has no place among others.
    #[inline(always)]
    pub fn alone(&mut self, cookie: &Cookie, caller: u64, kind: usize) {
        let Some(row) = self.row(cookie.function) else {
            return;
        };
        if cookie.loops && !cookie.counted_only {
            // It is not known whether it is one.
            row.pass(cookie.stepped);
            return;
        }
        row.sequence = row.sequence.wrapping_add(1);
        row.calls += 1;
        if cookie.counted_only {
            if let Some(own) = row.probes_own.get_mut(kind) {
                *own += 1;
            }
        } else {
            row.no_times += 1;
        }
        row.sequence = row.sequence.wrapping_add(1);
        self.called_by(cookie.function, caller);
    }
}

impl Rows for ThreadRows<'_> {
    #[inline(always)]
    fn known(&mut self, function: u32) -> Option<&mut MeasuredRow> {
        let found = MEASURED_ROWS.get_ptr_mut(self.key(function));
        // SAFETY: as the frames.
        found.map(|row| unsafe { &mut *row })
    }

    #[inline(always)]
    fn row(&mut self, function: u32) -> Option<&mut MeasuredRow> {
        let key = self.key(function);
        let found = match MEASURED_ROWS.get_ptr_mut(key) {
            Some(found) => Some(found),
            None => {
                let empty: &MeasuredRow = &NO_CALLS;
                MEASURED_ROWS.insert(key, empty, NEW_ONLY).ok();
                let made = MEASURED_ROWS.get_ptr_mut(key);
                if made.is_none() {
                    count(Counter::ProbesNoRow);
                }
                made
            }
        };
        // SAFETY: as the frames.
        found.map(|row| unsafe { &mut *row })
    }

    #[inline(always)]
    fn called_by(&mut self, function: u32, caller: u64) {
        match caller_row(self.record, function, caller) {
            Some(row) => add(&mut row.calls, 1),
            None => count(Counter::ProbesNoCaller),
        }
    }

    #[inline(always)]
    fn completed_by(&mut self, function: u32, caller: u64, call: &CompleteCall<'_>) {
        if let Some(row) = caller_row(self.record, function, caller) {
            row.complete(call, add);
        }
    }
}

/// The calls of a function from one place, or from others. `None`: there is no room.
#[inline(always)]
fn caller_row(record: &ThreadRecord, function: u32, caller: u64) -> Option<&'static mut CallerRow> {
    let mut key = CallerKey {
        process_start_boot_ns: record.process_start_boot_ns,
        return_address: caller,
        pid: record.pid,
        function,
        exec_count: record.exec_count,
        padding: 0,
    };
    let mut found = MEASURED_CALLERS.get_ptr_mut(key);
    if found.is_none() {
        let empty: &CallerRow = &NO_CALLER;
        key.return_address = OTHER_CALLERS;
        found = MEASURED_CALLERS.get_ptr_mut(key);
        if found.is_none() {
            MEASURED_CALLERS.insert(key, empty, NEW_ONLY).ok();
            found = MEASURED_CALLERS.get_ptr_mut(key);
        }
        let others = found?;
        // SAFETY: a word of a map value, read once.
        let known = unsafe { core::ptr::read_volatile(&raw const (*others).known) };
        if caller != OTHER_CALLERS && known < u64::from(MAX_CALLERS) {
            key.return_address = caller;
            if MEASURED_CALLERS.insert(key, empty, NEW_ONLY).is_ok() {
                // SAFETY: a map value that is added to only.
                add(unsafe { &mut (*others).known }, 1);
            }
            found = MEASURED_CALLERS.get_ptr_mut(key);
            if let Some(made) = found {
                // SAFETY: as above; threads that make it at once write nearly the same.
                unsafe { (*made).first_ns = bpf_ktime_get_ns() };
            }
            found = found.or(Some(others));
        }
    }
    // SAFETY: a map value that is added to only; it is removed once the process is gone.
    found.map(|row| unsafe { &mut *row })
}

/// Adds, while other threads may add.
#[inline(always)]
fn add(to: &mut u64, added: u64) {
    // SAFETY: a word of a map value, aligned, that is there as long as the program runs. The
    // compiler has no atomic addition for this target.
    unsafe {
        core::arch::asm!(
            "lock *(u64 *)({to} + 0) += {added}",
            to = in(reg) to,
            added = in(reg) added,
            options(nostack),
        );
    }
}

/// A process was made: where children are measured too, it is measured as its parent is.
#[inline(always)]
pub fn inherit(parent: Task, child: Task, control: &Control) {
    if control.measured_children == 0 || parent.pid() == child.pid() {
        return;
    }
    // SAFETY: a lookup by value.
    let mask = unsafe { MEASURED_PIDS.get(parent.pid()) }.copied();
    let mask = mask.unwrap_or(0) & control.measured_children;
    if mask != 0 && MEASURED_PIDS.insert(child.pid(), mask, 0).is_err() {
        count(Counter::TargetsFull);
    }
}

/// A process is gone: its id must not have its next owner measured.
#[inline(always)]
pub fn forget(pid: u32) {
    // Not there in most cases: nothing to count.
    MEASURED_PIDS.remove(pid).ok();
}
