//! What the kernel remembers of the user probes that a thread has met, be they whose they may:
//! where functions with return probes return to. What it means for a stack says
//! `profiler_common::unwind::leave_probes`.

use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::bpf_loop;
use core::ffi::c_void;
use profiler_common::outside::Look;
use profiler_common::unwind::{
    MAX_PENDING_RETURNS, OutOfLine, PendingReturn, ReturnInstances, WalkState,
};

use crate::settings;
use crate::task::Task;

/// Reads a word of the kernel's; 0 where it cannot be read.
#[inline(always)]
pub fn word(base: u64, offset: u32) -> u64 {
    let place = base.wrapping_add(u64::from(offset)) as *const u64;
    // SAFETY: reads kernel memory with a fault-safe helper.
    unsafe { bpf_probe_read_kernel(place) }.unwrap_or(0)
}

/// The replaced return address that the kernel remembers there (`return_instance`).
#[inline(always)]
fn remembered_at(address: u64) -> PendingReturn {
    PendingReturn {
        slot: word(address, settings::return_slot()),
        returns_to: word(address, settings::return_address()),
    }
}

/// What is remembered of a thread's probes (`uprobe_task`).
#[derive(Clone, Copy)]
struct Remembered(u64);

impl Remembered {
    /// That of a thread, and the address of its process's `[uprobes]` page; `None` for nearly all
    /// threads: they have met no probe.
    #[inline(always)]
    fn of(task: Task) -> Option<(Self, u64)> {
        if settings::task_probes() == 0 {
            return None;
        }
        let remembered: u64 = task.field(settings::task_probes());
        if remembered == 0 {
            return None;
        }
        let memory: u64 = task.field(settings::task_memory());
        let area = word(memory, settings::memory_probes_area());
        let page = word(area, settings::probes_area_page());
        (area != 0 && page != 0).then_some((Self(remembered), page))
    }

    /// Where the innermost return address is remembered, 0 = none is.
    #[inline(always)]
    fn first_return(self) -> u64 {
        word(self.0, settings::probes_returns())
    }

    #[inline(always)]
    fn out_of_line(self) -> OutOfLine {
        OutOfLine {
            at: word(self.0, settings::probes_executed_at()),
            belongs_at: word(self.0, settings::probes_belongs_at()),
        }
    }
}

/// Readies a walk of the thread.
#[inline(always)]
pub fn begin(walk: &mut WalkState, task: Task) {
    walk.probes_page = 0;
    if let Some((remembered, page)) = Remembered::of(task) {
        walk.probes_page = page;
        walk.probes = remembered.0;
        walk.next_return = remembered.first_return();
    }
}

/// What is remembered of the probes of the thread that is walked.
pub struct WalkProbes<'a>(pub &'a mut WalkState);

/// What the loop passes to each turn.
struct ProbeSearch {
    walk: *mut WalkState,
}

impl ReturnInstances for WalkProbes<'_> {
    #[inline(always)]
    fn find(&mut self, slots: [u64; 2]) -> Option<PendingReturn> {
        self.0.wanted_slots = slots;
        self.0.found_return = PendingReturn::default();
        let mut search = ProbeSearch { walk: self.0 };
        // SAFETY: the callback takes a pointer to this context, which outlives the loop.
        unsafe {
            bpf_loop(
                MAX_PENDING_RETURNS as u32,
                try_next as *mut c_void,
                (&raw mut search).cast(),
                0,
            );
        }
        let found = self.0.found_return;
        (found.slot != 0).then_some(found)
    }

    #[inline(always)]
    fn next(&mut self) -> Option<PendingReturn> {
        let next = self.0.next_return;
        (next != 0).then(|| remembered_at(next))
    }

    #[inline(always)]
    fn out_of_line(&mut self) -> OutOfLine {
        Remembered(self.0.probes).out_of_line()
    }
}

/// One turn of the search. Not 0 ends the loop.
#[inline(never)]
extern "C" fn try_next(_index: u64, search: *mut ProbeSearch) -> i64 {
    // SAFETY: the context that `find` passes.
    let walk = unsafe { &mut *(*search).walk };
    let next = walk.next_return;
    if next == 0 {
        return 1;
    }
    walk.next_return = word(next, settings::return_next());
    let pending = remembered_at(next);
    if !pending.is_at(walk.wanted_slots) {
        return 0;
    }
    walk.found_return = pending;
    1
}

/// What the loop passes to each turn.
struct Noting {
    look: *mut Look,
    next: u64,
}

/// Notes in a look what is remembered of the thread's probes.
#[inline(always)]
pub fn note(task: Task, look: &mut Look) {
    let Some((remembered, page)) = Remembered::of(task) else {
        return;
    };
    look.head.probes_page = page;
    look.head.out_of_line = remembered.out_of_line();
    let mut noting = Noting {
        look,
        next: remembered.first_return(),
    };
    // SAFETY: the callback takes a pointer to this context, which outlives the loop.
    unsafe {
        bpf_loop(
            MAX_PENDING_RETURNS as u32,
            note_next as *mut c_void,
            (&raw mut noting).cast(),
            0,
        );
    }
}

/// One turn of the loop. Not 0 ends it.
#[inline(never)]
extern "C" fn note_next(index: u64, noting: *mut Noting) -> i64 {
    // SAFETY: the context that `note` passes.
    let (look, next) = unsafe { (&mut *(*noting).look, (*noting).next) };
    if next == 0 || index >= MAX_PENDING_RETURNS as u64 {
        return 1;
    }
    look.returns[index as usize] = remembered_at(next);
    look.head.returns_len = index as u32 + 1;
    // SAFETY: as above.
    unsafe { (*noting).next = word(next, settings::return_next()) };
    0
}
