//! What one row of a comparison has on each side and how that differs, by every value: amounts,
//! shares and columns.

use serde::Serialize;

use super::{
    figures::Figures,
    query::StackValue,
    values::{Denominators, RowValues, percent},
};

/// The values of a row on one side; percentages are of that side.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct SideValues {
    /// As in other tables.
    #[serde(flatten)]
    pub values: RowValues,
    /// Time on a processor.
    pub running: ClassTime,
    /// Time blocked or runnable.
    pub off_processor: ClassTime,
    /// Time blocked.
    pub blocked: ClassTime,
    /// Time waiting for a processor.
    pub runnable: ClassTime,
    /// Time running in system calls.
    pub syscall: ClassTime,
}

/// Time of some classes, and its shares of all such time.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct ClassTime {
    /// Nanoseconds with it anywhere on the stack.
    pub inclusive_ns: u64,
    /// Nanoseconds with it innermost.
    pub exclusive_ns: u64,
    /// Of all such time of the side.
    pub inclusive_percent: f64,
    /// Of all such time of the side.
    pub exclusive_percent: f64,
}

/// An amount, samples or nanoseconds, and which share it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangePart {
    pub(crate) amount: u64,
    pub(crate) percent: f64,
}

impl SideValues {
    pub(super) fn new(inclusive: &Figures, exclusive: &Figures, of: &Denominators) -> Self {
        let totals = &of.session;
        let time = |value: StackValue| {
            let [inclusive_ns, exclusive_ns, all_ns] =
                [&inclusive.values, &exclusive.values, totals].map(|values| value.of(values));
            ClassTime {
                inclusive_ns,
                exclusive_ns,
                inclusive_percent: percent(inclusive_ns, all_ns),
                exclusive_percent: percent(exclusive_ns, all_ns),
            }
        };
        Self {
            values: RowValues::new(inclusive, exclusive, of),
            running: time(StackValue::Running),
            off_processor: time(StackValue::OffProcessor),
            blocked: time(StackValue::Blocked),
            runnable: time(StackValue::Runnable),
            syscall: time(StackValue::Syscall),
        }
    }

    /// Its exclusive and its inclusive part of one value.
    pub(crate) fn parts(&self, value: StackValue) -> [ChangePart; 2] {
        let time = match value {
            StackValue::Samples => {
                let of = &self.values.samples;
                return [
                    (of.exclusive, of.exclusive_percent),
                    (of.inclusive, of.inclusive_percent),
                ]
                .map(|(amount, percent)| ChangePart { amount, percent });
            }
            StackValue::Elapsed | StackValue::Application => {
                let of = match value {
                    StackValue::Elapsed => &self.values.elapsed,
                    _ => &self.values.application,
                };
                return [
                    (of.exclusive_ns, of.exclusive_percent),
                    (of.inclusive_ns, of.inclusive_percent),
                ]
                .map(|(amount, percent)| ChangePart { amount, percent });
            }
            StackValue::Running => &self.running,
            StackValue::OffProcessor => &self.off_processor,
            StackValue::Blocked => &self.blocked,
            StackValue::Runnable => &self.runnable,
            StackValue::Syscall => &self.syscall,
        };
        [
            (time.exclusive_ns, time.exclusive_percent),
            (time.inclusive_ns, time.inclusive_percent),
        ]
        .map(|(amount, percent)| ChangePart { amount, percent })
    }

    /// The number in one of the value columns.
    pub(super) fn column(&self, name: &str) -> Option<f64> {
        let of_rows = self.values.column(name);
        of_rows.or_else(|| {
            let (value, column) = value_column(name)?;
            let [exclusive, inclusive] = self.parts(value);
            Some(match column {
                "exclusive_ns" => exclusive.amount as f64,
                "inclusive_ns" => inclusive.amount as f64,
                "exclusive_percent" => exclusive.percent,
                "inclusive_percent" => inclusive.percent,
                _ => return None,
            })
        })
    }
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
    /// Time on a processor.
    pub running: TimeChange,
    /// Time blocked or runnable.
    pub off_processor: TimeChange,
    /// Time blocked.
    pub blocked: TimeChange,
    /// Time waiting for a processor.
    pub runnable: TimeChange,
    /// Time running in system calls.
    pub syscall: TimeChange,
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
    /// Of all such time.
    pub inclusive_percent: f64,
    /// Of all such time.
    pub exclusive_percent: f64,
}

