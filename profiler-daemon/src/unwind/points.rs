//! Where a function is entered and left: the instructions at which probes measure its calls.
//!
//! Probes are breakpoints, and the kernel does not check where an instruction begins: a breakpoint
//! within one corrupts the program. So the function is decoded from its first byte to its last, and
//! where that leaves any doubt it is refused. Exits are its own returns, and its direct jumps to
//! other functions (tail calls): unlike replaced return addresses, these survive exceptions,
//! coroutines and growing stacks.

use std::collections::HashSet;
use std::ops::Range;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};
use thiserror::Error;

use super::code::CodeReader;
use crate::units::ModuleAddress;

/// Most bytes of one function that are read.
pub const MAX_FUNCTION_BYTES: usize = 256 << 10;
/// Exits of one function that are probed.
pub const MAX_EXITS: usize = 64;
/// Instructions of a Go function of which one is the check of its stack.
const STACK_CHECK_INSTRUCTIONS: usize = 8;
/// `stackguard0` in Go's `g`.
const STACK_GUARD_OFFSET: u64 = 0x10;
/// How far before an indirect jump the look-up in its table may begin, instructions.
const TABLE_INSTRUCTIONS: usize = 16;

/// A place for a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Of the instruction.
    pub address: ModuleAddress,
    /// The kernel executes the instruction elsewhere, one step, which takes about ten times as
    /// long as imitating it.
    pub stepped: bool,
}

/// Where a function is entered and left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Points {
    /// At its first instruction, or behind the mark of one that may be jumped to.
    pub entry: Point,
    /// At each return and each jump to another function; none for a function that does not return.
    /// Or why they cannot be told: its calls can be counted.
    pub exits: Result<Vec<Point>, NoExits>,
}

/// Why a function cannot be probed at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoProbe {
    /// It is longer than is read.
    #[error("it has {0} bytes; at most {MAX_FUNCTION_BYTES} are read")]
    TooLong(usize),
    /// The bytes are no code, or code that is not understood.
    #[error("its code cannot be read at +{0:#x}")]
    NoCode(u64),
    /// The kernel cannot probe its first instruction, or damages the program.
    #[error("no probe can be put on its first instruction: {0}")]
    Entry(&'static str),
    /// The same of an instruction somewhere in it.
    #[error("no probe can be put on its instruction: {0}")]
    Instruction(&'static str),
    /// That place is in the middle of one.
    #[error("no instruction begins there, at +{0:#x} of its function")]
    Within(u64),
}

/// Why the exits of a function cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoExits {
    /// A jump could lead anywhere.
    #[error("its exits cannot be found: an indirect jump at +{0:#x} may be a tail call")]
    Jump(u64),
    /// An exit cannot be probed.
    #[error("no probe can be put on its exit at +{0:#x}: {1}")]
    Exit(u64, &'static str),
    /// Code of it that lies apart cannot be read.
    #[error("its exits cannot be found: code of it that lies apart (.cold) cannot be read")]
    Part,
    /// Its calls are of goroutines, which it does not know where they are probed.
    #[error(
        "it was made by Go before 1.17, where functions do not have their goroutine in a register: its calls cannot be followed from thread to thread"
    )]
    OldGo,
    /// A function of Go ends by a jump to another.
    #[error("it is Go's and ends at +{0:#x} by a jump to another function")]
    GoJump(u64),
    /// More than are probed.
    #[error("it has {0} exits; at most {MAX_EXITS} are probed")]
    TooMany(usize),
}

/// Finds the points of the function whose code this is, from its first byte to its last; `address`
/// is that of the first. Jumps into `parts`, the same function's code elsewhere, do not leave it:
/// their own exits are found by [`exits_of_part`].
///
/// # Errors
/// [`NoProbe`].
pub fn find(
    code: &[u8],
    address: ModuleAddress,
    parts: &[Range<ModuleAddress>],
) -> Result<Points, NoProbe> {
    let instructions = decode(code, address)?;
    let entry = match instructions.as_slice() {
        [mark, next, ..] if mark.mnemonic() == Mnemonic::Endbr64 => next,
        [first, ..] => first,
        [] => return Err(NoProbe::NoCode(0)),
    };
    if let Some(why) = refused(entry) {
        return Err(NoProbe::Entry(why));
    }
    if matches!(
        entry.flow_control(),
        FlowControl::Interrupt | FlowControl::Exception
    ) {
        return Err(NoProbe::Entry("it is a trap"));
    }
    let own = address..address + code.len() as u64;
    Ok(Points {
        entry: point(entry),
        exits: exits(&instructions, code, address, &own, parts),
    })
}

