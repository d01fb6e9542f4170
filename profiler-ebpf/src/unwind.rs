//! The user walk: from the registers a thread entered the kernel with to the outermost frame, by the tables that the daemon
//! makes from unwind information. On kernels without `bpf_loop`, by frame pointers alone.
//!
//! What a row means is `profiler_common::unwind::step`; here is how the row of a code address is found.

use aya_ebpf::helpers::generated::bpf_loop;
use aya_ebpf::helpers::{bpf_probe_read_kernel, bpf_probe_read_user};
use core::ffi::c_void;
use profiler_common::Counter;
use profiler_common::limits::{MAX_FRAME_POINTER_FRAMES, MAX_USER_FRAMES};
use profiler_common::records::ThreadRecord;
use profiler_common::unwind::{
    CHUNK_ROWS, HASH_SEED, MAPPING_SEARCH_STEPS, MAX_PROCESS_MAPPINGS, MappingRow, Memory,
    PAGE_BITS, ProcessMappings, Registers, StackEnd, StepResult, UnwindFailure, UnwindRow,
    WalkState, hash_frame, kind, mapping, pt_regs_offset, search, stack_id, step,
    step_by_frame_pointer, table_slot,
};

use crate::capture::{Scratch, forget};
use crate::counters::count;
use crate::maps::{MAPPINGS, PAGES, PROCESSES, ROW_CHUNKS, TABLES};
use crate::settings;
use crate::task::Task;

/// The code segment of 32-bit programs on a 64-bit kernel.
const USER_32_CODE: u64 = 0x23;

/// What the walk starts from.
#[derive(Clone, Copy)]
pub struct UserRegisters {
    /// The instruction.
    pub pc: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer register.
    pub fp: u64,
    /// The code segment: tells 32-bit code.
    pub code_segment: u64,
    /// The instruction was interrupted, not left by a call: the address is exact.
    pub exact: bool,
    /// Kernel address of all saved registers.
    pub saved: u64,
}

/// What the loop passes to each frame.
struct Context {
    scratch: *mut Scratch,
}

/// The thread's memory, and the registers of its innermost frame.
struct ThreadMemory {
    saved: u64,
}

impl Memory for ThreadMemory {
    #[inline(always)]
    fn word(&mut self, address: u64) -> Option<u64> {
        // SAFETY: reads user memory with a fault-safe helper.
        unsafe { bpf_probe_read_user(address as *const u64) }.ok()
    }

    #[inline(always)]
    fn pair(&mut self, address: u64) -> Option<[u64; 2]> {
        // SAFETY: as above.
        unsafe { bpf_probe_read_user(address as *const [u64; 2]) }.ok()
    }

    #[inline(always)]
    fn leaf_register(&mut self, register: u32) -> Option<u64> {
        let address = self.saved + u64::from(pt_regs_offset(register));
        // SAFETY: reads kernel memory with a fault-safe helper.
        unsafe { bpf_probe_read_kernel(address as *const u64) }.ok()
    }
}

/// Walks the user stack of the current thread into the scratch record.
#[inline(always)]
pub fn walk(from: UserRegisters, record: &ThreadRecord, scratch: &mut Scratch) {
    let walk = &mut scratch.walk;
    walk.registers = if from.exact {
        Registers::interrupted(from.pc, from.sp, from.fp)
    } else {
        Registers::in_system_call(from.pc, from.sp, from.fp)
    };
    walk.mapping = MappingRow::default();
    walk.saved_registers = from.saved;
    walk.hash = HASH_SEED;
    walk.len = 0;
    walk.end = StackEnd::TRUNCATED.to_u32();
    walk.first = 0;
    walk.count = 0;
    if from.code_segment == USER_32_CODE {
        // One frame, and the reason: registers and rules of 32-bit code are others.
        push(scratch, from.pc);
        fail(&mut scratch.walk, UnwindFailure::Compat32);
    } else if settings::unwind_tables() != 0 {
        if let Some(process) = PROCESSES.get_ptr(record.pid) {
            let found = forget(process);
            // SAFETY: the element just found. Read after the rest of it.
            if unsafe { (&raw const (*process).pid).read_volatile() } == record.pid {
                walk.first = found.first;
                walk.count = found.count;
            }
        }
        let mut context = Context { scratch };
        // SAFETY: the callback takes a pointer to this context, which outlives the loop.
        unsafe {
            bpf_loop(
                settings::user_frames(),
                frame as *mut c_void,
                (&raw mut context).cast(),
                0,
            );
        }
    } else {
        walk_by_frame_pointers(scratch);
    }
    let walk = &mut scratch.walk;
    let head = &mut scratch.stack.head;
    head.user_len = forget(&raw const walk.len) as u16;
    head.end = forget(&raw const walk.end);
    head.user = stack_id(forget(&raw const walk.hash));
}

