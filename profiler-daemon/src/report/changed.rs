//! Which processes changed between two windows, by each value of their time. Windows differ in
//! length, so shares are of what there was to have: of time on a processor, what the processors
//! could have given; of other time, how long the window was; of samples, all samples.

use std::{cmp::Ordering, collections::BTreeMap};

use serde::Serialize;

use super::{
    change::{less, value_column},
    compared::{ComparedWindow, Grouping, ProcessDiffQuery, Side},
    completeness::Completeness,
    error::ReportError,
    member::Member,
    names::Names,
    places::Places,
    product::Values,
    query::{ImageId, Scope, StackValue},
    scope::View,
    table::{Columns, Row, SortKey, arrange},
    values::percent,
};
use crate::{processes::ids::ProcessKey, profile::snapshot::Snapshot};

/// The answer.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ProcessDiff {
    /// Time of the drain pass it was made from, RFC 3339.
    #[schema(format = DateTime)]
    pub as_of: String,
    /// The one time.
    pub base: Side,
    /// The other.
    pub other: Side,
    /// What a row is: all processes of one `name`, or one `process`.
    pub by: Grouping,
    /// The value whose change is looked for: `largest_change_percent` is of its share.
    pub value: StackValue,
    /// What 100 % of that value is: the window's `samples`, the time of all its `processors`
    /// together, or its `duration`.
    pub percent_of: Whole,
    /// Rows there are, those cut by `limit` included, those below the threshold not.
    pub total_rows: usize,
    /// Whether `limit` cut rows.
    pub truncated: bool,
    /// The rows, in the order asked for.
    pub rows: Vec<ProcessDiffRow>,
}

/// What a share is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Whole {
    /// All samples.
    Samples,
    /// The length of the window, once for each processor that was profiled.
    Processors,
    /// The length of the window: 200 % for two threads that waited all the time.
    Duration,
}

impl Whole {
    /// What shares of a value are of, of which the number of processors is known or not.
    #[must_use]
    pub const fn of(value: StackValue, processors_known: bool) -> Self {
        match value {
            StackValue::Samples => Self::Samples,
            StackValue::Application | StackValue::Running | StackValue::Syscall
                if processors_known =>
            {
                Self::Processors
            }
            _ => Self::Duration,
        }
    }

    fn amount(self, side: &Side) -> u64 {
        match self {
            Self::Samples => side.samples,
            Self::Processors => {
                let processors = side.window.processors.unwrap_or(1);
                side.window.duration_ns.saturating_mul(processors.into())
            }
            Self::Duration => side.window.duration_ns,
        }
    }
}

/// Processes of one name, or one process.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ProcessDiffRow {
    /// The process; null where the row is those of one name, or ended ones of one file.
    #[schema(required)]
    pub pid: Option<u32>,
    /// Its start, 10 ms ticks since boot.
    #[schema(required)]
    pub start_ticks: Option<u64>,
    /// Of ended processes that are one by the file they executed: what `/api/v1/images/{id}` calls
    /// them.
    #[schema(required)]
    pub image_id: Option<String>,
    /// Their name: for `comm=` of the comparison of functions.
    pub comm: String,
    /// How much the share of the value compared changed, either way, percentage points.
    pub largest_change_percent: f64,
    /// In the one time.
    pub base: ProcessSide,
    /// In the other.
    pub other: ProcessSide,
    /// The other's less the base's.
    pub change: ProcessSideChange,
}

/// What the processes of a row had.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct ProcessSide {
    /// How many were there; null where ended ones that are no longer kept one by one are among
    /// them, of which that is not known.
    #[schema(required)]
    pub processes: Option<u64>,
    /// Timer samples.
    pub samples: CountShare,
    /// All time of all threads.
    pub elapsed: TimeShare,
    /// Time without an operating-system event.
    pub application: TimeShare,
    /// Time on a processor.
    pub running: TimeShare,
    /// Time blocked or runnable.
    pub off_processor: TimeShare,
    /// Time blocked.
    pub blocked: TimeShare,
    /// Time waiting for a processor.
    pub runnable: TimeShare,
    /// Time running in system calls.
    pub syscall: TimeShare,
}

/// Samples, and their share.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct CountShare {
    /// How many.
    pub count: u64,
    /// Of the window's samples.
    pub percent: f64,
}

/// Time, and its share.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct TimeShare {
    /// Nanoseconds.
    pub ns: u64,
    /// Of running, application and system-call time: of the time of all processors; of the others,
    /// and where the number of processors is not known: of the length of the window.
    pub percent: f64,
}

/// The other's less the base's.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct ProcessSideChange {
    /// Timer samples.
    pub samples: CountShareChange,
    /// All time of all threads.
    pub elapsed: TimeShareChange,
    /// Time without an operating-system event.
    pub application: TimeShareChange,
    /// Time on a processor.
    pub running: TimeShareChange,
    /// Time blocked or runnable.
    pub off_processor: TimeShareChange,
    /// Time blocked.
    pub blocked: TimeShareChange,
    /// Time waiting for a processor.
    pub runnable: TimeShareChange,
    /// Time running in system calls.
    pub syscall: TimeShareChange,
}