/// The same of a function of Go. What makes its stack larger begins it anew: its entry is behind
/// the check of that, so that each call is met once.
///
/// # Errors
/// [`NoProbe`].
pub fn find_go(code: &[u8], address: ModuleAddress) -> Result<Points, NoProbe> {
    let instructions = decode(code, address)?;
    let own = address..address + code.len() as u64;
    let check = stack_check(&instructions, &own);
    let behind = check.as_ref().map_or(0, |check| check.behind);
    let entry = instructions.get(behind).ok_or(NoProbe::NoCode(0))?;
    if let Some(why) = refused(entry) {
        return Err(NoProbe::Entry(why));
    }
    let exits = match check {
        Some(StackCheck {
            in_register: false, ..
        }) => Err(NoExits::OldGo),
        _ => exits(&instructions, code, address, &own, &[]),
    };
    Ok(Points {
        entry: point(entry),
        // By a jump it would end where another one begins, and the cost of that is not known.
        exits: exits.and_then(|exits| {
            let returns: HashSet<ModuleAddress> = instructions
                .iter()
                .filter(|one| one.flow_control() == FlowControl::Return)
                .map(place)
                .collect();
            match exits.iter().find(|exit| !returns.contains(&exit.address)) {
                Some(jump) => Err(NoExits::GoJump(jump.address - address)),
                None => Ok(exits),
            }
        }),
    })
}

/// Where a function of Go looks whether its stack is large enough.
struct StackCheck {
    /// The first instruction that is executed once in each call: its number.
    behind: usize,
    /// Whether `g` is in the register that it is in since Go 1.17; else it was taken from the
    /// thread's memory first.
    in_register: bool,
}

fn stack_check(instructions: &[Instruction], own: &Range<ModuleAddress>) -> Option<StackCheck> {
    let mut first = instructions
        .iter()
        .take(STACK_CHECK_INSTRUCTIONS)
        .enumerate();
    let from_thread = instructions
        .first()
        .filter(|one| one.mnemonic() == Mnemonic::Mov && one.segment_prefix() == Register::FS)
        .map(Instruction::op0_register);
    let (check, compared) = first.find(|(_, one)| {
        one.mnemonic() == Mnemonic::Cmp
            && one.op1_kind() == OpKind::Memory
            && one.memory_displacement64() == STACK_GUARD_OFFSET
            && one.memory_index() == Register::None
            && (one.memory_base() == Register::R14 || Some(one.memory_base()) == from_thread)
    })?;
    let grows = instructions.get(check + 1)?;
    let is_jump = grows.mnemonic() == Mnemonic::Jbe && own.contains(&branch_target(grows));
    is_jump.then_some(StackCheck {
        behind: check + 2,
        in_register: compared.memory_base() == Register::R14,
    })
}

/// The instruction at `at`, of code that begins with an instruction at `address`: all up to it are
/// decoded.
///
/// # Errors
/// [`NoProbe`]; also where no instruction begins there.
pub fn at(code: &[u8], address: ModuleAddress, at: ModuleAddress) -> Result<Point, NoProbe> {
    if code.len() > MAX_FUNCTION_BYTES {
        return Err(NoProbe::TooLong(code.len()));
    }
    let (address, at) = (address.get(), at.get());
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    while decoder.can_decode() && decoder.ip() <= at {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(NoProbe::NoCode(instruction.ip().wrapping_sub(address)));
        }
        if instruction.ip() == at {
            return match refused(&instruction) {
                Some(why) => Err(NoProbe::Instruction(why)),
                None => Ok(point(&instruction)),
            };
        }
    }
    Err(NoProbe::Within(at.wrapping_sub(address)))
}

/// The exits of code of a function that lies apart from it (`own`).
///
/// # Errors
/// [`NoProbe`] if it is no code, and within why its exits cannot be told.
pub fn exits_of_part(
    code: &[u8],
    address: ModuleAddress,
    own: &Range<ModuleAddress>,
    parts: &[Range<ModuleAddress>],
) -> Result<Result<Vec<Point>, NoExits>, NoProbe> {
    let instructions = decode(code, address)?;
    Ok(exits(&instructions, code, address, own, parts))
}

/// All instructions up to the padding at the end.
fn decode(code: &[u8], address: ModuleAddress) -> Result<Vec<Instruction>, NoProbe> {
    if code.len() > MAX_FUNCTION_BYTES {
        return Err(NoProbe::TooLong(code.len()));
    }
    let mut decoder = Decoder::with_ip(64, code, address.get(), DecoderOptions::NONE);
    let mut instructions: Vec<Instruction> = Vec::new();
    while decoder.can_decode() {
        let at = decoder.position();
        // Zeroes behind the last instruction are padding.
        let is_over = instructions.last().is_some_and(|last| !goes_on(last));
        if is_over && code[at..].iter().all(|byte| *byte == 0) {
            break;
        }
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(NoProbe::NoCode(at as u64));
        }
        instructions.push(instruction);
    }
    Ok(instructions)
}

