//! What the nodes of a call tree hold of primary data. Most nodes have one or two numbers of those
//! that there are, so only what is not zero is kept: a chain of cells by node.

use std::sync::Arc;

use profiler_common::kinds::{Kind, MARKS, NUMBERS, Primary, TICKS, WAITS};
use serde::{Deserialize, Serialize};

use super::{budget::grow, tree::NodeId, values::is_wait};

/// Which number of a [`Primary`]: its place in [`Primary::numbers`].
pub(super) type What = u8;
/// The waits of one class that are exactly a stack's.
pub(super) const EXACT: What = (TICKS + MARKS) as What;
/// The first of the sums of squares; what weights of marks add to the variance follows.
const SQUARES: What = EXACT + 2 * WAITS as What;
/// Walks.
pub(super) const WALKS: What = (TICKS + 2 * MARKS + 3 * WAITS + 1) as What;

/// The kinds that numbers are marks of, in the order of [`Primary::numbers`].
const KIND_OF: [Option<Kind>; NUMBERS] = [
    Some(Kind::User),
    Some(Kind::User),
    // Calls have marks of their own.
    None,
    Some(Kind::Untraced),
    Some(Kind::Untraced),
    Some(Kind::Untraced),
    Some(Kind::Kernel),
    Some(Kind::Call),
    Some(Kind::CallBlocked),
    Some(Kind::CallRunnable),
    None,
    None,
    Some(Kind::OutsideBlocked),
    Some(Kind::OutsideRunnable),
    None,
    None,
    None,
    None,
    None,
    None,
    None,
];

/// The kind of time that a number is marks of.
pub(super) fn kind_of(what: What) -> Option<Kind> {
    KIND_OF.get(usize::from(what)).copied().flatten()
}

/// The kind of waits that a number grows with.
pub(super) fn wait_of(what: What) -> Option<Kind> {
    let kind = match what.checked_sub(SQUARES) {
        Some(0) => Some(Kind::OutsideBlocked),
        Some(1) => Some(Kind::OutsideRunnable),
        Some(3) => Some(Kind::CallBlocked),
        Some(4) => Some(Kind::CallRunnable),
        _ => kind_of(what),
    };
    kind.filter(|kind| is_wait(*kind))
}

/// Whether a number is sums of squares, or of what weights add to a variance: they stop at the
/// largest number there is.
pub(super) fn is_square(what: What) -> bool {
    (SQUARES..WALKS).contains(&what)
}

/// Whether a number is time: waits that are exactly a stack's, or weighted.
pub(super) fn is_time(what: What) -> bool {
    (EXACT..SQUARES).contains(&what)
}

/// Whether a number is waits that are exactly a stack's.
pub(super) fn is_exact(what: What) -> bool {
    (EXACT..EXACT + WAITS as What).contains(&what)
}

const _: () = assert!(size_of::<NodeNumber>() == 16);

/// The end of a chain.
const END: u32 = u32::MAX;

/// One number of one node.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct NodeNumber {
    amount: u64,
    /// The next cell of the same node.
    next: u32,
    what: What,
}

/// See the module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Weights {
    /// The first cell of each node; nodes beyond have none.
    heads: Arc<Vec<u32>>,
    cells: Arc<Vec<NodeNumber>>,
}

impl Weights {
    /// How many numbers are not zero.
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// How many numbers of a node are not zero.
    pub(super) fn of(&self, node: NodeId) -> usize {
        self.chain(node).count()
    }

    /// Whether a number of a node is not zero.
    pub(super) fn holds(&self, node: NodeId, what: What) -> bool {
        self.chain(node).any(|cell| cell.what == what)
    }

    fn chain(&self, node: NodeId) -> impl Iterator<Item = &NodeNumber> {
        let head = self.heads.get(node.index()).copied().unwrap_or(END);
        let next = |cell: &&NodeNumber| self.cells.get(cell.next as usize);
        std::iter::successors(self.cells.get(head as usize), next)
    }

    /// Adds to one number of a node. Whether it had been zero.
    pub(super) fn add(&mut self, node: NodeId, what: What, amount: u64) -> bool {
        if amount == 0 {
            return false;
        }
        if self.heads.len() <= node.index() {
            let heads = Arc::make_mut(&mut self.heads);
            grow(heads, node.index() + 1);
            heads.resize(node.index() + 1, END);
        }
        let cells = Arc::make_mut(&mut self.cells);
        let mut at = self.heads[node.index()];
        while let Some(cell) = cells.get_mut(at as usize) {
            if cell.what == what {
                cell.amount = cell.amount.saturating_add(amount);
                return false;
            }
            at = cell.next;
        }
        let new = u32::try_from(cells.len()).expect("far fewer than 2^32 numbers fit the budget");
        let head = &mut Arc::make_mut(&mut self.heads)[node.index()];
        grow(cells, cells.len() + 1);
        cells.push(NodeNumber {
            amount,
            next: *head,
            what,
        });
        *head = new;
        true
    }

    /// All numbers that are not zero.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, What, u64)> {
        (0..self.heads.len()).flat_map(|node| {
            let node = NodeId(u32::try_from(node).expect("the budget keeps trees below 2^32"));
            let chain = self.chain(node);
            chain.map(move |cell| (node, cell.what, cell.amount))
        })
    }

    /// Whether every chain is of known numbers, each once, and each cell in one chain, and there
    /// are no more chains than nodes.
    pub(super) fn is_whole(&self, nodes: usize) -> bool {
        let mut seen = vec![false; self.cells.len()];
        let mut reached = 0;
        for head in self.heads.iter() {
            let (mut at, mut whats) = (*head, 0u32);
            while let Some(cell) = self.cells.get(at as usize) {
                let is_known = usize::from(cell.what) < NUMBERS;
                if !is_known || seen[at as usize] || whats & 1 << cell.what != 0 {
                    return false;
                }
                whats |= 1 << cell.what;
                seen[at as usize] = true;
                reached += 1;
                at = cell.next;
            }
        }
        self.heads.len() <= nodes && reached == self.cells.len()
    }

    /// Takes in others under new numbers of their nodes.
    pub(super) fn absorb(&mut self, other: &Self, nodes: &[NodeId]) {
        for (node, what, amount) in other.iter() {
            self.add(nodes[node.index()], what, amount);
        }
    }
}

/// Adds to one number.
pub(super) fn add_to(primary: &mut Primary, what: What, amount: u64) {
    debug_assert!(usize::from(what) < NUMBERS);
    if let Some(number) = primary.numbers_mut().into_iter().nth(usize::from(what)) {
        *number = number.saturating_add(amount);
    }
}
