//! Stacks read from outside: of threads that are off the processor and were not walked as they
//! left, or not far, since too little was known of their process. What the daemon asks, what the
//! kernel programs answer, and what the daemon hands over.
//!
//! The daemon asks for a look at a thread, and gets its saved registers, its kernel stack, and how
//! often it has been switched out. It reads the thread's memory, follows the stack, and asks again:
//! the same count, and the thread still off its processor, mean that it did not run meanwhile. Then
//! the wait has a stack.

use crate::StackEnd;
use crate::limits::MAX_KERNEL_FRAMES;
use crate::records::END_MASK;
use crate::unwind::{MAX_PENDING_RETURNS, OutOfLine, PendingReturn, UnwindFailure};

/// [`OutsideStack::asked`]: nothing.
pub const ASKED_NOTHING: u32 = 0;
/// [`OutsideStack::asked`]: a look with registers and kernel stack.
pub const ASKED_ALL: u32 = 1;
/// [`OutsideStack::asked`]: whether the thread has run since; only the head's first fields are
/// filled.
pub const ASKED_AGAIN: u32 = 2;

/// Whether the walk of a wait whose row ends so ([`crate::records::SumKey::end`]) came no further
/// for want of what is heard of a process only after the fact: its mappings, or the tables of its
/// files. Then a whole stack of the wait may be found from outside.
#[must_use]
#[inline(always)]
pub const fn may_come_further(end: u32) -> bool {
    const NO_MAPPING: u32 = StackEnd::Incomplete(UnwindFailure::NoMapping).to_u32();
    const NO_TABLE: u32 = StackEnd::Incomplete(UnwindFailure::NoTable).to_u32();
    let end = end & END_MASK;
    end == NO_MAPPING || end == NO_TABLE
}

/// What the daemon asks about the thread in a slot, and the stack that it found for the thread's
/// wait.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutsideStack {
    /// Begin of the wait that the stack is of (the clock's last event); written last, 0 first. 0 =
    /// there is none.
    pub since_ns: u64,
    /// Id of the user stack, 0 = none.
    pub user: u64,
    /// Id of the kernel stack, 0 = none.
    pub kernel: u64,
    /// How the user walk ended (a [`crate::StackEnd`]), and the program
    /// ([`crate::records::image_bits`]).
    pub end: u32,
    /// [`ASKED_NOTHING`], [`ASKED_ALL`], [`ASKED_AGAIN`].
    pub asked: u32,
}

/// Words of the kernel's `pt_regs` (x86-64), in its order.
pub const SAVED_REGISTERS: usize = 21;

/// A look at a thread that is off its processor: what the task iterator writes, followed by
/// `kernel_len` kernel addresses and `returns_len` return addresses that were replaced.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LookHead {
    /// The thread's slot.
    pub slot: u32,
    /// The thread's id.
    pub tid: u32,
    /// Begin of its wait: the clock's last event.
    pub since_ns: u64,
    /// How often it has been switched out, as of this look.
    pub switches: u64,
    /// The user registers as saved at the way into the kernel (`pt_regs`); zeroes for a thread
    /// without user mode.
    pub registers: [u64; SAVED_REGISTERS],
    /// The process's id.
    pub pid: u32,
    /// Not 0: the thread has no user mode.
    pub kernel_thread: u32,
    /// Start of the process since boot.
    pub process_start_boot_ns: u64,
    /// Start of the process, monotonic.
    pub process_start_ns: u64,
    /// Kernel addresses that follow, innermost first.
    pub kernel_len: u32,
    /// The program that it runs ([`crate::records::image_bits`]).
    pub image: u32,
    /// Address of the process's `[uprobes]` page, if the thread has met a probe; 0: it has not.
    pub probes_page: u64,
    /// The instruction under a probe that it last executed elsewhere.
    pub out_of_line: OutOfLine,
    /// Return addresses that follow, innermost first.
    pub returns_len: u32,
    /// Zero.
    pub padding: u32,
}

/// A whole look; only as many addresses as there are travel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// What it is.
    pub head: LookHead,
    /// Kernel addresses.
    pub kernel: [u64; MAX_KERNEL_FRAMES],
    /// Return addresses that were replaced.
    pub returns: [PendingReturn; MAX_PENDING_RETURNS],
}

const _: () = assert!(size_of::<OutsideStack>() == 32);
const _: () = assert!(size_of::<LookHead>() == 24 + 8 * SAVED_REGISTERS + 64);
const _: () = assert!(
    size_of::<Look>() == size_of::<LookHead>() + 8 * MAX_KERNEL_FRAMES + 16 * MAX_PENDING_RETURNS
);

#[cfg(feature = "user")]
mod pod {
    // SAFETY: `#[repr(C)]`, only integers, no implicit padding (size asserted above).
    unsafe impl aya::Pod for super::OutsideStack {}
    // SAFETY: as above.
    unsafe impl aya::Pod for super::LookHead {}
}
