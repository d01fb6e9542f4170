//! One step of the walk by a table row, pure: registers of a frame and memory in, registers of its
//! caller out.
//!
//! Runs in the kernel and in host tests. It never invents frames knowingly: the stack must grow,
//! addresses must be a program's, and each way to fail has its own [`UnwindFailure`]. It does not
//! find the row: that needs mappings and maps.

use super::{
    FRAME_AT_FRAME, FRAME_BELOW_RETURN, FRAME_UNCHANGED, USER_ADDRESS_END, USER_ADDRESS_START,
    UnwindFailure, UnwindRow, kind,
};

/// [`Registers::flags`]: the frame was interrupted at `pc`; otherwise `pc` is where it will go on
/// after a call.
pub const EXACT: u32 = 1;
/// [`Registers::flags`]: all registers of the frame are known, not just these three.
pub const LEAF: u32 = 2;

/// What is known of a frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// rip.
    pub pc: u64,
    /// rsp.
    pub sp: u64,
    /// rbp.
    pub fp: u64,
    /// Address of the signal context that holds the frame's other registers; 0:
    /// [`Memory::leaf_register`] knows them. Meaningless without [`LEAF`].
    pub context: u64,
    /// [`EXACT`], [`LEAF`].
    pub flags: u32,
    /// Zero.
    pub padding: u32,
}

const _: () = assert!(size_of::<Registers>() == 40);

impl Registers {
    /// Of a thread that was interrupted between two instructions.
    #[must_use]
    #[inline(always)]
    pub const fn interrupted(pc: u64, sp: u64, fp: u64) -> Self {
        Self {
            pc,
            sp,
            fp,
            context: 0,
            flags: EXACT | LEAF,
            padding: 0,
        }
    }

    /// Of a thread in a system call: `pc` lies behind the instruction that made it.
    #[must_use]
    #[inline(always)]
    pub const fn in_system_call(pc: u64, sp: u64, fp: u64) -> Self {
        Self {
            pc,
            sp,
            fp,
            context: 0,
            flags: LEAF,
            padding: 0,
        }
    }

    /// The address to look up, and most often to show: `pc` if the frame was interrupted there,
    /// else inside the call instruction, so that a call that is a function's last instruction is
    /// found in that function.
    #[must_use]
    #[inline(always)]
    pub const fn lookup_pc(&self) -> u64 {
        self.pc.wrapping_sub(!self.flags as u64 & EXACT as u64)
    }

    /// The address to show of a frame that has a row of this kind: no call is before the code that
    /// a signal handler returns to, unless the thread is in the system call with which it ends.
    #[must_use]
    #[inline(always)]
    pub const fn shown_pc(&self, kind: u8) -> u64 {
        if kind == kind::SIGNAL && self.flags & LEAF == 0 {
            self.pc
        } else {
            self.lookup_pc()
        }
    }

    /// Whether a thread whose registers were saved so on the way into the kernel will go on at
    /// another instruction than behind the one that made a system call. An interrupt or a fault
    /// leaves -1 in `orig_rax`. A call leaves its number, and in `rcx` where it goes on, unless the
    /// kernel has it go on at a signal's handler or in another program. (Processors with FRED leave
    /// `rcx` alone: there the instruction behind the call is shown.) The call with which a handler
    /// ends puts registers back one after the other, `rcx` before where to go on.
    #[must_use]
    #[inline(always)]
    pub const fn is_elsewhere(orig_rax: u64, rcx: u64, pc: u64) -> bool {
        (orig_rax as i64) < 0 || (rcx != pc && orig_rax != RT_SIGRETURN)
    }
}

/// Reads for a step.
pub trait Memory {
    /// The word at a user address.
    fn word(&mut self, address: u64) -> Option<u64>;

    /// The two words at a user address.
    fn pair(&mut self, address: u64) -> Option<[u64; 2]>;

    /// A register of the frame that the walk began with, by DWARF number (0 = rax … 15 = r15).
    fn leaf_register(&mut self, register: u32) -> Option<u64>;
}

/// What a step found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepResult {
    /// The registers are now the caller's.
    Caller,
    /// The frame is the outermost one.
    End,
    /// The caller cannot be found.
    Failed(UnwindFailure),
}

/// The number of the system call with which signal handlers end.
const RT_SIGRETURN: u64 = 15;

/// Offsets in the signal frame, whose context begins at the stack pointer of the return trampoline.
mod signal_frame {
    /// rbp.
    pub(super) const FP: u64 = 120;
    /// rsp; rip lies behind it.
    pub(super) const SP: u64 = 160;
    /// r8, the first of the registers.
    pub(super) const FIRST: u64 = 40;
    /// Four bits for each DWARF number, the lowest for rax: its word counted from [`FIRST`].
    pub(super) const WORDS: u64 = 0x7654_3210_fa89_becd;
}

