//! Puts rows in their pages: merges equal neighbours, lets each page begin with what holds there,
//! and bounds the rows of a page and of all. Pure; knows nothing of DWARF.

use profiler_common::limits;
use profiler_common::unwind::{MAX_PAGE_ROWS, PAGE_BITS, UnwindFailure, UnwindPage, UnwindRow};

use super::{NoTable, rule::Rule};
use crate::units::ModuleAddress;

/// Most pages of a table: 1 GiB of addresses from the first code to the last. They lie together in
/// the walker's table of pages, so they are a fraction of it.
pub(super) const MAX_PAGES: usize = limits::MAX_PAGES as usize / 4;
/// Numbers of pages stay below: the walker has 32 bits for them.
const PAGE_NUMBERS: u64 = 1 << 32;

/// Takes rules by rising address.
#[derive(Debug)]
pub(super) struct RowBuilder {
    /// Number of the first page.
    base_page: u64,
    pages: Vec<UnwindPage>,
    rows: Vec<UnwindRow>,
    /// What holds from the last address given on.
    current: Rule,
    /// The last address given.
    last: ModuleAddress,
    max_rows: usize,
    /// The open page has had too many rows.
    dense: bool,
    dense_pages: u64,
    /// Addresses that went back.
    disordered: u64,
}

/// What became of the rows.
#[derive(Debug)]
pub(super) struct Paged {
    pub(super) base_page: u64,
    pub(super) pages: Vec<UnwindPage>,
    pub(super) rows: Vec<UnwindRow>,
    pub(super) dense_pages: u64,
    pub(super) disordered: u64,
}

impl RowBuilder {
    /// No rows yet, for code that begins at `start`.
    pub(super) fn new(start: ModuleAddress, max_rows: usize) -> Self {
        let mut rows = Self {
            base_page: start.get() >> PAGE_BITS,
            pages: Vec::new(),
            rows: Vec::new(),
            current: Rule::GAP,
            last: start,
            max_rows,
            dense: false,
            dense_pages: 0,
            disordered: 0,
        };
        rows.open_page();
        rows
    }

    /// `rule` holds from `address` on.
    pub(super) fn push(&mut self, address: ModuleAddress, rule: Rule) -> Result<(), NoTable> {
        if address < self.last {
            self.disordered += 1;
            return Ok(());
        }
        let page = (address.get() >> PAGE_BITS) - self.base_page;
        if page >= MAX_PAGES as u64 || self.base_page >= PAGE_NUMBERS - MAX_PAGES as u64 {
            return Err(NoTable::TooWide);
        }
        self.last = address;
        while (self.pages.len() as u64) <= page {
            self.open_page();
        }
        if rule == self.current {
            return Ok(());
        }
        self.current = rule;
        if self.rows.len() >= self.max_rows {
            return Err(NoTable::TooManyRows);
        }
        if !self.dense {
            self.add(address.get() as u16, rule);
        }
        Ok(())
    }

    fn add(&mut self, pc: u16, rule: Rule) {
        let Some(page) = self.pages.last_mut() else {
            return;
        };
        if self.rows.last().is_some_and(|last| last.pc == pc) {
            // It held for no byte.
            self.rows.pop();
            page.count -= 1;
            let before = self.rows.last().filter(|_| page.count > 0);
            if before.is_some_and(|before| Rule::of(*before) == rule) {
                return;
            }
        }
        if u32::from(page.count) >= MAX_PAGE_ROWS {
            self.rows.truncate(page.first as usize);
            let dense = Rule::unsupported(UnwindFailure::UnsupportedDense);
            self.rows.push(dense.at(0));
            page.count = 1;
            self.dense = true;
            self.dense_pages += 1;
            return;
        }
        self.rows.push(rule.at(pc));
        page.count += 1;
    }

    fn open_page(&mut self) {
        self.dense = false;
        self.pages.push(UnwindPage {
            first: self.rows.len() as u32,
            count: 1,
            chunk: 0,
        });
        self.rows.push(self.current.at(0));
    }

