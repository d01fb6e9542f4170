//! Where the value of an argument is when a place is hit.

/// What an [`Argument`] is.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// There is none.
    None = 0,
    /// The id of the thread.
    Thread = 1,
    /// [`Argument::number`].
    Constant = 2,
    /// [`Argument::register`].
    Register = 3,
    /// What is in memory at [`Argument::register`] + [`Argument::number`], and, if there is one,
    /// [`Argument::index`] shifted by [`Argument::shift`].
    Memory = 4,
}

/// An argument, as a program finds its value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Argument {
    /// An [`Operand`].
    pub operand: u32,
    /// Bytes of the value: 1, 2, 4 or 8.
    pub size_bytes: u8,
    /// Not 0: its highest bit is a sign.
    pub is_signed: u8,
    /// Where the register is among the saved ones, bytes: of [`Argument::REGISTERS`].
    pub register: u8,
    /// The same of the register of the index; [`Argument::NO_REGISTER`]: none.
    pub index: u8,
    /// How far the index is shifted: up to 3.
    pub shift: u32,
    /// Unused.
    pub padding: u32,
    /// The constant, or what is added to the address.
    pub number: i64,
}

impl Argument {
    /// No register.
    pub const NO_REGISTER: u8 = 0xff;
    /// Where x86-64 kernels save the registers of user mode, bytes (`struct pt_regs`): the name of
    /// each without its first letter `r` is that of its kind.
    pub const REGISTERS: [(&'static str, u8); 16] = [
        ("r15", 0),
        ("r14", 8),
        ("r13", 16),
        ("r12", 24),
        ("rbp", 32),
        ("rbx", 40),
        ("r11", 48),
        ("r10", 56),
        ("r9", 64),
        ("r8", 72),
        ("rax", 80),
        ("rcx", 88),
        ("rdx", 96),
        ("rsi", 104),
        ("rdi", 112),
        ("rsp", 152),
    ];
    /// The last of them begins there.
    pub const LAST_REGISTER: u8 = 152;
    /// The registers in which a function of the System V ABI finds its first integer arguments.
    pub const OF_FUNCTIONS: [u8; 6] = [112, 104, 96, 88, 72, 64];

    /// None.
    pub const NONE: Self = Self {
        operand: Operand::None as u32,
        size_bytes: 8,
        is_signed: 0,
        register: Self::NO_REGISTER,
        index: Self::NO_REGISTER,
        shift: 0,
        padding: 0,
        number: 0,
    };

    /// The id of the thread.
    pub const THREAD: Self = Self {
        operand: Operand::Thread as u32,
        ..Self::NONE
    };

    /// An argument of a function at its entry, the whole register; `None` beyond the sixth.
    #[must_use]
    pub fn of_function(number: usize) -> Option<Self> {
        Some(Self {
            operand: Operand::Register as u32,
            register: *Self::OF_FUNCTIONS.get(number)?,
            ..Self::NONE
        })
    }

    /// The value of a register or of memory, of which the lower bytes are the argument's.
    #[must_use]
    #[inline(always)]
    pub const fn value(&self, raw: u64) -> i64 {
        let bits = 8 * (self.size_bytes as u32 & 15);
        if bits == 0 || bits >= 64 {
            return raw as i64;
        }
        let unused = 64 - bits;
        if self.is_signed == 0 {
            (raw << unused >> unused) as i64
        } else {
            (raw << unused) as i64 >> unused
        }
    }

    /// Where in memory it is.
    #[must_use]
    #[inline(always)]
    pub const fn address(&self, base: u64, index: u64) -> u64 {
        base.wrapping_add(index << (self.shift & 3))
            .wrapping_add(self.number as u64)
    }
}

const _: () = assert!(size_of::<Argument>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    // Check that only the bytes of the argument count, with their sign or without.
    #[test]
    fn values_have_their_size_and_sign() {
        let of = |size_bytes, is_signed| Argument {
            size_bytes,
            is_signed,
            ..Argument::NONE
        };
        let raw = 0xffff_ffff_8000_00fe;
        assert_eq!(of(1, 0).value(raw), 0xfe);
        assert_eq!(of(1, 1).value(raw), -2);
        assert_eq!(of(2, 1).value(raw), 0xfe);
        assert_eq!(of(4, 0).value(raw), 0x8000_00fe);
        assert_eq!(
            of(4, 1).value(raw),
            i64::from(0x8000_00fe_u32.cast_signed())
        );
        assert_eq!(of(8, 0).value(raw), raw.cast_signed());
    }

    // Check that an address is made of all its parts, and wraps.
    #[test]
    fn addresses_are_base_index_and_distance() {
        let argument = Argument {
            shift: 3,
            number: -8,
            ..Argument::NONE
        };
        assert_eq!(argument.address(0x1000, 2), 0x1008);
        assert_eq!(argument.address(0, 0), u64::MAX - 7);
    }

    // Check that each register is within what is saved, and that functions' are where the ABI has
    // them.
    #[test]
    fn registers_are_saved_ones() {
        for (name, offset) in Argument::REGISTERS {
            assert!(
                offset.is_multiple_of(8) && offset <= Argument::LAST_REGISTER,
                "{name}"
            );
        }
        let names = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];
        for (number, name) in names.into_iter().enumerate() {
            let argument = Argument::of_function(number).expect("six");
            assert!(Argument::REGISTERS.contains(&(name, argument.register)));
        }
        assert_eq!(Argument::of_function(6), None);
    }
}
