//! The three groups of values every row carries, with their percentages (docs/semantics.md section 3).

use std::cmp::Ordering;

use profiler_common::{Class, ClassNs};
use serde::Serialize;

use super::confidence;
use crate::profile::values::{Totals, Values};

/// `100 * part / whole`; 0 of nothing.
#[must_use]
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        100.0 * part as f64 / whole as f64
    }
}

/// What percentages are relative to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Denominators {
    /// The session's totals, over the answer's window.
    pub session: Totals,
    /// The process's, where the rows are of one process.
    pub process: Option<Totals>,
}

/// Timer samples of a row.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct SampleValues {
    /// Samples with it anywhere on the stack.
    pub inclusive: u64,
    /// Samples in which it was executing.
    pub exclusive: u64,
    /// Of the session's samples.
    pub inclusive_percent: f64,
    /// Of the session's samples.
    pub exclusive_percent: f64,
    /// Of the process's samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inclusive_percent_of_process: Option<f64>,
    /// Of the process's samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusive_percent_of_process: Option<f64>,
    /// Where the true `inclusive_percent` begins, at 95 % confidence.
    pub inclusive_percent_low: f64,
    /// Where it ends.
    pub inclusive_percent_high: f64,
    /// Where the true `exclusive_percent` begins.
    pub exclusive_percent_low: f64,
    /// Where it ends.
    pub exclusive_percent_high: f64,
    /// Where the true `inclusive_percent_of_process` begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inclusive_percent_of_process_low: Option<f64>,
    /// Where it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inclusive_percent_of_process_high: Option<f64>,
    /// Where the true `exclusive_percent_of_process` begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusive_percent_of_process_low: Option<f64>,
    /// Where it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusive_percent_of_process_high: Option<f64>,
}

/// Time of a row.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct TimeValues {
    /// Nanoseconds with it anywhere on the stack.
    pub inclusive_ns: u64,
    /// Nanoseconds with it innermost.
    pub exclusive_ns: u64,
    /// Of the session's inclusive time.
    pub inclusive_percent: f64,
    /// Of the session's inclusive time.
    pub exclusive_percent: f64,
    /// Of the process's inclusive time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inclusive_percent_of_process: Option<f64>,
    /// Of the process's inclusive time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusive_percent_of_process: Option<f64>,
}

/// The three groups.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct RowValues {
    /// Timer samples.
    pub samples: SampleValues,
    /// All time.
    pub elapsed: TimeValues,
    /// Time without an operating-system event.
    pub application: TimeValues,
}

impl RowValues {
    /// The values of a row, in relation to the session and the process.
    #[must_use]
    pub fn new(inclusive: &Values, exclusive: &Values, of: &Denominators) -> Self {
        let process = of.process.as_ref();
        Self {
            samples: SampleValues::new(
                inclusive.samples,
                exclusive.samples,
                of.session.samples,
                process.map(|process| process.samples),
            ),
            elapsed: TimeValues::new(
                inclusive.elapsed_ns(),
                exclusive.elapsed_ns(),
                of.session.elapsed_ns(),
                process.map(Totals::elapsed_ns),
            ),
            application: TimeValues::new(
                inclusive.application_ns(),
                exclusive.application_ns(),
                of.session.application_ns(),
                process.map(Totals::application_ns),
            ),
        }
    }

    /// Which of two rows comes first where the column asked for does not tell: that of more time, then of more samples.
    pub(super) fn largest_first(&self, other: &Self) -> Ordering {
        let size = |values: &Self| (values.elapsed.inclusive_ns, values.samples.inclusive);
        size(other).cmp(&size(self))
    }

    /// The number in one of the value columns.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<f64> {
        let (group, column) = name.split_once('.')?;
        let time = match group {
            "samples" => return self.samples.column(column),
            "elapsed" => &self.elapsed,
            "application" => &self.application,
            _ => return None,
        };
        time.column(column)
    }
}

impl SampleValues {
    fn new(inclusive: u64, exclusive: u64, session: u64, process: Option<u64>) -> Self {
        let of_session = [inclusive, exclusive].map(|count| confidence::interval(count, session));
        let of_process = [inclusive, exclusive]
            .map(|count| process.map(|process| confidence::interval(count, process)));
        let [low, high] = [
            of_process.map(|p| p.map(|p| p.0)),
            of_process.map(|p| p.map(|p| p.1)),
        ];
        Self {
            inclusive,
            exclusive,
            inclusive_percent: percent(inclusive, session),
            exclusive_percent: percent(exclusive, session),
            inclusive_percent_of_process: process.map(|process| percent(inclusive, process)),
            exclusive_percent_of_process: process.map(|process| percent(exclusive, process)),
            inclusive_percent_low: of_session[0].0,
            inclusive_percent_high: of_session[0].1,
            exclusive_percent_low: of_session[1].0,
            exclusive_percent_high: of_session[1].1,
            inclusive_percent_of_process_low: low[0],
            inclusive_percent_of_process_high: high[0],
            exclusive_percent_of_process_low: low[1],
            exclusive_percent_of_process_high: high[1],
        }
    }

