//! How far the unwind table of a file is, and what the walker's row of a mapping says of it.

use profiler_common::unwind::{FILE_SEGMENTS, FileSegment, FileTable, MappingRow, mapping};

use crate::processes::mappings::Mapping;
use crate::unwind::NoTable;
use crate::unwind::elf::Segment;
use crate::unwind::table::{bias, first_offset};

/// How far a file's table is.
pub(super) enum TableState {
    /// Asked for.
    Asked,
    /// The walker has it.
    Loaded {
        id: u32,
        segments: Vec<Segment>,
        used_pass: u64,
        /// Why it was read off the file's code, if it was.
        without: Option<NoTable>,
    },
    /// It was there or could be, but there was no room. Asked for again when a walk needs it, some
    /// passes later.
    NoSpace { pass: u64 },
    /// There is none: frame pointers are all there is. Asked for again where the file could not be
    /// opened.
    None(NoTable),
    /// It is no file but a [`PROBE_TRAMPOLINE`], whose code is known.
    ProbeTrampoline,
}

/// The name of what the kernel maps for probes on long no-operations (Linux 6.18).
pub(super) const PROBE_TRAMPOLINE: &str = "[uprobes-trampoline]";

/// The row of a mapping whose file's table is so far; `None`: not asked for.
pub(super) fn row(table: Option<&TableState>, mapped: &Mapping) -> MappingRow {
    let mut row = MappingRow {
        start: mapped.start.get(),
        end: mapped.end.get(),
        kind: mapping::NO_TABLE,
        ..MappingRow::default()
    };
    let Some(offset) = mapped.file_offset else {
        row.kind = match table {
            Some(TableState::ProbeTrampoline) => mapping::PROBE_TRAMPOLINE,
            // Code made at run time.
            _ => mapping::FRAME_POINTER,
        };
        return row;
    };
    match table {
        Some(TableState::Loaded { id, segments, .. }) => {
            if let Some(bias) = bias(segments, mapped.start, offset) {
                row.bias = bias;
                row.table = *id;
                row.kind = mapping::TABLE;
            }
        }
        Some(TableState::None(_)) => row.kind = mapping::FRAME_POINTER,
        Some(TableState::Asked | TableState::NoSpace { .. } | TableState::ProbeTrampoline)
        | None => {}
    }
    row
}

/// How the code of a file with a table that far is unwound, for processes of which the walker knows
/// no mapping; `None`: that is not known yet. Of segments with code the first few are known.
pub(super) fn file_table(table: &TableState) -> Option<FileTable> {
    match table {
        TableState::Loaded { id, segments, .. } => {
            let mut told = FileTable {
                table: *id,
                kind: mapping::TABLE,
                segments: [FileSegment::default(); FILE_SEGMENTS],
            };
            for (told, segment) in told.segments.iter_mut().zip(segments) {
                let address = segment.address.get();
                *told = FileSegment {
                    first: first_offset(segment).get(),
                    end: segment.offset.saturating_add(segment.size_bytes).get(),
                    address_less_offset: address.wrapping_sub(segment.offset.get()),
                };
            }
            Some(told)
        }
        TableState::None(_) => {
            let mut told = FileTable {
                kind: mapping::FRAME_POINTER,
                ..FileTable::default()
            };
            told.segments[0].end = u64::MAX;
            Some(told)
        }
        TableState::Asked | TableState::NoSpace { .. } | TableState::ProbeTrampoline => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{FileOffset, VirtualAddress};
    use crate::unwind::table::two_segments;

    // Check that a mapping leads to the same addresses of the file by what the walker is told of
    // the file as by its row, for segments that begin inside a page of the file, and that none is
    // found where the file has no code.
    #[test]
    fn leads_to_the_same_addresses() {
        let segments = two_segments();
        let loaded = TableState::Loaded {
            id: 7,
            segments: segments.to_vec(),
            used_pass: 0,
            without: None,
        };
        let told = file_table(&loaded).unwrap();
        let start = 0x7f00_0000_0000;
        for offset in (0..0x6000).step_by(0x1000) {
            let by_row = bias(
                &segments,
                VirtualAddress::new(start),
                FileOffset::new(offset),
            );
            assert_eq!(told.bias(start, offset), by_row, "{offset:#x}");
        }
        let none = file_table(&TableState::None(NoTable::Unreadable)).unwrap();
        assert_eq!(none.kind, mapping::FRAME_POINTER);
        assert!(none.bias(start, 0x5000).is_some());
        assert!(file_table(&TableState::Asked).is_none());
    }
}
