//! The maps that the walker looks code addresses up in, filled through mappings: processes, their
//! mappings, tables, pages and rows. It does not make tables, nor decide which are worth their
//! room.
//!
//! Nothing is changed while a walk may read it: rows are written where no page points to, pages
//! where no table points to, mappings where no process points to, and what is no longer pointed to
//! stays as it is until all walks that may still see it are over.

use std::io;
use std::sync::atomic::{Ordering, fence};

use aya::maps::{ArrayOfMaps, HashMap, MapData, MapError};
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_ARRAY;
use profiler_common::limits::MAX_PAGES;
use profiler_common::unwind::{
    CHUNK_ROWS, FileTable, MAX_PROCESS_MAPPINGS, MAX_TABLES, MappedFile, MappingRow,
    ProcessMappings, RowChunk, TABLE_SLOT_BITS, TableRow, UnwindPage, UnwindRow, table_slot,
};

use super::extents::Extents;
use super::maps::Maps;
use super::records::Records;
use super::refusal::StartError;
use super::settings::KernelSettings;
use crate::units::MonoNs;

/// `BPF_F_MMAPABLE`.
const MAPPABLE: u32 = 1 << 10;
/// `BPF_EXIST`: only where there is an element.
const IF_PRESENT: u64 = 2;
/// Passes before mapping rows are used again: a child that was forked from the process that had
/// them is heard of by then.
const MAPPING_PASSES: u8 = 2;
/// Passes before rows and pages are used again: one ends the walks that were under way.
const TABLE_PASSES: u8 = 1;
/// Ids of one slot before it is not used again: no id may come twice.
const MAX_GENERATION: u32 = u32::MAX >> TABLE_SLOT_BITS;

/// How full the maps are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnwindFill {
    /// Tables loaded.
    pub tables: u32,
    /// Pages in use.
    pub pages: u32,
    /// Mapping rows in use, those that wait to be free included.
    pub mappings: u32,
    /// Bytes of rows in use, those that wait to be free included.
    pub row_bytes: u64,
    /// Bytes that the kernel holds for rows: grows as needed up to the bound.
    pub allocated_bytes: u64,
}

/// Mapping rows of one or more processes.
#[derive(Debug, PartialEq, Eq)]
pub struct MappingRange {
    first: u32,
    count: u32,
}

impl MappingRange {
    /// The first row; `None`: there are none.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        (self.count > 0).then_some(self.first)
    }
}

/// What became of a process's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// The walker finds them.
    Yes,
    /// The programs have forgotten the process since: it executed another program, or is gone.
    Forgotten,
    /// There is no room for another process.
    Full,
}

/// How much of the tables' room something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableSize {
    /// Pages, which lie together.
    pub pages: u64,
    /// Rows.
    pub rows: u64,
}

impl TableSize {
    /// Whether there is room for the other in it.
    #[must_use]
    pub const fn holds(&self, other: Self) -> bool {
        self.pages >= other.pages && self.rows >= other.rows
    }

    /// This, and the other.
    pub const fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.rows += other.rows;
    }
}

/// Rows of a table in one chunk.
#[derive(Clone, Copy, Debug)]
struct ChunkRows {
    chunk: u16,
    first: u32,
    len: u32,
}

/// Where a loaded table lies.
#[derive(Debug)]
struct LoadedTable {
    first_page: u32,
    pages: u32,
    pieces: Vec<ChunkRows>,
}

/// One megabyte of rows. Its memory is mapped only while it is written, so that it does not count
/// as the daemon's.
struct Chunk {
    map: MapData,
    extents: Extents,
}

/// What waits until no walk can see it.
enum Retired {
    Mappings(MappingRange),
    Table { slot: u32, table: LoadedTable },
}

/// The maps. See the module.
pub struct UnwindMaps {
    processes: HashMap<MapData, u32, ProcessMappings>,
    files: HashMap<MapData, MappedFile, FileTable>,
    mappings: Records<MappingRow>,
    tables: Records<TableRow>,
    pages: Records<UnwindPage>,
    chunk_maps: ArrayOfMaps<MapData>,
    chunks: Vec<Chunk>,
    max_chunks: usize,
    mapping_extents: Extents,
    page_extents: Extents,
    loaded: Vec<Option<LoadedTable>>,
    generations: Vec<u32>,
    free_slots: Vec<u32>,
    retired: Vec<(u8, Retired)>,
}

