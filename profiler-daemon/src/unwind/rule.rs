//! One row of unwind information as DWARF says it, to one rule as the kernel side knows it. Pure.

use gimli::{
    CfaRule, Encoding, Expression, Operation, Register, RegisterRule, UnwindExpression,
    UnwindSection, UnwindTableRow,
};
use profiler_common::unwind::{
    FRAME_AT_FRAME, FRAME_MIN, FRAME_UNCHANGED, UnwindFailure, UnwindRow, deref_param, kind,
};

/// The bytes of unwind sections, as gimli reads them.
pub(super) type FrameReader<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;

const RBP: Register = Register(6);
const RSP: Register = Register(7);

/// `breg7+8; breg16; lit15; and; lit11; ge; lit3; shl; plus`: what linkers say of their linkage
/// stubs.
const PLT11: [u8; 11] = [
    0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22,
];
/// The same with `lit10`.
const PLT10: [u8; 11] = [
    0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3a, 0x2a, 0x33, 0x24, 0x22,
];
/// `breg7+168`: rip in a signal frame, which some trampolines have without the mark of one.
const SIGNAL_PC: [u8; 3] = [0x77, 0xa8, 0x01];

/// What a row says, without where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) kind: u8,
    pub(super) frame: i8,
    pub(super) param: i32,
}

impl Rule {
    pub(super) const GAP: Self = Self::plain(kind::GAP);
    pub(super) const FRAME_POINTER: Self = Self::plain(kind::FRAME_POINTER);
    pub(super) const OTHER_STACK: Self = Self::plain(kind::OTHER_STACK);
    pub(super) const STOP: Self = Self::plain(kind::STOP);
    pub(super) const SIGNAL: Self = Self::plain(kind::SIGNAL);

    const fn plain(kind: u8) -> Self {
        Self {
            kind,
            frame: FRAME_UNCHANGED,
            param: 0,
        }
    }

    pub(super) const fn unsupported(why: UnwindFailure) -> Self {
        Self {
            kind: kind::UNSUPPORTED,
            frame: FRAME_UNCHANGED,
            param: why as u32 as i32,
        }
    }

    pub(super) const fn at(self, pc: u16) -> UnwindRow {
        UnwindRow {
            pc,
            kind: self.kind,
            frame: self.frame,
            param: self.param,
        }
    }

    pub(super) const fn of(row: UnwindRow) -> Self {
        Self {
            kind: row.kind,
            frame: row.frame,
            param: row.param,
        }
    }
}

/// What the rules of one function share.
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionRules {
    pub(super) signal: bool,
    pub(super) return_register: Register,
    pub(super) encoding: Encoding,
}

/// The rule of one row.
pub(super) fn rule<'a, Section, Storage>(
    section: &Section,
    function: FunctionRules,
    row: &UnwindTableRow<usize, Storage>,
) -> Rule
where
    Section: UnwindSection<FrameReader<'a>>,
    Storage: gimli::UnwindContextStorage<usize>,
{
    if function.signal {
        return Rule::SIGNAL;
    }
    let returns = row.register(function.return_register);
    match returns {
        Some(RegisterRule::Undefined) => return Rule::STOP,
        Some(RegisterRule::Expression(expression))
            if bytes_of(section, expression) == Some(&SIGNAL_PC) =>
        {
            return Rule::SIGNAL;
        }
        _ => {}
    }
    known(section, function, row, returns).unwrap_or_else(Rule::unsupported)
}