/// A process was made: it begins with its parent's memory.
#[inline(always)]
pub fn inherit(parent: Task, child: Task) {
    let (from, pid) = (parent.pid(), child.pid());
    if settings::unwind_tables() == 0 || from == pid {
        return;
    }
    // SAFETY: a lookup; the value is copied at once.
    if let Some(process) = unsafe { PROCESSES.get(from) } {
        let copy = ProcessMappings { pid, ..*process };
        if PROCESSES.insert(pid, copy, 0).is_err() {
            count(Counter::MappedProcessesFull);
        }
    }
}

/// A process has other memory now, or none.
#[inline(always)]
pub fn forget_process(pid: u32) {
    if settings::unwind_tables() != 0 {
        // Not there if the daemon never knew its mappings: nothing to count.
        PROCESSES.remove(pid).ok();
    }
}

/// One frame: notes its address, finds its row, and goes on to its caller. Not 0 ends the loop.
#[inline(never)]
extern "C" fn frame(_index: u64, context: *mut Context) -> i64 {
    // SAFETY: the context that `walk` passes.
    let scratch = unsafe { &mut *(*context).scratch };
    let pc = scratch.walk.registers.lookup_pc();
    push(scratch, pc);
    let walk = &mut scratch.walk;
    let row = match find_row(walk, pc) {
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

/// Adds a frame.
#[inline(always)]
fn push(scratch: &mut Scratch, pc: u64) {
    let walk = &mut scratch.walk;
    let len = walk.len as usize;
    if len < MAX_USER_FRAMES {
        scratch.stack.addresses[len] = pc;
        walk.hash = hash_frame(walk.hash, pc);
        walk.len = len as u32 + 1;
    }
}

/// The walk has come to the outermost frame.
#[inline(always)]
fn end(walk: &mut WalkState) -> i64 {
    walk.end = StackEnd::Complete.to_u32();
    1
}

/// The walk cannot go on.
#[inline(always)]
fn fail(walk: &mut WalkState, failure: UnwindFailure) -> i64 {
    walk.end = StackEnd::Incomplete(failure).to_u32();
    1
}

/// The row for a code address: its mapping, that one's table, the page in the table, the row in the page.
#[inline(always)]
fn find_row(walk: &mut WalkState, pc: u64) -> Result<UnwindRow, UnwindFailure> {
    if pc < walk.mapping.start || pc >= walk.mapping.end {
        enter_mapping(walk, pc)?;
    }
    if walk.mapping.kind == mapping::FRAME_POINTER {
        return Ok(UnwindRow {
            kind: kind::GAP,
            ..UnwindRow::default()
        });
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
    let mut low = 0_u32;
    let mut size = walk.count;
    if size == 0 {
        return Err(UnwindFailure::NoMapping);
    }
    let mut steps = 0;
    while steps < MAPPING_SEARCH_STEPS && size > 1 {
        let half = size >> 1;
        let middle = (low + half) & (MAX_PROCESS_MAPPINGS - 1);
        let row = MAPPINGS
            .get(walk.first + middle)
            .ok_or(UnwindFailure::NoMapping)?;
        if row.start <= pc {
            low = middle;
        }
        size -= half;
        steps += 1;
    }
    let row = MAPPINGS
        .get(walk.first + low)
        .ok_or(UnwindFailure::NoMapping)?;
    if pc < row.start || pc >= row.end {
        return Err(UnwindFailure::NoMapping);
    }
    if row.kind == mapping::TABLE {
        let table = TABLES
            .get(table_slot(row.table))
            .ok_or(UnwindFailure::NoTable)?;
        if table.id != row.table {
            return Err(UnwindFailure::NoTable);
        }
        walk.table = *table;
    } else if row.kind != mapping::FRAME_POINTER {
        return Err(UnwindFailure::NoTable);
    }
    walk.mapping = *row;
    Ok(())
}

/// The whole walk by frame pointers.
#[inline(always)]
fn walk_by_frame_pointers(scratch: &mut Scratch) {
    let mut registers = scratch.walk.registers;
    let mut memory = ThreadMemory { saved: 0 };
    let mut frames = 0;
    while frames < MAX_FRAME_POINTER_FRAMES {
        push(scratch, registers.lookup_pc());
        match step_by_frame_pointer(&mut registers, &mut memory) {
            StepResult::Caller => {}
            StepResult::End => {
                end(&mut scratch.walk);
                return;
            }
            StepResult::Failed(failure) => {
                fail(&mut scratch.walk, failure);
                return;
            }
        }
        frames += 1;
    }
}
