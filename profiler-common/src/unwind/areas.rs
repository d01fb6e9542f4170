//! The kernel's account of a process's memory since Linux 6.1: a maple tree of areas
//! (`vm_area_struct`), by which the walker finds what is mapped at an address that the daemon has
//! not told it of yet. Only the search within one node: reading memory is the walker's.
//!
//! Source: `include/linux/maple_tree.h` and `lib/maple_tree.c` of the kernel. The tree may change
//! while it is read, so what is found is to be checked.

/// Words of a node (`maple_node`).
pub const NODE_WORDS: usize = 32;
/// Nodes from the root to an area at most: 65530 areas (`vm.max_map_count`), and each node at
/// least half full, need seven.
pub const MAX_DEPTH: u32 = 8;

/// A node: words of `maple_range_64` (leaves too) or `maple_arange_64`.
pub type Node = [u64; NODE_WORDS];

/// Word of the first pivot, the last address of the first slot.
pub const PIVOTS: usize = 1;
/// Slots of a node at most: a power of two.
const SLOTS: usize = 16;
/// Word of the first slot of a `maple_range_64`; there is one pivot less than slots.
pub const RANGE_SLOTS: usize = 16;
/// Word that says which slot is the last one in use (its lowest byte) where a `maple_range_64` is
/// not full.
pub const RANGE_META: usize = 31;
/// Word of the first slot of a `maple_arange_64`.
pub const GAP_RANGE_SLOTS: usize = 10;
/// Word that says which slot is the last one in use.
pub const GAP_RANGE_META: usize = 30;

/// Kinds from here on have nodes in their slots, those below have areas (`maple_range_64`).
const RANGE_64: u64 = 2;
/// `maple_arange_64`.
const GAP_RANGE_64: u64 = 3;

/// A reference to a node, with the node's kind in its lowest byte (`maple_enode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRef(pub u64);

impl NodeRef {
    /// Where the node lies.
    #[must_use]
    #[inline(always)]
    pub const fn address(self) -> u64 {
        self.0 & !0xff
    }

    const fn kind(self) -> u64 {
        self.0 >> 3 & 0xf
    }

    /// Whether its slots refer to areas and not to nodes.
    #[must_use]
    #[inline(always)]
    pub const fn is_leaf(self) -> bool {
        self.kind() < RANGE_64
    }

    /// The slot of the node that covers `address`, which lies in what the node covers: as many are
    /// passed as there are pivots in use below the address, and these ascend. `zero` is 0, from
    /// where the verifier does not know it: else it would follow each way through the search.
    #[must_use]
    #[inline(always)]
    pub fn slot(self, node: &Node, address: u64, zero: u64) -> u64 {
        let (first, last) = if self.kind() == GAP_RANGE_64 {
            (GAP_RANGE_SLOTS, node[GAP_RANGE_META] & 0xff)
        } else if node[RANGE_SLOTS - 1] == 0 {
            (RANGE_SLOTS, node[RANGE_META] & 0xff)
        } else {
            (RANGE_SLOTS, (RANGE_SLOTS - PIVOTS) as u64)
        };
        let mut passed = zero as usize % SLOTS;
        let mut step = SLOTS / 2;
        while step > 0 {
            let more = (passed + step) % SLOTS;
            if more as u64 <= last && node[(PIVOTS - 1 + more) % NODE_WORDS] < address {
                passed = more;
            }
            step /= 2;
        }
        node[(first + passed) % NODE_WORDS]
    }
}

/// Whether a slot of a leaf can be the address of an area, and is not free.
#[must_use]
#[inline(always)]
pub const fn is_area(slot: u64) -> bool {
    slot != 0 && slot & 7 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slot of the address.
    fn slot(reference: NodeRef, node: &Node, address: u64) -> u64 {
        reference.slot(node, address, 0)
    }

    const LEAF: NodeRef = NodeRef(0xffff_8881_0000_0100 | 1 << 3 | 4);
    const GAPS: NodeRef = NodeRef(0xffff_8881_0000_0200 | 3 << 3 | 4);

    fn node(pivots: &[u64], first: usize, meta: Option<(usize, u64)>) -> Node {
        let mut node = [0; NODE_WORDS];
        node[PIVOTS..PIVOTS + pivots.len()].copy_from_slice(pivots);
        for slot in 0..=pivots.len() {
            node[first + slot] = 1000 + slot as u64 * 8;
        }
        if let Some((at, last)) = meta {
            node[at] = last;
        }
        node
    }

    // Check that a reference tells where its node lies and whether it is a leaf.
    #[test]
    fn references() {
        assert_eq!(LEAF.address(), 0xffff_8881_0000_0100);
        assert!(LEAF.is_leaf() && !GAPS.is_leaf());
        assert!(!NodeRef(2 << 3 | 4).is_leaf());
        assert!(is_area(0xffff_8881_0000_0108));
        assert!(!is_area(0) && !is_area(LEAF.0));
    }

    // Check that the slot is the first whose last address is not below the one looked for, in a
    // leaf that is not full, one that is, and a node that keeps gaps.
    #[test]
    fn slots() {
        let few = node(&[0xfff, 0x1fff, 0x4fff], RANGE_SLOTS, Some((RANGE_META, 3)));
        assert_eq!(slot(LEAF, &few, 0), 1000);
        assert_eq!(slot(LEAF, &few, 0xfff), 1000);
        assert_eq!(slot(LEAF, &few, 0x1000), 1008);
        assert_eq!(slot(LEAF, &few, 0x4fff), 1016);
        assert_eq!(slot(LEAF, &few, 0x5000), 1024);
        assert_eq!(slot(LEAF, &few, 0x7fff_ffff_f000), 1024);
        let pivots: [u64; 15] = core::array::from_fn(|slot| (slot as u64 + 1) * 0x1000 - 1);
        let full = node(&pivots, RANGE_SLOTS, None);
        assert_eq!(slot(LEAF, &full, 0xefff), 1000 + 14 * 8);
        assert_eq!(slot(LEAF, &full, 0xf000), 1000 + 15 * 8);
        let gaps = node(&pivots[..9], GAP_RANGE_SLOTS, Some((GAP_RANGE_META, 9)));
        assert_eq!(slot(GAPS, &gaps, 0x8fff), 1000 + 8 * 8);
        assert_eq!(slot(GAPS, &gaps, 0x9000), 1000 + 9 * 8);
        let mut outermost = node(&[0xfff, u64::MAX], RANGE_SLOTS, Some((RANGE_META, 1)));
        assert_eq!(slot(LEAF, &outermost, 0x1000), 1008);
        outermost[RANGE_META] = 2;
        assert_eq!(slot(LEAF, &outermost, 0x1000), 1008);
    }

    // Check that pivots behind the last slot in use, which the kernel may leave there, are not
    // looked at.
    #[test]
    fn what_is_behind_the_last_slot() {
        let mut old = node(
            &[0xfff, 0x1fff, 0x4fff],
            GAP_RANGE_SLOTS,
            Some((GAP_RANGE_META, 1)),
        );
        assert_eq!(slot(GAPS, &old, 0x3000), 1008);
        // Anything at all leads to some word of the node.
        old[GAP_RANGE_META] = 0xff;
        assert_eq!(slot(GAPS, &old, u64::MAX), 0);
    }
}
