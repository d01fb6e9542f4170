//! The merged tree of a whole view, and what it says of the view's stacks.

use super::{
    completeness::StackAnswer,
    merged_tree::{FoldedTime, Label, MergedTree, TellsFolded},
    names::Names,
    places::Places,
    query::FrameScope,
    scope::View,
    tree_builder::TreeBuilder,
    tree_options::TreeOptions,
};

impl<'n> MergedTree<'n> {
    /// Everything in the view.
    pub(super) fn new(view: &View<'_>, shape: TreeOptions<'n>) -> Self {
        let mut builder = TreeBuilder::new(view, shape);
        for member in 0..view.members.len() as u32 {
            builder.add(member, view.coverage.span);
        }
        builder.finish()
    }

    /// What an answer's completeness needs to know of the stacks.
    pub(super) fn seen(&self, view: &View<'_>, names: &dyn Names) -> StackAnswer {
        let attributed_ns = self.nodes[0].total.elapsed_ns();
        let mut losses = self.losses.clone();
        let in_all_frames = match self.tells_folded {
            TellsFolded::All => self.folded(),
            TellsFolded::Callers | TellsFolded::Not { .. } => folded_in_all_frames(view, names),
        };
        losses.folded_ns = in_all_frames.own_ns;
        losses.callers_folded_ns = match self.tells_folded {
            TellsFolded::All | TellsFolded::Not { all_frames: true } => {
                in_all_frames.without_callers_ns
            }
            TellsFolded::Callers => self.folded().without_callers_ns,
            TellsFolded::Not { all_frames: false } if self.folded.is_empty() => 0,
            TellsFolded::Not { all_frames: false } => {
                Places::new(view).losses(view).callers_folded_ns
            }
        };
        StackAnswer {
            stacks: self.stacks,
            losses,
            unattributed_ns: view.totals().elapsed_ns().saturating_sub(attributed_ns),
            of_no_function_ns: self.of_no_function_ns,
            frames_unknown: self.frames_unknown(),
        }
    }
}

/// What folding did to the time of a view, that in kernel frames included, whatever a report shows.
fn folded_in_all_frames(view: &View<'_>, names: &dyn Names) -> FoldedTime {
    let mut nodes = view.members.iter().flat_map(|of| of.aggregate.nodes());
    if !nodes.any(|node| node.place.is_folded()) {
        return FoldedTime::default();
    }
    let tree = MergedTree::new(
        view,
        TreeOptions::plain(FrameScope::All, Label::Functions(names)),
    );
    tree.folded()
}
