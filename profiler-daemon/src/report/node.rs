//! A place in the tree of a report.

use super::product::Values;

/// The root of every merged tree.
pub(super) const ROOT: u32 = 0;

/// A function called from one place in the tree.
pub(super) struct MergedNode {
    pub(super) parent: u32,
    pub(super) function: u32,
    pub(super) own: Values,
    pub(super) total: Values,
}

impl MergedNode {
    pub(super) fn new(parent: u32, function: u32) -> Self {
        Self {
            parent,
            function,
            own: Values::default(),
            total: Values::default(),
        }
    }
}