/// Change of samples.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct CountShareChange {
    /// How many; not corrected for how long each window is.
    pub count: i64,
    /// Percentage points.
    pub percent: f64,
}

/// Change of time.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct TimeShareChange {
    /// Nanoseconds; not corrected for how long each window is.
    pub ns: i64,
    /// Percentage points.
    pub percent: f64,
}

impl ProcessSide {
    fn new(of: &Sum, side: &Side) -> Self {
        let share = |value: StackValue| {
            let ns = value.of(&of.values);
            let whole = Whole::of(value, side.window.processors.is_some());
            TimeShare {
                ns,
                percent: percent(ns, whole.amount(side)),
            }
        };
        let samples = share(StackValue::Samples);
        Self {
            processes: of.processes,
            samples: CountShare {
                count: samples.ns,
                percent: samples.percent,
            },
            elapsed: share(StackValue::Elapsed),
            application: share(StackValue::Application),
            running: share(StackValue::Running),
            off_processor: share(StackValue::OffProcessor),
            blocked: share(StackValue::Blocked),
            runnable: share(StackValue::Runnable),
            syscall: share(StackValue::Syscall),
        }
    }

    /// The amount, nanoseconds or samples, and the share of one value.
    #[must_use]
    pub fn of(&self, value: StackValue) -> TimeShare {
        match value {
            StackValue::Samples => TimeShare {
                ns: self.samples.count,
                percent: self.samples.percent,
            },
            StackValue::Elapsed => self.elapsed,
            StackValue::Application => self.application,
            StackValue::Running => self.running,
            StackValue::OffProcessor => self.off_processor,
            StackValue::Blocked => self.blocked,
            StackValue::Runnable => self.runnable,
            StackValue::Syscall => self.syscall,
        }
    }
}

impl ProcessSideChange {
    fn new(base: &ProcessSide, other: &ProcessSide) -> Self {
        let change = |value| {
            let (base, other) = (base.of(value), other.of(value));
            TimeShareChange {
                ns: less(other.ns, base.ns),
                percent: other.percent - base.percent,
            }
        };
        let samples = change(StackValue::Samples);
        Self {
            samples: CountShareChange {
                count: samples.ns,
                percent: samples.percent,
            },
            elapsed: change(StackValue::Elapsed),
            application: change(StackValue::Application),
            running: change(StackValue::Running),
            off_processor: change(StackValue::OffProcessor),
            blocked: change(StackValue::Blocked),
            runnable: change(StackValue::Runnable),
            syscall: change(StackValue::Syscall),
        }
    }

    /// The change of one value: of nanoseconds or samples, and of the share.
    #[must_use]
    pub fn of(&self, value: StackValue) -> TimeShareChange {
        match value {
            StackValue::Samples => TimeShareChange {
                ns: self.samples.count,
                percent: self.samples.percent,
            },
            StackValue::Elapsed => self.elapsed,
            StackValue::Application => self.application,
            StackValue::Running => self.running,
            StackValue::OffProcessor => self.off_processor,
            StackValue::Blocked => self.blocked,
            StackValue::Runnable => self.runnable,
            StackValue::Syscall => self.syscall,
        }
    }
}

/// The columns of both sides and of the change.
macro_rules! process_columns {
    ([$($own:literal),*], [$($side:literal),*]) => {
        &[
            $($own,)*
            "base.processes", "other.processes",
            $(
                concat!($side, ".samples.count"), concat!($side, ".samples.percent"),
                concat!($side, ".elapsed.ns"), concat!($side, ".elapsed.percent"),
                concat!($side, ".application.ns"), concat!($side, ".application.percent"),
                concat!($side, ".running.ns"), concat!($side, ".running.percent"),
                concat!($side, ".off_processor.ns"), concat!($side, ".off_processor.percent"),
                concat!($side, ".blocked.ns"), concat!($side, ".blocked.percent"),
                concat!($side, ".runnable.ns"), concat!($side, ".runnable.percent"),
                concat!($side, ".syscall.ns"), concat!($side, ".syscall.percent"),
            )*
        ]
    };
}

impl Columns for ProcessDiffRow {
    const COLUMNS: &'static [&'static str] = process_columns!(
        [
            "pid",
            "start_ticks",
            "image_id",
            "comm",
            "largest_change_percent"
        ],
        ["base", "other", "change"]
    );
}

impl Row for ProcessDiffRow {
    const DEFAULT_SORT: &'static str = "largest_change_percent";

