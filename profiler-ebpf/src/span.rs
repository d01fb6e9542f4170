//! USDT points and spans: the program at places of running programs.
//!
//! It runs on the thread's way back to user mode, may be preempted, and so keeps nothing per
//! processor. Rows are of the thread, so nobody else changes them; spans under way are of whoever
//! has their key.

use core::ffi::c_void;

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::{BPF_F_NO_PREALLOC, pt_regs};
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::{
    bpf_get_attach_cookie, bpf_probe_read_kernel, bpf_probe_read_user,
};
use aya_ebpf::macros::map;
use aya_ebpf::maps::HashMap;
use aya_ebpf::programs::ProbeContext;
use profiler_common::Counter;
use profiler_common::limits::{MAX_OPEN_SPANS, MAX_PLACES, MAX_SPAN_ROWS, MAX_USDT_ROWS};
use profiler_common::measured::MeasuredThread;
use profiler_common::spans::row::Start;
use profiler_common::spans::{
    Argument, ItemKey, OpenKey, Operand, PlaceAction, SpanRow, UsdtRow, role,
};

use crate::counters::count;
use crate::measure;
use crate::task::{Task, control};

/// Key: number of a place. Value: what is done there. Writer: the daemon, before the place is
/// probed. Reader: this program. Size: `limits::MAX_PLACES`; more are refused. Not preallocated, as
/// all of these: nobody asks for any, mostly.
#[map]
static PLACES: HashMap<u32, PlaceAction> = HashMap::with_max_entries(MAX_PLACES, BPF_F_NO_PREALLOC);

/// Key: thread and USDT point. Value: its hits. Writer: the thread, by this program. Reader: the
/// daemon at each pass, which removes those of threads that are gone. Size:
/// `limits::MAX_USDT_ROWS`; hits beyond are not counted (but that they are not).
#[map]
static USDT_ROWS: HashMap<ItemKey, UsdtRow> =
    HashMap::with_max_entries(MAX_USDT_ROWS, BPF_F_NO_PREALLOC);

/// Key: thread and span. Value: its starts and ends in the thread, 7 KiB. Size:
/// `limits::MAX_SPAN_ROWS`. Otherwise as [`USDT_ROWS`].
#[map]
static SPAN_ROWS: HashMap<ItemKey, SpanRow> =
    HashMap::with_max_entries(MAX_SPAN_ROWS, BPF_F_NO_PREALLOC);

/// Key: span, process and key. Value: when it started, monotonic nanoseconds. Writer: this program,
/// of whichever thread; the daemon removes those of processes that are gone. Reader: this program,
/// and the daemon. Size: `limits::MAX_OPEN_SPANS`; further starts are not kept (counted).
#[map]
static OPEN_SPANS: HashMap<OpenKey, u64> =
    HashMap::with_max_entries(MAX_OPEN_SPANS, BPF_F_NO_PREALLOC);

static NO_HITS: UsdtRow = UsdtRow::EMPTY;
static NO_SPANS: SpanRow = SpanRow::EMPTY;

/// `BPF_NOEXIST`.
const NEW_ONLY: u64 = 1;
/// `-EEXIST`.
const EXISTS: i32 = -17;

/// At a place: the cookie is its number. (As [`measure::measure`], it mentions a tail call.)
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub fn place(context: *mut c_void) -> u32 {
    let ctx = ProbeContext::new(context);
    // First: what follows is not the span's that ends here.
    // SAFETY: takes nothing.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    // SAFETY: the context of this program.
    let number = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32;
    if number == u32::MAX {
        // No place has this number.
        // SAFETY: the array is empty: it returns.
        unsafe { measure::NO_PROGRAMS.tail_call(&ctx, 0) };
        return 0;
    }
    hit(number, ctx.regs, now_ns);
    0
}

#[inline(always)]
fn hit(number: u32, registers: *const pt_regs, now_ns: u64) -> Option<()> {
    let control = control()?;
    let task = Task::current();
    let place = PLACES.get_ptr(number)?;
    // SAFETY: a map value; the daemon writes it before the place is probed, and not again.
    let place = unsafe { &*place };
    if !measure::is_measured(task, place.instrumentation as u8, control) {
        return None;
    }
    count(Counter::PlaceHits);
    let Some(record) = measure::observed(task) else {
        count(Counter::PlacesNotObserved);
        return None;
    };
    let argument = &place.argument;
    let value = match argument.operand {
        operand if operand == Operand::None as u32 => None,
        _ => Some(value(argument, registers, task)),
    };
    if value == Some(None) {
        count(Counter::PlacesNoArgument);
    }
    let item = ItemKey {
        thread: MeasuredThread {
            start_boot_ns: record.start_boot_ns,
            tid: record.tid,
            pid: record.pid,
        },
        process_start_boot_ns: record.process_start_boot_ns,
        item: place.item,
        padding: 0,
    };
    if place.roles & role::HIT != 0 {
        usdt_row(&item)?.hit(value);
        return Some(());
    }
    let row = span_row(&item)?;
    let Some(key) = value.flatten() else {
        row.unreadable();
        return Some(());
    };
    let open = OpenKey {
        process_start_boot_ns: item.process_start_boot_ns,
        key: key as u64,
        pid: record.pid,
        span: place.item,
    };
    if place.roles & role::END != 0 {
        row.end(take(&open, now_ns));
    }
    if place.roles & role::START != 0 {
        row.start(keep(&open));
    }
    Some(())
}

