//! The walk of a user stack, as far as both sides of the kernel share it: rows of unwind
//! information and how they are found, one [`step`] from a frame to its caller, pure, how a walk
//! can end, and what identifies a stack.

mod areas;
mod failure;
mod files;
mod return_probe;
mod row;
mod step;
#[cfg(test)]
mod step_tests;
mod tables;

pub use areas::{
    GAP_RANGE_META, GAP_RANGE_SLOTS, MAX_DEPTH, NODE_WORDS, Node, NodeRef, PIVOTS, RANGE_META,
    RANGE_SLOTS, is_area,
};
pub use failure::{UnwindFailure, WALK_ENDS};
pub use files::{ANY_USER, FILE_SEGMENTS, FileSegment, FileTable, MappedFile};
pub use return_probe::{
    KnownProbes, MAX_PENDING_RETURNS, OutOfLine, PendingReturn, ReturnInstances, is_in_probes,
    leave_probes, trampoline_row,
};
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
    ProcessMappings, RowChunk, TABLE_SLOT_BITS, TableRow, WalkState, mapping, table_slot,
};

/// How a user stack walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StackEnd {
    /// There is no user stack: a kernel thread.
    None,
    /// The outermost frame of the thread was reached.
    Complete,
    /// It was not.
    Incomplete(UnwindFailure),
}

impl StackEnd {
    /// The bound on frames was reached.
    pub const TRUNCATED: Self = Self::Incomplete(UnwindFailure::Truncated);

    /// The number that travels: 0, 1, or 1 and the number of the failure. Below 256.
    #[must_use]
    #[inline(always)]
    pub const fn to_u32(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Complete => 1,
            Self::Incomplete(failure) => 1 + failure as u32,
        }
    }

    /// The end of that number; `None` for a number no end has.
    #[must_use]
    pub const fn from_u32(value: u32) -> Option<Self> {
        match value {
            0 => Some(Self::None),
            1 => Some(Self::Complete),
            _ => match UnwindFailure::from_u32(value - 1) {
                Some(failure) => Some(Self::Incomplete(failure)),
                None => None,
            },
        }
    }
}

const _: () = assert!(WALK_ENDS <= 256);

/// The first address that is not a user address: 47 bits, less the guard page (x86-64, four-level
/// paging).
pub const USER_ADDRESS_END: u64 = 0x0000_7fff_ffff_f000;
/// No code and no stack lies below this address (the lowest that `vm.mmap_min_addr` protects by
/// default).
pub const USER_ADDRESS_START: u64 = 0x1000;

/// Adds `address` to the running hash of a stack. Two multiplications by odd constants and a shift:
/// every bit of the input reaches every bit of the result within two frames.
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
    fn every_end_has_one_number() {
        // Check that ends survive the way through their numbers, which fit a byte.
        let failures = UnwindFailure::ALL.iter().copied();
        let ends = [StackEnd::None, StackEnd::Complete].into_iter();
        for (number, end) in ends.chain(failures.map(StackEnd::Incomplete)).enumerate() {
            assert_eq!(end.to_u32() as usize, number);
            assert_eq!(StackEnd::from_u32(end.to_u32()), Some(end));
        }
        assert_eq!(StackEnd::from_u32(WALK_ENDS), None);
    }

    #[test]
    fn the_hash_depends_on_every_frame_and_on_their_order() {
        // Check that stacks which differ in one frame, or in order, or in length, have different
        // ids.
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
