//! The table of functions.

use std::cmp::Ordering;

use serde::Serialize;

use super::{
    answer::List,
    called_from::{CalledFrom, called_from},
    completeness::Completeness,
    error::ReportError,
    figures::Figures,
    fold::Folding,
    measured_rows::{MeasuredGroup, RowOf, measured_of_rows},
    merged_tree::{CodeLevel, Label, MergedTree, TreeFunction, kind_name},
    product::Values,
    query::{Scope, TableQuery},
    scope::View,
    table::{Columns, Row, SortKey, columns_with_values},
    tree_options::TreeOptions,
    values::RowValues,
};
use crate::{
    profile::snapshot::Snapshot,
    report::names::{Lines, Names},
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
    /// It was inlined into what called it; only told apart where that was asked for.
    pub inlined: bool,
    /// Where it is no function of the program, and spent its own time mostly in system calls or off
    /// the processor: the nearest function of the program that called it, that with most of this
    /// time where there are several. Null else, and of callers and callees.
    #[schema(required)]
    pub called_from: Option<CalledFrom>,
    /// The three groups.
    #[serde(flatten)]
    pub values: RowValues,
    /// What was measured of it exactly; null where it is not, and of callers and callees.
    #[schema(required)]
    pub measured: Option<Box<MeasuredGroup>>,
}

impl Columns for FunctionRow {
    const COLUMNS: &'static [&'static str] = columns_with_values![
        "function",
        "module",
        "build_id",
        "address",
        "file",
        "line",
        "kind",
        "inlined",
        "called_from.function",
        "called_from.module",
        "called_from.percent",
        "measured.calls",
        "measured.outermost",
        "measured.open",
        "measured.left_unseen",
        "measured.counted_only",
        "measured.exits_unmatched",
        "measured.elapsed.inclusive_ns",
        "measured.elapsed.exclusive_ns",
        "measured.elapsed.min_ns",
        "measured.elapsed.mean_ns",
        "measured.elapsed.max_ns",
        "measured.elapsed.p50_ns",
        "measured.elapsed.p90_ns",
        "measured.elapsed.p99_ns",
        "measured.elapsed.inclusive_percent",
        "measured.elapsed.exclusive_percent",
        "measured.elapsed.inclusive_percent_of_process",
        "measured.elapsed.exclusive_percent_of_process",
        "measured.application.inclusive_ns",
        "measured.application.exclusive_ns",
        "measured.application.min_ns",
        "measured.application.mean_ns",
        "measured.application.max_ns",
        "measured.application.p50_ns",
        "measured.application.p90_ns",
        "measured.application.p99_ns",
        "measured.application.inclusive_percent",
        "measured.application.exclusive_percent",
        "measured.application.inclusive_percent_of_process",
        "measured.application.exclusive_percent_of_process",
        "measured.classes.user_ns",
        "measured.classes.syscall_ns",
        "measured.classes.blocked_ns",
        "measured.classes.runnable_ns",
        "measured.classes.kernel_ns",
        "measured.exclusive_classes.user_ns",
        "measured.exclusive_classes.syscall_ns",
        "measured.exclusive_classes.blocked_ns",
        "measured.exclusive_classes.runnable_ns",
        "measured.exclusive_classes.kernel_ns",
        "measured.minor_faults",
        "measured.major_faults",
        "measured.untraced_calls",
        "measured.probe_ns",
        "measured.error_ns",
        "measured.mostly_probe",
        "measured.exits",
        "measured.why",
        "measured.from_at",
        "measured.to_at",
        "measured.agrees",
        "measured.agrees_why",
        "measured.compared.sampled_low_ns",
        "measured.compared.sampled_high_ns",
        "measured.compared.measured_low_ns",
        "measured.compared.measured_high_ns",
        "measured.compared.span_ns"
    ];
}

impl Row for FunctionRow {
    const DEFAULT_SORT: &'static str = "elapsed.exclusive_ns";

    fn key(&self, column: &str) -> Option<SortKey<'_>> {
        match column {
            "function" => Some(SortKey::Text(&self.function)),
            "module" => Some(SortKey::Text(&self.module)),
            "build_id" => self.build_id.as_deref().map(SortKey::Text),
            "address" => self.address.as_deref().map(SortKey::Text),
            "file" => self.file.as_deref().map(SortKey::Text),
            "line" => self.line.map(|line| SortKey::Number(line.into())),
            "kind" => Some(SortKey::Text(self.kind)),
            "inlined" => Some(SortKey::Number(self.inlined.into())),
            "called_from.function" => self.caller().map(|of| SortKey::Text(&of.function)),
            "called_from.module" => self.caller().map(|of| SortKey::Text(&of.module)),
            "called_from.percent" => self.caller().map(|of| SortKey::Number(of.percent)),
            _ => match column.strip_prefix("measured.") {
                Some(column) => self.measured.as_ref()?.key(column),
                None => self.values.column(column).map(SortKey::Number),
            },
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
            .then_with(|| self.inlined.cmp(&other.inlined))
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
    table(snapshot, scope, query, Label::Functions(names), None)
}

/// The same, where inlined functions have rows of their own: a function that was inlined in some
/// places and called in others has two.
///
/// # Errors
/// No such process, column or window.
pub fn functions_with_inlines(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &TableQuery,
    names: &dyn Names,
    lines: &dyn Lines,
) -> Result<List<FunctionRow>, ReportError> {
    let label = Label::Code(names, lines, CodeLevel::Functions);
    table(snapshot, scope, query, label, Some(lines))
}

fn table(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &TableQuery,
    label: Label<'_>,
    lines: Option<&dyn Lines>,
) -> Result<List<FunctionRow>, ReportError> {
    let view = View::new(snapshot, scope, query.window)?;
    let folding = Folding::new(snapshot, &query.fold)?;
    let shape = TreeOptions {
        folding: folding.clone(),
        ..TreeOptions::plain(query.frames, label)
    };
    let tree = MergedTree::new(&view, shape);
    let (inclusive, exclusive) = (tree.inclusive(), tree.exclusive());
    let callers = called_from(&view, &tree, &exclusive);
    let rows = tree
        .functions
        .iter()
        .zip(inclusive.iter().zip(&exclusive))
        .zip(callers);
    let rows = rows.map(
        |((function, (inclusive, exclusive)), called_from)| FunctionRow {
            called_from,
            ..FunctionRow::new(&view, function, inclusive, exclusive)
        },
    );
    let mut rows: Vec<FunctionRow> = rows.collect();
    let shown = (query.frames, label, &folding);
    for (row, measured) in measured_of_rows(&view, shown, &tree.functions) {
        let row = match row {
            RowOf::Function(row) => row,
            RowOf::Own(function) => {
                let nothing = Figures::from(Values::default());
                rows.push(FunctionRow::new(&view, &function, &nothing, &nothing));
                rows.len() - 1
            }
        };
        rows[row].measured = Some(Box::new(measured));
    }
    let mut completeness = Completeness::new(&view, &tree.seen(&view, label.names()));
    if let Some(lines) = lines {
        completeness = completeness.with_lines(&view, query.frames, lines);
    }
    List::of(&view, completeness, rows, query)
}

impl FunctionRow {
    fn caller(&self) -> Option<&CalledFrom> {
        self.called_from.as_ref()
    }

    pub(super) fn new(
        view: &View<'_>,
        function: &TreeFunction<'_>,
        inclusive: &Figures,
        exclusive: &Figures,
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
            inlined: function.inlined,
            called_from: None,
            values: RowValues::new(inclusive, exclusive, &view.denominators),
            measured: None,
        }
    }
}
