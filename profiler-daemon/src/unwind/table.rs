//! The finished table of a file: pages of rows, as the kernel side will have them, and the way from
//! a place in memory to the file's own addresses. Its bytes on disk are `cache`'s matter.

use profiler_common::unwind::{PAGE_BITS, UnwindPage, UnwindRow, search};

use super::{NoTable, elf::Segment};
use crate::units::{FileOffset, ModuleAddress, VirtualAddress};

/// Memory pages that mappings are made of, bytes.
const MAPPING_PAGE_BYTES: u64 = 4096;

/// What building a table met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildStats {
    /// Functions with rows.
    pub functions: u64,
    /// Rows as the file has them, before equal neighbours became one.
    pub rows_read: u64,
    /// Entries that were no function's, or too large.
    pub entries_refused: u64,
    /// Functions that lie in no code.
    pub functions_outside: u64,
    /// Functions that began inside another.
    pub functions_overlapping: u64,
    /// Functions whose rules made no sense at some point; from there on they are not unwound.
    pub functions_corrupt: u64,
    /// Pages with more rows than a page may have; they are not unwound.
    pub dense_pages: u64,
    /// Rows that say why they cannot be unwound.
    pub unsupported_rows: u64,
    /// Signal trampolines found by their code.
    pub trampolines: u64,
    /// Functions without unwind information whose rules were read off their code.
    pub functions_read: u64,
}

/// The table of one file. Addresses are the file's virtual ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwindTable {
    /// Number of the first page: its first address is this times 64 KiB.
    pub base_page: u64,
    /// Pages, without holes: page n is for the addresses from `(base_page + n) << PAGE_BITS` on.
    pub pages: Vec<UnwindPage>,
    /// The rows of all pages, in order.
    pub rows: Vec<UnwindRow>,
    /// Where the file's code is.
    pub segments: Vec<Segment>,
    /// Why its rules were read off its code: its unwind information could not be used. `None` where
    /// it was, or Go's own table.
    pub without: Option<NoTable>,
    /// What building it met.
    pub stats: BuildStats,
}

impl UnwindTable {
    /// What to subtract from an address in a mapping to get the file's virtual address: for a
    /// mapping of this file at `start` from `offset` in it. `None` if no code of the file is there.
    #[must_use]
    pub fn bias(&self, start: VirtualAddress, offset: FileOffset) -> Option<u64> {
        bias(&self.segments, start, offset)
    }

    /// The row that holds at a virtual address. `None` outside of all pages.
    #[must_use]
    pub fn row_for(&self, address: ModuleAddress) -> Option<UnwindRow> {
        let address = address.get();
        let index = (address >> PAGE_BITS).checked_sub(self.base_page)?;
        let page = self.pages.get(usize::try_from(index).ok()?)?;
        let found = search(u32::from(page.count), address as u16, |row| {
            let row = self.rows.get(page.first as usize + row as usize);
            // Beyond the last page's rows the search may look, but not stay.
            Some(row.map_or(u16::MAX, |row| row.pc))
        })?;
        self.rows.get(page.first as usize + found as usize).copied()
    }

    /// Memory that it takes, bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.rows)
            + size_of_val(&*self.pages)
            + size_of_val(&*self.segments)
    }
}

/// See [`UnwindTable::bias`].
#[must_use]
pub fn bias(segments: &[Segment], start: VirtualAddress, offset: FileOffset) -> Option<u64> {
    let segment = segments.iter().find(|segment| {
        offset >= first_offset(segment)
            && offset < segment.offset.saturating_add(segment.size_bytes)
    })?;
    let address = segment
        .address
        .wrapping_add(offset.wrapping_from(segment.offset));
    Some(start.get().wrapping_sub(address.get()))
}

/// Where in the file a mapping of a segment begins: at a page.
#[must_use]
pub fn first_offset(segment: &Segment) -> FileOffset {
    FileOffset::new(segment.offset.get() & !(MAPPING_PAGE_BYTES - 1))
}

/// Two segments with code, the second of which begins inside a page of the file.
#[cfg(test)]
pub(crate) fn two_segments() -> [Segment; 2] {
    use crate::units::ModuleAddress;
    [
        Segment {
            address: ModuleAddress::new(0x40_1000),
            offset: FileOffset::new(0x1000),
            size_bytes: 0x500,
        },
        Segment {
            address: ModuleAddress::new(0x60_3456),
            offset: FileOffset::new(0x2456),
            size_bytes: 0x2000,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check the way from a mapping to the file's addresses, for a segment that begins inside a page
    // of the file.
    #[test]
    fn biases() {
        let segments = two_segments();
        assert_eq!(
            bias(
                &segments,
                VirtualAddress::new(0x40_1000),
                FileOffset::new(0x1000)
            ),
            Some(0)
        );
        let start = VirtualAddress::new(0x7f00_0000_0000);
        let second = bias(&segments, start, FileOffset::new(0x2000)).unwrap();
        assert_eq!(start + 0x456 - second, VirtualAddress::new(0x60_3456));
        let later = bias(&segments, start, FileOffset::new(0x3000)).unwrap();
        assert_eq!(start - later, VirtualAddress::new(0x60_4000));
        assert_eq!(bias(&segments, start, FileOffset::new(0x5000)), None);
        assert_eq!(bias(&segments, start, FileOffset::ZERO), None);
    }
}