fn known<'a, Section, Storage>(
    section: &Section,
    function: FunctionRules,
    row: &UnwindTableRow<usize, Storage>,
    returns: Option<RegisterRule<usize>>,
) -> Result<Rule, UnwindFailure>
where
    Section: UnwindSection<FrameReader<'a>>,
    Storage: gimli::UnwindContextStorage<usize>,
{
    let (mut kind, param) = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let param = i32::try_from(*offset).map_err(|_| UnwindFailure::UnsupportedOffset)?;
            let kind = match *register {
                RSP => kind::CFA_RSP,
                RBP => kind::CFA_RBP,
                Register(other @ 0..16) => kind::REGISTER + other as u8,
                _ => return Err(UnwindFailure::UnsupportedRegister),
            };
            (kind, param)
        }
        CfaRule::Expression(expression) => {
            let bytes = bytes_of(section, *expression);
            cfa_expression(
                bytes.ok_or(UnwindFailure::UnsupportedCorrupt)?,
                function.encoding,
            )?
        }
    };
    match returns {
        Some(RegisterRule::Offset(-8)) => {}
        Some(RegisterRule::Register(Register(other @ 0..16)))
            if kind == kind::CFA_RSP && other != RSP.0 && other != RBP.0 =>
        {
            kind = kind::RETURN_REGISTER + other as u8;
        }
        _ => return Err(UnwindFailure::UnsupportedReturn),
    }
    Ok(Rule {
        kind,
        frame: frame(section, row.register(RBP))?,
        param,
    })
}

/// Where the caller's rbp is. Unless said otherwise it is kept: the calling convention has it so.
fn frame<'a, Section>(
    section: &Section,
    rule: Option<RegisterRule<usize>>,
) -> Result<i8, UnwindFailure>
where
    Section: UnwindSection<FrameReader<'a>>,
{
    match rule {
        None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => Ok(FRAME_UNCHANGED),
        Some(RegisterRule::Register(RBP)) => Ok(FRAME_UNCHANGED),
        Some(RegisterRule::Offset(offset)) if offset % 8 == 0 => i8::try_from(offset / 8)
            .ok()
            .filter(|words| *words >= FRAME_MIN)
            .ok_or(UnwindFailure::UnsupportedOffset),
        // `breg6+0`
        Some(RegisterRule::Expression(expression))
            if bytes_of(section, expression) == Some(&[0x76, 0]) =>
        {
            Ok(FRAME_AT_FRAME)
        }
        Some(_) => Err(UnwindFailure::UnsupportedFrame),
    }
}

/// The expressions that occur: linkage stubs, and a word on the stack with something added.
fn cfa_expression(bytes: &[u8], encoding: Encoding) -> Result<(u8, i32), UnwindFailure> {
    if bytes == PLT11 {
        return Ok((kind::PLT11, 0));
    }
    if bytes == PLT10 {
        return Ok((kind::PLT10, 0));
    }
    let unknown = UnwindFailure::UnsupportedExpression;
    let mut operations =
        Expression(FrameReader::new(bytes, gimli::LittleEndian)).operations(encoding);
    let mut next = || operations.next().map_err(|_| unknown);
    let Some(Operation::RegisterOffset {
        register: register @ (RSP | RBP),
        offset,
        ..
    }) = next()?
    else {
        return Err(unknown);
    };
    let Some(Operation::Deref {
        size: 8,
        space: false,
        ..
    }) = next()?
    else {
        return Err(unknown);
    };
    let add = match next()? {
        None => 0,
        Some(Operation::PlusConstant { value }) if next()?.is_none() => value,
        Some(_) => return Err(unknown),
    };
    let add = i64::try_from(add).map_err(|_| UnwindFailure::UnsupportedOffset)?;
    let param = deref_param(offset, add).ok_or(UnwindFailure::UnsupportedOffset)?;
    let kind = if register == RSP {
        kind::DEREF_RSP
    } else {
        kind::DEREF_RBP
    };
    Ok((kind, param))
}

fn bytes_of<'a, Section>(section: &Section, expression: UnwindExpression<usize>) -> Option<&'a [u8]>
where
    Section: UnwindSection<FrameReader<'a>>,
{
    let expression: Expression<FrameReader<'a>> = expression.get(section).ok()?;
    Some(expression.0.slice())
}
