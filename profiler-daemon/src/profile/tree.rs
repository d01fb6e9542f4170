//! The call tree of one process: every distinct stack is a path from the root, shared beginnings
//! are stored once.
//!
//! The tree holds structure only; what the stacks weigh is in a vector beside it, indexed by node.
//! Nodes are appended, and `Tree::prune` numbers those that stay anew, so a parent's number is
//! always below its children's. All trees of a profile share one [`NodeBudget`].

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use hashbrown::HashTable;
use profiler_common::StackEnd;
use serde::{Deserialize, Serialize};

use super::{
    budget::{NodeBudget, grow},
    frames::FrameId,
    input::LossCause,
};

/// Deepest path stored; what lies below goes to a [`NodePlace::Cut`] node.
pub const MAX_DEPTH: usize = 640;

/// The number of a node in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The root of every tree.
    pub const ROOT: Self = Self(0);

    /// As an index into a vector beside the tree.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NodePlace {
    /// A user frame.
    User(FrameId),
    /// A kernel frame.
    Kernel(FrameId),
    /// A stack whose body is not known; child of the root.
    Lost(LossCause),
    /// Whatever was called from the parent and found no room in the tree.
    Cut,
    /// Whatever was called from the parent and gave its room to others later. Frames below it are
    /// the innermost of stacks whose frames in between did.
    Folded {
        /// All of it are kernel frames: the parent is the innermost user frame, or a kernel frame
        /// itself.
        kernel: bool,
    },
}

impl NodePlace {
    /// Whether it stands for stacks that gave their room to others.
    #[must_use]
    pub const fn is_folded(self) -> bool {
        matches!(self, Self::Folded { .. } | Self::Lost(LossCause::Folded))
    }
}

/// One node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The caller; the root is its own.
    pub parent: NodeId,
    /// What the node stands for; of no meaning for the root.
    pub place: NodePlace,
    /// How the walks of the stacks below ended; told apart at the outermost frame only, `None`
    /// elsewhere.
    #[serde(with = "end_as_number")]
    pub end: StackEnd,
}

/// Ends of walks, written as the kernel side writes them.
mod end_as_number {
    use profiler_common::StackEnd;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
    pub(super) fn serialize<S: Serializer>(end: &StackEnd, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(end.to_u32())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<StackEnd, D::Error> {
        let number = u32::deserialize(from)?;
        StackEnd::from_u32(number).ok_or_else(|| D::Error::custom("no such end of a walk"))
    }
}

/// What makes a node the child it is, packed so that it is hashed in one step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct ChildKey(u128);

impl ChildKey {
    fn new(parent: NodeId, place: NodePlace, end: StackEnd) -> Self {
        let (sort, detail) = match place {
            NodePlace::User(frame) => (0, frame.0),
            NodePlace::Kernel(frame) => (1, frame.0),
            NodePlace::Lost(cause) => (2, cause as u32),
            NodePlace::Cut => (3, 0),
            NodePlace::Folded { kernel } => (4, u32::from(kernel)),
        };
        let tags = u128::from(sort << 8 | end.to_u32());
        Self(tags << 64 | u128::from(parent.0) << 32 | u128::from(detail))
    }

    fn of(node: &Node) -> Self {
        Self::new(node.parent, node.place, node.end)
    }
}

/// Where a stack ended up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    /// The innermost node: time and samples go here.
    pub leaf: NodeId,
    /// The outermost node: walks go here.
    pub outermost: NodeId,
}

/// The structure of a call tree.
#[derive(Debug)]
pub struct Tree {
    nodes: Arc<Vec<Node>>,
    /// The nodes by their [`ChildKey`], which is read off them.
    index: HashTable<NodeId>,
    /// Programs choose what is in the index, so they must not know where in it.
    hasher: RandomState,
}

const _: () = assert!(size_of::<Node>() == 16);

impl Default for Tree {
    fn default() -> Self {
        Self::with_room(1)
    }
}