/// Four bits for each DWARF number, the lowest for rax: its word in the kernel's `pt_regs`. rsp's
/// is not among them.
const PT_REGS_WORDS: u64 = 0x0123_6789_04ed_5bca;

/// Offset in bytes of a register, by DWARF number, in the kernel's `pt_regs` (and in
/// `user_regs_struct`). Not for rsp (7).
#[must_use]
#[inline(always)]
pub const fn pt_regs_offset(register: u32) -> u32 {
    (((PT_REGS_WORDS >> ((register & 15) * 4)) & 15) << 3) as u32
}

/// Offset in bytes of a register, by DWARF number, in a signal frame.
#[must_use]
#[inline(always)]
pub const fn signal_offset(register: u32) -> u64 {
    signal_frame::FIRST + (((signal_frame::WORDS >> ((register & 15) * 4)) & 15) << 3)
}

/// Goes from a frame to its caller by the row that holds at [`Registers::lookup_pc`].
///
/// After anything but [`StepResult::Caller`] the registers are as before.
#[must_use]
#[inline(always)]
pub fn step(row: UnwindRow, registers: &mut Registers, memory: &mut impl Memory) -> StepResult {
    match row.kind {
        kind::GAP | kind::FRAME_POINTER | kind::OTHER_STACK => {
            by_frame_pointer(row.kind, registers, memory)
        }
        kind::STOP => StepResult::End,
        kind::SIGNAL => step_over_signal(registers, memory),
        kind::UNSUPPORTED => StepResult::Failed(UnwindFailure::of_param(row.param)),
        _ => match step_by_rule(row, registers, memory) {
            Ok(()) => StepResult::Caller,
            Err(failure) => StepResult::Failed(failure),
        },
    }
}

/// The step where there is no row: code without unwind information, code made at run time.
#[must_use]
#[inline(always)]
pub fn step_by_frame_pointer(registers: &mut Registers, memory: &mut impl Memory) -> StepResult {
    by_frame_pointer(kind::GAP, registers, memory)
}

/// The step by frame pointers that a row of this kind asks for.
#[inline(always)]
fn by_frame_pointer(kind: u8, registers: &mut Registers, memory: &mut impl Memory) -> StepResult {
    let frame = registers.fp;
    let zero = if kind == kind::FRAME_POINTER {
        StepResult::Failed(UnwindFailure::BadFramePointer)
    } else {
        // Code that threads begin in clears it.
        StepResult::End
    };
    if frame == 0 {
        return zero;
    }
    // Stacks grow down, so each frame lies above the one it called.
    let is_below = frame < registers.sp && kind != kind::OTHER_STACK;
    if is_below || frame >= USER_ADDRESS_END || frame & 7 != 0 {
        return StepResult::Failed(UnwindFailure::BadFramePointer);
    }
    let Some([saved, returns_to]) = memory.pair(frame) else {
        return StepResult::Failed(UnwindFailure::ReadFramePointer);
    };
    if saved == 0 && returns_to == 0 {
        // A thread whose start code pushed nothing: the stack was made of zeros.
        return zero;
    }
    if !is_user_address(returns_to) {
        return StepResult::Failed(bad_address(returns_to));
    }
    registers.pc = returns_to;
    registers.sp = frame + 16;
    registers.fp = saved;
    registers.flags = 0;
    StepResult::Caller
}

/// From the trampoline that a signal handler returns to, to what the signal interrupted. The only
/// step that may go down: the handler can have a stack of its own.
#[inline(always)]
fn step_over_signal(registers: &mut Registers, memory: &mut impl Memory) -> StepResult {
    let context = registers.sp;
    let read_frame = memory.word(context.wrapping_add(signal_frame::FP));
    let read_both = memory.pair(context.wrapping_add(signal_frame::SP));
    let (Some(fp), Some([sp, pc])) = (read_frame, read_both) else {
        return StepResult::Failed(UnwindFailure::ReadSignal);
    };
    if !is_user_address(pc) {
        return StepResult::Failed(bad_address(pc));
    }
    if !is_user_address(sp) {
        return StepResult::Failed(UnwindFailure::StackOutOfRange);
    }
    *registers = Registers {
        pc,
        sp,
        fp,
        context,
        flags: EXACT | LEAF,
        padding: 0,
    };
    StepResult::Caller
}

