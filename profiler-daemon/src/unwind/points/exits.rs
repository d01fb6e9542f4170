//! Where a function is left: its returns, and its jumps to other functions.
//!
//! Code of a function may lie apart from it. Where symbols say so, the caller knows; where there
//! are none, as in stripped programs, code that no function with a name has is taken to be its, if
//! it is jumped to conditionally or with something still on the stack: compilers end functions by
//! neither.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use profiler_common::measured::Condition;

use super::super::code::CodeReader;
use super::instruction::{branch_target, goes_on, place, point, refused, runs_on};
use super::{MAX_EXITS, NoExits, NoProbe, Piece, Point, Surroundings, decode};
use crate::units::ModuleAddress;

/// How far before an indirect jump the look-up in its table may begin, instructions.
const TABLE_INSTRUCTIONS: usize = 16;
/// Most entries of a table of addresses that are looked at.
const MAX_TABLE: u64 = 1024;
/// Most bytes of code without a name that are followed.
const MAX_NAMELESS_BYTES: usize = 64 << 10;
/// Most places at which it is jumped to.
const MAX_RUNS: usize = 256;
/// Most of it that is read at once.
const MAX_RUN_BYTES: usize = 4096;

/// Whether the stack is as it was at the entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Balance {
    Balanced,
    /// Something is on it.
    Pushed,
    Unknown,
}

/// The code of a function, as far as it was followed.
pub(super) struct Body<'a> {
    address: ModuleAddress,
    /// Its own code and its parts.
    ranges: Vec<Range<ModuleAddress>>,
    around: &'a dyn Surroundings,
    /// Where instructions begin.
    borders: HashSet<ModuleAddress>,
    /// Code without a name that is jumped to, and from where.
    ahead: Vec<(ModuleAddress, u64)>,
    nameless: Vec<Range<ModuleAddress>>,
    nameless_bytes: usize,
    found: Vec<Point>,
    /// Whether a jump leads to where a call begins.
    loops: bool,
}

/// What a function's code says.
pub(super) struct Exits {
    /// Its exits.
    pub(super) exits: Result<Vec<Point>, NoExits>,
    /// Whether its code jumps back to where it begins, so that not each arrival there is a call.
    pub(super) loops: bool,
}

/// The exits of a function that is entered at `begins`: at its address, or behind marks there.
/// `parts`: its code elsewhere; `None`: that cannot be read.
pub(super) fn exits(
    (own, instructions): (&Piece, &[Instruction]),
    parts: Option<&[Piece]>,
    begins: &[ModuleAddress],
    around: &dyn Surroundings,
) -> Exits {
    let range = |piece: &Piece| piece.address..piece.address + piece.code.len() as u64;
    let mut body = Body {
        address: own.address,
        ranges: vec![range(own)],
        around,
        borders: instructions.iter().map(place).collect(),
        ahead: Vec::new(),
        nameless: Vec::new(),
        nameless_bytes: 0,
        found: Vec::new(),
        loops: false,
    };
    body.ranges
        .extend(parts.unwrap_or_default().iter().map(range));
    body.loops = leads_to(instructions, begins);
    let exits = body.follow((own, instructions), parts, begins);
    Exits {
        exits: exits.map(|()| body.found),
        loops: body.loops,
    }
}

/// Does any direct jump among these lead there?
fn leads_to(instructions: &[Instruction], places: &[ModuleAddress]) -> bool {
    let mut jumps = instructions.iter().filter(|one| is_direct(one));
    jumps.any(|jump| places.contains(&branch_target(jump)))
}

fn is_direct(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    )
}