impl Tree {
    /// An empty one that need not grow for so many nodes, the root included.
    fn with_room(nodes: usize) -> Self {
        let root = Node {
            parent: NodeId::ROOT,
            place: NodePlace::Cut,
            end: StackEnd::None,
        };
        let mut list = Vec::with_capacity(nodes);
        list.push(root);
        Self {
            nodes: Arc::new(list),
            index: HashTable::with_capacity(nodes - 1),
            hasher: RandomState::new(),
        }
    }

    /// The nodes, root first, parents before children.
    #[must_use]
    pub fn nodes(&self) -> &Arc<Vec<Node>> {
        &self.nodes
    }

    /// How many nodes count against the budget: all but the root.
    #[must_use]
    pub fn budgeted(&self) -> usize {
        self.nodes.len() - 1
    }

    /// The path of a stack, made where it is new and there is room.
    pub fn insert(
        &mut self,
        user: &[FrameId],
        kernel: &[FrameId],
        end: StackEnd,
        lost: Option<LossCause>,
        budget: &mut NodeBudget,
    ) -> Landing {
        if let Some(cause) = lost {
            return self.lost(cause, end, budget);
        }
        let places = user.iter().map(|f| NodePlace::User(*f));
        let places = places.chain(kernel.iter().map(|f| NodePlace::Kernel(*f)));
        let mut at = NodeId::ROOT;
        let mut outermost = NodeId::ROOT;
        for (depth, place) in places.enumerate() {
            let next = if depth < MAX_DEPTH {
                self.child(at, place, end, budget)
            } else {
                None
            };
            let Some(next) = next else {
                budget.count_cut();
                return self.cut(at, outermost, end, budget);
            };
            if depth == 0 {
                outermost = next;
            }
            at = next;
        }
        if at == NodeId::ROOT {
            return self.lost(LossCause::NoFrames, end, budget);
        }
        Landing {
            leaf: at,
            outermost,
        }
    }

    /// Whether `leaf` is where this stack leads, found by climbing: cheaper than [`Self::insert`]
    /// for a stack that was there in the last pass too.
    #[must_use]
    pub fn is_path(
        &self,
        leaf: NodeId,
        user: &[FrameId],
        kernel: &[FrameId],
        end: StackEnd,
    ) -> bool {
        let kernel = kernel.iter().rev().map(|f| NodePlace::Kernel(*f));
        let places = kernel.chain(user.iter().rev().map(|f| NodePlace::User(*f)));
        let (mut at, mut ends_in) = (leaf, StackEnd::None);
        for place in places {
            let node = &self.nodes[at.index()];
            if at == NodeId::ROOT || node.place != place {
                return false;
            }
            (at, ends_in) = (node.parent, node.end);
        }
        leaf != NodeId::ROOT && at == NodeId::ROOT && ends_in == end
    }

    /// The numbers that the nodes of `other` get in this tree, made where they are new and there is
    /// room.
    pub fn absorb(&mut self, other: &[Node], budget: &mut NodeBudget) -> Vec<NodeId> {
        let mut map: Vec<NodeId> = Vec::with_capacity(other.len());
        map.push(NodeId::ROOT);
        for node in other.iter().skip(1) {
            let parent = map[node.parent.index()];
            let target = match (node.place, self.nodes[parent.index()].place) {
                _ if parent == NodeId::ROOT => match node.place {
                    NodePlace::Lost(cause) => self.lost(cause, node.end, budget).leaf,
                    place => self
                        .child(parent, place, node.end, budget)
                        .unwrap_or_else(|| {
                            budget.count_cut();
                            self.lost(LossCause::TreeFull, node.end, budget).leaf
                        }),
                },
                // The parent found no room: all below it is the same remainder.
                (_, found @ (NodePlace::Cut | NodePlace::Folded { .. } | NodePlace::Lost(_)))
                    if found != other[node.parent.index()].place =>
                {
                    parent
                }
                (place, _) => self
                    .child(parent, place, node.end, budget)
                    .unwrap_or_else(|| {
                        budget.count_cut();
                        self.cut(parent, parent, node.end, budget).leaf
                    }),
            };
            map.push(target);
        }
        map
    }

