//! What a merged tree shows.

use super::{
    fold::Folding,
    merged_tree::Label,
    query::{FrameScope, SectionMode},
};

/// See the module.
pub(super) struct TreeOptions<'n> {
    pub(super) frames: FrameScope,
    pub(super) label: Label<'n>,
    pub(super) folding: Folding,
    pub(super) sections: SectionMode,
    /// Whether the waits of threads that idle hang from a section of their own.
    pub(super) idle_apart: bool,
}

impl<'n> TreeOptions<'n> {
    /// All functions, not told apart by process.
    pub(super) fn plain(frames: FrameScope, label: Label<'n>) -> Self {
        Self {
            frames,
            label,
            folding: Folding::default(),
            sections: SectionMode::None,
            idle_apart: false,
        }
    }
}
