//! Room for the nodes of all call trees of a profile together.

/// Bytes one node costs with its weights and its entry in the index.
pub const NODE_BYTES: usize = 128;

/// Room for nodes, shared by all trees of a profile.
///
/// Invariant: the nodes in use never cost more than the bytes it was made with, but for the rows of lost stacks, which are
/// at most one per cause and end of the walk in each tree.
#[derive(Debug)]
pub struct NodeBudget {
    used: usize,
    /// For frames.
    limit: usize,
    /// For frames and the nodes that stand for what has no room.
    reserve: usize,
    cut: u64,
}

impl NodeBudget {
    /// Room for `bytes` of nodes. A ninth of it is kept for the nodes that stand for what has no room.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let nodes = bytes / NODE_BYTES;
        Self {
            used: 0,
            limit: nodes - nodes / 9,
            reserve: nodes,
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
        self.used * NODE_BYTES
    }

    /// Whether so many frames have room.
    #[must_use]
    pub fn has_room(&self, nodes: usize) -> bool {
        self.used.saturating_add(nodes) <= self.limit
    }

    /// Whether a quarter of the room is free: what is made at a time, so that it need not be made often.
    #[must_use]
    pub fn has_quarter(&self) -> bool {
        self.used <= self.limit - self.limit / 4
    }

    /// Gives the nodes of a tree that is gone, or that folding saved, back.
    pub fn release(&mut self, nodes: usize) {
        self.used = self.used.saturating_sub(nodes);
    }

    pub(super) fn count_cut(&mut self) {
        self.cut += 1;
    }

    pub(super) fn take(&mut self, reserve: bool) -> bool {
        let limit = if reserve { self.reserve } else { self.limit };
        let fits = self.used < limit;
        self.used += usize::from(fits);
        fits
    }

    /// A node that must exist whatever the budget says: at most one per cause, end and tree.
    pub(super) fn take_always(&mut self) {
        self.used += 1;
    }
}
