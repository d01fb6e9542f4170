//! Two processes, or two windows of the session, compared function by function. Shares are of each side's own totals, so that a
//! long recording can be compared with a short one.

use std::{cmp::Ordering, collections::BTreeMap};

use serde::Serialize;

use super::{
    answer::WindowSpan,
    completeness::Completeness,
    fold::Folding,
    forest::{Forest, Label, kind_name},
    grow::Shape,
    product::{Figures, Values},
    query::{DiffQuery, DiffSide, ReportError, Scope},
    scope::View,
    table::{Columns, Key, Row, arrange},
    values::{Denominators, RowValues},
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
    /// Rows there are, those cut by `limit` included, those below the threshold not.
    pub total_rows: usize,
    /// Whether `limit` cut rows.
    pub truncated: bool,
    /// The rows, in the order asked for.
    pub rows: Vec<DiffRow>,
}

/// One side.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Side {
    /// The process or window as it was asked for.
    pub name: String,
    /// The time it covers.
    pub window: WindowSpan,
    /// What it lacks.
    pub completeness: Completeness,
    /// Timer samples.
    pub samples: u64,
    /// All time of all threads.
    pub elapsed_ns: u64,
    /// Time without an operating-system event.
    pub application_ns: u64,
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
    /// The largest of the changes of its shares, either way, percentage points.
    pub largest_change_percent: f64,
    /// Its values on the one side; percentages are of that side.
    pub base: RowValues,
    /// On the other; percentages are of that side.
    pub other: RowValues,
    /// The other's less the base's.
    pub change: Change,
}

/// The other's less the base's.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct Change {
    /// Timer samples.
    pub samples: SampleChange,
    /// All time.
    pub elapsed: TimeChange,
    /// Time without an operating-system event.
    pub application: TimeChange,
}

/// Change of samples; of their shares in percentage points.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct SampleChange {
    /// Samples with it anywhere on the stack.
    pub inclusive: i64,
    /// Samples in which it was executing.
    pub exclusive: i64,
    /// Of all samples.
    pub inclusive_percent: f64,
    /// Of all samples.
    pub exclusive_percent: f64,
}

/// Change of time; of its shares in percentage points.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct TimeChange {
    /// With it anywhere on the stack.
    pub inclusive_ns: i64,
    /// With it innermost.
    pub exclusive_ns: i64,
    /// Of all time.
    pub inclusive_percent: f64,
    /// Of all time.
    pub exclusive_percent: f64,
}

impl Change {
    fn new(base: &RowValues, other: &RowValues) -> Self {
        let (b, o) = (&base.samples, &other.samples);
        Self {
            samples: SampleChange {
                inclusive: less(o.inclusive, b.inclusive),
                exclusive: less(o.exclusive, b.exclusive),
                inclusive_percent: o.inclusive_percent - b.inclusive_percent,
                exclusive_percent: o.exclusive_percent - b.exclusive_percent,
            },
            elapsed: TimeChange::new(&base.elapsed, &other.elapsed),
            application: TimeChange::new(&base.application, &other.application),
        }
    }

    fn shares(&self) -> [f64; 6] {
        [
            self.samples.inclusive_percent,
            self.samples.exclusive_percent,
            self.elapsed.inclusive_percent,
            self.elapsed.exclusive_percent,
            self.application.inclusive_percent,
            self.application.exclusive_percent,
        ]
    }

    fn column(&self, name: &str) -> Option<f64> {
        let (group, column) = name.split_once('.')?;
        let time = match group {
            "samples" => {
                return Some(match column {
                    "inclusive" => self.samples.inclusive as f64,
                    "exclusive" => self.samples.exclusive as f64,
                    "inclusive_percent" => self.samples.inclusive_percent,
                    "exclusive_percent" => self.samples.exclusive_percent,
                    _ => return None,
                });
            }
            "elapsed" => &self.elapsed,
            "application" => &self.application,
            _ => return None,
        };
        Some(match column {
            "inclusive_ns" => time.inclusive_ns as f64,
            "exclusive_ns" => time.exclusive_ns as f64,
            "inclusive_percent" => time.inclusive_percent,
            "exclusive_percent" => time.exclusive_percent,
            _ => return None,
        })
    }
}

impl TimeChange {
    fn new(base: &super::values::TimeValues, other: &super::values::TimeValues) -> Self {
        Self {
            inclusive_ns: less(other.inclusive_ns, base.inclusive_ns),
            exclusive_ns: less(other.exclusive_ns, base.exclusive_ns),
            inclusive_percent: other.inclusive_percent - base.inclusive_percent,
            exclusive_percent: other.exclusive_percent - base.exclusive_percent,
        }
    }
}

fn less(a: u64, b: u64) -> i64 {
    let difference = i128::from(a) - i128::from(b);
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}

