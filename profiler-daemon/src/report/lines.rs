//! The tables of source lines and of instructions. What has no line has a row that says so and why,
//! so nothing is lost.

use std::cmp::Ordering;

use serde::Serialize;
use utoipa::ToSchema;

use super::{
    answer::List,
    completeness::Completeness,
    error::ReportError,
    fold::Folding,
    meant::meant,
    merged_tree::{CodeLevel, Label, MergedTree, TreeFunction, kind_name},
    query::{CodeQuery, Scope},
    scope::View,
    table::{Columns, Row, SortKey, columns_with_values},
    tree_options::TreeOptions,
    values::RowValues,
};
use crate::{
    processes::module::ModuleKind,
    profile::snapshot::Snapshot,
    report::names::{Lines, Names},
    units::{ModuleAddress, ModuleOffset},
};

/// One line of one function.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LineRow {
    /// Path of the source file, as the compiler wrote it.
    #[schema(required)]
    pub file: Option<String>,
    /// Counted from 1.
    #[schema(required)]
    pub line: Option<u32>,
    /// As in the table of functions.
    pub function: String,
    /// Path of the module.
    pub module: String,
    /// Of the module, hexadecimal.
    #[schema(required)]
    pub build_id: Option<String>,
    /// `user`, `kernel`, `jit` or `unknown`.
    pub kind: &'static str,
    /// The function was inlined into what called it; only told apart where that was asked for.
    pub inlined: bool,
    /// Why there is no line; null where there is one, and for what is no code.
    #[schema(required)]
    pub line_unknown: Option<&'static str>,
    /// What `q` searches: file and line, and the function.
    #[serde(skip)]
    text: String,
    /// The three groups.
    #[serde(flatten)]
    pub values: RowValues,
}

impl Columns for LineRow {
    const COLUMNS: &'static [&'static str] = columns_with_values![
        "file",
        "line",
        "function",
        "module",
        "build_id",
        "kind",
        "inlined",
        "line_unknown"
    ];
}

impl Row for LineRow {
    const DEFAULT_SORT: &'static str = "elapsed.exclusive_ns";

    fn key(&self, column: &str) -> Option<SortKey<'_>> {
        match column {
            "file" => self.file.as_deref().map(SortKey::Text),
            "line" => self.line.map(|line| SortKey::Number(line.into())),
            "function" => Some(SortKey::Text(&self.function)),
            "module" => Some(SortKey::Text(&self.module)),
            "build_id" => self.build_id.as_deref().map(SortKey::Text),
            "kind" => Some(SortKey::Text(self.kind)),
            "inlined" => Some(SortKey::Number(self.inlined.into())),
            "line_unknown" => self.line_unknown.map(SortKey::Text),
            _ => self.values.column(column).map(SortKey::Number),
        }
    }

    fn name(&self) -> &str {
        &self.text
    }

    fn tie(&self, other: &Self) -> Ordering {
        let identity = |row: &Self| (row.line, row.inlined, row.line_unknown);
        self.values
            .largest_first(&other.values)
            .then_with(|| self.text.cmp(&other.text))
            .then_with(|| self.module.cmp(&other.module))
            .then_with(|| self.build_id.cmp(&other.build_id))
            .then_with(|| identity(self).cmp(&identity(other)))
    }
}

/// One instruction: a place in a module.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct InstructionRow {
    /// Virtual address in the module, as a disassembler shows it, hexadecimal; of a caller, the
    /// last byte of its call. Null where the file cannot be read any more, and for code without
    /// names of which no more instructions are told apart.
    #[schema(required)]
    pub address: Option<String>,
    /// Where it is in the module's file, bytes from its start, hexadecimal; of a caller, the last
    /// byte of its call. Null for what is in no file.
    #[schema(required)]
    pub file_offset: Option<String>,
    /// As in the table of functions.
    pub function: String,
    /// Bytes from the start of the function, where that is known.
    #[schema(required)]
    pub offset: Option<u64>,
    /// Path of the module.
    pub module: String,
    /// Of the module, hexadecimal.
    #[schema(required)]
    pub build_id: Option<String>,
    /// Path of the source file, as the compiler wrote it.
    #[schema(required)]
    pub file: Option<String>,
    /// Counted from 1.
    #[schema(required)]
    pub line: Option<u32>,
    /// `user`, `kernel`, `jit` or `unknown`.
    pub kind: &'static str,
    /// Why there is no line; null where there is one, and for what is no code.
    #[schema(required)]
    pub line_unknown: Option<&'static str>,
    /// The place in the module, which tells rows without an address apart.
    #[serde(skip)]
    place: Option<u64>,
    /// What `q` searches: the function, file and line.
    #[serde(skip)]
    text: String,
    /// The three groups.
    #[serde(flatten)]
    pub values: RowValues,
}

impl Columns for InstructionRow {
    const COLUMNS: &'static [&'static str] = columns_with_values![
        "address",
        "file_offset",
        "function",
        "offset",
        "module",
        "build_id",
        "file",
        "line",
        "kind",
        "line_unknown"
    ];
}

impl Row for InstructionRow {
    const DEFAULT_SORT: &'static str = "elapsed.exclusive_ns";

