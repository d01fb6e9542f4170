//! The user walk by the tables that the daemon makes from unwind information: how the row of a code
//! address is found, and so each frame's caller. Takes `bpf_loop` (Linux 5.17), or the verifier
//! would follow each frame of each walk.
//!
//! What a row means is `profiler_common::unwind::step`.

use aya_ebpf::helpers::generated::bpf_loop;
use core::ffi::c_void;
use profiler_common::Counter;
use profiler_common::records::ThreadRecord;
use profiler_common::unwind::{
    CHUNK_ROWS, MAPPING_SEARCH_STEPS, MAX_PROCESS_MAPPINGS, PAGE_BITS, ProcessMappings, StepResult,
    UnwindFailure, UnwindRow, WalkState, is_in_probes, kind, leave_probes, mapping, search, step,
    table_slot, trampoline_row,
};

use crate::areas;
use crate::capture::{Scratch, forget};
use crate::counters::count;
use crate::probes::{self, WalkProbes};
use crate::settings;
use crate::table_maps::{MAPPINGS, PAGES, PROCESSES, ROW_CHUNKS, TABLES};
use crate::task::Task;
use crate::unwind::{ThreadMemory, end, fail, push};

/// What the loop passes to each frame.
struct WalkContext {
    scratch: *mut Scratch,
}

/// The user walk from `scratch.walk.registers` on, by tables.
#[inline(always)]
pub fn follow(scratch: &mut Scratch, record: &ThreadRecord) {
    if let Some(process) = PROCESSES.get_ptr(record.pid) {
        let found = forget(process);
        // SAFETY: the element just found. Read after the rest of it.
        if unsafe { (&raw const (*process).pid).read_volatile() } == record.pid {
            scratch.walk.first = found.first;
            scratch.walk.count = found.count;
        }
    }
    areas::begin(&mut scratch.walk);
    probes::begin(&mut scratch.walk, Task::current());
    let mut context = WalkContext { scratch };
    // SAFETY: the callback takes a pointer to this context, which outlives the loop.
    unsafe {
        bpf_loop(
            settings::user_frames(),
            frame as *mut c_void,
            (&raw mut context).cast(),
            0,
        );
    }
}

/// A process was made: it begins with its parent's memory.
#[inline(always)]
pub fn inherit_process(parent: Task, child: Task) {
    let (from, pid) = (parent.pid(), child.pid());
    if from == pid {
        return;
    }
    // SAFETY: a lookup; the value is copied at once.
    if let Some(process) = unsafe { PROCESSES.get(from) } {
        let copy = ProcessMappings {
            pid,
            exec_ns: 0,
            ..*process
        };
        if PROCESSES.insert(pid, copy, 0).is_err() {
            count(Counter::MappedProcessesFull);
        }
    }
}

/// A process has executed another program. The daemon may have heard of it already: the records of
/// the exec and of the first mappings come some 100 us before the tracepoint. What it wrote of an
/// earlier program is older than the thread's image.
#[inline(always)]
pub fn replace_process(task: Task, now_ns: u64) {
    let pid = task.pid();
    let image_ns = match task.storage(false) {
        Some(reference) => core::mem::replace(&mut reference.image_ns, now_ns),
        None => now_ns,
    };
    // SAFETY: a lookup; one word of the value is read.
    let written_ns = unsafe { PROCESSES.get(pid) }.map_or(0, |process| process.exec_ns);
    if written_ns <= image_ns {
        forget_process(pid);
    }
}

/// A process has no memory any more.
#[inline(always)]
pub fn forget_process(pid: u32) {
    // Not there if the daemon never knew its mappings: nothing to count.
    PROCESSES.remove(pid).ok();
}

/// One frame: notes its address, finds its row, and goes on to its caller. Not 0 ends the loop.
#[inline(never)]
extern "C" fn frame(_index: u64, context: *mut WalkContext) -> i64 {
    // SAFETY: the context that `walk` passes.
    let scratch = unsafe { &mut *(*context).scratch };
    let walk = &mut scratch.walk;
    let left = if is_in_probes(&walk.registers, walk.probes_page) {
        leave(walk)
    } else {
        Ok(())
    };
    let pc = scratch.walk.registers.lookup_pc();
    let found = match left {
        Ok(()) => find_row(&mut scratch.walk, pc),
        Err(failure) => Err(failure),
    };
    let kind = found.map_or(kind::GAP, |row| row.kind);
    let shown = scratch.walk.registers.shown_pc(kind);
    push(scratch, shown);
    let walk = &mut scratch.walk;
    let row = match found {
        Ok(row) => row,
        Err(failure) => return fail(walk, failure),
    };
    let mut registers = walk.registers;
    let mut memory = ThreadMemory {
        saved: walk.saved_registers,
    };
    match step(row, &mut registers, &mut memory) {
        StepResult::Caller => {
            walk.registers = registers;
            0
        }
        StepResult::End => end(walk),
        StepResult::Failed(failure) => fail(walk, failure),
    }
}

