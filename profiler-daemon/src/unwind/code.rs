//! Rules for code that has no unwind information, read off its instructions: how far pushes, pops
//! and subtractions have moved the stack pointer since the function began, along every jump within
//! it. Libraries made by hand or for small size (musl's) have nothing better. Pure; does not know
//! files or maps.
//!
//! Where the stack pointer was set in a way that is not followed, the rule is a frame-pointer step,
//! as if this had not been tried. Data among code makes rules that nobody looks up.

use std::cmp::Ordering;
use std::collections::VecDeque;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};
use profiler_common::unwind::{FRAME_MIN, FRAME_UNCHANGED, kind};

use super::rule::Rule;
use crate::units::ModuleAddress;

/// Most bytes of one function that are read; a longer one is cut there.
pub(super) const MAX_FUNCTION_BYTES: usize = 256 << 10;
/// Most bytes of padding behind a call that are read. Code is padded to a page at most.
const MAX_PADDING_BYTES: usize = 4096;
/// How often an instruction is reached in another state before nothing is taken to be known of the
/// stack there: a loop that pops.
const MAX_CHANGES: u8 = 8;
/// Stack frames beyond this are taken for a misunderstanding.
const MAX_FRAME_BYTES: i32 = 16 << 20;

/// What is known before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegisterState {
    /// CFA less rsp.
    pub(super) sp: Option<i32>,
    /// CFA less rbp, where rbp points into the frame.
    pub(super) fp: Option<i32>,
    /// Where the caller's rbp is, as in a row.
    pub(super) saved: i8,
    /// rbp was cleared and is nobody's: what threads begin with.
    outermost: bool,
}

impl RegisterState {
    /// At a function's first instruction: the return address lies at rsp.
    const ENTRY: Self = Self {
        sp: Some(8),
        fp: None,
        saved: FRAME_UNCHANGED,
        outermost: false,
    };

    /// What holds whichever of two ways led to an instruction. Of words that a loop pushes that is
    /// where rbp points. Without it the lower stack is taken for a call's that never returns, whose
    /// arguments nobody takes off.
    fn meet(self, other: Self) -> Self {
        if self == other {
            return self;
        }
        let is_alike = self.saved == other.saved && self.outermost == other.outermost;
        let sp = match (self.sp, other.sp) {
            (Some(one), Some(two)) if is_alike && (one == two || !self.has_frame_of(other)) => {
                Some(one.min(two))
            }
            _ => None,
        };
        Self {
            sp,
            fp: self.fp.filter(|_| is_alike && self.fp == other.fp),
            outermost: self.outermost && other.outermost,
            ..self
        }
    }

    /// Whether both ways lead to the same frame, by rbp.
    fn has_frame_of(self, other: Self) -> bool {
        self.fp.is_some() && self.fp == other.fp && self.saved == other.saved
    }

    fn rule(self) -> Rule {
        let (kind, param) = match (self.sp, self.fp) {
            // The frame pointer is zero there, which ends the walk.
            _ if self.outermost => return Rule::GAP,
            (Some(param), _) => (kind::CFA_RSP, param),
            (None, Some(param)) => (kind::CFA_RBP, param),
            (None, None) => return Rule::FRAME_POINTER,
        };
        Rule {
            kind,
            frame: self.saved,
            param,
        }
    }

    /// Moves rsp down by so many bytes.
    fn moved(mut self, bytes: i64) -> Self {
        self.sp = self.sp.and_then(|sp| {
            let sp = i64::from(sp).checked_add(bytes)?;
            let sp = i32::try_from(sp).ok()?;
            (8..=MAX_FRAME_BYTES).contains(&sp).then_some(sp)
        });
        self
    }

    /// The word below the CFA that `bytes` above rsp is.
    fn slot(self, bytes: i64) -> Option<i8> {
        let below = i64::from(self.sp?) - bytes;
        let words = i8::try_from(-(below / 8)).ok()?;
        (below % 8 == 0 && below > 8 && words >= FRAME_MIN).then_some(words)
    }

    /// rbp is saved at this slot, unless it was saved before.
    fn save(mut self, slot: Option<i8>) -> Self {
        if self.saved == FRAME_UNCHANGED && self.fp.is_none() {
            self.saved = slot.unwrap_or(FRAME_UNCHANGED);
        }
        self
    }

    /// rbp has been loaded from this slot: if it is where the caller's was saved, it is the
    /// caller's again.
    fn restore(mut self, slot: Option<i8>) -> Self {
        if slot == Some(self.saved) {
            self.saved = FRAME_UNCHANGED;
        }
        self.fp = None;
        self
    }

