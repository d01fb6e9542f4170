//! One row of an unwind table: how to find the caller's registers from code addresses at and after
//! where the row begins. And the page: the rows that hold for 64 KiB of code. This is a map's value
//! on the kernel side, so nothing here depends on the machine that builds it. It does not say how
//! rows are made (the daemon's `unwind`) nor what they do (`step`).

/// Code addresses that share a page: 64 KiB, so that the low half of an address orders the rows of
/// one page.
pub const PAGE_BITS: u32 = 16;
/// Most rows of one page. A page that would need more holds one row that says so
/// ([`kind::UNSUPPORTED`]).
pub const MAX_PAGE_ROWS: u32 = 8192;
/// Steps that find a row among [`MAX_PAGE_ROWS`].
pub const SEARCH_STEPS: u32 = 13;

const _: () = assert!(1 << SEARCH_STEPS == MAX_PAGE_ROWS);

/// What a row says. The canonical frame address (CFA) is the stack pointer that the caller has
/// after the return; unless said otherwise, the return address lies right below it.
pub mod kind {
    /// No unwind information covers this code: a frame-pointer step.
    pub const GAP: u8 = 0;
    /// The outermost function of a thread: it has no caller.
    pub const STOP: u8 = 1;
    /// CFA = rsp + param.
    pub const CFA_RSP: u8 = 2;
    /// CFA = rbp + param.
    pub const CFA_RBP: u8 = 3;
    /// CFA = rsp + 8, and 8 more from the eleventh byte of a 16-byte stub on: linkage stubs.
    pub const PLT11: u8 = 4;
    /// The same from the tenth byte on: linkage stubs that begin with endbr64.
    pub const PLT10: u8 = 5;
    /// CFA = *(rsp + offset) + add; see [`deref_param`](super::deref_param).
    pub const DEREF_RSP: u8 = 6;
    /// CFA = *(rbp + offset) + add.
    pub const DEREF_RBP: u8 = 7;
    /// The kernel's signal frame lies at rsp: all registers come from it.
    pub const SIGNAL: u8 = 8;
    /// Not to be unwound; param is the number of an
    /// [`UnwindFailure`](crate::unwind::UnwindFailure).
    pub const UNSUPPORTED: u8 = 9;
    /// A frame-pointer step in a file of which nothing else is known: its code may use the register
    /// for anything, so that zero ends no stack but means that there is no frame pointer.
    pub const FRAME_POINTER: u8 = 10;
    /// A frame-pointer step that may go down: the function has left its caller's stack for another
    /// one, and kept rbp.
    pub const OTHER_STACK: u8 = 11;
    /// `REGISTER + n`: CFA = register n + param, n being the DWARF number (0 = rax … 15 = r15).
    /// Only where that register is known: in the frame that was interrupted or made a system call,
    /// and in one that a signal interrupted.
    pub const REGISTER: u8 = 32;
    /// `RETURN_REGISTER + n`: CFA = rsp + param, the return address is in register n. Known where
    /// the above is.
    pub const RETURN_REGISTER: u8 = 48;
    /// The first number that no kind has.
    pub const END: u8 = 64;
}

/// [`UnwindRow::frame`]: the caller's rbp is still in the register.
pub const FRAME_UNCHANGED: i8 = -128;
/// [`UnwindRow::frame`]: the caller's rbp is where rbp points to (functions that realign their
/// stack).
pub const FRAME_AT_FRAME: i8 = -127;
/// [`UnwindRow::frame`]: right below the return address, where one 16-byte read gets both.
pub const FRAME_BELOW_RETURN: i8 = -2;
/// The least value of [`UnwindRow::frame`] that is a place.
pub const FRAME_MIN: i8 = -126;

/// One row. Holds from `pc` to the next row's `pc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UnwindRow {
    /// Low 16 bits of the ELF virtual address where it begins to hold.
    pub pc: u16,
    /// One of [`kind`].
    pub kind: u8,
    /// Where the caller's rbp is saved: at CFA + 8 * frame; or [`FRAME_UNCHANGED`] or
    /// [`FRAME_AT_FRAME`].
    pub frame: i8,
    /// Bytes to add, or what [`kind`] says.
    pub param: i32,
}

const _: () = assert!(size_of::<UnwindRow>() == 8 && align_of::<UnwindRow>() == 4);