/// From a frame that is in the page of probes to the program's own.
#[inline(always)]
fn leave(walk: &mut WalkState) -> Result<(), UnwindFailure> {
    let mut memory = ThreadMemory {
        saved: walk.saved_registers,
    };
    let (mut registers, page) = (walk.registers, walk.probes_page);
    leave_probes(&mut registers, page, &mut WalkProbes(walk), &mut memory)?;
    walk.registers = registers;
    Ok(())
}

/// The row for a code address: its mapping, that one's table, the page in the table, the row in the
/// page.
#[inline(always)]
fn find_row(walk: &mut WalkState, pc: u64) -> Result<UnwindRow, UnwindFailure> {
    if pc < walk.mapping.start || pc >= walk.mapping.end {
        enter_mapping(walk, pc)?;
    }
    if walk.mapping.kind == mapping::FRAME_POINTER {
        return Ok(UnwindRow {
            kind: kind::FRAME_POINTER,
            ..UnwindRow::default()
        });
    }
    if walk.mapping.kind == mapping::PROBE_TRAMPOLINE {
        return Ok(trampoline_row(pc - walk.mapping.start));
    }
    let address = pc - walk.mapping.bias;
    let number = ((address >> PAGE_BITS) as u32).wrapping_sub(walk.table.base_page);
    if number >= walk.table.page_count {
        return Err(UnwindFailure::NoPage);
    }
    let page = PAGES
        .get(walk.table.first_page + number)
        .ok_or(UnwindFailure::NoPage)?;
    let (first, count) = (page.first, u32::from(page.count));
    let chunk = ROW_CHUNKS
        .rows(u32::from(page.chunk))
        .ok_or(UnwindFailure::NoPage)?;
    let at = |index: u32| (first + index) as usize & (CHUNK_ROWS - 1);
    if count == 0 {
        return Err(UnwindFailure::NoRow);
    }
    search(count, address as u16, |index| {
        Some(chunk.rows[at(index)].pc)
    })
    .map(|index| chunk.rows[at(index)])
    .ok_or(UnwindFailure::NoRow)
}

/// Finds the mapping that `pc` lies in, and its table.
#[inline(always)]
fn enter_mapping(walk: &mut WalkState, pc: u64) -> Result<(), UnwindFailure> {
    if !enter_told(walk, pc).unwrap_or(false) && !areas::enter(walk, pc).unwrap_or(false) {
        return Err(UnwindFailure::NoMapping);
    }
    let kind = forget(&raw const walk.mapping.kind);
    if kind == mapping::TABLE {
        let id = forget(&raw const walk.mapping.table);
        let table = TABLES.get(table_slot(id)).ok_or(UnwindFailure::NoTable)?;
        if table.id != id {
            return Err(UnwindFailure::NoTable);
        }
        walk.table = *table;
    } else if kind == mapping::NO_TABLE {
        return Err(UnwindFailure::NoTable);
    }
    Ok(())
}

/// Makes the mapping that `pc` lies in the walk's, if the daemon has told of one.
#[inline(always)]
fn enter_told(walk: &mut WalkState, pc: u64) -> Option<bool> {
    let mut low = 0_u32;
    let mut size = walk.count;
    if size == 0 {
        return None;
    }
    let mut steps = 0;
    while steps < MAPPING_SEARCH_STEPS && size > 1 {
        let half = size >> 1;
        let middle = (low + half) & (MAX_PROCESS_MAPPINGS - 1);
        let row = MAPPINGS.get(walk.first + middle)?;
        if row.start <= pc {
            low = middle;
        }
        size -= half;
        steps += 1;
    }
    let row = MAPPINGS.get(walk.first + low)?;
    let holds = pc >= row.start && pc < row.end;
    if holds {
        walk.mapping = *row;
    }
    Some(holds)
}
