//! How walks of stacks ended, and what stacks lack.

use std::collections::BTreeMap;

use profiler_common::{StackEnd, kinds::Primary};
use serde::Serialize;

use super::entry::is_entry;
use crate::{
    profile::{
        aggregate::AggregateView,
        frames::FrameId,
        input::LossCause,
        tree::{Node, NodeId, NodePlace},
    },
    report::names::Names,
};

/// Walks of user stacks by how they ended.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq, utoipa::ToSchema)]
pub struct Stacks {
    /// All.
    pub walked: u64,
    /// Ended at the thread's outermost frame.
    pub complete: u64,
    /// Ended at the bound on frames.
    pub truncated: u64,
    /// Could not go on, or their result was lost.
    pub failed: u64,
}

impl Stacks {
    /// Counts the walks that a node of an aggregate's tree holds.
    pub(super) fn count(&mut self, node: &Node, primary: &Primary, names: &dyn Names) {
        if node.parent != NodeId::ROOT || primary.walks == 0 {
            return;
        }
        let bucket = match (node.place, node.end) {
            (_, StackEnd::None) => return,
            // Its walk is done with; how it ended is still known.
            (NodePlace::Lost(LossCause::Folded), StackEnd::Complete) => &mut self.complete,
            (NodePlace::Lost(LossCause::Folded), StackEnd::TRUNCATED) => &mut self.truncated,
            (NodePlace::Lost(_) | NodePlace::Cut | NodePlace::Folded { .. }, _) => &mut self.failed,
            (NodePlace::User(_), StackEnd::Complete) => &mut self.complete,
            (NodePlace::User(frame), _) if named_entry(frame, names) => &mut self.complete,
            (NodePlace::Kernel(_), StackEnd::Complete) => &mut self.complete,
            (_, StackEnd::TRUNCATED) => &mut self.truncated,
            (_, StackEnd::Incomplete(_)) => &mut self.failed,
        };
        *bucket += primary.walks;
        self.walked += primary.walks;
    }

    /// Adds `other` to every number.
    pub(super) fn add(&mut self, other: &Self) {
        self.walked += other.walked;
        self.complete += other.complete;
        self.truncated += other.truncated;
        self.failed += other.failed;
    }

    /// Those that are not among `earlier` ones.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            walked: self.walked.saturating_sub(earlier.walked),
            complete: self.complete.saturating_sub(earlier.complete),
            truncated: self.truncated.saturating_sub(earlier.truncated),
            failed: self.failed.saturating_sub(earlier.failed),
        }
    }
}

/// Whether a frame's function is one that threads begin in.
pub(super) fn named_entry(frame: FrameId, names: &dyn Names) -> bool {
    is_entry(&names.function(frame).name)
}

/// The outermost frames whose names decide whether their stacks are complete.
pub(super) fn undecided(aggregate: &AggregateView) -> impl Iterator<Item = FrameId> {
    aggregate
        .nodes()
        .iter()
        .skip(1)
        .filter_map(|node| match (node.place, node.end) {
            (NodePlace::User(frame), StackEnd::Incomplete(_)) if node.parent == NodeId::ROOT => {
                Some(frame)
            }
            _ => None,
        })
}

/// Whether it is not known which function has what a node holds: its stack was lost, or the inner
/// part of it. Kernel frames stand for the user function that called them; kernel threads have
/// none.
pub(super) fn is_of_no_function<'n>(
    nodes: &'n [Node],
    mut node: &'n Node,
    kernel_thread: bool,
) -> bool {
    loop {
        match node.place {
            NodePlace::Kernel(_) | NodePlace::Folded { kernel: true }
                if !kernel_thread && node.parent != NodeId::ROOT =>
            {
                node = &nodes[node.parent.index()];
            }
            NodePlace::User(_) | NodePlace::Kernel(_) => return false,
            NodePlace::Lost(_) | NodePlace::Cut | NodePlace::Folded { .. } => return true,
        }
    }
}

/// What the stacks in scope lack.
#[derive(Clone, Debug, Default)]
pub(super) struct DataLosses {
    /// Walks whose stacks were lost, by cause.
    pub(super) lost: BTreeMap<&'static str, u64>,
    /// Time of stacks that gave their room to others.
    pub(super) folded_ns: u64,
    /// Time of functions some of whose callers did.
    pub(super) callers_folded_ns: u64,
}

impl DataLosses {
    /// Notes what a node of an aggregate's tree says.
    pub(super) fn note(&mut self, node: &Node, primary: &Primary) {
        // A lost record counts by its walks; some causes are known for samples only.
        let count = primary.walks.max(primary.samples());
        if let NodePlace::Lost(cause) = node.place
            && !node.place.is_folded()
            && count > 0
        {
            *self.lost.entry(cause.name()).or_default() += count;
        }
    }
}
