//! Where a function is entered and left: the instructions at which probes measure its calls.
//!
//! Probes are breakpoints, and the kernel does not check where an instruction begins: a breakpoint
//! within one corrupts the program. So the function is decoded from its first byte to its last, and
//! where that leaves any doubt it is refused. Exits are its own returns, and its direct jumps to
//! other functions (tail calls): unlike replaced return addresses, these survive exceptions,
//! coroutines and growing stacks.

mod exits;
mod instruction;

use std::collections::HashSet;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use profiler_common::measured::Condition;
use thiserror::Error;

use crate::units::ModuleAddress;
use exits::exits;
use instruction::{branch_target, goes_on, place, point, refused};

/// Most bytes of one function that are read.
pub const MAX_FUNCTION_BYTES: usize = 256 << 10;
/// Exits of one function that are probed.
pub const MAX_EXITS: usize = 64;
/// Instructions of a Go function of which one is the check of its stack.
const STACK_CHECK_INSTRUCTIONS: usize = 8;
/// `stackguard0` in Go's `g`.
const STACK_GUARD_OFFSET: u64 = 0x10;

/// A place for a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Of the instruction.
    pub address: ModuleAddress,
    /// The kernel executes the instruction elsewhere, one step, which takes about ten times as
    /// long as imitating it.
    pub stepped: bool,
    /// When it leaves the function, if it is an exit.
    pub condition: Condition,
}

/// Code of a function: its own, or some that lies apart from it.
#[derive(Clone, Debug)]
pub struct Piece {
    /// From the first byte to the last.
    pub code: Vec<u8>,
    /// Where the first is.
    pub address: ModuleAddress,
}

/// The file around a function, as far as its exits depend on it.
pub trait Surroundings {
    /// Code that is of no function with a name, from there up to the next one that has one; no more
    /// bytes than so many. `None`: it is, or there is no code.
    fn nameless_code(&self, address: ModuleAddress, at_most: usize) -> Option<Vec<u8>>;

    /// So many bytes of the file that are loaded there; `None`: there are none. The loader may
    /// change them.
    fn constant(&self, address: ModuleAddress, bytes: usize) -> Option<Vec<u8>>;
}

/// Where a function is entered and left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Points {
    /// At its first instruction, or behind the mark of one that may be jumped to.
    pub entry: Point,
    /// At each return and each jump to another function; none for a function that does not return.
    /// Or why they cannot be told: its calls can be counted.
    pub exits: Result<Vec<Point>, NoExits>,
    /// Whether its code jumps back to its entry, which is then met in each turn of a loop.
    pub loops: bool,
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
    /// Turns of a loop would be counted as calls.
    #[error(
        "its code jumps back to its first instruction: calls cannot be told from turns of that loop"
    )]
    Loop,
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
    /// It is left where it is entered: probes of both would be in one place.
    #[error(
        "its first instruction leaves it (a jump to another function, which can be measured, or a return)"
    )]
    AtEntry,
    /// Its last instruction, or that of code of it that lies apart, goes on: no call ends there.
    #[error("its exits cannot be found: it runs on into the next function")]
    RunsOn,
    /// It jumps into another function's code with something on the stack.
    #[error("its exits cannot be found: at +{0:#x} it goes on in code of another name")]
    Elsewhere(u64),
    /// It jumps to code that nobody says whose it is, and that cannot be followed.
    #[error(
        "its exits cannot be found: code without a name that it jumps to at +{0:#x} cannot be followed"
    )]
    Nameless(u64),
    /// Code of it that lies apart cannot be read.
    #[error("its exits cannot be found: code of it that lies apart (.cold) cannot be read")]
    Part,
    /// Code of it that lies apart is another function's as well.
    #[error(
        "its exits cannot be found: code of it that lies apart (.cold) is another function's too"
    )]
    SharedPart,
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

/// Finds the points of a function. `parts`: its code elsewhere, which it does not leave by jumping
/// there; `None`: that cannot be read.
///
/// # Errors
/// [`NoProbe`].
pub fn find(
    own: &Piece,
    parts: Option<&[Piece]>,
    around: &dyn Surroundings,
) -> Result<Points, NoProbe> {
    let instructions = decode(&own.code, own.address)?;
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
    let begins = [own.address, place(entry)];
    let found = exits((own, &instructions), parts, &begins, around);
    // Where exits are probed too, a turn is known by the call that is open.
    if found.loops && found.exits.is_err() {
        return Err(NoProbe::Loop);
    }
    Ok(Points {
        entry: point(entry),
        exits: found.exits,
        loops: found.loops,
    })
}

/// The same of a function of Go. What makes its stack larger begins it anew: its entry is behind
/// the check of that, so that each call is met once.
///
/// # Errors
/// [`NoProbe`].
pub fn find_go(own: &Piece, around: &dyn Surroundings) -> Result<Points, NoProbe> {
    let address = own.address;
    let instructions = decode(&own.code, address)?;
    let range = address..address + own.code.len() as u64;
    let check = stack_check(&instructions, &range);
    let behind = check.as_ref().map_or(0, |check| check.behind);
    let entry = instructions.get(behind).ok_or(NoProbe::NoCode(0))?;
    if let Some(why) = refused(entry) {
        return Err(NoProbe::Entry(why));
    }
    let found = exits((own, &instructions), Some(&[]), &[place(entry)], around);
    let exits = match check {
        Some(StackCheck {
            in_register: false, ..
        }) => Err(NoExits::OldGo),
        _ => found.exits,
    };
    // Of goroutines turns of a loop are not told from calls.
    if found.loops {
        return Err(NoProbe::Loop);
    }
    Ok(Points {
        entry: point(entry),
        loops: false,
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

/// Where direct jumps and calls of this code lead, up to the first byte that is no instruction.
pub fn targets(code: &[u8], address: ModuleAddress) -> impl Iterator<Item = ModuleAddress> {
    let decoder = Decoder::with_ip(64, code, address.get(), DecoderOptions::NONE);
    let instructions = decoder.into_iter().take_while(|one| !one.is_invalid());
    let direct = instructions.filter(|one| one.op0_kind() == OpKind::NearBranch64);
    direct.map(|one| branch_target(&one))
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