    /// Takes all nodes out. What is made anew has room for so many, the root included.
    pub(super) fn take_nodes(&mut self, room: usize) -> Arc<Vec<Node>> {
        // Made anew, as what was taken out leaves no room behind.
        self.index = HashTable::new();
        std::mem::replace(self, Self::with_room(room)).nodes
    }

    fn known(&self, parent: NodeId, place: NodePlace, end: StackEnd) -> Option<NodeId> {
        let wanted = Node { parent, place, end };
        let hash = self.hasher.hash_one(ChildKey::of(&wanted));
        let is_it = |id: &NodeId| self.nodes[id.index()] == wanted;
        self.index.find(hash, is_it).copied()
    }

    pub(super) fn known_or_new(
        &mut self,
        parent: NodeId,
        place: NodePlace,
        end: StackEnd,
    ) -> NodeId {
        match self.known(parent, place, end) {
            Some(id) => id,
            None => self.push(Node { parent, place, end }),
        }
    }

    fn child(
        &mut self,
        parent: NodeId,
        place: NodePlace,
        end: StackEnd,
        budget: &mut NodeBudget,
    ) -> Option<NodeId> {
        let end = if parent == NodeId::ROOT {
            end
        } else {
            StackEnd::None
        };
        if let Some(id) = self.known(parent, place, end) {
            return Some(id);
        }
        budget
            .take(matches!(place, NodePlace::Cut | NodePlace::Folded { .. }))
            .then(|| self.push(Node { parent, place, end }))
    }

    pub(super) fn lost(
        &mut self,
        cause: LossCause,
        end: StackEnd,
        budget: &mut NodeBudget,
    ) -> Landing {
        let place = NodePlace::Lost(cause);
        let leaf = match self.known(NodeId::ROOT, place, end) {
            Some(id) => id,
            None => {
                budget.take_always();
                self.push(Node {
                    parent: NodeId::ROOT,
                    place,
                    end,
                })
            }
        };
        Landing {
            leaf,
            outermost: leaf,
        }
    }

    /// No room below `at`: its remainder, or `[unknown]` where even that finds none.
    fn cut(
        &mut self,
        at: NodeId,
        outermost: NodeId,
        end: StackEnd,
        budget: &mut NodeBudget,
    ) -> Landing {
        if at != NodeId::ROOT
            && let Some(leaf) = self.child(at, NodePlace::Cut, end, budget)
        {
            return Landing { leaf, outermost };
        }
        self.lost(LossCause::TreeFull, end, budget)
    }

