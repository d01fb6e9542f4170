//! Exact functions of Go: the program at their entries and exits.
//!
//! Their calls are of goroutines: one may begin on one thread and end on another, on a stack that
//! was moved meanwhile. So open calls are kept by goroutine, whose `g` Go's functions have in r14
//! (Go 1.17), and only elapsed time is taken: a goroutine has no clock, and what its threads did is
//! not all its own. Otherwise as [`crate::measure`], whose rows it writes: those of the thread that
//! a call begins or ends on.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::helpers::generated::bpf_get_attach_cookie;
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_user};
use aya_ebpf::macros::map;
use aya_ebpf::maps::HashMap;
use aya_ebpf::programs::ProbeContext;
use core::ffi::c_void;
use profiler_common::Counter;
use profiler_common::clock::Class;
use profiler_common::limits::MAX_GOROUTINES;
use profiler_common::measured::row::CompleteCall;
use profiler_common::measured::{
    Cookie, EnteredCall, Goroutine, GoroutineStack, MeasuredRow, PROBE_KINDS, Rows, ShadowStack,
    ThreadUsage, probe_kind,
};
use profiler_common::records::ThreadRecord;

use crate::counters::count;
use crate::measure::{self, NEW_ONLY, NO_FRAMES, NO_PROGRAMS, ThreadRows};
use crate::task::{Task, control};

/// Key: goroutine. Value: its open calls. Writer: the goroutine, by this program. Reader: the
/// daemon, which removes those of processes that are gone, and all once nothing is measured. Not
/// this program: a process may run threads with one `g` at once, and one of them could write to
/// what is another process's by then. Size: `limits::MAX_GOROUTINES`; calls of others are counted
/// only (and that they are). Not preallocated: nobody measures, mostly.
#[map]
static GOROUTINE_FRAMES: HashMap<Goroutine, ShadowStack> =
    HashMap::with_max_entries(MAX_GOROUTINES, BPF_F_NO_PREALLOC);

/// What of the registers says whose call it is, and where on the stack.
#[derive(Clone, Copy)]
struct Registers {
    sp: u64,
    g: u64,
}

/// At the entry of a function of Go, or at an exit: the cookie says which. (As
/// [`measure::measure`], it mentions a tail call.)
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub fn goroutine(context: *mut c_void) -> u32 {
    let ctx = ProbeContext::new(context);
    // First: what follows is not the call's that ends here.
    // SAFETY: takes nothing.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    // SAFETY: the context of this program.
    let cookie = Cookie::from_bits(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    // SAFETY: as above: the registers at the probed instruction.
    let registers = unsafe {
        Registers {
            sp: (*ctx.regs).rsp,
            g: (*ctx.regs).r14,
        }
    };
    if cookie.function == 0 {
        // No function has this number.
        // SAFETY: the array is empty: it returns.
        unsafe { NO_PROGRAMS.tail_call(&ctx, 0) };
        return 0;
    }
    hit(cookie, registers, now_ns);
    0
}

#[inline(always)]
fn hit(cookie: Cookie, registers: Registers, now_ns: u64) -> Option<()> {
    let control = control()?;
    let task = Task::current();
    if !measure::is_measured(task, cookie.instrumentation, control) {
        return None;
    }
    count(Counter::ProbeHits);
    let Some(record) = measure::record_of(task, cookie) else {
        count(Counter::ProbesNotObserved);
        return None;
    };
    // As in `measure::measure`.
    let kind = core::hint::black_box(probe_kind(cookie)) & (PROBE_KINDS - 1);
    let mut rows = GoroutineRows(ThreadRows::now(record));
    let position = position(registers);
    if position.is_none() {
        count(Counter::ProbesNoTimes);
    }
    let key = Goroutine {
        process_start_boot_ns: record.process_start_boot_ns,
        g: registers.g,
        pid: record.pid,
        padding: 0,
    };
    if cookie.exit {
        let frames = position.and_then(|_| known_frames(&key));
        let (Some(frames), Some(position)) = (frames, position) else {
            rows.unmatched(cookie.function);
            return None;
        };
        let costs = measure::costs()?;
        let place = (cookie.function, position);
        frames.exit(place, (kind, costs), &usage(now_ns), &mut rows);
        return Some(());
    }
    let caller = measure::caller_at(registers.sp);
    let frames = match position {
        None => None,
        // What is counted only needs no place for its calls, and has a caller in others.
        Some(_) if cookie.counted_only => known_frames(&key),
        Some(_) => known_frames(&key).or_else(|| make_frames(&key)),
    };
    let (Some(frames), Some(position)) = (frames, position) else {
        rows.0.alone(&cookie, caller, kind);
        return None;
    };
    end_last_program(frames, record);
    frames.drop_dead(position, &mut rows);
    if cookie.counted_only {
        frames.count(cookie.function, caller, kind, &mut rows);
        return Some(());
    }
    let is_within = frames.is_in(cookie.function);
    let call = EnteredCall {
        function: cookie.function,
        sp: position,
        caller,
        stepped: cookie.stepped,
    };
    if frames.enter_within(&call, Some(is_within), &mut rows) {
        // Last: what comes before is not the call's.
        // SAFETY: takes nothing.
        frames.started(&usage(unsafe { bpf_ktime_get_ns() }));
    }
    Some(())
}

/// Where the goroutine's stack pointer is; `None`: the register has no goroutine.
#[inline(always)]
fn position(registers: Registers) -> Option<u64> {
    // SAFETY: an address in user space, read as such.
    let stack = unsafe { bpf_probe_read_user(registers.g as *const GoroutineStack) }.ok()?;
    stack.position(registers.sp)
}

/// A moment, as if all time were user time.
#[inline(always)]
fn usage(now_ns: u64) -> ThreadUsage {
    let mut usage = ThreadUsage::default();
    usage.times[Class::User as usize] = now_ns;
    usage
}

/// The goroutine's open calls, if it ever had any.
#[inline(always)]
fn known_frames(key: &Goroutine) -> Option<&'static mut ShadowStack> {
    let found = GOROUTINE_FRAMES.get_ptr_mut(key);
    // SAFETY: a map value that the threads of one process write, of which Go has one at a time run
    // the goroutine; where others do, what they find is wrong and in its bounds all the same. It is
    // removed once the process is gone, or its probes are.
    found.map(|frames| unsafe { &mut *frames })
}

