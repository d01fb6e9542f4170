//! The user walk: from the registers a thread entered the kernel with to the outermost frame. What
//! is the same on all kernels: where it begins, and what is noted of a frame.
//!
//! How a frame's caller is found is `tables.rs`, or before 5.17 `before_5_17.rs`.

use aya_ebpf::helpers::{bpf_probe_read_kernel, bpf_probe_read_user};
use profiler_common::limits::MAX_USER_FRAMES;
use profiler_common::records::ThreadRecord;
use profiler_common::unwind::{
    HASH_SEED, MappingRow, Memory, Registers, StackEnd, UnwindFailure, WalkState, hash_frame,
    pt_regs_offset, stack_id,
};

use crate::capture::{Scratch, forget};
use crate::kernel;

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

/// The thread's memory, and the registers of its innermost frame.
pub struct ThreadMemory {
    /// Kernel address of all saved registers.
    pub saved: u64,
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
    } else {
        kernel::follow(scratch, record);
    }
    let walk = &mut scratch.walk;
    let head = &mut scratch.stack.head;
    head.user_len = forget(&raw const walk.len) as u16;
    head.end = forget(&raw const walk.end);
    head.user = stack_id(forget(&raw const walk.hash));
}

/// Adds a frame.
#[inline(always)]
pub fn push(scratch: &mut Scratch, pc: u64) {
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
pub fn end(walk: &mut WalkState) -> i64 {
    walk.end = StackEnd::Complete.to_u32();
    1
}

/// The walk cannot go on.
#[inline(always)]
pub fn fail(walk: &mut WalkState, failure: UnwindFailure) -> i64 {
    walk.end = StackEnd::Incomplete(failure).to_u32();
    1
}