impl UnwindRow {
    /// The row as one word: pc in the lowest bits, param in the highest. As it lies in memory
    /// (little endian).
    #[must_use]
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        self.pc as u64
            | (self.kind as u64) << 16
            | (self.frame as u8 as u64) << 24
            | (self.param as u32 as u64) << 32
    }

    /// The row of a word.
    #[must_use]
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            pc: bits as u16,
            kind: (bits >> 16) as u8,
            frame: (bits >> 24) as i8,
            param: (bits >> 32) as i32,
        }
    }
}

/// The rows of 64 KiB of code. The first of them begins at pc 0 and says what holds there, so a
/// search never needs another page.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UnwindPage {
    /// Index of the first row.
    pub first: u32,
    /// How many rows: 1 to [`MAX_PAGE_ROWS`]. 0 where there is no code.
    pub count: u16,
    /// Which store holds the rows. The daemon's tables leave it 0; whoever lays them out in maps
    /// may use it.
    pub chunk: u16,
}

const _: () = assert!(size_of::<UnwindPage>() == 8);
const _: () = assert!(MAX_PAGE_ROWS <= u16::MAX as u32);

/// The `param` of [`kind::DEREF_RSP`] and [`kind::DEREF_RBP`], if it can hold the two: `offset` in
/// 24 bits with sign, `add` a multiple of 8 below 2048.
#[must_use]
pub const fn deref_param(offset: i64, add: i64) -> Option<i32> {
    if offset < -(1 << 23) || offset >= 1 << 23 || add < 0 || add >= 2048 || add & 7 != 0 {
        return None;
    }
    Some(((offset as i32) << 8) | (add >> 3) as i32)
}

/// Index among the `count` rows of a page of the last one that begins at or before `pc`. `row_pc`
/// reads where a row begins; `None` if it could not.
///
/// At most [`SEARCH_STEPS`] steps, and no branch on what is read, so the verifier sees one path
/// through each of them.
#[must_use]
#[inline(always)]
pub fn search(count: u32, pc: u16, mut row_pc: impl FnMut(u32) -> Option<u16>) -> Option<u32> {
    let mut low = 0_u32;
    let mut size = count;
    let mut step = 0;
    while step < SEARCH_STEPS && size > 1 {
        let half = size >> 1;
        let middle = (low + half) & (MAX_PAGE_ROWS - 1);
        let begins = row_pc(middle)?;
        // All ones if the row begins at or before `pc`, else zero: arithmetic in place of a branch.
        let keep = ((i64::from(begins) - i64::from(pc) - 1) >> 63) as u32;
        low = (low + (half & keep)) & (MAX_PAGE_ROWS - 1);
        size -= half;
        step += 1;
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn a_row_is_a_word() {
        // Check that a row survives the way through a word, with negative fields.
        let row = UnwindRow {
            pc: 0xfedc,
            kind: kind::DEREF_RBP,
            frame: FRAME_AT_FRAME,
            param: -40 << 8 | 7,
        };
        assert_eq!(UnwindRow::from_bits(row.to_bits()), row);
        assert_eq!(row.to_bits() & 0xffff, 0xfedc);
    }

    #[test]
    fn two_numbers_in_a_param() {
        // Check that what a dereferencing row cannot hold is refused, at the bounds.
        assert_eq!(deref_param(-8, 16), Some((-8 << 8) | 2));
        assert_eq!(deref_param(0, 2040), Some(255));
        assert_eq!(deref_param(0, 2048), None);
        assert_eq!(deref_param(0, 4), None);
        assert_eq!(deref_param(0, -8), None);
        assert!(deref_param((1 << 23) - 1, 0).is_some() && deref_param(-(1 << 23), 0).is_some());
        assert!(deref_param(1 << 23, 0).is_none() && deref_param(-(1 << 23) - 1, 0).is_none());
    }

    proptest! {
        // Check that the search finds what a linear look finds, for any page that begins at 0, up
        // to the largest.
        #[test]
        fn searches(mut pcs in prop::collection::btree_set(any::<u16>(), 0..300), large in any::<bool>(), pc in any::<u16>()) {
            if large {
                pcs.extend((0..8192 - 301).map(|index| index * 7));
            }
            pcs.insert(0);
            let pcs: Vec<u16> = pcs.into_iter().collect();
            let linear = pcs.iter().rposition(|begins| *begins <= pc).unwrap() as u32;
            let mut reads = 0;
            let found = search(pcs.len() as u32, pc, |index| {
                reads += 1;
                pcs.get(index as usize).copied()
            });
            prop_assert_eq!(found, Some(linear));
            prop_assert!(reads <= SEARCH_STEPS);
        }
    }
}
