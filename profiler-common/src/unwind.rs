//! One step of the user stack walk, pure: registers and memory of a frame in, those of its caller out.
//!
//! Here is the frame-pointer rule: registers and the two words at the frame pointer in, what to do next out. A function built
//! without frame pointers leaves a foreign value in the register, and the walk ends early: that is what [`StackEnd::Failed`]
//! says. It never invents frames knowingly: addresses must be plausible. [`step`] follows the rows of tables instead, which
//! the daemon makes from unwind information, and needs no frame pointers.

mod failure;
mod row;
mod step;
mod tables;
#[cfg(test)]
mod step_tests;

pub use failure::{UnwindFailure, WALK_FAILURE_COUNTS};
pub use row::{
    FRAME_AT_FRAME, FRAME_BELOW_RETURN, FRAME_MIN, FRAME_UNCHANGED, MAX_PAGE_ROWS, PAGE_BITS,
    SEARCH_STEPS, UnwindPage, UnwindRow, deref_param, kind, search,
};
pub use step::{
    EXACT, LEAF, Memory, Registers, StepResult, pt_regs_offset, signal_offset, step,
    step_by_frame_pointer,
};
pub use tables::{
    CHUNK_ROWS, MAPPING_SEARCH_STEPS, MAX_PROCESS_MAPPINGS, MAX_TABLES, MappingRow,
    ProcessMappings, RowChunk, TABLE_SLOT_BITS, TableRow, WalkState, mapping,
};

/// How a user stack walk ended.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StackEnd {
    /// There is no user stack: a kernel thread.
    None = 0,
    /// The chain ended where the thread began: a frame pointer of zero.
    Complete = 1,
    /// The bound on frames was reached.
    Truncated = 2,
    /// The chain could not be followed: unreadable memory, or a frame pointer that is none.
    Failed = 3,
}

impl StackEnd {
    /// The end of that number; `None` for a number no end has.
    #[must_use]
    pub const fn from_u32(value: u32) -> Option<Self> {
        match value {
            0 => Some(Self::None),
            1 => Some(Self::Complete),
            2 => Some(Self::Truncated),
            3 => Some(Self::Failed),
            _ => None,
        }
    }
}

/// The first address that is not a user address: 47 bits, less the guard page (x86-64, four-level paging).
pub const USER_ADDRESS_END: u64 = 0x0000_7fff_ffff_f000;
/// No code and no stack lies below this address (the lowest that `vm.mmap_min_addr` protects by default).
pub const USER_ADDRESS_START: u64 = 0x1000;

/// What a step of the walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The caller's code address and frame pointer.
    Caller {
        /// Inside the call instruction: the return address less one, so that it lies in the calling function and line.
        address: u64,
        /// The caller's frame pointer.
        frame_pointer: u64,
    },
    /// The walk is over.
    End(StackEnd),
}

/// Is `frame_pointer` one that can be followed from a frame at or above `stack_pointer`? If not, how does the walk end?
///
/// Stacks grow down, so each frame lies above the one it called; a frame pointer is aligned to a word.
#[must_use]
#[inline(always)]
pub fn check_frame_pointer(frame_pointer: u64, stack_pointer: u64) -> Option<StackEnd> {
    if frame_pointer == 0 {
        Some(StackEnd::Complete)
    } else if frame_pointer < stack_pointer
        || frame_pointer >= USER_ADDRESS_END
        || frame_pointer & 7 != 0
    {
        Some(StackEnd::Failed)
    } else {
        None
    }
}

/// The step from the frame at `frame_pointer`, where the words `saved` (caller's frame pointer) and `returns_to` lie.
#[must_use]
#[inline(always)]
pub fn frame_pointer_step(saved: u64, returns_to: u64) -> Step {
    if returns_to == 0 && saved == 0 {
        // The outermost frame of a thread whose start code pushed nothing: a zeroed stack.
        Step::End(StackEnd::Complete)
    } else if !(USER_ADDRESS_START..USER_ADDRESS_END).contains(&returns_to) {
        Step::End(StackEnd::Failed)
    } else {
        Step::Caller {
            address: returns_to - 1,
            frame_pointer: saved,
        }
    }
}

/// Adds `address` to the running hash of a stack. Two multiplications by odd constants and a shift: every bit of the
/// input reaches every bit of the result within two frames.
#[must_use]
#[inline(always)]
pub fn hash_frame(hash: u64, address: u64) -> u64 {
    let mixed = (hash ^ address).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The id of a stack from its running hash: never 0, which means "no stack".
#[must_use]
#[inline(always)]
pub fn stack_id(hash: u64) -> u64 {
    let id = hash ^ (hash >> 32);
    if id == 0 { 1 } else { id }
}

/// Where [`hash_frame`] starts.
pub const HASH_SEED: u64 = 0x51_7c_c1_b7_27_22_0a_95;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_ends_a_stack_and_nonsense_fails_it() {
        // Check that only a chain that ends in zero counts as complete.
        assert_eq!(check_frame_pointer(0, 0x7000), Some(StackEnd::Complete));
        assert_eq!(check_frame_pointer(0x7008, 0x7000), None);
        assert_eq!(check_frame_pointer(0x6ff8, 0x7000), Some(StackEnd::Failed));
        assert_eq!(check_frame_pointer(0x7009, 0x7000), Some(StackEnd::Failed));
        assert_eq!(
            check_frame_pointer(u64::MAX - 7, 0x7000),
            Some(StackEnd::Failed)
        );
        assert_eq!(frame_pointer_step(0, 0), Step::End(StackEnd::Complete));
        assert_eq!(frame_pointer_step(0x7100, 12), Step::End(StackEnd::Failed));
        assert_eq!(
            frame_pointer_step(0x7100, 0x40_0010),
            Step::Caller {
                address: 0x40_000f,
                frame_pointer: 0x7100
            }
        );
    }

    #[test]
    fn the_hash_depends_on_every_frame_and_on_their_order() {
        // Check that stacks which differ in one frame, or in order, or in length, have different ids.
        let id = |frames: &[u64]| {
            stack_id(
                frames
                    .iter()
                    .fold(HASH_SEED, |hash, &frame| hash_frame(hash, frame)),
            )
        };
        let stacks: [&[u64]; 6] = [&[], &[1], &[1, 2], &[2, 1], &[1, 2, 0], &[1, 2, 3]];
        for (index, stack) in stacks.iter().enumerate() {
            for other in &stacks[index + 1..] {
                assert_ne!(id(stack), id(other), "{stack:?} {other:?}");
            }
        }
    }
}
