//! The oracle: one unwind step by gimli alone, with all registers. Shares nothing with the tables
//! but gimli's parser: files are read through `object`, rows are looked up by gimli, expressions
//! are evaluated in full.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianArcSlice, EvaluationResult, Expression,
    FrameDescriptionEntry, LittleEndian, Location, Register, RegisterRule, UnwindContext,
    UnwindExpression, UnwindSection, Value,
};
use object::{Object, ObjectSection};

type Bytes = EndianArcSlice<LittleEndian>;

/// DWARF numbers 0 to 15, and 16 for the return address.
pub(crate) type Registers = [Option<u64>; 17];

/// Registers that a called function keeps: rbx, rbp, r12 to r15.
const KEPT: [usize; 6] = [3, 6, 12, 13, 14, 15];
const RSP: usize = 7;
const RETURN: usize = 16;

/// What a step found.
#[expect(clippy::large_enum_variant, reason = "one exists at a time")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Caller {
        registers: Registers,
        /// The frame left was a signal trampoline: the caller was interrupted.
        signal: bool,
    },
    Outermost,
    /// No function there, or a value that is not known.
    Unknown,
}

/// The unwind information of a file.
pub(crate) struct Unwinder {
    section: EhFrame<Bytes>,
    bases: BaseAddresses,
    /// Functions by address.
    pub(crate) functions: Vec<FrameDescriptionEntry<Bytes>>,
}

impl Unwinder {
    /// Of the bytes of a file; `None` if it has no `.eh_frame`.
    pub(crate) fn new(file: &[u8]) -> Option<Self> {
        let file = object::File::parse(file).ok()?;
        let frames = file.section_by_name(".eh_frame")?;
        let text = file.section_by_name(".text")?;
        let bases = BaseAddresses::default()
            .set_eh_frame(frames.address())
            .set_text(text.address());
        let bytes = frames.data().ok()?;
        let section = EhFrame::from(EndianArcSlice::new(bytes.into(), LittleEndian));
        let mut functions = Vec::new();
        let mut entries = section.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            if let gimli::CieOrFde::Fde(partial) = entry
                && let Ok(function) = partial.parse(EhFrame::cie_from_offset)
                && !function.is_empty_or_discarded()
            {
                functions.push(function);
            }
        }
        functions.sort_by_key(FrameDescriptionEntry::initial_address);
        Some(Self {
            section,
            bases,
            functions,
        })
    }

    /// The caller's registers, from those of a frame whose code is found at `address` (a virtual
    /// one of the file).
    pub(crate) fn step(
        &self,
        address: u64,
        registers: &Registers,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Found {
        self.try_step(address, registers, read)
            .unwrap_or(Found::Unknown)
    }

    fn try_step(
        &self,
        address: u64,
        registers: &Registers,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<Found> {
        let behind = self
            .functions
            .partition_point(|function| function.initial_address() <= address);
        let function = self.functions.get(behind.checked_sub(1)?)?;
        if !function.contains(address) {
            return None;
        }
        let mut context = UnwindContext::new();
        let row = function
            .unwind_info_for_address(&self.section, &self.bases, &mut context, address)
            .ok()?;
        let signal = function.is_signal_trampoline();
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                registers[usize::from(register.0)]?.wrapping_add_signed(*offset)
            }
            CfaRule::Expression(expression) => {
                self.evaluate(function, *expression, None, registers, read)?
            }
        };
        let mut caller: Registers = [None; 17];
        for number in 0..17_u16 {
            let index = usize::from(number);
            let value = match row.register(Register(number)) {
                None if index == RSP => Some(cfa),
                None if KEPT.contains(&index) || signal => registers[index],
                None => None,
                Some(RegisterRule::Undefined) if index == RETURN => return Some(Found::Outermost),
                Some(RegisterRule::Undefined) => None,
                Some(RegisterRule::SameValue) => registers[index],
                Some(RegisterRule::Offset(offset)) => read(cfa.wrapping_add_signed(offset)),
                Some(RegisterRule::ValOffset(offset)) => Some(cfa.wrapping_add_signed(offset)),
                Some(RegisterRule::Register(other)) => registers[usize::from(other.0)],
                Some(RegisterRule::Expression(expression)) => self
                    .evaluate(function, expression, Some(cfa), registers, read)
                    .and_then(&mut *read),
                Some(RegisterRule::ValExpression(expression)) => {
                    self.evaluate(function, expression, Some(cfa), registers, read)
                }
                Some(_) => None,
            };
            caller[index] = value;
        }
        caller[RETURN]?;
        Some(Found::Caller {
            registers: caller,
            signal,
        })
    }

    fn evaluate(
        &self,
        function: &FrameDescriptionEntry<Bytes>,
        expression: UnwindExpression<usize>,
        initial: Option<u64>,
        registers: &Registers,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<u64> {
        let expression: Expression<Bytes> = expression.get(&self.section).ok()?;
        let mut evaluation = expression.evaluation(function.cie().encoding());
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut state = evaluation.evaluate().ok()?;
        loop {
            state = match state {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = registers[usize::from(register.0)]?;
                    evaluation
                        .resume_with_register(Value::Generic(value))
                        .ok()?
                }
                EvaluationResult::RequiresMemory { address, .. } => {
                    let value = read(address)?;
                    evaluation.resume_with_memory(Value::Generic(value)).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.result().first()?.location {
            Location::Address { address } => Some(address),
            _ => None,
        }
    }
}

trait Discarded {
    fn is_empty_or_discarded(&self) -> bool;
}

impl Discarded for FrameDescriptionEntry<Bytes> {
    /// Linkers leave entries of functions that they dropped, at address zero.
    fn is_empty_or_discarded(&self) -> bool {
        self.len() == 0 || self.initial_address() == 0
    }
}