impl Body<'_> {
    fn follow(
        &mut self,
        (own, instructions): (&Piece, &[Instruction]),
        parts: Option<&[Piece]>,
        begins: &[ModuleAddress],
    ) -> Result<(), NoExits> {
        let balance = balance_of(own);
        self.scan(instructions, |at| {
            balance.get(&at).copied().unwrap_or(Balance::Unknown)
        })?;
        if runs_on(instructions) {
            return Err(NoExits::RunsOn);
        }
        for part in parts.ok_or(NoExits::Part)? {
            let instructions =
                decode(&part.code, part.address).map_err(|_: NoProbe| NoExits::Part)?;
            self.borders.extend(instructions.iter().map(place));
            self.loops |= leads_to(&instructions, begins);
            self.scan(&instructions, |_| Balance::Unknown)?;
            if runs_on(&instructions) {
                return Err(NoExits::RunsOn);
            }
        }
        while let Some((target, from)) = self.ahead.pop() {
            if self.borders.contains(&target) {
                continue;
            }
            let run = self.nameless_run(target).ok_or(NoExits::Nameless(from))?;
            self.loops |= leads_to(&run, begins);
            self.scan(&run, |_| Balance::Unknown)?;
        }
        if self.found.iter().any(|exit| begins.contains(&exit.address)) {
            return Err(NoExits::AtEntry);
        }
        if self.found.len() > MAX_EXITS {
            return Err(NoExits::TooMany(self.found.len()));
        }
        Ok(())
    }

    /// Code without a name from there up to where it does not go on.
    fn nameless_run(&mut self, address: ModuleAddress) -> Option<Vec<Instruction>> {
        // Jumped into: what was decoded there is not what is executed.
        let is_within = self.nameless.iter().any(|known| known.contains(&address));
        if is_within || self.nameless.len() == MAX_RUNS {
            return None;
        }
        let code = self.around.nameless_code(address, MAX_RUN_BYTES)?;
        let mut decoder = Decoder::with_ip(64, &code, address.get(), DecoderOptions::NONE);
        let mut run: Vec<Instruction> = Vec::new();
        let mut is_whole = false;
        while decoder.can_decode() {
            is_whole = self.borders.contains(&ModuleAddress::new(decoder.ip()));
            if is_whole {
                break;
            }
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return None;
            }
            run.push(instruction);
            is_whole = matches!(
                instruction.flow_control(),
                FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
                    | FlowControl::Exception
                    | FlowControl::Interrupt
            );
            if is_whole {
                break;
            }
        }
        // What is called last may never return.
        let calls = |last: &Instruction| last.flow_control() == FlowControl::Call;
        if !is_whole && !run.last().is_some_and(calls) {
            return None;
        }
        self.nameless_bytes += decoder.position();
        if self.nameless_bytes > MAX_NAMELESS_BYTES {
            return None;
        }
        self.nameless
            .push(address..address + decoder.position() as u64);
        self.borders.extend(run.iter().map(place));
        Some(run)
    }

    fn is_within(&self, target: ModuleAddress) -> bool {
        self.ranges.iter().any(|range| range.contains(&target))
    }

    /// Where instructions of one piece leave the function.
    fn scan(
        &mut self,
        instructions: &[Instruction],
        balance: impl Fn(ModuleAddress) -> Balance,
    ) -> Result<(), NoExits> {
        for (index, instruction) in instructions.iter().enumerate() {
            let at = place(instruction).get().wrapping_sub(self.address.get());
            let leaves = match instruction.flow_control() {
                FlowControl::Return => true,
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                    self.jump_leaves(instruction, at, balance(place(instruction)))?
                }
                FlowControl::IndirectBranch if is_through_slot(instruction) => true,
                FlowControl::IndirectBranch => {
                    let before = &instructions[index.saturating_sub(TABLE_INSTRUCTIONS)..index];
                    let may_leave = balance(place(instruction)) != Balance::Pushed;
                    if may_leave && !self.is_through_table(instruction, before) {
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
                self.found.push(point(instruction));
            }
        }
        Ok(())
    }

    /// Does a direct jump leave the function? Where it leads to code without a name that is taken
    /// to be the function's, that is followed later.
    fn jump_leaves(
        &mut self,
        jump: &Instruction,
        at: u64,
        balance: Balance,
    ) -> Result<bool, NoExits> {
        let target = branch_target(jump);
        if self.is_within(target) {
            // A part's borders are not known before it is reached: what is jumped into there, its
            // own decoding tells.
            let own = &self.ranges[0];
            if own.contains(&target) && !self.borders.contains(&target) {
                // Jumped into: what is decoded here is not what is executed.
                return Err(NoExits::Exit(at, "it jumps into an instruction"));
            }
            return Ok(false);
        }
        let is_conditional = jump.flow_control() == FlowControl::ConditionalBranch;
        let goes_on = is_conditional || balance != Balance::Balanced;
        if goes_on && self.around.nameless_code(target, 1).is_some() {
            self.ahead.push((target, at));
            return Ok(false);
        }
        if balance == Balance::Pushed {
            return Err(NoExits::Elsewhere(at));
        }
        if is_conditional && point(jump).condition == Condition::ALWAYS {
            return Err(NoExits::Exit(
                at,
                "it is a conditional jump whose condition is not in the flags",
            ));
        }
        Ok(true)
    }

    /// Compilers check the bound of an index, take a distance from a table and jump to where it
    /// leads from there, or jump through a table of addresses: of these each must be in the
    /// function, since tables of functions are looked up in the same way.
    fn is_through_table(&self, jump: &Instruction, before: &[Instruction]) -> bool {
        let is_bounded = before.iter().any(|instruction| {
            matches!(
                instruction.mnemonic(),
                Mnemonic::Ja | Mnemonic::Jae | Mnemonic::Jbe | Mnemonic::Jb
            )
        });
        if is_bounded && is_through_distance(jump, before) {
            return true;
        }
        let mut looked_up = std::iter::once(jump).chain(before.iter().rev());
        let is_look_up = |one: &&Instruction| {
            is_scaled(one, 8)
                && (one.mnemonic() == Mnemonic::Mov
                    || one.flow_control() == FlowControl::IndirectBranch)
        };
        is_bounded
            && looked_up
                .find(is_look_up)
                .is_some_and(|look_up| self.is_table_of_own(look_up, before))
    }

    /// Are all addresses of the table that this looks up the function's own?
    fn is_table_of_own(&self, look_up: &Instruction, before: &[Instruction]) -> bool {
        let table = match look_up.memory_base() {
            Register::None => Some(look_up.memory_displacement64()),
            base => {
                let mut set = before.iter().rev();
                let set = set.find(|one| {
                    one.mnemonic() == Mnemonic::Lea
                        && one.op0_register() == base
                        && one.memory_base() == Register::RIP
                });
                set.filter(|_| look_up.memory_displacement64() == 0)
                    .map(Instruction::memory_displacement64)
            }
        };
        let mut bounds = before.iter().rev().filter(|one| {
            one.mnemonic() == Mnemonic::Cmp
                && matches!(
                    one.op1_kind(),
                    OpKind::Immediate8
                        | OpKind::Immediate32
                        | OpKind::Immediate8to32
                        | OpKind::Immediate8to64
                        | OpKind::Immediate32to64
                )
        });
        let (Some(table), Some(bound)) = (table, bounds.next()) else {
            return false;
        };
        let entries = bound.immediate(1).wrapping_add(1);
        if !(1..=MAX_TABLE).contains(&entries) {
            return false;
        }
        let bytes = self
            .around
            .constant(ModuleAddress::new(table), entries as usize * 8);
        bytes.is_some_and(|bytes| {
            bytes.as_chunks::<8>().0.iter().all(|entry| {
                let target = ModuleAddress::new(u64::from_le_bytes(*entry));
                self.is_within(target)
            })
        })
    }
}

