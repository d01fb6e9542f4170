//! What each place of each aggregate in a view has: the division for reports that show no
//! functions.

use std::ops::Range;

use profiler_common::kinds::Primary;

use super::{
    divided::{Divided, MemberCell},
    member::Member,
    product::Values,
    scope::View,
    values::TotalValues,
    walks::{DataLosses, Stacks, is_of_no_function},
};
use crate::{
    profile::{
        input::LossCause,
        tree::{Node, NodeId, NodePlace},
    },
    report::names::Names,
};

/// See the module.
pub(super) struct Places {
    cells: Vec<MemberCell>,
    divided: Divided,
    /// Which cells are of each member.
    of_members: Vec<Range<usize>>,
}

impl Places {
    pub(super) fn new(view: &View<'_>) -> Self {
        let (mut cells, mut of_members) = (Vec::new(), Vec::new());
        for (member, of) in (0u32..).zip(&view.members) {
            let from = cells.len();
            let held = of.aggregate.held_over(view.coverage.span);
            cells.extend(held.into_iter().map(|(node, primary)| MemberCell {
                member,
                node: node.0,
                primary,
            }));
            of_members.push(from..cells.len());
        }
        let kinds: Vec<_> = view.totals.iter().map(|totals| totals.kinds).collect();
        let divided = Divided::new(&view.strata, &kinds, &cells, view.span_ns());
        Self {
            cells,
            divided,
            of_members,
        }
    }

    /// The places of a member that have anything: the node of its aggregate's tree, what it holds,
    /// and its values.
    pub(super) fn of_member<'p>(
        &'p self,
        member: usize,
        of: &Member<'p>,
    ) -> impl Iterator<Item = (u32, &'p Node, &'p Primary, &'p Values)> {
        let nodes = of.aggregate.nodes();
        self.of_members[member].clone().map(move |index| {
            let cell = &self.cells[index];
            let node = &nodes[cell.node as usize];
            (cell.node, node, &cell.primary, &self.divided.values[index])
        })
    }

    /// What of a member's time has no place, since no mark fell in it.
    pub(super) fn not_sampled(&self, member: usize, of: &Member<'_>) -> Values {
        let mut sum = self.divided.not_sampled[member];
        for (_, node, _, values) in self.of_member(member, of) {
            if node.place == NodePlace::Lost(LossCause::NotSampled) {
                sum.add(values);
            }
        }
        Values {
            samples: 0,
            walks: 0,
            ..sum
        }
    }

    /// Time of all members of which the function is not known, and of kinds in which no mark fell.
    pub(super) fn of_no_function_ns(&self, view: &View<'_>) -> u64 {
        let mut sum = 0u64;
        for (index, member) in view.members.iter().enumerate() {
            sum = sum.saturating_add(self.divided.not_sampled[index].elapsed_ns());
            let nodes = member.aggregate.nodes();
            for (_, node, _, values) in self.of_member(index, member) {
                if is_of_no_function(nodes, node, member.kernel_thread) {
                    sum = sum.saturating_add(values.elapsed_ns());
                }
            }
        }
        sum
    }

    /// The walks of a member's stacks, by how they ended.
    pub(super) fn stacks(&self, member: usize, of: &Member<'_>, names: &dyn Names) -> Stacks {
        let mut stacks = Stacks::default();
        for (_, node, primary, _) in self.of_member(member, of) {
            stacks.count(node, primary, names);
        }
        stacks
    }

    /// Those of all members.
    pub(super) fn all_stacks(&self, view: &View<'_>, names: &dyn Names) -> Stacks {
        let mut stacks = Stacks::default();
        for (index, member) in view.members.iter().enumerate() {
            stacks.add(&self.stacks(index, member, names));
        }
        stacks
    }

    /// What the view's stacks lack. Time in the kernel stays where the walk of user code was
    /// folded, or was not: which kernel functions it is divided among, only a merged tree says.
    /// Callers are those that are shown where the kernel's are not.
    pub(super) fn losses(&self, view: &View<'_>) -> DataLosses {
        let mut losses = DataLosses::default();
        for (index, member) in view.members.iter().enumerate() {
            let without_callers = without_callers(member);
            for (number, node, primary, values) in self.of_member(index, member) {
                losses.note(node, primary);
                let ns = values.elapsed_ns();
                if node.place.is_folded() {
                    losses.folded_ns = losses.folded_ns.saturating_add(ns);
                }
                // Folded kernel frames are both: shown as time of the user function that called.
                let lacks_callers = without_callers.as_ref();
                if lacks_callers.is_some_and(|of| of[number as usize]) {
                    losses.callers_folded_ns = losses.callers_folded_ns.saturating_add(ns);
                }
            }
        }
        losses
    }

    /// The totals of a member as rows show them.
    pub(super) fn total_values(&self, view: &View<'_>, index: usize) -> TotalValues {
        let not_sampled = self.not_sampled(index, &view.members[index]);
        TotalValues::new(
            &view.figures[index],
            &view.totals[index],
            Some(&not_sampled.classes),
        )
    }

    /// The totals of all members as rows show them.
    pub(super) fn all_values(&self, view: &View<'_>) -> TotalValues {
        let mut not_sampled = Values::default();
        for (index, member) in view.members.iter().enumerate() {
            not_sampled.add(&self.not_sampled(index, member));
        }
        TotalValues::new(&view.total, &view.totals(), Some(&not_sampled.classes))
    }

    /// What each node of a member's aggregate has with all that was called from it.
    pub(super) fn inclusive(&self, member: usize, of: &Member<'_>) -> Vec<Values> {
        let nodes = of.aggregate.nodes();
        let mut totals = vec![Values::default(); nodes.len()];
        for (node, _, _, values) in self.of_member(member, of) {
            totals[node as usize].add(values);
        }
        for index in (1..nodes.len()).rev() {
            let total = totals[index];
            totals[nodes[index].parent.index()].add(&total);
        }
        totals
    }
}

/// Of each node of a member's tree whether its function is below what was folded as a caller, where
/// the kernel's functions are shown only of its own threads; `None` where nothing was folded.
fn without_callers(of: &Member<'_>) -> Option<Vec<bool>> {
    let nodes = of.aggregate.nodes();
    if !nodes.iter().any(|node| node.place.is_folded()) {
        return None;
    }
    // Of each node what it counts for: whether that was folded, and whether it is below such a one.
    let mut counts_for = vec![(false, false); nodes.len()];
    for (index, node) in nodes.iter().enumerate().skip(1) {
        let (is_folded, below) = counts_for[node.parent.index()];
        let is_kernel = matches!(
            node.place,
            NodePlace::Kernel(_) | NodePlace::Folded { kernel: true }
        );
        counts_for[index] = if is_kernel && !of.kernel_thread && node.parent != NodeId::ROOT {
            (is_folded, below)
        } else {
            (node.place.is_folded(), is_folded || below)
        };
    }
    let without = counts_for
        .iter()
        .map(|(is_folded, below)| *below && !is_folded);
    Some(without.collect())
}