    pub(super) fn push(&mut self, node: Node) -> NodeId {
        let id = NodeId(
            u32::try_from(self.nodes.len()).expect("the budget keeps trees far below 2^32 nodes"),
        );
        let nodes = Arc::make_mut(&mut self.nodes);
        grow(nodes, id.index() + 1);
        nodes.push(node);
        let hash = |id: &NodeId| self.hasher.hash_one(ChildKey::of(&nodes[id.index()]));
        self.index.insert_unique(hash(&id), id, hash);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::budget::NODE_BYTES;

    fn frames(ids: &[u32]) -> Vec<FrameId> {
        ids.iter().map(|id| FrameId(*id)).collect()
    }

    // Check that stacks share their common beginning and that user and kernel frames are told
    // apart.
    #[test]
    fn beginnings_are_shared() {
        let mut budget = NodeBudget::new(1 << 20);
        let mut tree = Tree::default();
        let end = StackEnd::Complete;
        let one = tree.insert(&frames(&[1, 2]), &frames(&[9]), end, None, &mut budget);
        let two = tree.insert(&frames(&[1, 2, 9]), &[], end, None, &mut budget);
        assert_eq!(one.outermost, two.outermost);
        assert_ne!(one.leaf, two.leaf);
        assert_eq!(tree.nodes().len(), 5);
        assert_eq!(
            tree.insert(&frames(&[1, 2]), &frames(&[9]), end, None, &mut budget),
            one
        );
        // The same outermost frame with another end of the walk is another path.
        let broken = tree.insert(&frames(&[1]), &[], StackEnd::TRUNCATED, None, &mut budget);
        assert_ne!(broken.outermost, one.outermost);
        assert_eq!(budget.used_bytes(), tree.budgeted() * NODE_BYTES);
    }

    // Check that climbing knows a stack from its beginning, its continuation, and the same frames
    // of another kind or end.
    #[test]
    fn climbing() {
        let mut budget = NodeBudget::new(1 << 20);
        let mut tree = Tree::default();
        let end = StackEnd::Complete;
        let leaf = tree
            .insert(&frames(&[1, 2]), &frames(&[9]), end, None, &mut budget)
            .leaf;
        assert!(tree.is_path(leaf, &frames(&[1, 2]), &frames(&[9]), end));
        assert!(!tree.is_path(leaf, &frames(&[1, 2]), &frames(&[9]), StackEnd::TRUNCATED));
        assert!(!tree.is_path(leaf, &frames(&[2]), &frames(&[9]), end));
        assert!(!tree.is_path(leaf, &frames(&[0, 1, 2]), &frames(&[9]), end));
        assert!(!tree.is_path(leaf, &frames(&[1, 2, 9]), &[], end));
        assert!(!tree.is_path(leaf, &[], &[], end));
        assert!(!tree.is_path(NodeId::ROOT, &[], &[], end));
    }

    // Check that without room a stack lands on the remainder of its longest known beginning, else
    // on "tree full".
    #[test]
    fn no_room_is_counted() {
        let mut budget = NodeBudget::new(9 * NODE_BYTES);
        let mut tree = Tree::default();
        let end = StackEnd::Complete;
        tree.insert(
            &frames(&[1, 2, 3, 4, 5, 6, 7, 8]),
            &[],
            end,
            None,
            &mut budget,
        );
        let cut = tree.insert(&frames(&[1, 2, 99, 98]), &[], end, None, &mut budget);
        assert_eq!(tree.nodes()[cut.leaf.index()].place, NodePlace::Cut);
        assert_eq!(tree.nodes()[cut.leaf.index()].parent, NodeId(2));
        let lost = tree.insert(&frames(&[1, 77]), &[], end, None, &mut budget);
        assert_eq!(
            tree.nodes()[lost.leaf.index()].place,
            NodePlace::Lost(LossCause::TreeFull)
        );
        assert_eq!(budget.cut(), 2);
    }

    // Check that absorbing a tree keeps every path, and that a full budget sends the rest to
    // remainders.
    #[test]
    fn absorb_keeps_paths() {
        let mut budget = NodeBudget::new(10 * NODE_BYTES);
        let mut small = Tree::default();
        let leaf = small.insert(
            &frames(&[1, 2, 3]),
            &[],
            StackEnd::Complete,
            None,
            &mut budget,
        );
        let mut all = Tree::default();
        let there = all.insert(&frames(&[1, 2]), &[], StackEnd::Complete, None, &mut budget);
        let map = all.absorb(small.nodes(), &mut budget);
        assert_eq!(map[leaf.outermost.index()], there.outermost);
        assert_eq!(
            all.nodes()[map[leaf.leaf.index()].index()].parent,
            there.leaf
        );
        let mut full = NodeBudget::new(0);
        let mut none = Tree::default();
        let map = none.absorb(small.nodes(), &mut full);
        assert!(map.iter().skip(1).all(|id| *id == NodeId(1)));
        assert_eq!(none.nodes()[1].place, NodePlace::Lost(LossCause::TreeFull));
    }
}
