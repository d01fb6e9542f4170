//! The table of modules. A module's inclusive values count each stack with at least one of its
//! functions once; they are never sums over functions.

use std::cmp::Ordering;

use serde::Serialize;

use super::{
    answer::List,
    completeness::Completeness,
    error::ReportError,
    merged_tree::{Label, MergedTree, kind_name},
    query::{Scope, TableQuery},
    scope::View,
    table::{Columns, Row, SortKey, columns_with_values},
    tree_options::TreeOptions,
    values::RowValues,
};
use crate::{profile::snapshot::Snapshot, report::names::Names};

/// One module.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ModuleRow {
    /// Path, or a name in brackets.
    pub module: String,
    /// Hexadecimal.
    #[schema(required)]
    pub build_id: Option<String>,
    /// `user`, `kernel`, `jit` or `unknown`.
    #[schema(pattern = "^(user|kernel|jit|unknown)$")]
    pub kind: &'static str,
    /// The three groups.
    #[serde(flatten)]
    pub values: RowValues,
}

impl Columns for ModuleRow {
    const COLUMNS: &'static [&'static str] = columns_with_values!["module", "build_id", "kind"];
}

impl Row for ModuleRow {
    const DEFAULT_SORT: &'static str = "elapsed.exclusive_ns";

    fn key(&self, column: &str) -> Option<SortKey<'_>> {
        match column {
            "module" => Some(SortKey::Text(&self.module)),
            "build_id" => self.build_id.as_deref().map(SortKey::Text),
            "kind" => Some(SortKey::Text(self.kind)),
            _ => self.values.column(column).map(SortKey::Number),
        }
    }

    fn name(&self) -> &str {
        &self.module
    }

    fn tie(&self, other: &Self) -> Ordering {
        self.values
            .largest_first(&other.values)
            .then_with(|| self.module.cmp(&other.module))
            .then_with(|| self.build_id.cmp(&other.build_id))
    }
}

/// A row per module of a process or of the session.
///
/// # Errors
/// No such process, column or window.
pub fn modules(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &TableQuery,
    names: &dyn Names,
) -> Result<List<ModuleRow>, ReportError> {
    let view = View::new(snapshot, scope, query.window)?;
    let tree = MergedTree::new(
        &view,
        TreeOptions::plain(query.frames, Label::Modules(names)),
    );
    let (inclusive, exclusive) = (tree.inclusive(), tree.exclusive());
    let rows = tree.functions.iter().zip(inclusive.iter().zip(&exclusive));
    let rows = rows.map(|(function, (inclusive, exclusive))| {
        let module = snapshot.module(function.module);
        ModuleRow {
            module: module.name.to_string(),
            build_id: module.build_id_hex(),
            kind: kind_name(function.kind),
            values: RowValues::new(inclusive, exclusive, &view.denominators),
        }
    });
    let completeness = Completeness::new(&view, &tree.seen(&view, names));
    List::of(&view, completeness, rows.collect(), query)
}
