//! What leaves the table of frames, and how a snapshot from before that is set beside a later one.

use std::{collections::HashMap, sync::Arc};

use super::{
    Profile,
    aggregate::AggregateView,
    frames::{Frame, FrameId, LiveFrames},
    snapshot::Snapshot,
    tree::{Node, NodePlace},
};

impl NodePlace {
    /// The frame that it names.
    const fn frame_mut(&mut self) -> Option<&mut FrameId> {
        match self {
            Self::User(frame) | Self::Kernel(frame) => Some(frame),
            Self::Lost(_) | Self::Cut | Self::Folded { .. } => None,
        }
    }
}

fn frames_of(nodes: &[Node]) -> impl Iterator<Item = FrameId> {
    let places = nodes.iter().map(|node| node.place);
    places.filter_map(|mut place| place.frame_mut().copied())
}

impl Profile {
    /// Forgets the frames that nothing names any more: no call tree, and nothing that `others`
    /// marks, which is to be every number that somebody has from [`Self::frames`] and still uses.
    /// Answers how many. Takes up to a tenth of a second for a million.
    pub fn sweep_frames(&mut self, others: impl FnOnce(&mut LiveFrames)) -> usize {
        let kept = self.processes.values().map(|process| &process.aggregate);
        let aggregates = kept.chain(self.images.aggregates());
        self.frames.sweep(|marks| {
            for aggregate in aggregates {
                frames_of(aggregate.tree.nodes()).for_each(|frame| marks.keep(frame));
            }
            others(marks);
        })
    }
}

impl Snapshot {
    /// Two snapshots of one profile in which each number of a frame that either uses means the
    /// same: the earlier one first. Where no frame left in between, they are what they were.
    #[must_use]
    pub fn with_one_numbering(earlier: Arc<Self>, later: Arc<Self>) -> (Arc<Self>, Arc<Self>) {
        if earlier.frames.same_numbers(&later.frames) {
            return (earlier, later);
        }
        let mut both = Both {
            earlier: &earlier,
            later: Self::clone(&later),
            adopted: HashMap::new(),
        };
        let mut renumbered = Self::clone(&earlier);
        let kept = renumbered.processes.values_mut();
        let aggregates = kept.map(|process| &mut process.aggregate);
        let images = renumbered
            .images
            .iter_mut()
            .map(|image| &mut image.aggregate);
        aggregates
            .chain(images)
            .for_each(|aggregate| both.renumber(aggregate));
        renumbered.frames = both.later.frames.clone();
        let later = Arc::new(both.later);
        (Arc::new(renumbered), later)
    }
}

/// See [`Snapshot::with_one_numbering`].
struct Both<'s> {
    earlier: &'s Snapshot,
    later: Snapshot,
    /// The numbers of frames that the later one did not have.
    adopted: HashMap<Frame, FrameId>,
}

impl Both<'_> {
    /// Has the frames of an earlier aggregate bear numbers of the later snapshot.
    fn renumber(&mut self, aggregate: &mut AggregateView) {
        let is_other = |frame| self.earlier.frame(frame) != self.later.frame(frame);
        if !frames_of(&aggregate.nodes).any(is_other) {
            return;
        }
        for node in Arc::make_mut(&mut aggregate.nodes) {
            let Some(number) = node.place.frame_mut() else {
                continue;
            };
            let frame = self.earlier.frame(*number);
            if frame != self.later.frame(*number) {
                let list = &mut self.later.frames;
                let adopted = self.adopted.entry(frame);
                *number = *adopted.or_insert_with(|| list.adopt(frame));
            }
        }
    }
}
