//! The callers and the callees of one function, with the values of the calls.
//!
//! Each stack counts in exactly one row, however often the function is on it: for its callers by
//! the outermost call of the function, for its callees by the innermost. So the callers' inclusive
//! values sum to the function's inclusive value, their exclusive values to its exclusive value; and
//! the callees' inclusive values and its exclusive value to its inclusive value.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    answer::List,
    completeness::Completeness,
    error::ReportError,
    figures::Figures,
    fold::Folding,
    functions::FunctionRow,
    meant::meant,
    merged_tree::{Label, MergedTree, Standing, TreeFunction, with_accuracy},
    node::ROOT,
    product::Values,
    query::{NeighbourQuery, Scope},
    scope::View,
    tree_options::TreeOptions,
};
use crate::{profile::snapshot::Snapshot, report::names::Names};

/// The caller of a function that nothing called: the outermost of its stack.
pub const NO_CALLER: &str = "[no caller]";

/// The answer.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Neighbours {
    /// The function itself: a row per module that has one of that name.
    pub of: Vec<FunctionRow>,
    /// A row per caller or callee: `inclusive` is of the calls between the two, `exclusive` of the
    /// callers what the function itself had in them, of the callees what they themselves had.
    #[serde(flatten)]
    pub list: List<FunctionRow>,
}

/// The callers of a function.
///
/// # Errors
/// No such process, column, module or window, or no such function in it.
pub fn callers(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &NeighbourQuery,
    names: &dyn Names,
) -> Result<Neighbours, ReportError> {
    neighbours(snapshot, scope, query, names, callers_of)
}

/// What a function calls.
///
/// # Errors
/// No such process, column, module or window, or no such function in it.
pub fn callees(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &NeighbourQuery,
    names: &dyn Names,
) -> Result<Neighbours, ReportError> {
    neighbours(snapshot, scope, query, names, callees_of)
}

/// A function next to another, none where there is none, and its inclusive and exclusive values.
type Neighbour = (Option<u32>, (Figures, Figures));

fn neighbours(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &NeighbourQuery,
    names: &dyn Names,
    of: fn(&MergedTree<'_>, &[bool]) -> Vec<Neighbour>,
) -> Result<Neighbours, ReportError> {
    let view = View::new(snapshot, scope, query.table.window)?;
    let shape = TreeOptions {
        folding: Folding::new(snapshot, &query.table.fold)?,
        ..TreeOptions::plain(query.table.frames, Label::Functions(names))
    };
    let tree = MergedTree::new(&view, shape);
    let function = Some(query.function.as_str());
    let meant = meant(&view, &tree, function, query.module.as_deref())?;
    let (inclusive, exclusive) = (tree.inclusive(), tree.exclusive());
    let row = |function: usize| {
        let own = (&inclusive[function], &exclusive[function]);
        FunctionRow::new(&view, &tree.functions[function], own.0, own.1)
    };
    let of_function = (0..meant.len()).filter(|index| meant[*index]).map(row);
    let nobody = TreeFunction::unknown(NO_CALLER.into(), Standing::PseudoFrame);
    let rows = of(&tree, &meant)
        .into_iter()
        .map(|(function, (inclusive, exclusive))| {
            let function = function.map_or(&nobody, |index| &tree.functions[index as usize]);
            FunctionRow::new(&view, function, &inclusive, &exclusive)
        });
    let completeness = Completeness::new(&view, &tree.seen(&view, names));
    Ok(Neighbours {
        of: of_function.collect(),
        list: List::of(&view, completeness, rows.collect(), &query.table)?,
    })
}

/// Which row each node counts for: with what it received itself as a part of the row's inclusive
/// values, of its exclusive ones.
struct NodeRows {
    inclusive: Vec<Option<u32>>,
    exclusive: Vec<Option<u32>>,
    /// The neighbour of each row.
    rows: Vec<Option<u32>>,
}

impl NodeRows {
    fn new(nodes: usize) -> Self {
        Self {
            inclusive: vec![None; nodes],
            exclusive: vec![None; nodes],
            rows: Vec::new(),
        }
    }

    fn row(&mut self, numbers: &mut BTreeMap<Option<u32>, u32>, neighbour: Option<u32>) -> u32 {
        *numbers.entry(neighbour).or_insert_with(|| {
            self.rows.push(neighbour);
            u32::try_from(self.rows.len() - 1).expect("no more rows than nodes")
        })
    }

    /// The rows, those apart that have nothing.
    fn figures(self, tree: &MergedTree<'_>) -> Vec<Neighbour> {
        let sum = |places: &[Option<u32>]| {
            let mut sums = vec![Values::default(); self.rows.len()];
            for (node, row) in tree.nodes.iter().zip(places) {
                if let Some(row) = row {
                    sums[*row as usize].add(&node.own);
                }
            }
            let accuracy = tree
                .divided
                .holdings
                .of_own(sums.len(), |node| places[node as usize]);
            with_accuracy(sums, accuracy)
        };
        let values = sum(&self.inclusive).into_iter().zip(sum(&self.exclusive));
        let mut rows: Vec<_> = self.rows.iter().copied().zip(values).collect();
        rows.retain(|(_, (inclusive, _))| inclusive.values != Values::default());
        rows
    }
}

/// By caller: what the function's outermost calls received with all they called, and of it what it
/// had itself.
fn callers_of(tree: &MergedTree<'_>, meant: &[bool]) -> Vec<Neighbour> {
    let mut places = NodeRows::new(tree.nodes.len());
    let mut numbers = BTreeMap::new();
    for (index, node) in tree.nodes.iter().enumerate().skip(1) {
        let is_meant = meant[node.function as usize];
        let parent = node.parent as usize;
        // The caller of the outermost call above or at each node.
        places.inclusive[index] = match places.inclusive[parent] {
            None if is_meant => {
                let caller = (parent != ROOT as usize).then(|| tree.nodes[parent].function);
                Some(places.row(&mut numbers, caller))
            }
            row => row,
        };
        if is_meant {
            places.exclusive[index] = places.inclusive[index];
        }
    }
    places.figures(tree)
}

/// By callee: what it received with all it called, where the function is not called again below;
/// and of it its own.
fn callees_of(tree: &MergedTree<'_>, meant: &[bool]) -> Vec<Neighbour> {
    let mut places = NodeRows::new(tree.nodes.len());
    let mut numbers = BTreeMap::new();
    for (index, node) in tree.nodes.iter().enumerate().skip(1) {
        let parent = node.parent as usize;
        if meant[node.function as usize] {
            // From here inwards another call is the innermost.
            continue;
        }
        if parent != ROOT as usize && meant[tree.nodes[parent].function as usize] {
            let row = places.row(&mut numbers, Some(node.function));
            places.inclusive[index] = Some(row);
            places.exclusive[index] = Some(row);
        } else {
            places.inclusive[index] = places.inclusive[parent];
        }
    }
    places.figures(tree)
}