/// A place for them; `None`: there is no room (counted).
#[inline(always)]
fn make_frames(key: &Goroutine) -> Option<&'static mut ShadowStack> {
    // By its place: it is larger than the program stack.
    let empty: &ShadowStack = &NO_FRAMES;
    GOROUTINE_FRAMES.insert(key, empty, NEW_ONLY).ok();
    let made = known_frames(key);
    if made.is_none() {
        count(Counter::ProbesNoFrames);
    }
    made
}

/// If the process has executed another program since: the calls of the last one are over. (A thread
/// that was not observed for a while knows of fewer programs.)
#[inline(always)]
fn end_last_program(frames: &mut ShadowStack, record: &ThreadRecord) {
    if frames.depth == 0 {
        frames.exec_count = record.exec_count;
    } else if record.exec_count > frames.exec_count {
        let mut rows = GoroutineRows(ThreadRows {
            record,
            exec_count: frames.exec_count,
        });
        frames.exec(record.exec_count, &mut rows);
    }
}

/// The rows of the thread that runs the goroutine now: a call that ends on it may have begun on
/// another one.
struct GoroutineRows<'a>(ThreadRows<'a>);

impl GoroutineRows<'_> {
    /// An exit whose call nobody knows.
    #[inline(always)]
    fn unmatched(&mut self, function: u32) {
        if let Some(row) = self.row(function) {
            row.sequence = row.sequence.wrapping_add(1);
            row.exits_unmatched += 1;
            row.sequence = row.sequence.wrapping_add(1);
        }
    }
}

impl Rows for GoroutineRows<'_> {
    #[inline(always)]
    fn known(&mut self, function: u32) -> Option<&mut MeasuredRow> {
        self.0.row(function)
    }

    #[inline(always)]
    fn row(&mut self, function: u32) -> Option<&mut MeasuredRow> {
        self.0.row(function)
    }

    #[inline(always)]
    fn called_by(&mut self, function: u32, caller: u64) {
        self.0.called_by(function, caller);
    }

    #[inline(always)]
    fn completed_by(&mut self, function: u32, caller: u64, call: &CompleteCall<'_>) {
        self.0.completed_by(function, caller, call);
    }
}
