//! Two processes, or two windows of the session, of all or of one process, compared function by
//! function. Shares are of each side's own totals, so that a long recording can be compared with a
//! short one.

use std::{cmp::Ordering, collections::BTreeMap};

use serde::Serialize;

use super::{
    change::{Change, SideValues, side_columns},
    compared::{DiffQuery, DiffSide, Side},
    completeness::Completeness,
    error::ReportError,
    figures::Figures,
    fold::Folding,
    merged_tree::{Label, MergedTree, kind_name},
    query::StackValue,
    scope::View,
    table::{Columns, Row, SortKey, arrange},
    tree_options::TreeOptions,
    values::Denominators,
};
use crate::{profile::snapshot::Snapshot, report::names::Names};

/// The answer.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Diff {
    /// Time of the drain pass it was made from, RFC 3339.
    #[schema(format = DateTime)]
    pub as_of: String,
    /// What is compared.
    pub base: Side,
    /// With what.
    pub other: Side,
    /// The value whose changes are looked for: `largest_change_percent` is of its shares.
    pub value: StackValue,
    /// Rows there are, those cut by `limit` included, those below the threshold not.
    pub total_rows: usize,
    /// Whether `limit` cut rows.
    pub truncated: bool,
    /// The rows, in the order asked for.
    pub rows: Vec<DiffRow>,
}

/// One function: a name in a module of one path.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct DiffRow {
    /// Demangled; `module+0xoffset` where it has no name; in brackets where it is none.
    pub function: String,
    /// Path of the module.
    pub module: String,
    /// `user`, `kernel`, `jit` or `unknown`.
    #[schema(pattern = "^(user|kernel|jit|unknown)$")]
    pub kind: &'static str,
    /// The larger of the changes of its exclusive and its inclusive share of the value compared,
    /// either way, percentage points.
    pub largest_change_percent: f64,
    /// Its values on the one side; percentages are of that side.
    pub base: SideValues,
    /// On the other; percentages are of that side.
    pub other: SideValues,
    /// The other's less the base's.
    pub change: Change,
}

impl Columns for DiffRow {
    const COLUMNS: &'static [&'static str] = side_columns!(
        ["function", "module", "kind", "largest_change_percent"],
        ["base", "other"]
    );
}

impl Row for DiffRow {
    const DEFAULT_SORT: &'static str = "largest_change_percent";

    fn key(&self, column: &str) -> Option<SortKey<'_>> {
        let number = match column.split_once('.') {
            Some(("base", column)) => self.base.column(column),
            Some(("other", column)) => self.other.column(column),
            Some(("change", column)) => self.change.column(column),
            _ => None,
        };
        match column {
            "function" => Some(SortKey::Text(&self.function)),
            "module" => Some(SortKey::Text(&self.module)),
            "kind" => Some(SortKey::Text(self.kind)),
            "largest_change_percent" => Some(SortKey::Number(self.largest_change_percent)),
            _ => number.map(SortKey::Number),
        }
    }

    fn name(&self) -> &str {
        &self.function
    }

    fn tie(&self, other: &Self) -> Ordering {
        (&self.function, &self.module).cmp(&(&other.function, &other.module))
    }
}

/// Values by (module, function), with the kind.
type DiffTable = BTreeMap<(String, String), (&'static str, Figures, Figures)>;

/// Compares two processes, or two windows: of the session, of a process, or of those of one name.
///
/// # Errors
/// No such process, name, module, column or window.
pub fn diff(
    snapshot: &Snapshot,
    query: &DiffQuery,
    names: &dyn Names,
) -> Result<Diff, ReportError> {
    let (base, base_totals, base_table) = side(snapshot, &query.base, query, names)?;
    let (other, other_totals, mut other_table) = side(snapshot, &query.other, query, names)?;
    let nothing = ("unknown", Figures::default(), Figures::default());
    let mut pairs = Vec::new();
    for (name, values) in base_table {
        let on_other = other_table
            .remove(&name)
            .unwrap_or((values.0, nothing.1, nothing.2));
        pairs.push((name, values, on_other));
    }
    for (name, values) in other_table {
        pairs.push((name, (values.0, nothing.1, nothing.2), values));
    }
    let value = query.value.unwrap_or(StackValue::Elapsed);
    let rows = pairs.into_iter().map(|((module, function), base, other)| {
        let (kind, base) = (base.0, SideValues::new(&base.1, &base.2, &base_totals));
        let other = SideValues::new(&other.1, &other.2, &other_totals);
        let change = Change::new(&base, &other);
        DiffRow {
            function,
            module,
            kind,
            largest_change_percent: change.largest(value),
            base,
            other,
            change,
        }
    });
    let threshold = query.threshold_percent;
    let rows = rows.filter(|row| row.largest_change_percent >= threshold);
    let cut = arrange(rows.collect(), &query.table)?;
    Ok(Diff {
        as_of: super::times::rfc3339(snapshot.as_of_unix_ns()),
        base,
        other,
        value,
        total_rows: cut.total_rows,
        truncated: cut.rows.len() < cut.total_rows,
        rows: cut.rows,
    })
}

fn side(
    snapshot: &Snapshot,
    side: &DiffSide,
    query: &DiffQuery,
    names: &dyn Names,
) -> Result<(Side, Denominators, DiffTable), ReportError> {
    let (scope, window) = query.scope(side);
    let view = View::new(snapshot, &scope, window)?;
    let shape = TreeOptions {
        folding: Folding::new(snapshot, &query.table.fold)?,
        ..TreeOptions::plain(query.table.frames, Label::Functions(names))
    };
    let tree = MergedTree::new(&view, shape);
    let values = tree.inclusive().into_iter().zip(tree.exclusive());
    let mut table = DiffTable::new();
    for (function, (inclusive, exclusive)) in tree.functions.iter().zip(values) {
        let module = snapshot.module(function.module).name.to_string();
        let row = table.entry((module, function.name.to_string())).or_insert((
            kind_name(function.kind),
            Figures::default(),
            Figures::default(),
        ));
        row.1.add(&inclusive);
        row.2.add(&exclusive);
    }
    let completeness = Completeness::new(&view, &tree.seen(&view, names));
    let side = Side::new(side.name(), &view, completeness);
    let of = Denominators {
        session: view.total.values,
        process: None,
        ..view.denominators
    };
    Ok((side, of, table))
}
