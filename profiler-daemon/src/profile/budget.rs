//! Room for the nodes of all call trees of a profile together.

use profiler_common::kinds::NUMBERS;

/// Bytes one node costs at most: itself and its place in the list of chains, each with an eighth of
/// room to grow, and its entry in the index, which doubles.
pub const NODE_BYTES: usize = 34;
/// Bytes one number of a node costs that is not zero.
pub const CELL_BYTES: usize = 18;

/// Room for nodes and what they hold, shared by all trees of a profile.
///
/// Invariant: what is in use never costs more than the bytes it was made with, but for the rows of
/// lost stacks, which are at most one per cause and end of the walk in each tree.
#[derive(Debug)]
pub struct NodeBudget {
    /// Bytes.
    used: usize,
    /// For frames, bytes.
    limit: usize,
    /// For frames, numbers, and the nodes that stand for what has no room; bytes.
    reserve: usize,
    cut: u64,
}

impl NodeBudget {
    /// Room for so many bytes. A ninth of it is kept for the nodes that stand for what has no room.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self {
            used: 0,
            limit: bytes - bytes / 9,
            reserve: bytes,
            cut: 0,
        }
    }

    /// Stacks that lost their innermost frames, or all, for want of room.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Bytes in use.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used
    }

    /// Bytes there are for frames.
    pub(super) fn limit_bytes(&self) -> usize {
        self.limit
    }

    /// Whether a stack of so many frames has room.
    #[must_use]
    pub fn has_room(&self, frames: usize) -> bool {
        let bytes = frames * NODE_BYTES + NUMBERS * CELL_BYTES;
        self.used.saturating_add(bytes) <= self.limit
    }

    /// Bytes to give back until a quarter of the room is free: what is made at a time, so that it
    /// need not be made often.
    pub(super) fn lacking_bytes(&self) -> usize {
        self.used.saturating_sub(self.limit - self.limit / 4)
    }

    /// Gives the bytes of a tree that is gone, or that folding saved, back.
    pub fn release(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }

    pub(super) fn count_cut(&mut self) {
        self.cut += 1;
    }

    pub(super) fn take(&mut self, reserve: bool) -> bool {
        let limit = if reserve { self.reserve } else { self.limit };
        let fits = self.used + NODE_BYTES <= limit;
        self.used += if fits { NODE_BYTES } else { 0 };
        fits
    }

    /// Whether one more number has room.
    pub(super) fn has_cell(&self) -> bool {
        self.used + CELL_BYTES <= self.reserve
    }

    /// A number that must be kept whatever the budget says.
    pub(super) fn take_cell(&mut self) {
        self.used += CELL_BYTES;
    }

    /// A node that must exist whatever the budget says: at most one per cause, end and tree.
    pub(super) fn take_always(&mut self) {
        self.used += NODE_BYTES;
    }
}

/// Makes room for so many in all, an eighth more than needed at a time: what the budget charges is
/// what is held.
pub(super) fn grow<T>(list: &mut Vec<T>, len: usize) {
    if len > list.capacity() {
        list.reserve_exact(len - list.len() + len / 8);
    }
}

/// Bytes of a `BTreeMap` of so many entries, roughly: each of its leaves has room for eleven, and
/// most are two thirds full.
pub(super) const fn leaves_bytes<K, V>(len: usize) -> usize {
    const ROOM: usize = 11;
    const FULL: usize = 7;
    const LINKS: usize = 32;
    len.div_ceil(FULL) * (LINKS + ROOM * (size_of::<K>() + size_of::<V>()))
}