/// Is what follows executed after it?
fn goes_on(instruction: &Instruction) -> bool {
    !matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
            | FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::Interrupt
    )
}

fn exits(
    instructions: &[Instruction],
    code: &[u8],
    address: ModuleAddress,
    own: &Range<ModuleAddress>,
    parts: &[Range<ModuleAddress>],
) -> Result<Vec<Point>, NoExits> {
    let within = |target: ModuleAddress| {
        own.contains(&target) || parts.iter().any(|part| part.contains(&target))
    };
    let borders: HashSet<ModuleAddress> = instructions.iter().map(place).collect();
    let here = address..address + code.len() as u64;
    let mut balanced: Option<HashSet<ModuleAddress>> = None;
    let mut found = Vec::new();
    for (index, instruction) in instructions.iter().enumerate() {
        let at = place(instruction) - address;
        let leaves = match instruction.flow_control() {
            FlowControl::Return => true,
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                let target = branch_target(instruction);
                if here.contains(&target) && !borders.contains(&target) {
                    // Jumped into: what is decoded here is not what is executed.
                    return Err(NoExits::Exit(at, "it jumps into an instruction"));
                }
                !within(target)
            }
            FlowControl::IndirectBranch if is_through_slot(instruction) => true,
            FlowControl::IndirectBranch => {
                let balanced = balanced.get_or_insert_with(|| balanced_at(code, address));
                let before = &instructions[index.saturating_sub(TABLE_INSTRUCTIONS)..index];
                if balanced.contains(&place(instruction)) && !is_through_table(instruction, before)
                {
                    return Err(NoExits::Jump(at));
                }
                false
            }
            _ => false,
        };
        if leaves {
            if let Some(why) = refused(instruction) {
                return Err(NoExits::Exit(at, why));
            }
            found.push(point(instruction));
        }
    }
    if found.len() > MAX_EXITS {
        return Err(NoExits::TooMany(found.len()));
    }
    Ok(found)
}

/// Where the stack is as it was at the entry, or may be.
fn balanced_at(code: &[u8], address: ModuleAddress) -> HashSet<ModuleAddress> {
    let mut balanced = HashSet::new();
    CodeReader::new().states(code, address, |at, state| {
        if state.sp.is_none_or(|sp| sp == 8) {
            balanced.insert(at);
        }
    });
    balanced
}

/// A jump through a slot that the loader fills in leads to a function.
fn is_through_slot(jump: &Instruction) -> bool {
    jump.op0_kind() == OpKind::Memory
        && jump.memory_base() == Register::RIP
        && jump.memory_index() == Register::None
}

/// Compilers check the bound of an index, take a distance from a table and add it, or jump through
/// a table of addresses.
fn is_through_table(jump: &Instruction, before: &[Instruction]) -> bool {
    let bounded = before.iter().any(|instruction| {
        matches!(
            instruction.mnemonic(),
            Mnemonic::Ja | Mnemonic::Jae | Mnemonic::Jbe | Mnemonic::Jb
        )
    });
    let is_scaled = |instruction: &Instruction| {
        let is_index = instruction.memory_index() != Register::None;
        is_index && matches!(instruction.memory_index_scale(), 4 | 8)
    };
    let looked_up = is_scaled(jump)
        || before.iter().any(|instruction| {
            matches!(instruction.mnemonic(), Mnemonic::Movsxd | Mnemonic::Mov)
                && is_scaled(instruction)
        });
    bounded && looked_up
}

/// Where an instruction is.
fn place(instruction: &Instruction) -> ModuleAddress {
    ModuleAddress::new(instruction.ip())
}

/// Where a direct jump leads to.
fn branch_target(jump: &Instruction) -> ModuleAddress {
    ModuleAddress::new(jump.near_branch_target())
}

fn point(instruction: &Instruction) -> Point {
    Point {
        address: place(instruction),
        stepped: !is_imitated(instruction),
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
fn refused(instruction: &Instruction) -> Option<&'static str> {
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

/// Where instructions begin, counted from the first byte, on which a probe does no damage.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn borders(code: &[u8], address: ModuleAddress) -> HashSet<ModuleAddress> {
    let decoder = Decoder::with_ip(64, code, address.get(), DecoderOptions::NONE);
    let may_be = |one: &Instruction| one.mnemonic() != Mnemonic::Nop || one.len() != 5;
    let instructions = decoder.into_iter().filter(may_be);
    instructions.map(|one| place(&one)).collect()
}

#[cfg(test)]
#[path = "points_tests.rs"]
mod tests;
