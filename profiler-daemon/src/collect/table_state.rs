//! How far the unwind table of a file is, and what the walker's row of a mapping says of it.

use profiler_common::unwind::{MappingRow, mapping};

use crate::processes::mappings::Mapping;
use crate::unwind::NoTable;
use crate::unwind::elf::Segment;
use crate::unwind::table::bias;

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
