//! What is left of a call tree when some of its nodes give their room back.

use profiler_common::StackEnd;

use super::{
    fold::Staying,
    input::LossCause,
    tree::{Node, NodeId, NodePlace, Tree},
};

/// What is above a node that is folded.
#[derive(Clone, Copy)]
struct Above {
    /// The last node that stays, by its new number.
    stays: NodeId,
    /// The innermost user frame below that, if it is kept as such: its old number and its new one.
    user: Option<(usize, NodeId)>,
    /// Whether all that is folded are kernel frames.
    kernel: bool,
    /// How the walk ended.
    end: StackEnd,
}

impl Default for Above {
    fn default() -> Self {
        Self {
            stays: NodeId::ROOT,
            user: None,
            kernel: false,
            end: StackEnd::None,
        }
    }
}

impl Tree {
    /// Keeps the nodes of `keep.path`, which holds every parent of what it holds. The others become
    /// part of one [`NodePlace::Folded`] below the last node that stays, or of
    /// [`LossCause::Folded`] below the root, or those of `keep.frame` nodes below that: never more
    /// nodes than before.
    /// Returns the new number of each node that stays or is `named`; what is neither has that of
    /// the last node above it that stays.
    pub(super) fn prune(&mut self, keep: &Staying, named: &[bool]) -> Vec<NodeId> {
        let staying = keep.path.iter().filter(|keep| **keep).count();
        let old = self.take_nodes(staying);
        let mut map: Vec<NodeId> = Vec::with_capacity(old.len());
        let mut above: Vec<Above> = Vec::with_capacity(old.len());
        map.push(NodeId::ROOT);
        above.push(Above::default());
        for (index, node) in old.iter().enumerate().skip(1) {
            let parent = node.parent.index();
            let mut here = above[parent];
            if node.parent == NodeId::ROOT {
                here.end = node.end;
            }
            let in_kernel = NodePlace::Folded { kernel: true };
            let is_kernel = matches!(node.place, NodePlace::Kernel(_)) || node.place == in_kernel;
            if keep.path[parent] {
                here.kernel = is_kernel;
            }
            let is_frame = keep.frame[index] && node.parent != NodeId::ROOT;
            let target = if keep.path[index] {
                let parent = map[parent];
                here.stays = if node.place.is_folded() {
                    self.known_or_new(parent, node.place, node.end)
                } else {
                    // No other node becomes the same, so it need not be looked for.
                    self.push(Node { parent, ..*node })
                };
                here.user = None;
                here.stays
            } else if let (NodePlace::User(_), true) = (node.place, is_frame) {
                let remainder = self.remainder(&here);
                let user = self.known_or_new(remainder, node.place, StackEnd::None);
                here.user = Some((index, user));
                user
            } else if let (NodePlace::Kernel(_), true) = (node.place, is_frame) {
                let below = match here.user {
                    Some((caller, user)) if caller == parent => user,
                    Some((_, user)) => self.known_or_new(user, in_kernel, StackEnd::None),
                    None => self.remainder(&here),
                };
                self.known_or_new(below, node.place, StackEnd::None)
            } else {
                here.user = here.user.filter(|_| is_kernel);
                match here.user {
                    _ if !named[index] => here.stays,
                    Some((_, user)) => self.known_or_new(user, in_kernel, StackEnd::None),
                    None => self.remainder(&here),
                }
            };
            map.push(target);
            above.push(here);
        }
        map
    }