/// CFA, return address, rbp.
#[inline(always)]
fn step_by_rule(
    row: UnwindRow,
    registers: &mut Registers,
    memory: &mut impl Memory,
) -> Result<(), UnwindFailure> {
    let offset = i64::from(row.param) as u64;
    let mut returns_to = None;
    let cfa = match row.kind {
        kind::CFA_RSP => registers.sp.wrapping_add(offset),
        kind::CFA_RBP => registers.fp.wrapping_add(offset),
        kind::PLT11 => plt(registers, 11),
        kind::PLT10 => plt(registers, 10),
        kind::DEREF_RSP | kind::DEREF_RBP => {
            let base = if row.kind == kind::DEREF_RSP {
                registers.sp
            } else {
                registers.fp
            };
            let address = base.wrapping_add(i64::from(row.param >> 8) as u64);
            let word = memory.word(address).ok_or(UnwindFailure::ReadCfa)?;
            word.wrapping_add(u64::from(row.param as u8) << 3)
        }
        kind::REGISTER..kind::END => {
            let value = other_register(u32::from(row.kind & 15), registers, memory)?;
            if row.kind < kind::RETURN_REGISTER {
                value.wrapping_add(offset)
            } else {
                returns_to = Some(value);
                registers.sp.wrapping_add(offset)
            }
        }
        _ => return Err(UnwindFailure::UnknownKind),
    };
    // A function that has taken its return address off the stack is at its caller's stack pointer.
    if cfa <= registers.sp && (returns_to.is_none() || cfa < registers.sp) {
        return Err(UnwindFailure::StackNotGrowing);
    }
    if cfa & 7 != 0 {
        return Err(UnwindFailure::StackMisaligned);
    }
    if cfa >= USER_ADDRESS_END {
        return Err(UnwindFailure::StackOutOfRange);
    }
    let fp;
    let returns_to = if let Some(returns_to) = returns_to {
        fp = saved_frame(row.frame, cfa, registers.fp, memory)?;
        returns_to
    } else if row.frame == FRAME_BELOW_RETURN {
        let pair = memory
            .pair(cfa.wrapping_sub(16))
            .ok_or(UnwindFailure::ReadReturn)?;
        fp = pair[0];
        pair[1]
    } else {
        fp = saved_frame(row.frame, cfa, registers.fp, memory)?;
        memory
            .word(cfa.wrapping_sub(8))
            .ok_or(UnwindFailure::ReadReturn)?
    };
    if !is_user_address(returns_to) {
        return Err(bad_address(returns_to));
    }
    registers.pc = returns_to;
    registers.sp = cfa;
    registers.fp = fp;
    registers.flags = 0;
    Ok(())
}

/// The stack address in a linkage stub of 16 bytes, which pushes a word with the instruction that
/// ends before byte `pushed`.
#[inline(always)]
fn plt(registers: &Registers, pushed: u64) -> u64 {
    // All ones from byte `pushed` on, else zero.
    let behind = !(((registers.pc & 15).wrapping_sub(pushed) as i64) >> 63) as u64;
    registers.sp.wrapping_add(8 + (behind & 8))
}

#[inline(always)]
fn saved_frame(
    frame: i8,
    cfa: u64,
    fp: u64,
    memory: &mut impl Memory,
) -> Result<u64, UnwindFailure> {
    if frame == FRAME_UNCHANGED {
        return Ok(fp);
    }
    let address = if frame == FRAME_AT_FRAME {
        fp
    } else {
        cfa.wrapping_add((i64::from(frame) << 3) as u64)
    };
    memory.word(address).ok_or(UnwindFailure::ReadFrame)
}

/// A register other than the three, where it is known.
#[inline(always)]
fn other_register(
    register: u32,
    registers: &Registers,
    memory: &mut impl Memory,
) -> Result<u64, UnwindFailure> {
    if registers.flags & LEAF == 0 {
        return Err(UnwindFailure::LeafRegisterAboveLeaf);
    }
    let value = if registers.context == 0 {
        memory.leaf_register(register)
    } else {
        memory.word(registers.context.wrapping_add(signal_offset(register)))
    };
    value.ok_or(UnwindFailure::ReadLeafRegister)
}

#[inline(always)]
const fn is_user_address(address: u64) -> bool {
    address >= USER_ADDRESS_START && address < USER_ADDRESS_END
}

/// Why an address is no code address of a program.
#[inline(always)]
const fn bad_address(address: u64) -> UnwindFailure {
    if address == 0 {
        UnwindFailure::ZeroReturnAddress
    } else if address < USER_ADDRESS_START {
        UnwindFailure::LowAddress
    } else {
        UnwindFailure::KernelAddress
    }
}
