//! Whether a conditional jump out of a function is taken: the probe on it is hit before that is
//! decided.

/// The condition of a jump that leaves a function, as a probe's cookie has it.
///
/// 0: the instruction leaves it in any case. Else the condition's number in the instruction (the
/// lowest four bits of its opcode), and one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition(u8);

/// Places of bits in the flags register.
const CARRY: u32 = 0;
const PARITY: u32 = 2;
const ZERO: u32 = 6;
const SIGN: u32 = 7;
const OVERFLOW: u32 = 11;

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

    /// Does the instruction leave the function, with these flags? (Without a branch, whose both
    /// sides the kernel's verifier would follow.)
    #[must_use]
    #[inline(always)]
    pub const fn holds(self, flags: u64) -> bool {
        let [carry, parity, zero, sign, overflow] = [
            flags >> CARRY & 1,
            flags >> PARITY & 1,
            flags >> ZERO & 1,
            flags >> SIGN & 1,
            flags >> OVERFLOW & 1,
        ];
        let always = (self.0 == 0) as u64;
        let number = (self.0 as u64).wrapping_sub(1);
        let differ = sign ^ overflow;
        let conditions = overflow
            | carry << 1
            | zero << 2
            | (carry | zero) << 3
            | sign << 4
            | parity << 5
            | differ << 6
            | (differ | zero) << 7;
        // The odd ones are the opposite of those before them.
        always | ((conditions >> (number >> 1 & 7)) ^ number) & 1 != 0
    }
}
