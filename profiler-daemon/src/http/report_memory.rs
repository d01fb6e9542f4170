//! How much memory reports take while they are made: many on large profiles at the same time would
//! take more than the service may have. What is written of them is counted by itself (`room`).

use crate::profile::frames::FrameId;
use crate::report::names::Names;

/// Memory for reports that are made at the same time, in MiB: what they all may take at once, where
/// no single one takes more.
pub(super) const REPORTS_MEMORY_MIB: u32 = 128;
/// What a report takes at most for each byte of call trees.
const BYTES_PER_TREE_BYTE: u64 = 5;
/// What a row takes at most beside its name, and there is a row for each frame at most: of a
/// comparison, its values on both sides and their difference.
const BYTES_PER_ROW: u64 = 4 << 10;
/// How often the name of a row is there at most at a time: in the tables of both sides that a
/// comparison makes, in the row, as what called another row, and in the columns of the text.
const COPIES_OF_NAME: u64 = 4;
/// Nodes that a report shows one by one at most.
const MAX_NODES: u64 = 20_000;
/// What such a node takes at most beside its name.
const BYTES_PER_NODE: u64 = 1 << 10;
/// What a node of a call tree takes at least in the profile.
const MIN_TREE_BYTES_OF_NODE: u64 = 64;

/// The names of all frames that a report is on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NameBytes {
    /// How many frames there are.
    frames: u64,
    /// Bytes of all their names.
    all: u64,
    /// Bytes of the longest.
    longest: u64,
}

impl NameBytes {
    pub(super) fn of(frames: &[FrameId], names: &dyn Names) -> Self {
        let mut bytes = Self::default();
        for frame in frames {
            let name = names.function(*frame).name.len() as u64;
            bytes.frames += 1;
            bytes.all += name;
            bytes.longest = bytes.longest.max(name);
        }
        bytes
    }
}

/// The bytes that a report takes at most while it is made, on so many bytes of call trees, where
/// frames have these names, and with a name for each node where `names_nodes`.
pub(super) fn report_bytes(tree_bytes: u64, names: NameBytes, names_nodes: bool) -> u64 {
    let trees = tree_bytes.saturating_mul(BYTES_PER_TREE_BYTE);
    let rows = names.frames.saturating_mul(BYTES_PER_ROW);
    let texts = names.all.saturating_mul(COPIES_OF_NAME);
    let nodes = if names_nodes {
        (tree_bytes / MIN_TREE_BYTES_OF_NODE).min(MAX_NODES) * (BYTES_PER_NODE + names.longest)
    } else {
        0
    };
    [rows, texts, nodes]
        .into_iter()
        .fold(trees, u64::saturating_add)
}

/// What a report of so many bytes takes of [`REPORTS_MEMORY_MIB`].
pub(super) fn memory_mib(bytes: u64) -> u32 {
    u32::try_from(bytes >> 20).map_or(REPORTS_MEMORY_MIB, |mib| mib.clamp(1, REPORTS_MEMORY_MIB))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: NameBytes = NameBytes {
        frames: 0,
        all: 0,
        longest: 0,
    };

    // Check that reports on small profiles are made side by side, and on a full one alone.
    #[test]
    fn large_reports_are_made_alone() {
        let mib = |tree_bytes| memory_mib(report_bytes(tree_bytes, PLAIN, false));
        assert_eq!(mib(0), 1);
        assert_eq!(mib(10 << 20), 50);
        assert_eq!(mib(128 << 20), REPORTS_MEMORY_MIB);
        assert_eq!(mib(u64::MAX), REPORTS_MEMORY_MIB);
    }

    // Check that long names count as often as they are repeated: once and again for each row, and
    // for each node where a report names these.
    #[test]
    fn names_count() {
        let long = NameBytes {
            frames: 5_000,
            all: 5_000 * 2_000,
            longest: 2_000,
        };
        let mib = |names_nodes| memory_mib(report_bytes(1 << 20, long, names_nodes));
        assert_eq!(mib(false), 62);
        assert_eq!(mib(true), 109);
    }
}