    /// What is known after an instruction, if it does not jump.
    fn after(self, instruction: &Instruction, info: &mut InstructionInfoFactory) -> Self {
        let register = |index: u32| {
            (instruction.op_count() > index && instruction.op_kind(index) == OpKind::Register)
                .then(|| instruction.op_register(index))
        };
        let immediate = || {
            let last = instruction.op_count().checked_sub(1)?;
            instruction
                .try_immediate(last)
                .ok()
                .map(|value| value as i64)
        };
        // A plain place in memory: base + displacement.
        let place = |base: Register| {
            (instruction.memory_base() == base && instruction.memory_index() == Register::None)
                .then_some(instruction.memory_displacement64() as i64)
        };
        let moved = -i64::from(instruction.stack_pointer_increment());
        match (instruction.mnemonic(), register(0)) {
            (Mnemonic::Call | Mnemonic::Syscall, _) => self,
            (Mnemonic::Push, Some(Register::RBP)) => {
                let pushed = self.moved(moved);
                let slot = pushed.slot(0);
                pushed.save(slot)
            }
            (Mnemonic::Pop, Some(Register::RBP)) => self.restore(self.slot(0)).moved(moved),
            (Mnemonic::Pop, Some(Register::RSP)) => Self { sp: None, ..self },
            (Mnemonic::Leave, _) => {
                let down = Self {
                    sp: self.fp,
                    ..self
                };
                down.restore(down.slot(0)).moved(-8)
            }
            (Mnemonic::Sub, Some(Register::RSP)) => match immediate() {
                Some(bytes) => self.moved(bytes),
                None => Self { sp: None, ..self },
            },
            (Mnemonic::Add, Some(Register::RSP)) => match immediate() {
                Some(bytes) => self.moved(bytes.saturating_neg()),
                None => Self { sp: None, ..self },
            },
            (Mnemonic::Lea, Some(Register::RSP)) => {
                match (place(Register::RSP), place(Register::RBP)) {
                    (Some(bytes), _) => self.moved(bytes.saturating_neg()),
                    (_, Some(bytes)) => Self {
                        sp: self.fp,
                        ..self
                    }
                    .moved(bytes.saturating_neg()),
                    _ => Self { sp: None, ..self },
                }
            }
            (Mnemonic::Lea, Some(Register::RBP)) => match place(Register::RSP) {
                Some(bytes) if self.saved != FRAME_UNCHANGED => Self {
                    fp: self.moved(bytes.saturating_neg()).sp,
                    ..self
                },
                _ => Self { fp: None, ..self },
            },
            (Mnemonic::Mov, Some(Register::RBP)) if register(1) == Some(Register::RSP) => Self {
                fp: self.sp.filter(|_| self.saved != FRAME_UNCHANGED),
                ..self
            },
            (Mnemonic::Mov, Some(Register::RBP)) if place(Register::RSP).is_some() => {
                let slot = place(Register::RSP).and_then(|bytes| self.slot(bytes));
                self.restore(slot)
            }
            (Mnemonic::Mov, Some(Register::RSP)) if register(1) == Some(Register::RBP) => Self {
                sp: self.fp,
                ..self
            },
            (Mnemonic::Mov, None) if register(1) == Some(Register::RBP) => {
                let slot = place(Register::RSP).and_then(|bytes| self.slot(bytes));
                if slot.is_some() {
                    self.save(slot)
                } else {
                    self
                }
            }
            (Mnemonic::Xor, Some(Register::RBP | Register::EBP))
                if register(0) == register(1) && self.saved == FRAME_UNCHANGED =>
            {
                Self {
                    fp: None,
                    outermost: true,
                    ..self
                }
            }
            _ if moved != 0 => self.moved(moved),
            (_, Some(first)) => match first.full_register() {
                base @ (Register::RSP | Register::RBP) if writes_first(instruction, info) => {
                    if base == Register::RSP {
                        Self { sp: None, ..self }
                    } else {
                        Self { fp: None, ..self }
                    }
                }
                _ => self,
            },
            _ => self,
        }
    }
}

fn writes_first(instruction: &Instruction, info: &mut InstructionInfoFactory) -> bool {
    !matches!(
        info.info(instruction).op0_access(),
        OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
    )
}

/// How sure it is that code is reached in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trust {
    /// From the beginning of the function, past no call.
    Certain,
    /// By a jump, past calls.
    Jumped,
    /// Behind a call, which may be one that never returns.
    Returned,
    /// Nothing that was seen leads there.
    Guessed,
}

