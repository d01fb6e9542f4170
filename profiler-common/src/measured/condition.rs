//! Whether a conditional jump out of a function is taken: the probe on it is hit before that is
//! decided.

/// The condition of a jump that leaves a function, as a probe's cookie has it.
///
/// 0: the instruction leaves it in any case. Else the condition's number in the instruction (the
/// lowest four bits of its opcode), and one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition(u8);

/// Bits of the flags register.
const CARRY: u64 = 1;
const PARITY: u64 = 1 << 2;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const OVERFLOW: u64 = 1 << 11;

impl Condition {
    /// None: the instruction leaves the function in any case.
    pub const ALWAYS: Self = Self(0);

    /// That of the lowest four bits of an opcode.
    #[must_use]
    pub const fn of_opcode(opcode: u8) -> Self {
        Self((opcode & 15) + 1)
    }

    /// As a cookie keeps it: below 32.
    #[must_use]
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        self.0 as u64
    }

    /// What [`Condition::to_bits`] made of it.
    #[must_use]
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self((bits & 31) as u8)
    }

    /// Does the instruction leave the function, with these flags?
    #[must_use]
    #[inline(always)]
    pub const fn holds(self, flags: u64) -> bool {
        if self.0 == 0 {
            return true;
        }
        let number = self.0 - 1;
        let differ = (flags & SIGN != 0) != (flags & OVERFLOW != 0);
        let holds = match number >> 1 {
            0 => flags & OVERFLOW != 0,
            1 => flags & CARRY != 0,
            2 => flags & ZERO != 0,
            3 => flags & (CARRY | ZERO) != 0,
            4 => flags & SIGN != 0,
            5 => flags & PARITY != 0,
            6 => differ,
            _ => differ || flags & ZERO != 0,
        };
        // The odd ones are the opposite of those before them.
        holds != (number & 1 != 0)
    }
}