    fn column(&self, name: &str) -> Option<f64> {
        Some(match name {
            "inclusive" => self.inclusive as f64,
            "exclusive" => self.exclusive as f64,
            "inclusive_percent" => self.inclusive_percent,
            "exclusive_percent" => self.exclusive_percent,
            "inclusive_percent_of_process" => self.inclusive_percent_of_process.unwrap_or_default(),
            "exclusive_percent_of_process" => self.exclusive_percent_of_process.unwrap_or_default(),
            "inclusive_percent_low" => self.inclusive_percent_low,
            "inclusive_percent_high" => self.inclusive_percent_high,
            "exclusive_percent_low" => self.exclusive_percent_low,
            "exclusive_percent_high" => self.exclusive_percent_high,
            "inclusive_percent_of_process_low" => self.inclusive_percent_of_process_low?,
            "inclusive_percent_of_process_high" => self.inclusive_percent_of_process_high?,
            "exclusive_percent_of_process_low" => self.exclusive_percent_of_process_low?,
            "exclusive_percent_of_process_high" => self.exclusive_percent_of_process_high?,
            _ => return None,
        })
    }
}

impl TimeValues {
    fn new(inclusive_ns: u64, exclusive_ns: u64, session_ns: u64, process_ns: Option<u64>) -> Self {
        Self {
            inclusive_ns,
            exclusive_ns,
            inclusive_percent: percent(inclusive_ns, session_ns),
            exclusive_percent: percent(exclusive_ns, session_ns),
            inclusive_percent_of_process: process_ns.map(|p| percent(inclusive_ns, p)),
            exclusive_percent_of_process: process_ns.map(|p| percent(exclusive_ns, p)),
        }
    }

    fn column(&self, name: &str) -> Option<f64> {
        Some(match name {
            "inclusive_ns" => self.inclusive_ns as f64,
            "exclusive_ns" => self.exclusive_ns as f64,
            "inclusive_percent" => self.inclusive_percent,
            "exclusive_percent" => self.exclusive_percent,
            "inclusive_percent_of_process" => self.inclusive_percent_of_process.unwrap_or_default(),
            "exclusive_percent_of_process" => self.exclusive_percent_of_process.unwrap_or_default(),
            _ => return None,
        })
    }
}

/// Time by class; the parts sum to the elapsed time beside it.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq, utoipa::ToSchema)]
pub struct ClassValues {
    /// Running in user mode, outside any system call.
    pub user_ns: u64,
    /// Running inside a system call.
    pub syscall_ns: u64,
    /// Off the processor until woken.
    pub blocked_ns: u64,
    /// Off the processor although it could run.
    pub runnable_ns: u64,
    /// A kernel thread, running.
    pub kernel_ns: u64,
}

impl From<&ClassNs> for ClassValues {
    fn from(classes: &ClassNs) -> Self {
        Self {
            user_ns: classes[Class::User as usize],
            syscall_ns: classes[Class::Syscall as usize],
            blocked_ns: classes[Class::Blocked as usize],
            runnable_ns: classes[Class::Runnable as usize],
            kernel_ns: classes[Class::Kernel as usize],
        }
    }
}

impl ClassValues {
    /// The number in one of the class columns, `classes.user_ns` and so on.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<f64> {
        Some(match name.strip_prefix("classes.")? {
            "user_ns" => self.user_ns as f64,
            "syscall_ns" => self.syscall_ns as f64,
            "blocked_ns" => self.blocked_ns as f64,
            "runnable_ns" => self.runnable_ns as f64,
            "kernel_ns" => self.kernel_ns as f64,
            _ => return None,
        })
    }
}

/// What a row shows whose inclusive and exclusive values are its exact totals: a thread, a process.
#[must_use]
pub fn as_values(totals: &Totals) -> Values {
    Values {
        samples: totals.samples,
        walks: 0,
        classes: totals.classes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check the seeds' formulas: exclusive shares are of the session's inclusive time, and a share of nothing is 0.
    #[test]
    fn percentages() {
        let of = Denominators {
            session: Totals {
                samples: 200,
                classes: [500, 500, 0, 0, 0],
                ..Totals::default()
            },
            process: Some(Totals {
                samples: 100,
                classes: [0, 400, 0, 0, 0],
                ..Totals::default()
            }),
        };
        let inclusive = Values {
            samples: 50,
            walks: 0,
            classes: [50, 200, 0, 0, 0],
        };
        let exclusive = Values {
            samples: 10,
            walks: 0,
            classes: [25, 75, 0, 0, 0],
        };
        let row = RowValues::new(&inclusive, &exclusive, &of);
        assert_eq!(row.column("samples.inclusive_percent"), Some(25.0));
        assert_eq!(
            row.column("samples.exclusive_percent_of_process"),
            Some(10.0)
        );
        assert_eq!(row.column("elapsed.inclusive_percent"), Some(25.0));
        assert_eq!(row.column("elapsed.exclusive_percent"), Some(10.0));
        assert_eq!(row.column("application.inclusive_percent"), Some(10.0));
        assert_eq!(row.column("application.exclusive_percent"), Some(5.0));
        assert_eq!(
            row.column("application.exclusive_percent_of_process"),
            Some(0.0)
        );
        assert_eq!(row.column("elapsed.inclusive"), None);
    }
}
