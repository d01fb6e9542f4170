//! How much memory reports take: many on large profiles at the same time would take more than the
//! service may have.

/// Memory for reports that are made at the same time, in MiB: what they all may take at once, where
/// no single one takes more.
pub(super) const REPORTS_MEMORY_MIB: u32 = 256;
/// What a report takes at most for each byte of call trees.
const BYTES_PER_TREE_BYTE: u64 = 5;

/// What a report on so many bytes of call trees takes of [`REPORTS_MEMORY_MIB`].
pub(super) fn memory_mib(tree_bytes: u64) -> u32 {
    let mib = tree_bytes.saturating_mul(BYTES_PER_TREE_BYTE) >> 20;
    u32::try_from(mib).map_or(REPORTS_MEMORY_MIB, |mib| mib.clamp(1, REPORTS_MEMORY_MIB))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that reports on small profiles are made side by side, and on a full one alone.
    #[test]
    fn large_reports_are_made_alone() {
        assert_eq!(memory_mib(0), 1);
        assert_eq!(memory_mib(10 << 20), 50);
        assert_eq!(memory_mib(128 << 20), REPORTS_MEMORY_MIB);
        assert_eq!(memory_mib(u64::MAX), REPORTS_MEMORY_MIB);
    }
}