impl Trust {
    /// Where a jump leads.
    const fn by_jump(self) -> Self {
        match self {
            Self::Returned => Self::Jumped,
            other => other,
        }
    }

    /// Behind a call.
    fn by_return(self) -> Self {
        self.max(Self::Returned)
    }
}

/// What is known of an instruction.
#[derive(Clone, Copy, Debug)]
struct InstructionState {
    state: RegisterState,
    trust: Trust,
    length: u8,
    /// How often it was reached in another state.
    changes: u8,
}

impl InstructionState {
    /// What becomes of it as another way leads there. `None`: nothing.
    fn reached(self, state: RegisterState, trust: Trust) -> Option<Self> {
        let met = match trust.cmp(&self.trust) {
            Ordering::Less => state,
            Ordering::Equal => self.state.meet(state),
            Ordering::Greater if self.state.has_frame_of(state) => self.state.meet(state),
            Ordering::Greater => return None,
        };
        let trust = trust.min(self.trust);
        if (met, trust) == (self.state, self.trust) {
            return None;
        }
        let changes = self.changes.saturating_add(1);
        let sp = met.sp.filter(|_| changes <= MAX_CHANGES);
        Some(Self {
            state: RegisterState { sp, ..met },
            trust,
            changes,
            ..self
        })
    }
}

/// A place in the code that is reached.
type Reached = (usize, RegisterState, Trust);

/// Follows code and keeps the room that this takes.
pub(super) struct CodeReader {
    known: Vec<Option<InstructionState>>,
    /// Jumped to.
    todo: Vec<Reached>,
    /// Behind calls. What is known by jumps comes first: the call may be one that never returns.
    returns: VecDeque<Reached>,
    /// Behind calls and padding, which such calls are followed by, and others seldom.
    padded: Vec<Reached>,
    /// How often instructions may be reached in another state: as often as there are bytes. Code
    /// that is made to be followed again and again is followed as far as that.
    changes_left: usize,
    info: InstructionInfoFactory,
}

impl CodeReader {
    pub(super) fn new() -> Self {
        Self {
            known: Vec::new(),
            todo: Vec::new(),
            returns: VecDeque::new(),
            padded: Vec::new(),
            changes_left: 0,
            info: InstructionInfoFactory::new(),
        }
    }

    /// Follows the function at `address`, and whatever else the code holds, and tells the rules by
    /// rising address.
    pub(super) fn rules(
        &mut self,
        code: &[u8],
        address: ModuleAddress,
        mut tell: impl FnMut(ModuleAddress, Rule),
    ) {
        self.states(code, address, |at, state| tell(at, state.rule()));
    }

    /// The same as states: one for each instruction that was understood.
    pub(super) fn states(
        &mut self,
        code: &[u8],
        address: ModuleAddress,
        mut tell: impl FnMut(ModuleAddress, RegisterState),
    ) {
        let code = code.get(..MAX_FUNCTION_BYTES).unwrap_or(code);
        self.known.clear();
        self.known.resize(code.len(), None);
        self.changes_left = code.len();
        self.follow_all(code, address.get());
        let mut at = 0;
        while let Some(known) = self.known.get(at) {
            match known {
                Some(known) => {
                    tell(address + at as u64, known.state);
                    at += usize::from(known.length);
                }
                None => at += 1,
            }
        }
    }

    fn follow_all(&mut self, code: &[u8], address: u64) {
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        // What held at the last jump through a table: the cases behind it are reached from there.
        let mut cases = None;
        let entry = (0, RegisterState::ENTRY, Trust::Certain);
        self.follow(&mut decoder, address, entry, &mut cases);
        let mut at = 0;
        while at < code.len() {
            if let Some(known) = self.known[at] {
                at += usize::from(known.length);
                continue;
            }
            if !decode(&mut decoder, address, at, &mut instruction) {
                at += 1;
            } else if is_padding(&instruction) {
                at += instruction.len();
            } else {
                // Nothing jumps here that was seen: a case, or a function that nobody calls by its
                // address.
                if begins_function(&instruction) {
                    cases = None;
                }
                let state = cases.unwrap_or(RegisterState::ENTRY);
                let guessed = (at, state, Trust::Guessed);
                self.follow(&mut decoder, address, guessed, &mut cases);
            }
        }
    }

