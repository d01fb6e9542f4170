//! What single instructions are to probes: where they lead, and what the kernel does of them.

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};
use profiler_common::measured::Condition;

use super::Point;
use crate::units::ModuleAddress;

/// Is what follows executed after it? Not after calls, which may never return, nor after what traps
/// outside the kernel.
pub(super) fn goes_on(instruction: &Instruction) -> bool {
    !matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
            | FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::Interrupt
    ) && instruction.mnemonic() != Mnemonic::Hlt
}

/// Does code with these instructions go on in what lies behind it? What is called last is taken
/// never to return. Nops behind the last instruction are padding.
pub(super) fn runs_on(instructions: &[Instruction]) -> bool {
    let mut back = instructions.iter().rev();
    let last = back.find(|one| one.mnemonic() != Mnemonic::Nop);
    last.is_none_or(goes_on)
}

/// Where an instruction is.
pub(super) fn place(instruction: &Instruction) -> ModuleAddress {
    ModuleAddress::new(instruction.ip())
}

/// Where a direct jump leads to.
pub(super) fn branch_target(jump: &Instruction) -> ModuleAddress {
    ModuleAddress::new(jump.near_branch_target())
}

pub(super) fn point(instruction: &Instruction) -> Point {
    Point {
        address: place(instruction),
        stepped: !is_imitated(instruction),
        condition: condition(instruction),
    }
}

/// When a jump is taken.
fn condition(instruction: &Instruction) -> Condition {
    if instruction.is_jcc_short_or_near() {
        // In the order of their opcodes, from `o` on, after none.
        Condition::of_opcode((instruction.condition_code() as u8).wrapping_sub(1))
    } else {
        Condition::ALWAYS
    }
}

/// Does the kernel imitate the instruction?
fn is_imitated(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Nop => instruction.code() == Code::Nopd || instruction.op_count() == 1,
        // Of a register, with or without the prefix of the upper eight.
        Mnemonic::Push => instruction.op0_kind() == OpKind::Register && instruction.len() <= 2,
        _ => {
            matches!(
                instruction.code(),
                Code::Jmp_rel8_64 | Code::Jmp_rel32_64 | Code::Call_rel32_64
            ) || instruction.is_jcc_short_or_near()
        }
    }
}

/// Why the kernel cannot probe an instruction, or must not.
pub(super) fn refused(instruction: &Instruction) -> Option<&'static str> {
    let segment = instruction.segment_prefix();
    if matches!(
        segment,
        Register::ES | Register::CS | Register::SS | Register::DS
    ) {
        return Some("the kernel takes none on instructions with a segment prefix");
    }
    if instruction.has_lock_prefix() {
        return Some("the kernel takes none on locked instructions");
    }
    match instruction.mnemonic() {
        Mnemonic::Nop if instruction.len() == 5 => {
            Some("it is a nop of five bytes, where current kernels damage the program")
        }
        Mnemonic::Int3 | Mnemonic::Int | Mnemonic::Int1 | Mnemonic::Hlt => Some("it is a trap"),
        Mnemonic::In
        | Mnemonic::Out
        | Mnemonic::Insb
        | Mnemonic::Insw
        | Mnemonic::Insd
        | Mnemonic::Outsb
        | Mnemonic::Outsw
        | Mnemonic::Outsd
        | Mnemonic::Iretq
        | Mnemonic::Iretd
        | Mnemonic::Cli
        | Mnemonic::Sti => Some("the kernel takes none on privileged instructions"),
        _ => None,
    }
}
