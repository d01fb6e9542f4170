//! The table of functions.

use std::cmp::Ordering;

use serde::Serialize;

use super::{
    answer::List,
    completeness::Completeness,
    fold::Folding,
    forest::{Forest, Function, Label, kind_name},
    grow::Shape,
    query::{ReportError, Scope, TableQuery},
    scope::View,
    table::{Columns, Key, Row, columns_with_values},
    values::RowValues,
};
use crate::{
    profile::{snapshot::Snapshot, values::Values},
    report::names::Names,
};

/// One function: a name in a module.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct FunctionRow {
    /// Demangled; `module+0xoffset` where it has no name; in brackets where it is none.
    pub function: String,
    /// Path of the module.
    pub module: String,
    /// Of the module, hexadecimal.
    #[schema(required)]
    pub build_id: Option<String>,
    /// Start of the function, module-relative, hexadecimal.
    #[schema(required)]
    pub address: Option<String>,
    /// Source file; not known to this table.
    #[schema(required)]
    pub file: Option<String>,
    /// Source line; not known to this table.
    #[schema(required)]
    pub line: Option<u32>,
    /// `user`, `kernel`, `jit` or `unknown`.
    #[schema(pattern = "^(user|kernel|jit|unknown)$")]
    pub kind: &'static str,
    /// The three groups.
    #[serde(flatten)]
    pub values: RowValues,
}

impl Columns for FunctionRow {
    const COLUMNS: &'static [&'static str] = columns_with_values![
        "function", "module", "build_id", "address", "file", "line", "kind"
    ];
}

impl Row for FunctionRow {
    const DEFAULT_SORT: &'static str = "elapsed.exclusive_ns";

    fn key(&self, column: &str) -> Option<Key<'_>> {
        match column {
            "function" => Some(Key::Text(&self.function)),
            "module" => Some(Key::Text(&self.module)),
            "build_id" => self.build_id.as_deref().map(Key::Text),
            "address" => self.address.as_deref().map(Key::Text),
            "file" => self.file.as_deref().map(Key::Text),
            "line" => self.line.map(|line| Key::Number(line.into())),
            "kind" => Some(Key::Text(self.kind)),
            _ => self.values.column(column).map(Key::Number),
        }
    }

    fn name(&self) -> &str {
        &self.function
    }

    fn tie(&self, other: &Self) -> Ordering {
        self.values
            .largest_first(&other.values)
            .then_with(|| self.function.cmp(&other.function))
            .then_with(|| self.module.cmp(&other.module))
            .then_with(|| self.build_id.cmp(&other.build_id))
    }
}

/// A row per function of a process or of the session.
///
/// # Errors
/// No such process, column or window.
pub fn functions(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &TableQuery,
    names: &dyn Names,
) -> Result<List<FunctionRow>, ReportError> {
    let view = View::new(snapshot, scope, query.window)?;
    let shape = Shape {
        folding: Folding::new(snapshot, &query.fold)?,
        ..Shape::plain(query.frames, Label::Functions(names))
    };
    let forest = Forest::new(&view, shape);
    let (inclusive, exclusive) = (forest.inclusive(), forest.exclusive());
    let rows = forest
        .functions
        .iter()
        .zip(inclusive.iter().zip(&exclusive));
    let rows = rows.map(|(function, (inclusive, exclusive))| {
        FunctionRow::new(&view, function, inclusive, exclusive)
    });
    let completeness = Completeness::new(&view, &forest.seen(&view));
    List::of(&view, completeness, rows.collect(), query)
}

impl FunctionRow {
    pub(super) fn new(
        view: &View<'_>,
        function: &Function<'_>,
        inclusive: &Values,
        exclusive: &Values,
    ) -> Self {
        let module = view.snapshot.module(function.module);
        Self {
            function: function.name.clone().into_owned(),
            module: module.name.to_string(),
            build_id: module.build_id_hex(),
            address: function.address.map(|address| format!("{address:#x}")),
            file: None,
            line: None,
            kind: kind_name(function.kind),
            values: RowValues::new(inclusive, exclusive, &view.denominators),
        }
    }
}