    fn key(&self, column: &str) -> Option<SortKey<'_>> {
        match column {
            // As a number: 0x9 is before 0x10.
            "address" => number(self.address.as_deref()),
            "file_offset" => number(self.file_offset.as_deref()),
            "function" => Some(SortKey::Text(&self.function)),
            "offset" => self.offset.map(|offset| SortKey::Number(offset as f64)),
            "module" => Some(SortKey::Text(&self.module)),
            "build_id" => self.build_id.as_deref().map(SortKey::Text),
            "file" => self.file.as_deref().map(SortKey::Text),
            "line" => self.line.map(|line| SortKey::Number(line.into())),
            "kind" => Some(SortKey::Text(self.kind)),
            "line_unknown" => self.line_unknown.map(SortKey::Text),
            _ => self.values.column(column).map(SortKey::Number),
        }
    }

    fn name(&self) -> &str {
        &self.text
    }

    fn tie(&self, other: &Self) -> Ordering {
        self.values
            .largest_first(&other.values)
            .then_with(|| self.module.cmp(&other.module))
            .then_with(|| self.build_id.cmp(&other.build_id))
            .then_with(|| self.place.cmp(&other.place))
            .then_with(|| self.text.cmp(&other.text))
    }
}

/// Hexadecimal digits as a number.
fn number(digits: Option<&str>) -> Option<SortKey<'static>> {
    let number = u64::from_str_radix(digits?.strip_prefix("0x")?, 16).ok()?;
    Some(SortKey::Number(number as f64))
}

/// A row per source line of a process or of the session.
///
/// # Errors
/// No such process, column, window, module or function.
pub fn lines(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &CodeQuery,
    names: &dyn Names,
    lines: &dyn Lines,
) -> Result<List<LineRow>, ReportError> {
    let level = CodeLevel::Lines {
        inlines: query.inlines,
    };
    table(snapshot, scope, query, (names, lines, level), LineRow::new)
}

/// A row per instruction of a process or of the session.
///
/// # Errors
/// No such process, column, window, module or function.
pub fn instructions(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &CodeQuery,
    names: &dyn Names,
    lines: &dyn Lines,
) -> Result<List<InstructionRow>, ReportError> {
    let code = (names, lines, CodeLevel::Instructions);
    table(snapshot, scope, query, code, InstructionRow::new)
}

fn table<R: Row>(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &CodeQuery,
    (names, lines, level): (&dyn Names, &dyn Lines, CodeLevel),
    row: impl Fn(&View<'_>, &TreeFunction<'_>, RowValues) -> R,
) -> Result<List<R>, ReportError> {
    let view = View::new(snapshot, scope, query.table.window)?;
    let shape = TreeOptions {
        folding: Folding::new(snapshot, &query.table.fold)?,
        ..TreeOptions::plain(query.table.frames, Label::Code(names, lines, level))
    };
    let tree = MergedTree::new(&view, shape);
    if let Some(module) = &query.module {
        Folding::only(snapshot, module)?;
    }
    let (function, module) = (query.function.as_deref(), query.module.as_deref());
    let wanted = meant(&view, &tree, function, module)?;
    let (inclusive, exclusive) = (tree.inclusive(), tree.exclusive());
    let rows = (0..tree.functions.len()).filter(|index| wanted[*index]);
    let rows = rows.map(|index| {
        let values = RowValues::new(&inclusive[index], &exclusive[index], &view.denominators);
        row(&view, &tree.functions[index], values)
    });
    let completeness = Completeness::new(&view, &tree.seen(&view, names)).with_lines(
        &view,
        query.table.frames,
        lines,
    );
    List::of(&view, completeness, rows.collect(), &query.table)
}

/// File and line as tools write them.
fn text(function: &TreeFunction<'_>) -> String {
    match function.source {
        None => function.name.to_string(),
        Some(source) => match source.line {
            Some(line) => format!("{}:{line} {}", source.file, function.name),
            None => format!("{} {}", source.file, function.name),
        },
    }
}

impl LineRow {
    fn new(view: &View<'_>, function: &TreeFunction<'_>, values: RowValues) -> Self {
        let module = view.snapshot.module(function.module);
        Self {
            file: function.source.map(|source| source.file.to_string()),
            line: function.source.and_then(|source| source.line),
            function: function.name.clone().into_owned(),
            module: module.name.to_string(),
            build_id: module.build_id_hex(),
            kind: kind_name(function.kind),
            inlined: function.inlined,
            line_unknown: function.no_line.map(|why| why.name()),
            text: text(function),
            values,
        }
    }
}

impl InstructionRow {
    fn new(view: &View<'_>, function: &TreeFunction<'_>, values: RowValues) -> Self {
        let module = view.snapshot.module(function.module);
        // Nameless code that is not told apart has no address.
        let address = function
            .code_address
            .filter(|address| module.kind != ModuleKind::Jit || *address != ModuleAddress::ZERO);
        Self {
            address: address.map(|address| format!("{address:#x}")),
            file_offset: function
                .offset
                .filter(|_| matches!(module.kind, ModuleKind::User | ModuleKind::Vdso))
                .map(|offset| format!("{offset:#x}")),
            function: function.name.clone().into_owned(),
            offset: address
                .zip(function.address)
                .and_then(|(address, start)| address.checked_from(start)),
            module: module.name.to_string(),
            build_id: module.build_id_hex(),
            file: function.source.map(|source| source.file.to_string()),
            line: function.source.and_then(|source| source.line),
            kind: kind_name(function.kind),
            line_unknown: function.no_line.map(|why| why.name()),
            place: function.offset.map(ModuleOffset::get),
            text: text(function),
            values,
        }
    }
}