impl UnwindMaps {
    /// Empty: no process, no table.
    ///
    /// # Errors
    /// [`StartError::Map`] if a map is missing, or cannot be mapped.
    pub(super) fn new(maps: &mut Maps<'_>, settings: &KernelSettings) -> Result<Self, StartError> {
        let mappings: Records<MappingRow> = maps.records("MAPPINGS", settings.mappings)?;
        let pages: Records<UnwindPage> = maps.records("PAGES", MAX_PAGES)?;
        let chunk_maps: ArrayOfMaps<MapData> = maps.typed("ROW_CHUNKS")?;
        let len = |records: usize| u32::try_from(records).unwrap_or(u32::MAX);
        Ok(Self {
            max_chunks: settings.unwind_chunks.min(chunk_maps.len()) as usize,
            mapping_extents: Extents::new(len(mappings.len())),
            page_extents: Extents::new(len(pages.len())),
            loaded: (0..MAX_TABLES).map(|_| None).collect(),
            generations: vec![0; MAX_TABLES as usize],
            free_slots: (0..MAX_TABLES).rev().collect(),
            processes: maps.typed("PROCESSES")?,
            files: maps.typed("FILES")?,
            mappings,
            tables: maps.records("TABLES", MAX_TABLES)?,
            pages,
            chunk_maps,
            chunks: Vec::new(),
            retired: Vec::new(),
        })
    }

    /// How full the maps are.
    #[must_use]
    pub fn fill(&self) -> UnwindFill {
        let chunk_rows = CHUNK_ROWS as u64;
        let allocated = self.chunks.len() as u64 * chunk_rows;
        let chunks = self.chunks.iter();
        let free: u64 = chunks
            .map(|chunk| u64::from(chunk.extents.free_len()))
            .sum();
        let row = size_of::<UnwindRow>() as u64;
        let used = |len: usize, extents: &Extents| {
            u32::try_from(len).unwrap_or(u32::MAX) - extents.free_len()
        };
        UnwindFill {
            tables: self.loaded.iter().flatten().count() as u32,
            pages: used(self.pages.len(), &self.page_extents),
            mappings: used(self.mappings.len(), &self.mapping_extents),
            row_bytes: (allocated - free) * row,
            allocated_bytes: allocated * row,
        }
    }

    /// Loads a table: pages without holes from number `base_page` on, and their rows in order.
    /// Returns its id; `None`: there is no room.
    ///
    /// # Errors
    /// The kernel refuses memory, or there is never room for such a table.
    pub fn load(
        &mut self,
        base_page: u64,
        pages: &[UnwindPage],
        rows: &[UnwindRow],
    ) -> io::Result<Option<u32>> {
        let (Ok(base_page), Ok(page_count @ 1..)) =
            (u32::try_from(base_page), u32::try_from(pages.len()))
        else {
            return Err(io::Error::other(
                "its addresses are beyond what tables have",
            ));
        };
        if self.free_slots.is_empty() {
            return Ok(None);
        }
        let Some(first_page) = self.page_extents.take(page_count) else {
            return Ok(None);
        };
        let mut table = LoadedTable {
            first_page,
            pages: page_count,
            pieces: Vec::new(),
        };
        match self.write(&mut table, pages, rows) {
            Ok(true) => {}
            outcome => {
                // No walk has seen it.
                self.free(&table);
                return outcome.map(|_| None);
            }
        }
        let Some(slot) = self.free_slots.pop() else {
            self.free(&table);
            return Ok(None);
        };
        self.generations[slot as usize] += 1;
        let id = self.generations[slot as usize] << TABLE_SLOT_BITS | slot;
        self.tables.write(
            slot as usize,
            TableRow {
                id: 0,
                first_page,
                base_page,
                page_count,
            },
        );
        // The id last: whoever finds it finds all the rest.
        fence(Ordering::Release);
        self.tables.write_first_word(slot as usize, id);
        self.loaded[slot as usize] = Some(table);
        Ok(Some(id))
    }

    /// How large a loaded table is; nothing for an id that is not loaded.
    #[must_use]
    pub fn size(&self, id: u32) -> TableSize {
        let slot = table_slot(id) as usize;
        let table = self.loaded[slot].as_ref();
        let table = table.filter(|_| self.tables.read(slot).id == id);
        table.map_or_else(TableSize::default, |table| TableSize {
            pages: table.pages.into(),
            rows: table.pieces.iter().map(|piece| u64::from(piece.len)).sum(),
        })
    }

    /// What is free, however many pieces it lies in.
    #[must_use]
    pub fn free_room(&self) -> TableSize {
        let chunks = self.chunks.iter();
        let free = chunks.map(|chunk| u64::from(chunk.extents.free_len()));
        let unmade = self.max_chunks.saturating_sub(self.chunks.len());
        TableSize {
            pages: self.page_extents.free_len().into(),
            rows: free.sum::<u64>() + (unmade * CHUNK_ROWS) as u64,
        }
    }

