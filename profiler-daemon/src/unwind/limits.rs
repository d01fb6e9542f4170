//! Bounds on building a table.

/// Shorter holes between functions are padding, and continue the function before: the row saved is
/// one in three.
pub(super) const PADDING_BYTES: u64 = 16;

/// Bounds on what a table may take to build.
#[derive(Clone, Copy, Debug)]
pub struct BuildLimits {
    /// Most bytes of unwind information; they are held in memory meanwhile.
    pub max_section_bytes: u64,
    /// Most functions; 24 bytes of memory each meanwhile.
    pub max_functions: usize,
    /// Most rows; 8 bytes each.
    pub max_rows: usize,
    /// Most bytes of code without unwind information that are read.
    pub max_scan_bytes: u64,
}

impl Default for BuildLimits {
    fn default() -> Self {
        Self {
            max_section_bytes: 256 << 20,
            max_functions: 4 << 20,
            max_rows: 8 << 20,
            max_scan_bytes: 64 << 20,
        }
    }
}