    fn key(&self, column: &str) -> Option<SortKey<'_>> {
        let number = |number: f64| Some(SortKey::Number(number));
        match column {
            "pid" => return number(self.pid?.into()),
            "start_ticks" => return number(self.start_ticks? as f64),
            "image_id" => return self.image_id.as_deref().map(SortKey::Text),
            "comm" => return Some(SortKey::Text(&self.comm)),
            "largest_change_percent" => return number(self.largest_change_percent),
            "base.processes" => return number(self.base.processes? as f64),
            "other.processes" => return number(self.other.processes? as f64),
            _ => {}
        }
        let (side, column) = column.split_once('.')?;
        let (value, column) = value_column(column)?;
        let (amount, percent) = match side {
            "change" => {
                let change = self.change.of(value);
                (change.ns as f64, change.percent)
            }
            _ => {
                let side = if side == "base" {
                    &self.base
                } else {
                    &self.other
                };
                let share = side.of(value);
                (share.ns as f64, share.percent)
            }
        };
        number(if column == "percent" { percent } else { amount })
    }

    fn name(&self) -> &str {
        &self.comm
    }

    fn tie(&self, other: &Self) -> Ordering {
        let elapsed = |row: &Self| row.base.elapsed.ns.saturating_add(row.other.elapsed.ns);
        let who = |row: &Self| (row.pid, row.start_ticks);
        elapsed(other)
            .cmp(&elapsed(self))
            .then_with(|| self.comm.cmp(&other.comm))
            .then_with(|| (who(self), &self.image_id).cmp(&(who(other), &other.image_id)))
    }
}

/// What a row is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RowOwner {
    comm: String,
    process: Option<ProcessKey>,
    image_id: Option<String>,
}

impl RowOwner {
    fn new(member: &Member<'_>, by: Grouping) -> Self {
        match by {
            Grouping::Name => Self {
                comm: member.comm(),
                process: None,
                image_id: None,
            },
            Grouping::Process => Self {
                comm: member.name(),
                process: member.process.map(|(key, _)| key),
                image_id: member.image_id().as_ref().map(ImageId::to_string),
            },
        }
    }
}

/// What the processes of a row have on one side.
#[derive(Clone, Copy)]
struct Sum {
    processes: Option<u64>,
    values: Values,
}

impl Default for Sum {
    fn default() -> Self {
        Self {
            processes: Some(0),
            values: Values::default(),
        }
    }
}

/// Compares the processes of two windows.
///
/// # Errors
/// No such column or window.
pub fn process_diff(
    snapshot: &Snapshot,
    query: &ProcessDiffQuery,
    names: &dyn Names,
) -> Result<ProcessDiff, ReportError> {
    let (base, base_sums) = side(snapshot, &query.base, query.by, names)?;
    let (other, mut other_sums) = side(snapshot, &query.other, query.by, names)?;
    let mut pairs: Vec<(RowOwner, Sum, Sum)> = Vec::new();
    for (who, of_base) in base_sums {
        let of_other = other_sums.remove(&who).unwrap_or_default();
        pairs.push((who, of_base, of_other));
    }
    pairs.extend(
        other_sums
            .into_iter()
            .map(|(who, of)| (who, Sum::default(), of)),
    );
    let value = query.value.unwrap_or(StackValue::Running);
    let rows = pairs.into_iter().map(|(who, of_base, of_other)| {
        let of_base = ProcessSide::new(&of_base, &base);
        let of_other = ProcessSide::new(&of_other, &other);
        let change = ProcessSideChange::new(&of_base, &of_other);
        ProcessDiffRow {
            pid: who.process.map(|key| key.pid),
            start_ticks: who.process.map(|key| key.start_ticks()),
            image_id: who.image_id,
            comm: who.comm,
            largest_change_percent: change.of(value).percent.abs(),
            base: of_base,
            other: of_other,
            change,
        }
    });
    let rows = rows.filter(|row| row.largest_change_percent >= query.threshold_percent);
    let cut = arrange(rows.collect(), &query.table)?;
    let processors_known = base.window.processors.is_some();
    Ok(ProcessDiff {
        as_of: super::times::rfc3339(snapshot.as_of_unix_ns()),
        base,
        other,
        by: query.by,
        value,
        percent_of: Whole::of(value, processors_known),
        total_rows: cut.total_rows,
        truncated: cut.rows.len() < cut.total_rows,
        rows: cut.rows,
    })
}

fn side(
    snapshot: &Snapshot,
    of: &ComparedWindow,
    by: Grouping,
    names: &dyn Names,
) -> Result<(Side, BTreeMap<RowOwner, Sum>), ReportError> {
    let view = View::new(snapshot, &Scope::Session, of.window)?;
    let mut sums: BTreeMap<RowOwner, Sum> = BTreeMap::new();
    let there = (0..view.members.len()).filter(|index| view.has_member(*index));
    for index in there {
        let sum = sums
            .entry(RowOwner::new(&view.members[index], by))
            .or_default();
        sum.values.add(&view.figures[index].values);
        let processes = sum.processes.zip(view.process_count(index));
        sum.processes = processes.map(|(sum, more)| sum.saturating_add(more));
    }
    let completeness = Completeness::of_totals(&view, &Places::new(&view), names);
    Ok((Side::new(of.name.clone(), &view, completeness), sums))
}