    /// Writes rows and pages to where nothing points yet. `Ok(false)`: there is no room.
    fn write(
        &mut self,
        table: &mut LoadedTable,
        pages: &[UnwindPage],
        rows: &[UnwindRow],
    ) -> io::Result<bool> {
        let mut done = 0;
        while done < pages.len() {
            let Some((piece, taken)) = self.take_rows(&pages[done..])? else {
                return Ok(false);
            };
            table.pieces.push(piece);
            let chunk: Records<UnwindRow> = Records::map(
                self.chunks[usize::from(piece.chunk)].map.fd(),
                CHUNK_ROWS as u32,
            )?;
            let mut at = piece.first;
            for page in &pages[done..done + taken] {
                let from = page.first as usize;
                let Some(of_page) = rows.get(from..from + usize::from(page.count)) else {
                    return Ok(false);
                };
                for (index, row) in of_page.iter().enumerate() {
                    chunk.write(at as usize + index, *row);
                }
                self.pages.write(
                    table.first_page as usize + done,
                    UnwindPage {
                        first: at,
                        count: page.count,
                        chunk: piece.chunk,
                    },
                );
                at += u32::from(page.count);
                done += 1;
            }
        }
        fence(Ordering::Release);
        Ok(true)
    }

    /// Room for the rows of as many of the pages as lie well together: all of them in a hole that
    /// fits, else in a new chunk, else in the largest hole there is. `None`: not even for the
    /// first.
    fn take_rows(&mut self, pages: &[UnwindPage]) -> io::Result<Option<(ChunkRows, usize)>> {
        let all: u64 = pages.iter().map(|page| u64::from(page.count)).sum();
        let fitting = u32::try_from(all).ok().and_then(|all| {
            let chunks = self.chunks.iter().enumerate();
            chunks
                .filter_map(|(index, chunk)| Some((chunk.extents.fit(all.max(1))?, index)))
                .min()
        });
        let chunk = match fitting {
            Some((_, chunk)) => chunk,
            None if self.chunks.len() < self.max_chunks => self.add_chunk()?,
            None => {
                let chunks = self.chunks.iter().enumerate();
                let largest = chunks.max_by_key(|(_, chunk)| chunk.extents.largest());
                let Some((chunk, _)) = largest else {
                    return Ok(None);
                };
                chunk
            }
        };
        let extents = &mut self.chunks[chunk].extents;
        let room = extents.largest();
        let (mut len, mut taken) = (0, 0);
        for page in pages {
            if len + u32::from(page.count) > room {
                break;
            }
            len += u32::from(page.count);
            taken += 1;
        }
        if taken == 0 {
            return Ok(None);
        }
        // Pages without code have no rows, and still need a place.
        let len = len.max(1);
        Ok(extents.take(len).map(|first| {
            let piece = ChunkRows {
                chunk: u16::try_from(chunk).unwrap_or(u16::MAX),
                first,
                len,
            };
            (piece, taken)
        }))
    }

    fn add_chunk(&mut self) -> io::Result<usize> {
        let object = aya_obj::Map::new_from_params(
            BPF_MAP_TYPE_ARRAY as u32,
            size_of::<u32>() as u32,
            size_of::<RowChunk>() as u32,
            1,
            MAPPABLE,
        );
        let map = MapData::create(object, "unwind_rows", None).map_err(io::Error::other)?;
        let index = self.chunks.len();
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        self.chunk_maps
            .set(number, &map, 0)
            .map_err(io::Error::other)?;
        self.chunks.push(Chunk {
            map,
            extents: Extents::new(CHUNK_ROWS as u32),
        });
        Ok(index)
    }

    /// The walker no longer finds the table; its room is free some passes later. Nothing for an id
    /// that is not loaded.
    pub fn unload(&mut self, id: u32) {
        let slot = table_slot(id);
        if self.tables.read(slot as usize).id != id {
            return;
        }
        self.tables.write_first_word(slot as usize, 0);
        if let Some(table) = self.loaded[slot as usize].take() {
            self.retired
                .push((TABLE_PASSES, Retired::Table { slot, table }));
        }
    }

    /// Has the walker use this table for a file where a process has no mapping row. (What it was
    /// told before of a table that is no longer loaded leads to none.)
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn tell_file(&mut self, file: MappedFile, table: FileTable) -> io::Result<()> {
        let told = self.files.insert(file, table, 0);
        told.map_err(io::Error::other)
    }

    /// Which mapping rows are a process's, as the walker finds them.
    pub(super) fn process(&self, pid: u32) -> Option<ProcessMappings> {
        self.processes.get(&pid, 0).ok()
    }

    /// A mapping row.
    pub(super) fn mapping(&self, index: u32) -> Option<MappingRow> {
        let index = index as usize;
        (index < self.mappings.len()).then(|| self.mappings.read(index))
    }

    /// The table of that id; `None` once it is no longer loaded.
    pub(super) fn table(&self, id: u32) -> Option<TableRow> {
        let table = self.tables.read(table_slot(id) as usize);
        (id != 0 && table.id == id).then_some(table)
    }

