//! The callers and the callees of one function, with the values of the calls.
//!
//! Each stack counts in exactly one row, however often the function is on it: for its callers by the outermost call of the
//! function, for its callees by the innermost. So the callers' inclusive values sum to the function's inclusive value, their
//! exclusive values to its exclusive value; and the callees' inclusive values and its exclusive value to its inclusive value.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    answer::List,
    completeness::Completeness,
    fold::Folding,
    forest::{Forest, Function, Label, ROOT, Standing},
    functions::FunctionRow,
    grow::Shape,
    meant::meant,
    query::{NeighbourQuery, ReportError, Scope},
    scope::View,
};
use crate::{
    profile::{snapshot::Snapshot, values::Values},
    report::names::Names,
};

/// The caller of a function that nothing called: the outermost of its stack.
pub const NO_CALLER: &str = "[no caller]";

/// The answer.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Neighbours {
    /// The function itself: a row per module that has one of that name.
    pub of: Vec<FunctionRow>,
    /// A row per caller or callee: `inclusive` is of the calls between the two, `exclusive` of the callers what the function itself had
    /// in them, of the callees what they themselves had.
    #[serde(flatten)]
    pub list: List<FunctionRow>,
}

/// Inclusive and exclusive values.
type Pair = (Values, Values);

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

fn neighbours(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &NeighbourQuery,
    names: &dyn Names,
    of: fn(&Forest<'_>, &[bool]) -> BTreeMap<Option<u32>, Pair>,
) -> Result<Neighbours, ReportError> {
    let view = View::new(snapshot, scope, query.table.window)?;
    let shape = Shape {
        folding: Folding::new(snapshot, &query.table.fold)?,
        ..Shape::plain(query.table.frames, Label::Functions(names))
    };
    let forest = Forest::new(&view, shape);
    let function = Some(query.function.as_str());
    let meant = meant(&view, &forest, function, query.module.as_deref())?;
    let (inclusive, exclusive) = (forest.inclusive(), forest.exclusive());
    let row = |function: usize| {
        let own = (&inclusive[function], &exclusive[function]);
        FunctionRow::new(&view, &forest.functions[function], own.0, own.1)
    };
    let of_function = (0..meant.len()).filter(|index| meant[*index]).map(row);
    let nobody = Function::unknown(NO_CALLER.into(), Standing::Remark);
    let rows = of(&forest, &meant).into_iter().map(|(function, values)| {
        let function = function.map_or(&nobody, |index| &forest.functions[index as usize]);
        FunctionRow::new(&view, function, &values.0, &values.1)
    });
    let completeness = Completeness::new(&view, &forest.seen(&view));
    Ok(Neighbours {
        of: of_function.collect(),
        list: List::of(&view, completeness, rows.collect(), &query.table)?,
    })
}

/// By caller: what the function's outermost calls received with all they called, and of it what it had itself.
fn callers_of(forest: &Forest<'_>, meant: &[bool]) -> BTreeMap<Option<u32>, Pair> {
    let mut rows: BTreeMap<Option<u32>, Pair> = BTreeMap::new();
    // The caller of the outermost call above or at each node.
    let mut called_by: Vec<Option<Option<u32>>> = vec![None; forest.nodes.len()];
    for (index, node) in forest.nodes.iter().enumerate().skip(1) {
        let function = node.function as usize;
        called_by[index] = called_by[node.parent as usize];
        if !meant[function] {
            continue;
        }
        let caller = match called_by[index] {
            Some(caller) => caller,
            None => {
                let parent = node.parent;
                let caller = (parent != ROOT).then(|| forest.nodes[parent as usize].function);
                rows.entry(caller).or_default().0.add(&node.total);
                called_by[index] = Some(caller);
                caller
            }
        };
        rows.entry(caller).or_default().1.add(&node.own);
    }
    rows
}

/// By callee: what it received with all it called, where the function is not called again below; and of it its own.
fn callees_of(forest: &Forest<'_>, meant: &[bool]) -> BTreeMap<Option<u32>, Pair> {
    let nodes = &forest.nodes;
    // What each node received in stacks in which the function is not called again below it.
    let mut last: Vec<Values> = nodes.iter().map(|node| node.own).collect();
    let mut rows: BTreeMap<Option<u32>, Pair> = BTreeMap::new();
    for index in (1..nodes.len()).rev() {
        let node = &nodes[index];
        let parent = node.parent as usize;
        let (is_meant, total) = (meant[node.function as usize], last[index]);
        if is_meant {
            // From here outwards another call was the innermost.
            continue;
        }
        if parent != ROOT as usize && meant[nodes[parent].function as usize] {
            let row = rows.entry(Some(node.function)).or_default();
            row.0.add(&total);
            row.1.add(&node.own);
        }
        last[parent].add(&total);
    }
    rows.retain(|_, (inclusive, _)| *inclusive != Values::default());
    rows
}
