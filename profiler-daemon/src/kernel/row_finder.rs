//! Finds the unwind row of a code address in the daemon, in the same maps and by the same steps as
//! the kernel's walker (`profiler-ebpf/src/tables.rs`).

use std::collections::HashMap;

use profiler_common::unwind::{
    MappingRow, PAGE_BITS, TableRow, UnwindFailure, UnwindRow, kind, mapping, search,
    trampoline_row,
};
use tracing::warn;

use super::records::Records;
use super::unwind_maps::UnwindMaps;
use crate::units::VirtualAddress;

/// Most pages whose rows are mapped at a time: a process may only have 65530 mappings.
const MAX_MAPPED: usize = 1024;

/// See the module. Holds the rows mapped that it has read, so it is not to be kept.
pub struct RowFinder<'a> {
    /// `None`: this kernel has no tables, and all code is followed by frame pointers.
    maps: Option<&'a UnwindMaps>,
    /// By the number of the page that they are the rows of.
    rows: HashMap<u32, Option<Records<UnwindRow>>>,
    first: u32,
    count: u32,
    mapping: MappingRow,
    table: TableRow,
}

impl<'a> RowFinder<'a> {
    /// `None`: this kernel has no tables.
    #[must_use]
    pub fn new(maps: Option<&'a UnwindMaps>) -> Self {
        Self {
            maps,
            rows: HashMap::new(),
            first: 0,
            count: 0,
            mapping: MappingRow::default(),
            table: TableRow::default(),
        }
    }

    /// From here on, rows are those of this process.
    pub fn enter_process(&mut self, pid: u32) {
        self.mapping = MappingRow::default();
        let found = self.maps.and_then(|maps| maps.process(pid));
        let found = found.filter(|found| found.pid == pid);
        (self.first, self.count) = found.map_or((0, 0), |found| (found.first, found.count));
    }

    /// The row for a code address of the process.
    ///
    /// # Errors
    /// Why there is none.
    pub fn row(&mut self, pc: VirtualAddress) -> Result<UnwindRow, UnwindFailure> {
        let of_kind = |kind| UnwindRow {
            kind,
            ..UnwindRow::default()
        };
        let Some(maps) = self.maps else {
            return Ok(of_kind(kind::GAP));
        };
        if !has(&self.mapping, pc) {
            self.enter_mapping(maps, pc)?;
        }
        if self.mapping.kind == mapping::FRAME_POINTER {
            return Ok(of_kind(kind::FRAME_POINTER));
        }
        if self.mapping.kind == mapping::PROBE_TRAMPOLINE {
            return Ok(trampoline_row(pc.get() - self.mapping.start));
        }
        let address = pc.get().wrapping_sub(self.mapping.bias);
        let number = ((address >> PAGE_BITS) as u32).wrapping_sub(self.table.base_page);
        if number >= self.table.page_count {
            return Err(UnwindFailure::NoPage);
        }
        let number = self.table.first_page + number;
        let page = maps.page(number).ok_or(UnwindFailure::NoPage)?;
        if page.count == 0 {
            return Err(UnwindFailure::NoRow);
        }
        if self.rows.len() >= MAX_MAPPED && !self.rows.contains_key(&number) {
            self.rows.clear();
        }
        let rows = self.rows.entry(number).or_insert_with(|| {
            maps.rows(page).unwrap_or_else(|error| {
                warn!("cannot map unwind rows: {error}");
                None
            })
        });
        let rows = rows.as_ref().ok_or(UnwindFailure::NoPage)?;
        let at = |index: u32| rows.read(index as usize);
        search(rows.len() as u32, address as u16, |index| {
            Some(at(index).pc)
        })
        .map(at)
        .ok_or(UnwindFailure::NoRow)
    }

    /// Finds the mapping that `pc` lies in, and its table.
    fn enter_mapping(
        &mut self,
        maps: &UnwindMaps,
        pc: VirtualAddress,
    ) -> Result<(), UnwindFailure> {
        let (mut low, mut size) = (0, self.count);
        if size == 0 {
            return Err(UnwindFailure::NoMapping);
        }
        let row = |index: u32| {
            let row = maps.mapping(self.first + index);
            row.ok_or(UnwindFailure::NoMapping)
        };
        while size > 1 {
            let half = size / 2;
            if row(low + half)?.start <= pc.get() {
                low += half;
            }
            size -= half;
        }
        let row = row(low)?;
        if !has(&row, pc) {
            return Err(UnwindFailure::NoMapping);
        }
        if row.kind == mapping::TABLE {
            self.table = maps.table(row.table).ok_or(UnwindFailure::NoTable)?;
        } else if row.kind == mapping::NO_TABLE {
            return Err(UnwindFailure::NoTable);
        }
        self.mapping = row;
        Ok(())
    }
}

/// Whether the address is in that mapping.
fn has(mapping: &MappingRow, address: VirtualAddress) -> bool {
    (mapping.start..mapping.end).contains(&address.get())
}