    /// What stands for what was folded below the last node that stays.
    fn remainder(&mut self, above: &Above) -> NodeId {
        let parent = above.stays;
        if parent == NodeId::ROOT {
            return self.known_or_new(parent, NodePlace::Lost(LossCause::Folded), above.end);
        }
        if self.nodes()[parent.index()].place.is_folded() {
            return parent;
        }
        let kernel = above.kernel;
        self.known_or_new(parent, NodePlace::Folded { kernel }, StackEnd::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{budget::NodeBudget, frames::FrameId};

    fn frames(ids: &[u32]) -> Vec<FrameId> {
        ids.iter().map(|id| FrameId(*id)).collect()
    }

    // Check that pruning keeps the paths that stay, gives each the remainder of what hung from it,
    // tells kernel frames apart, and that a folded path is made anew when it comes again.
    #[test]
    fn prune_leaves_remainders() {
        let mut budget = NodeBudget::new(1 << 20);
        let mut tree = Tree::default();
        let end = StackEnd::Complete;
        let deep = tree.insert(&frames(&[1, 2, 3, 4]), &[], end, None, &mut budget);
        let other = tree.insert(&frames(&[1, 2, 5]), &[], end, None, &mut budget);
        let kernel = tree.insert(&frames(&[1, 2]), &frames(&[9, 8]), end, None, &mut budget);
        let gone = tree.insert(
            &frames(&[7, 6]),
            &[],
            StackEnd::TRUNCATED,
            None,
            &mut budget,
        );
        // 1 and 2 stay.
        let keep = Staying {
            path: (0..tree.nodes().len()).map(|index| index < 3).collect(),
            frame: vec![false; tree.nodes().len()],
        };
        let map = tree.prune(&keep, &vec![true; tree.nodes().len()]);
        let place = |id: NodeId| tree.nodes()[map[id.index()].index()];
        assert_eq!(place(deep.leaf).place, NodePlace::Folded { kernel: false });
        assert_eq!(map[deep.leaf.index()], map[other.leaf.index()]);
        assert_eq!(place(deep.leaf).parent, map[2]);
        assert_eq!(place(kernel.leaf).place, NodePlace::Folded { kernel: true });
        assert_eq!(place(gone.leaf).place, NodePlace::Lost(LossCause::Folded));
        assert_eq!(place(gone.leaf).end, StackEnd::TRUNCATED);
        assert_eq!(tree.budgeted(), 5);
        let again = tree.insert(&frames(&[1, 2, 5]), &[], end, None, &mut budget);
        assert_eq!(
            tree.nodes()[again.leaf.index()].place,
            NodePlace::User(FrameId(5))
        );
        assert_eq!(tree.nodes()[again.leaf.index()].parent, map[2]);
    }

    // Check that frames that stay without their callers are below the remainder of what stays, once
    // for all stacks that lead to them, that a kernel frame stays with the user frame that called
    // it, and that another tree takes them over as they are.
    #[test]
    fn prune_keeps_frames_without_callers() {
        let mut budget = NodeBudget::new(1 << 20);
        let mut tree = Tree::default();
        let end = StackEnd::Complete;
        let mut insert = |user: &[u32], kernel: &[u32]| {
            tree.insert(&frames(user), &frames(kernel), end, None, &mut budget)
                .leaf
        };
        let leaves = [
            insert(&[1, 2, 3, 9], &[]),
            insert(&[1, 4, 9], &[]),
            insert(&[1, 4, 8], &[20, 21, 22]),
            insert(&[1, 5, 7], &[]),
            insert(&[6, 3, 9], &[]),
        ];
        let before = tree.budgeted();
        let is = |index: usize, ids: &[u32]| match tree.nodes()[index].place {
            NodePlace::User(frame) | NodePlace::Kernel(frame) => ids.contains(&frame.0),
            _ => false,
        };
        let all = 0..tree.nodes().len();
        let keep = Staying {
            path: all.clone().map(|index| index < 2).collect(),
            frame: all.clone().map(|index| is(index, &[8, 9, 22])).collect(),
        };
        let map = tree.prune(&keep, &vec![true; all.len()]);
        assert!(tree.budgeted() < before);
        let path = |leaf: NodeId| {
            let mut path = Vec::new();
            let mut at = map[leaf.index()];
            while at != NodeId::ROOT {
                let node = tree.nodes()[at.index()];
                path.push(node.place);
                at = node.parent;
            }
            path.reverse();
            path
        };
        let user = |id: u32| NodePlace::User(FrameId(id));
        let (folded, in_kernel) = (
            NodePlace::Folded { kernel: false },
            NodePlace::Folded { kernel: true },
        );
        assert_eq!(map[leaves[0].index()], map[leaves[1].index()]);
        let paths = leaves.map(path);
        assert_eq!(paths[0], [user(1), folded, user(9)]);
        let kernel = NodePlace::Kernel(FrameId(22));
        assert_eq!(paths[2], [user(1), folded, user(8), in_kernel, kernel]);
        assert_eq!(paths[3], [user(1), folded]);
        assert_eq!(paths[4], [NodePlace::Lost(LossCause::Folded), user(9)]);
        let mut other = Tree::default();
        other.absorb(tree.nodes(), &mut budget);
        assert_eq!(other.nodes(), tree.nodes());
    }
}