impl Change {
    pub(super) fn new(base: &SideValues, other: &SideValues) -> Self {
        let of = |value| TimeChange::new(base.parts(value), other.parts(value));
        let samples = of(StackValue::Samples);
        Self {
            samples: SampleChange {
                inclusive: samples.inclusive_ns,
                exclusive: samples.exclusive_ns,
                inclusive_percent: samples.inclusive_percent,
                exclusive_percent: samples.exclusive_percent,
            },
            elapsed: of(StackValue::Elapsed),
            application: of(StackValue::Application),
            running: of(StackValue::Running),
            off_processor: of(StackValue::OffProcessor),
            blocked: of(StackValue::Blocked),
            runnable: of(StackValue::Runnable),
            syscall: of(StackValue::Syscall),
        }
    }

    /// The change of one value; of samples as if they were nanoseconds.
    fn of(&self, value: StackValue) -> TimeChange {
        match value {
            StackValue::Samples => TimeChange {
                inclusive_ns: self.samples.inclusive,
                exclusive_ns: self.samples.exclusive,
                inclusive_percent: self.samples.inclusive_percent,
                exclusive_percent: self.samples.exclusive_percent,
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

    /// By how many percentage points the exclusive and the inclusive share of one value changed.
    #[must_use]
    pub fn points(&self, value: StackValue) -> [f64; 2] {
        let change = self.of(value);
        [change.exclusive_percent, change.inclusive_percent]
    }

    /// The larger of these, either way.
    pub(super) fn largest(&self, value: StackValue) -> f64 {
        let [exclusive, inclusive] = self.points(value);
        exclusive.abs().max(inclusive.abs())
    }

    pub(super) fn column(&self, name: &str) -> Option<f64> {
        let (value, column) = value_column(name)?;
        let change = self.of(value);
        let unit = if value.is_time() { "_ns" } else { "" };
        Some(match column {
            "inclusive_percent" => change.inclusive_percent,
            "exclusive_percent" => change.exclusive_percent,
            _ => match column.strip_suffix(unit)? {
                "inclusive" => change.inclusive_ns as f64,
                "exclusive" => change.exclusive_ns as f64,
                _ => return None,
            },
        })
    }
}

impl TimeChange {
    fn new([from, all_from]: [ChangePart; 2], [to, all_to]: [ChangePart; 2]) -> Self {
        Self {
            inclusive_ns: less(all_to.amount, all_from.amount),
            exclusive_ns: less(to.amount, from.amount),
            inclusive_percent: all_to.percent - all_from.percent,
            exclusive_percent: to.percent - from.percent,
        }
    }
}

/// The value and the rest of a column's name.
pub(super) fn value_column(name: &str) -> Option<(StackValue, &str)> {
    let (group, column) = name.split_once('.')?;
    let mut all = StackValue::ALL.into_iter();
    Some((all.find(|value| value.name() == group)?, column))
}

/// `a - b`, as far as that can be told.
pub(super) fn less(a: u64, b: u64) -> i64 {
    let difference = i128::from(a) - i128::from(b);
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}

/// Columns of a comparison: those of the row itself, those of each side, those of the changes.
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
                concat!($side, ".running.inclusive_ns"), concat!($side, ".running.exclusive_ns"),
                concat!($side, ".running.inclusive_percent"), concat!($side, ".running.exclusive_percent"),
                concat!($side, ".off_processor.inclusive_ns"), concat!($side, ".off_processor.exclusive_ns"),
                concat!($side, ".off_processor.inclusive_percent"), concat!($side, ".off_processor.exclusive_percent"),
                concat!($side, ".blocked.inclusive_ns"), concat!($side, ".blocked.exclusive_ns"),
                concat!($side, ".blocked.inclusive_percent"), concat!($side, ".blocked.exclusive_percent"),
                concat!($side, ".runnable.inclusive_ns"), concat!($side, ".runnable.exclusive_ns"),
                concat!($side, ".runnable.inclusive_percent"), concat!($side, ".runnable.exclusive_percent"),
                concat!($side, ".syscall.inclusive_ns"), concat!($side, ".syscall.exclusive_ns"),
                concat!($side, ".syscall.inclusive_percent"), concat!($side, ".syscall.exclusive_percent"),
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
            "change.running.inclusive_ns", "change.running.exclusive_ns",
            "change.running.inclusive_percent", "change.running.exclusive_percent",
            "change.off_processor.inclusive_ns", "change.off_processor.exclusive_ns",
            "change.off_processor.inclusive_percent", "change.off_processor.exclusive_percent",
            "change.blocked.inclusive_ns", "change.blocked.exclusive_ns",
            "change.blocked.inclusive_percent", "change.blocked.exclusive_percent",
            "change.runnable.inclusive_ns", "change.runnable.exclusive_ns",
            "change.runnable.inclusive_percent", "change.runnable.exclusive_percent",
            "change.syscall.inclusive_ns", "change.syscall.exclusive_ns",
            "change.syscall.inclusive_percent", "change.syscall.exclusive_percent",
        ]
    };
}
pub(super) use side_columns;