    /// A page.
    pub(super) fn page(&self, index: u32) -> Option<UnwindPage> {
        let index = index as usize;
        (index < self.pages.len()).then(|| self.pages.read(index))
    }

    /// The rows of a page, mapped for as long as they are read; `None`: it has none.
    pub(super) fn rows(&self, page: UnwindPage) -> io::Result<Option<Records<UnwindRow>>> {
        let first = (page.first as usize).min(CHUNK_ROWS);
        let end = (first + usize::from(page.count)).min(CHUNK_ROWS);
        let chunk = self.chunks.get(usize::from(page.chunk));
        chunk
            .filter(|_| first < end)
            .map(|chunk| Records::map_part(chunk.map.fd(), first..end))
            .transpose()
    }

    /// Writes mapping rows, by address, for one or more processes. `None`: there is no room.
    pub fn add_mappings(&mut self, rows: &[MappingRow]) -> Option<MappingRange> {
        let rows = &rows[..rows.len().min(MAX_PROCESS_MAPPINGS as usize)];
        let count = rows.len() as u32;
        let first = if count == 0 {
            0
        } else {
            self.mapping_extents.take(count)?
        };
        for (index, row) in rows.iter().enumerate() {
            self.mappings.write(first as usize + index, *row);
        }
        fence(Ordering::Release);
        Some(MappingRange { first, count })
    }

    /// Has the walker use these rows for a process, which executed its program at `exec_ns`
    /// (monotonic nanoseconds by the record of that exec; 0 for none that was heard of).
    /// `if_present`: only if the programs have not forgotten the process.
    ///
    /// # Errors
    /// The kernel refuses for another reason than [`Published`] names.
    pub fn publish(
        &mut self,
        pid: u32,
        exec_ns: MonoNs,
        range: &MappingRange,
        if_present: bool,
    ) -> io::Result<Published> {
        let value = ProcessMappings {
            first: range.first,
            count: range.count,
            pid,
            padding: 0,
            exec_ns: exec_ns.ns(),
        };
        let flags = if if_present { IF_PRESENT } else { 0 };
        match self.processes.insert(pid, value, flags) {
            Ok(()) => Ok(Published::Yes),
            Err(MapError::SyscallError(error)) => match error.io_error.raw_os_error() {
                Some(libc::ENOENT) => Ok(Published::Forgotten),
                Some(libc::E2BIG) => Ok(Published::Full),
                _ => Err(error.io_error),
            },
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// A process is gone: removes what was written for it after the programs had seen its end.
    /// (What they copied for another one under its number has other rows, or is missed until that
    /// one's mappings are written.)
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn withdraw(&mut self, pid: u32, range: &MappingRange) -> io::Result<()> {
        self.remove_if(pid, |found| {
            (found.first, found.count) == (range.first, range.count)
        })
    }

    /// Removes what a process has if its rows are none of those that `are_written`, as those of a
    /// parent that has given them up.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn withdraw_unless(
        &mut self,
        pid: u32,
        are_written: impl Fn(u32) -> bool,
    ) -> io::Result<()> {
        self.remove_if(pid, |found| found.count > 0 && !are_written(found.first))
    }

    fn remove_if(
        &mut self,
        pid: u32,
        is_meant: impl FnOnce(&ProcessMappings) -> bool,
    ) -> io::Result<()> {
        let removed = match self.processes.get(&pid, 0) {
            Ok(found) if is_meant(&found) => self.processes.remove(&pid),
            Ok(_) | Err(MapError::KeyNotFound) => Ok(()),
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(MapError::SyscallError(error))
                if error.io_error.raw_os_error() == Some(libc::ENOENT) =>
            {
                Ok(())
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// No process has these rows any more; they are free some passes later.
    pub fn retire(&mut self, range: MappingRange) {
        if range.count > 0 {
            self.retired
                .push((MAPPING_PASSES, Retired::Mappings(range)));
        }
    }

    /// All walks that were under way at the last call of this are over.
    pub(super) fn pass_over(&mut self) {
        for (passes, _) in &mut self.retired {
            *passes -= 1;
        }
        let (over, waiting) = std::mem::take(&mut self.retired)
            .into_iter()
            .partition(|(passes, _)| *passes == 0);
        self.retired = waiting;
        for (_, retired) in over {
            match retired {
                Retired::Mappings(range) => self.mapping_extents.give(range.first, range.count),
                Retired::Table { slot, table } => {
                    self.free(&table);
                    if self.generations[slot as usize] < MAX_GENERATION {
                        self.free_slots.push(slot);
                    }
                }
            }
        }
    }

    fn free(&mut self, table: &LoadedTable) {
        self.page_extents.give(table.first_page, table.pages);
        for piece in &table.pieces {
            self.chunks[usize::from(piece.chunk)]
                .extents
                .give(piece.first, piece.len);
        }
    }
}