    /// Follows the code from one place, and every jump and call from there on. What is reached in
    /// several states is followed again in what these have in common: a few times at most, since
    /// ever less is known.
    fn follow(
        &mut self,
        decoder: &mut Decoder<'_>,
        address: u64,
        from: Reached,
        cases: &mut Option<RegisterState>,
    ) {
        let mut instruction = Instruction::default();
        self.todo.push(from);
        while let Some((mut at, mut state, mut trust)) = self.next() {
            while let Some(known) = self.known.get(at) {
                let reached = match known {
                    Some(_) if self.changes_left == 0 => None,
                    Some(known) => known
                        .reached(state, trust)
                        .inspect(|_| self.changes_left -= 1),
                    None => Some(InstructionState {
                        state,
                        trust,
                        length: 0,
                        changes: 0,
                    }),
                };
                let Some(reached) = reached else {
                    break;
                };
                if !decode(decoder, address, at, &mut instruction) {
                    break;
                }
                (state, trust) = (reached.state, reached.trust);
                self.known[at] = Some(InstructionState {
                    length: instruction.len() as u8,
                    ..reached
                });
                let after = state.after(&instruction, &mut self.info);
                at += instruction.len();
                match instruction.flow_control() {
                    flow @ (FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch) => {
                        let target = instruction.near_branch_target().wrapping_sub(address);
                        if target < self.known.len() as u64 {
                            self.todo.push((target as usize, after, trust.by_jump()));
                        }
                        if flow == FlowControl::UnconditionalBranch {
                            break;
                        }
                    }
                    FlowControl::IndirectBranch => {
                        *cases = Some(state);
                        break;
                    }
                    FlowControl::Return | FlowControl::Exception => break,
                    _ if matches!(instruction.mnemonic(), Mnemonic::Hlt | Mnemonic::Int3) => break,
                    _ if instruction.mnemonic() == Mnemonic::Call => {
                        self.go_on_behind(decoder, address, (at, after, trust));
                        break;
                    }
                    _ => {}
                }
                state = after;
            }
        }
    }

    /// Behind a call the code goes on, if the call returns. Where padding and a function follow, it
    /// does not.
    fn go_on_behind(
        &mut self,
        decoder: &mut Decoder<'_>,
        address: u64,
        (behind, state, trust): Reached,
    ) {
        let mut instruction = Instruction::default();
        let mut at = behind;
        while decode(decoder, address, at, &mut instruction) && is_padding(&instruction) {
            at += instruction.len();
            // Instructions can lie within others: many calls can have the same padding behind them.
            if at - behind > MAX_PADDING_BYTES {
                return;
            }
        }
        if at == behind {
            self.returns.push_back((at, state, trust.by_return()));
        } else if !begins_function(&instruction) {
            self.padded.push((at, state, Trust::Guessed));
        }
    }

    fn next(&mut self) -> Option<Reached> {
        let next = self.todo.pop();
        let next = next.or_else(|| self.returns.pop_front());
        next.or_else(|| self.padded.pop())
    }
}

/// Where direct calls lead to.
pub(super) struct CallTargets {
    pub(super) found: Vec<ModuleAddress>,
    /// Bytes looked at.
    pub(super) read_bytes: usize,
}

/// The addresses that direct calls in this code lead to. Looks at no instruction that begins in the
/// last `keep_bytes`.
pub(super) fn call_targets(code: &[u8], address: ModuleAddress, keep_bytes: usize) -> CallTargets {
    let address = address.get();
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut found = Vec::new();
    let mut at = 0;
    while at + keep_bytes < code.len() {
        if decode(&mut decoder, address, at, &mut instruction) {
            if instruction.is_call_near() {
                found.push(ModuleAddress::new(instruction.near_branch_target()));
            }
            at += instruction.len();
        } else {
            at += 1;
        }
    }
    CallTargets {
        found,
        read_bytes: at,
    }
}

fn decode(decoder: &mut Decoder<'_>, address: u64, at: usize, into: &mut Instruction) -> bool {
    if decoder.set_position(at).is_err() {
        return false;
    }
    decoder.set_ip(address + at as u64);
    decoder.decode_out(into);
    !into.is_invalid()
}

fn is_padding(instruction: &Instruction) -> bool {
    // `xchg %ax, %ax` is one, too.
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
        || instruction.code() == Code::Xchg_r16_AX
}

/// What only functions begin with: cases do not save registers.
fn begins_function(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Endbr64 => true,
        Mnemonic::Push => instruction.op0_kind() == OpKind::Register,
        Mnemonic::Sub => instruction.op0_register() == Register::RSP,
        _ => false,
    }
}