/// Is memory read at so many bytes for each of an index?
fn is_scaled(instruction: &Instruction, scale: u32) -> bool {
    instruction.memory_index() != Register::None && instruction.memory_index_scale() == scale
}

/// Does a jump lead to the sum of a distance from a table and where that counts from? What is
/// looked up in a table and goes elsewhere, as an argument say, makes no jump one to a case.
fn is_through_distance(jump: &Instruction, before: &[Instruction]) -> bool {
    if jump.op0_kind() != OpKind::Register {
        return false;
    }
    let mut uses = InstructionInfoFactory::new();
    let Some((at, sum)) = last_writer(&mut uses, before, jump.op0_register()) else {
        return false;
    };
    let summands = match sum.mnemonic() {
        Mnemonic::Add if sum.op1_kind() == OpKind::Register => {
            [sum.op0_register(), sum.op1_register()]
        }
        Mnemonic::Lea if is_scaled(sum, 1) && sum.memory_displacement64() == 0 => {
            [sum.memory_base(), sum.memory_index()]
        }
        _ => return false,
    };
    summands.into_iter().any(|summand| {
        let writer = last_writer(&mut uses, &before[..at], summand);
        writer.is_some_and(|(_, one)| one.mnemonic() == Mnemonic::Movsxd && is_scaled(one, 4))
    })
}

/// The last of these instructions that writes to a register, or to a part of it, and its place
/// among them. What is called may write to any, and what lies behind an end is not reached from
/// before it.
fn last_writer<'a>(
    uses: &mut InstructionInfoFactory,
    before: &'a [Instruction],
    register: Register,
) -> Option<(usize, &'a Instruction)> {
    let register = register.full_register();
    let mut writes = |one: &Instruction| {
        let mut used = uses.info(one).used_registers().iter();
        used.any(|used| {
            used.register().full_register() == register
                && matches!(
                    used.access(),
                    OpAccess::Write
                        | OpAccess::CondWrite
                        | OpAccess::ReadWrite
                        | OpAccess::ReadCondWrite
                )
        })
    };
    let mut back = before.iter().enumerate().rev();
    back.find(|(_, one)| !goes_on(one) || writes(one))
}

/// How the stack is at each instruction that was understood.
fn balance_of(own: &Piece) -> HashMap<ModuleAddress, Balance> {
    let mut balance = HashMap::new();
    CodeReader::new().states(&own.code, own.address, |at, state| {
        let here = match state.sp {
            Some(8) => Balance::Balanced,
            Some(_) => Balance::Pushed,
            None => Balance::Unknown,
        };
        balance.insert(at, here);
    });
    balance
}

/// A jump through a slot that the loader fills in leads to a function.
fn is_through_slot(jump: &Instruction) -> bool {
    jump.op0_kind() == OpKind::Memory
        && jump.memory_base() == Register::RIP
        && jump.memory_index() == Register::None
}