/// Ends the span under way: how long it took. `None`: there is none.
#[inline(always)]
fn take(open: &OpenKey, now_ns: u64) -> Option<u64> {
    // SAFETY: a word, which is copied.
    let started_ns = unsafe { OPEN_SPANS.get(open) }.copied()?;
    // Of two threads that end it at once the first does.
    OPEN_SPANS.remove(open).ok()?;
    Some(now_ns.saturating_sub(started_ns))
}

/// Starts a span.
#[inline(always)]
fn keep(open: &OpenKey) -> Start {
    // As late as can be: what comes before is not the span's.
    // SAFETY: takes nothing.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    match OPEN_SPANS.insert(open, now_ns, NEW_ONLY) {
        Ok(()) => Start::Kept,
        Err(EXISTS) if OPEN_SPANS.insert(open, now_ns, 0).is_ok() => Start::Replaced,
        Err(_) => {
            count(Counter::SpansNotKept);
            Start::NotKept
        }
    }
}

/// The value of an argument. `None`: its memory is not there.
#[inline(always)]
fn value(argument: &Argument, registers: *const pt_regs, task: Task) -> Option<i64> {
    let operand = argument.operand;
    if operand == Operand::Thread as u32 {
        return Some(i64::from(task.tid()));
    }
    if operand == Operand::Constant as u32 {
        return Some(argument.number);
    }
    let base = register(registers, argument.register)?;
    if operand == Operand::Register as u32 {
        return Some(argument.value(base));
    }
    let index = if argument.index == Argument::NO_REGISTER {
        0
    } else {
        register(registers, argument.index)?
    };
    let address = argument.address(base, index);
    let size = match argument.size_bytes {
        size @ (1 | 2 | 4) => size,
        _ => 8,
    };
    let mut raw = 0_u64;
    // SAFETY: room for eight bytes, of which no more are read.
    let read = unsafe {
        bpf_probe_read_user(
            (&raw mut raw).cast(),
            u32::from(size),
            address as *const core::ffi::c_void,
        )
    };
    (read == 0).then(|| argument.value(raw))
}

/// A register of the program, by where it is saved.
#[inline(always)]
fn register(registers: *const pt_regs, offset: u8) -> Option<u64> {
    if offset > Argument::LAST_REGISTER {
        return None;
    }
    let mut value = 0_u64;
    // SAFETY: within what is saved. By the helper, because which one it is is not known when the
    // program is verified.
    let read = unsafe {
        bpf_probe_read_kernel(
            (&raw mut value).cast(),
            8,
            registers.byte_add(usize::from(offset & 0xf8)).cast(),
        )
    };
    (read == 0).then_some(value)
}

#[inline(always)]
fn usdt_row(key: &ItemKey) -> Option<&'static mut UsdtRow> {
    let found = USDT_ROWS.get_ptr_mut(key).or_else(|| {
        let empty: &UsdtRow = &NO_HITS;
        USDT_ROWS.insert(key, empty, NEW_ONLY).ok();
        USDT_ROWS.get_ptr_mut(key)
    });
    if found.is_none() {
        count(Counter::PlacesNoRow);
    }
    // SAFETY: a map value that only this thread writes; it is removed once the thread is gone.
    found.map(|row| unsafe { &mut *row })
}

#[inline(always)]
fn span_row(key: &ItemKey) -> Option<&'static mut SpanRow> {
    let found = SPAN_ROWS.get_ptr_mut(key).or_else(|| {
        let empty: &SpanRow = &NO_SPANS;
        SPAN_ROWS.insert(key, empty, NEW_ONLY).ok();
        SPAN_ROWS.get_ptr_mut(key)
    });
    if found.is_none() {
        count(Counter::PlacesNoRow);
    }
    // SAFETY: as above.
    found.map(|row| unsafe { &mut *row })
}
