//! What each place of each account in a view has: the division for reports that show no functions.

use std::ops::Range;

use profiler_common::kinds::Primary;

use super::{
    completeness::{Lacks, Stacks},
    divided::{Cell, Divided},
    product::Values,
    scope::{Member, View},
};
use crate::{
    profile::{
        input::LossCause,
        tree::{Node, Place},
    },
    report::names::Names,
};

/// See the module.
pub(super) struct Places {
    cells: Vec<Cell>,
    divided: Divided,
    /// Which cells are of each member.
    of_members: Vec<Range<usize>>,
}

impl Places {
    pub(super) fn new(view: &View<'_>) -> Self {
        let (mut cells, mut of_members) = (Vec::new(), Vec::new());
        for (member, of) in (0u32..).zip(&view.members) {
            let from = cells.len();
            let held = of.account.held_over(view.coverage.span);
            cells.extend(held.into_iter().map(|(node, primary)| Cell {
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

    /// The places of a member that have anything: the node of its account's tree, what it holds, and its values.
    pub(super) fn of_member<'p>(
        &'p self,
        member: usize,
        of: &Member<'p>,
    ) -> impl Iterator<Item = (u32, &'p Node, &'p Primary, &'p Values)> {
        let nodes = of.account.nodes();
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
            if node.place == Place::Lost(LossCause::NotSampled) {
                sum.add(values);
            }
        }
        Values {
            samples: 0,
            walks: 0,
            ..sum
        }
    }

    /// The walks of a member's stacks, by how they ended.
    pub(super) fn stacks(&self, member: usize, of: &Member<'_>, names: &dyn Names) -> Stacks {
        let mut stacks = Stacks::default();
        for (_, node, primary, _) in self.of_member(member, of) {
            stacks.count(node, primary, names);
        }
        stacks
    }

    /// What the view's stacks lack. Time in the kernel stays where the walk of user code was folded, or was not: which kernel
    /// functions it is divided among, only a forest says.
    pub(super) fn lacks(&self, view: &View<'_>) -> Lacks {
        let mut lacks = Lacks::default();
        for (index, member) in view.members.iter().enumerate() {
            for (_, node, primary, values) in self.of_member(index, member) {
                lacks.note(node, primary);
                if node.place.is_folded() {
                    lacks.folded_ns = lacks.folded_ns.saturating_add(values.elapsed_ns());
                }
            }
        }
        lacks
    }

    /// What each node of a member's account has with all that was called from it.
    pub(super) fn inclusive(&self, member: usize, of: &Member<'_>) -> Vec<Values> {
        let nodes = of.account.nodes();
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
