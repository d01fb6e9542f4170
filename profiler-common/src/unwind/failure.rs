//! Every way in which the walk of a user stack ends before its outermost frame: one number, one
//! name, one sentence. Numbers are never reused: they are in tables on disk and in what the kernel
//! programs count.

macro_rules! failures {
    ($($(#[doc = $doc:literal])+ $name:ident = $value:literal, $snake:literal;)+) => {
        $crate::named_enum! {
            /// Why a walk could not go on.
            #[repr(u32)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub enum UnwindFailure {
                $($(#[doc = $doc])+ $name = $value => $snake,)+
            }
        }

        impl UnwindFailure {
            /// What reports show in place of the callers that are not known.
            #[must_use]
            pub const fn row_name(self) -> &'static str {
                match self { $(Self::$name => concat!("[incomplete: ", $snake, "]"),)+ }
            }

            /// The failure of that number; `None` for a number none has.
            #[must_use]
            pub const fn from_u32(value: u32) -> Option<Self> {
                match value { $($value => Some(Self::$name),)+ _ => None }
            }
        }
    };
}

failures! {
    /// The address is in no known mapping.
    NoMapping = 1, "no_mapping";
    /// The file's table is not there (yet).
    NoTable = 2, "no_table";
    /// The table does not reach that address.
    NoPage = 3, "no_page";
    /// The rows of the page could not be searched.
    NoRow = 4, "no_row";
    /// The stack address is computed by an expression that rows do not know.
    UnsupportedExpression = 5, "unsupported_expression";
    /// The stack address is computed from a register that rows do not know.
    UnsupportedRegister = 6, "unsupported_register";
    /// An offset does not fit a row.
    UnsupportedOffset = 7, "unsupported_offset";
    /// The caller's frame pointer is saved in a way that rows do not know.
    UnsupportedFrame = 8, "unsupported_frame";
    /// The return address is saved in a way that rows do not know.
    UnsupportedReturn = 9, "unsupported_return";
    /// Too many rows in 64 KiB of code.
    UnsupportedDense = 10, "unsupported_dense";
    /// The function's unwind information makes no sense.
    UnsupportedCorrupt = 11, "unsupported_corrupt";
    /// The word that the stack address is computed from could not be read.
    ReadCfa = 12, "read_cfa";
    /// The return address could not be read.
    ReadReturn = 13, "read_return";
    /// The caller's frame pointer could not be read.
    ReadFrame = 14, "read_frame";
    /// The registers in a signal frame could not be read.
    ReadSignal = 15, "read_signal";
    /// The two words at the frame pointer could not be read.
    ReadFramePointer = 16, "read_frame_pointer";
    /// A step by frame pointers over a register that is none.
    BadFramePointer = 17, "bad_frame_pointer";
    /// A return address of zero where the table expected a caller.
    ZeroReturnAddress = 18, "zero_return_address";
    /// A return address below all code.
    LowAddress = 19, "low_address";
    /// A return address that is no user address.
    KernelAddress = 20, "kernel_address";
    /// The caller's stack pointer is not above this frame's.
    StackNotGrowing = 21, "stack_not_growing";
    /// A stack pointer that is not a multiple of 8.
    StackMisaligned = 22, "stack_misaligned";
    /// A stack pointer that is no user address.
    StackOutOfRange = 23, "stack_out_of_range";
    /// The row needs a register that is known only in an interrupted function.
    LeafRegisterAboveLeaf = 24, "leaf_register_above_leaf";
    /// A register of the interrupted function could not be read.
    ReadLeafRegister = 25, "read_leaf_register";
    /// The bound on frames was reached.
    Truncated = 26, "truncated";
    /// A 32-bit program.
    Compat32 = 27, "compat32";
    /// Code made at run time that does not keep frame pointers.
    JitFrame = 28, "jit_frame";
    /// The row is of a kind that this program does not know.
    UnknownKind = 29, "unknown_kind";
    /// The function has a return probe, and the kernel does not tell where it returns to.
    ReturnProbe = 30, "return_probe";
}

/// Ways in which a walk can end: numbers of a [`StackEnd`](crate::StackEnd).
pub const WALK_ENDS: u32 = UnwindFailure::ALL.len() as u32 + 2;

impl UnwindFailure {
    /// The failure that a row of kind [`UNSUPPORTED`](super::kind::UNSUPPORTED) stands for.
    #[must_use]
    #[inline(always)]
    pub const fn of_param(param: i32) -> Self {
        match param {
            5 => Self::UnsupportedExpression,
            6 => Self::UnsupportedRegister,
            7 => Self::UnsupportedOffset,
            8 => Self::UnsupportedFrame,
            9 => Self::UnsupportedReturn,
            10 => Self::UnsupportedDense,
            _ => Self::UnsupportedCorrupt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_one_name() {
        // Check that numbers count up from 1, names are unlike, and rows name the unsupported ones
        // by their number.
        for (index, failure) in UnwindFailure::ALL.iter().enumerate() {
            assert_eq!(*failure as usize, index + 1);
            assert_eq!(UnwindFailure::from_u32(*failure as u32), Some(*failure));
            assert!(
                UnwindFailure::ALL[..index]
                    .iter()
                    .all(|other| other.name() != failure.name())
            );
            if failure.name().starts_with("unsupported_") {
                assert_eq!(UnwindFailure::of_param(*failure as i32), *failure);
            }
        }
        assert_eq!(UnwindFailure::from_u32(0), None);
    }
}