    /// All rows.
    pub(super) fn finish(mut self) -> Paged {
        self.rows.shrink_to_fit();
        self.pages.shrink_to_fit();
        Paged {
            base_page: self.base_page,
            pages: self.pages,
            rows: self.rows,
            dense_pages: self.dense_pages,
            disordered: self.disordered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_common::unwind::kind;

    fn rule(param: i32) -> Rule {
        Rule {
            kind: kind::CFA_RSP,
            frame: -2,
            param,
        }
    }

    // Check that equal neighbours are one row, that a rule which held for no byte is gone, and that
    // pages begin with what holds there, also pages without a row of their own.
    #[test]
    fn pages_carry_over() {
        let mut rows = RowBuilder::new(ModuleAddress::new(0x1_0010), 100);
        for (address, param) in [
            (0x1_0010, 8),
            (0x1_0020, 8),
            (0x1_0030, 16),
            (0x1_0030, 8),
            (0x1_0040, 24),
            (0x4_0000, 32),
            (0x4_0008, 40),
        ] {
            rows.push(ModuleAddress::new(address), rule(param)).unwrap();
        }
        rows.push(ModuleAddress::new(0x3_0000), rule(9)).unwrap();
        let paged = rows.finish();
        assert_eq!(paged.disordered, 1);
        assert_eq!(paged.base_page, 1);
        let counts: Vec<_> = paged
            .pages
            .iter()
            .map(|page| (page.first, page.count))
            .collect();
        assert_eq!(counts, [(0, 3), (3, 1), (4, 1), (5, 2)]);
        let seen: Vec<_> = paged.rows.iter().map(|row| (row.pc, row.param)).collect();
        assert_eq!(
            seen,
            [
                (0, 0),
                (0x10, 8),
                (0x40, 24),
                (0, 24),
                (0, 24),
                (0, 32),
                (8, 40)
            ]
        );
    }

    // Check that a page with one row too many says so, and that the page behind it is as if nothing
    // had happened.
    #[test]
    fn too_dense() {
        let mut rows = RowBuilder::new(ModuleAddress::new(0), 1 << 20);
        for address in 0..=u64::from(MAX_PAGE_ROWS) {
            rows.push(ModuleAddress::new(address * 2), rule(address as i32 + 8))
                .unwrap();
        }
        rows.push(ModuleAddress::new(0x1_0004), rule(1)).unwrap();
        let paged = rows.finish();
        assert_eq!(paged.dense_pages, 1);
        let dense = Rule::unsupported(UnwindFailure::UnsupportedDense);
        assert_eq!(
            paged.rows,
            [
                dense.at(0),
                rule(MAX_PAGE_ROWS as i32 + 8).at(0),
                rule(1).at(4)
            ]
        );
    }

    // Check that a full page is no dense one, and that the bound on rows and on addresses holds.
    #[test]
    fn bounds() {
        let mut rows = RowBuilder::new(ModuleAddress::new(0), 1 << 20);
        for address in 0..u64::from(MAX_PAGE_ROWS) {
            rows.push(ModuleAddress::new(address * 2), rule(address as i32))
                .unwrap();
        }
        assert_eq!(
            rows.push(ModuleAddress::new(MAX_PAGES as u64 * 0x1_0000), rule(1)),
            Err(NoTable::TooWide)
        );
        let paged = rows.finish();
        assert_eq!((paged.dense_pages, paged.rows.len()), (0, 8192));
        let last = PAGE_NUMBERS - MAX_PAGES as u64 - 1;
        for (page, outcome) in [(last, Ok(())), (last + 1, Err(NoTable::TooWide))] {
            let mut rows = RowBuilder::new(ModuleAddress::new(page << PAGE_BITS), 100);
            let address = ModuleAddress::new((page << PAGE_BITS) + 8);
            assert_eq!(rows.push(address, rule(1)), outcome);
        }
        let mut rows = RowBuilder::new(ModuleAddress::new(0), 2);
        assert_eq!(rows.push(ModuleAddress::new(2), rule(1)), Ok(()));
        assert_eq!(
            rows.push(ModuleAddress::new(4), rule(2)),
            Err(NoTable::TooManyRows)
        );
    }
}