/// The columns of values under one name.
macro_rules! side_columns {
    ([$($own:literal),*], [$($side:literal),*]) => {
        &[
            $($own,)*
            $(
                concat!($side, ".samples.inclusive"), concat!($side, ".samples.exclusive"),
                concat!($side, ".samples.inclusive_percent"), concat!($side, ".samples.exclusive_percent"),
                concat!($side, ".samples.inclusive_percent_low"), concat!($side, ".samples.inclusive_percent_high"),
                concat!($side, ".samples.exclusive_percent_low"), concat!($side, ".samples.exclusive_percent_high"),
                concat!($side, ".elapsed.inclusive_ns"), concat!($side, ".elapsed.exclusive_ns"),
                concat!($side, ".elapsed.inclusive_low_ns"), concat!($side, ".elapsed.inclusive_high_ns"),
                concat!($side, ".elapsed.exclusive_low_ns"), concat!($side, ".elapsed.exclusive_high_ns"),
                concat!($side, ".elapsed.inclusive_percent"), concat!($side, ".elapsed.exclusive_percent"),
                concat!($side, ".application.inclusive_ns"), concat!($side, ".application.exclusive_ns"),
                concat!($side, ".application.inclusive_low_ns"), concat!($side, ".application.inclusive_high_ns"),
                concat!($side, ".application.exclusive_low_ns"), concat!($side, ".application.exclusive_high_ns"),
                concat!($side, ".application.inclusive_percent"), concat!($side, ".application.exclusive_percent"),
                concat!($side, ".classes.user_ns"), concat!($side, ".classes.syscall_ns"),
                concat!($side, ".classes.blocked_ns"), concat!($side, ".classes.runnable_ns"),
                concat!($side, ".classes.kernel_ns"),
                concat!($side, ".exclusive_classes.user_ns"), concat!($side, ".exclusive_classes.syscall_ns"),
                concat!($side, ".exclusive_classes.blocked_ns"), concat!($side, ".exclusive_classes.runnable_ns"),
                concat!($side, ".exclusive_classes.kernel_ns"),
                concat!($side, ".marks.ticks"), concat!($side, ".marks.gaps"), concat!($side, ".marks.waits"),
                concat!($side, ".fault_ns"), concat!($side, ".estimated_ns"), concat!($side, ".few_marks"),
            )*
            "change.samples.inclusive", "change.samples.exclusive",
            "change.samples.inclusive_percent", "change.samples.exclusive_percent",
            "change.elapsed.inclusive_ns", "change.elapsed.exclusive_ns",
            "change.elapsed.inclusive_percent", "change.elapsed.exclusive_percent",
            "change.application.inclusive_ns", "change.application.exclusive_ns",
            "change.application.inclusive_percent", "change.application.exclusive_percent",
        ]
    };
}

impl Columns for DiffRow {
    const COLUMNS: &'static [&'static str] = side_columns!(
        ["function", "module", "kind", "largest_change_percent"],
        ["base", "other"]
    );
}

impl Row for DiffRow {
    const DEFAULT_SORT: &'static str = "largest_change_percent";

    fn key(&self, column: &str) -> Option<Key<'_>> {
        let number = match column.split_once('.') {
            Some(("base", column)) => self.base.column(column),
            Some(("other", column)) => self.other.column(column),
            Some(("change", column)) => self.change.column(column),
            _ => None,
        };
        match column {
            "function" => Some(Key::Text(&self.function)),
            "module" => Some(Key::Text(&self.module)),
            "kind" => Some(Key::Text(self.kind)),
            "largest_change_percent" => Some(Key::Number(self.largest_change_percent)),
            _ => number.map(Key::Number),
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
type Table = BTreeMap<(String, String), (&'static str, Figures, Figures)>;

/// Compares two processes, or two windows of the session.
///
/// # Errors
/// No such process, module, column or window.
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
    let of = |session: Values| Denominators {
        session,
        process: None,
    };
    let (of_base, of_other) = (of(base_totals), of(other_totals));
    let rows = pairs.into_iter().map(|((module, function), base, other)| {
        let (kind, base) = (base.0, RowValues::new(&base.1, &base.2, &of_base));
        let other = RowValues::new(&other.1, &other.2, &of_other);
        let change = Change::new(&base, &other);
        DiffRow {
            function,
            module,
            kind,
            largest_change_percent: change.shares().iter().fold(0.0, |a, b| a.max(b.abs())),
            base,
            other,
            change,
        }
    });
    let threshold = query.threshold_percent;
    let rows = rows.filter(|row| row.largest_change_percent >= threshold);
    let cut = arrange(rows.collect(), &query.table)?;
    Ok(Diff {
        as_of: super::answer::rfc3339(snapshot.as_of_unix_ns()),
        base,
        other,
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
) -> Result<(Side, Values, Table), ReportError> {
    let (scope, window) = match side {
        DiffSide::Process(selector) => (Scope::Process(*selector), query.table.window),
        DiffSide::Window { window, .. } => (Scope::Session, *window),
    };
    let view = View::new(snapshot, &scope, window)?;
    let shape = Shape {
        folding: Folding::new(snapshot, &query.table.fold)?,
        ..Shape::plain(query.table.frames, Label::Functions(names))
    };
    let forest = Forest::new(&view, shape);
    let values = forest.inclusive().into_iter().zip(forest.exclusive());
    let mut table = Table::new();
    for (function, (inclusive, exclusive)) in forest.functions.iter().zip(values) {
        let module = snapshot.module(function.module).name.to_string();
        let row = table.entry((module, function.name.to_string())).or_insert((
            kind_name(function.kind),
            Figures::default(),
            Figures::default(),
        ));
        row.1.add(&inclusive);
        row.2.add(&exclusive);
    }
    let totals = view.total.values;
    let side = Side {
        name: side.name(),
        window: view.window(),
        completeness: Completeness::new(&view, &forest.seen(&view, names)),
        samples: totals.samples,
        elapsed_ns: totals.elapsed_ns(),
        application_ns: totals.application_ns(),
    };
    Ok((side, totals, table))
}
