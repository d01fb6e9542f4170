//! The three groups of values every row carries, with their percentages (docs/semantics.md section
//! 3).

use std::cmp::Ordering;

use profiler_common::{Class, ClassNs};
use serde::Serialize;

use profiler_common::division::{Estimate, Interval};

use super::{confidence, figures::Figures, marks::Marks, product::Values, strata::TotalFigures};
use crate::profile::values::Totals;

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
    pub session: Values,
    /// The process's, where the rows are of one process.
    pub process: Option<Values>,
    /// The session's time outside of system calls as the threads' clocks tell it, nanoseconds: with
    /// page faults, and all running time where system calls were not traced. What application time
    /// of calls that are measured by the same clocks is a part of.
    pub session_user_ns: u64,
    /// The process's.
    pub process_user_ns: Option<u64>,
    /// So many samples tell as much as one that stands for itself, of those in scope
    /// ([`Totals::samples_each`]).
    pub samples_each: f64,
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
    /// Where the true `inclusive_ns` begins, at 95 % confidence. Absent where it is measured, and
    /// not divided by marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inclusive_low_ns: Option<u64>,
    /// Where it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inclusive_high_ns: Option<u64>,
    /// Nanoseconds with it innermost.
    pub exclusive_ns: u64,
    /// Where the true `exclusive_ns` begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusive_low_ns: Option<u64>,
    /// Where it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusive_high_ns: Option<u64>,
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
    /// Time in user mode: without an operating-system event.
    pub application: TimeValues,
    /// The inclusive elapsed time by class.
    pub classes: ClassValues,
    /// The exclusive elapsed time by class: where the time passed while it was innermost.
    pub exclusive_classes: ClassValues,
    /// The marks that the inclusive times rest on; absent where those are measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marks: Option<Marks>,
    /// Of the inclusive elapsed time: what is neither user mode nor of a system call, as page
    /// faults are.
    pub fault_ns: u64,
    /// Of the inclusive elapsed time: what was not measured by class, as system calls were not
    /// traced.
    pub estimated_ns: u64,
    /// It rests for more than half on fewer than three marks: the intervals are rough.
    pub few_marks: bool,
}

impl RowValues {
    /// The values of a row, in relation to the session and the process.
    #[must_use]
    pub(super) fn new(inclusive: &Figures, exclusive: &Figures, of: &Denominators) -> Self {
        let process = of.process.as_ref();
        let time = |ns: fn(&Values) -> u64, estimate: fn(&Figures) -> Option<&Estimate>| {
            TimeValues::new(
                Estimated::new(ns(&inclusive.values), estimate(inclusive)),
                Estimated::new(ns(&exclusive.values), estimate(exclusive)),
                ns(&of.session),
                process.map(ns),
            )
        };
        let accuracy = inclusive.accuracy.as_ref();
        Self {
            samples: SampleValues::new(
                inclusive.values.samples,
                exclusive.values.samples,
                of.session.samples,
                process.map(|process| process.samples),
                of.samples_each,
            ),
            elapsed: time(Values::elapsed_ns, |of| {
                of.accuracy.as_ref().map(|accuracy| &accuracy.elapsed)
            }),
            application: time(Values::application_ns, |of| {
                of.accuracy.as_ref().map(|accuracy| &accuracy.application)
            }),
            classes: ClassValues::from(&inclusive.values.classes),
            exclusive_classes: ClassValues::from(&exclusive.values.classes),
            marks: accuracy.map(|accuracy| accuracy.marks),
            fault_ns: inclusive.values.fault_ns,
            estimated_ns: inclusive.values.estimated_ns,
            few_marks: accuracy.is_some_and(|accuracy| accuracy.elapsed.is_thin()),
        }
    }

    /// Which of two rows comes first where the column asked for does not tell: that of more time,
    /// then of more samples.
    pub(super) fn largest_first(&self, other: &Self) -> Ordering {
        let size = |values: &Self| (values.elapsed.inclusive_ns, values.samples.inclusive);
        size(other).cmp(&size(self))
    }

    /// The number in one of the value columns.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<f64> {
        let Some((group, column)) = name.split_once('.') else {
            return Some(match name {
                "fault_ns" => self.fault_ns as f64,
                "estimated_ns" => self.estimated_ns as f64,
                "few_marks" => f64::from(u8::from(self.few_marks)),
                _ => return None,
            });
        };
        let time = match group {
            "samples" => return self.samples.column(column),
            "classes" => return self.classes.class(column),
            "exclusive_classes" => return self.exclusive_classes.class(column),
            "marks" => return self.marks.and_then(|marks| marks.column(column)),
            "elapsed" => &self.elapsed,
            "application" => &self.application,
            _ => return None,
        };
        time.column(column)
    }
}

impl SampleValues {
    fn new(inclusive: u64, exclusive: u64, session: u64, process: Option<u64>, each: f64) -> Self {
        let interval = |count, all| confidence::interval(count, all, each);
        let of_session = [inclusive, exclusive].map(|count| interval(count, session));
        let of_process =
            [inclusive, exclusive].map(|count| process.map(|process| interval(count, process)));
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

/// A time with its interval; none where it is measured.
#[derive(Clone, Copy)]
struct Estimated {
    ns: u64,
    low_ns: Option<u64>,
    high_ns: Option<u64>,
}

impl Estimated {
    fn new(ns: u64, estimate: Option<&Estimate>) -> Self {
        let interval = estimate.map(|estimate| estimate.interval(ns));
        Self {
            ns,
            low_ns: interval.map(|interval| interval.low_ns),
            high_ns: interval.map(|interval| interval.high_ns),
        }
    }
}

impl TimeValues {
    fn new(
        inclusive: Estimated,
        exclusive: Estimated,
        session_ns: u64,
        process_ns: Option<u64>,
    ) -> Self {
        Self {
            inclusive_ns: inclusive.ns,
            inclusive_low_ns: inclusive.low_ns,
            inclusive_high_ns: inclusive.high_ns,
            exclusive_ns: exclusive.ns,
            exclusive_low_ns: exclusive.low_ns,
            exclusive_high_ns: exclusive.high_ns,
            inclusive_percent: percent(inclusive.ns, session_ns),
            exclusive_percent: percent(exclusive.ns, session_ns),
            inclusive_percent_of_process: process_ns.map(|p| percent(inclusive.ns, p)),
            exclusive_percent_of_process: process_ns.map(|p| percent(exclusive.ns, p)),
        }
    }

    fn column(&self, name: &str) -> Option<f64> {
        Some(match name {
            "inclusive_ns" => self.inclusive_ns as f64,
            "inclusive_low_ns" => self.inclusive_low_ns? as f64,
            "inclusive_high_ns" => self.inclusive_high_ns? as f64,
            "exclusive_ns" => self.exclusive_ns as f64,
            "exclusive_low_ns" => self.exclusive_low_ns? as f64,
            "exclusive_high_ns" => self.exclusive_high_ns? as f64,
            "inclusive_percent" => self.inclusive_percent,
            "exclusive_percent" => self.exclusive_percent,
            "inclusive_percent_of_process" => self.inclusive_percent_of_process.unwrap_or_default(),
            "exclusive_percent_of_process" => self.exclusive_percent_of_process.unwrap_or_default(),
            _ => return None,
        })
    }
}

/// The totals of a process, of several, or of the session.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct TotalValues {
    /// Timer samples.
    pub samples: u64,
    /// All time of all threads.
    pub elapsed_ns: u64,
    /// Time in user mode: `classes.user_ns` less `fault_ns`.
    pub application_ns: u64,
    /// Where the true `application_ns` begins, at 95 % confidence; absent where it is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application_low_ns: Option<u64>,
    /// Where it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application_high_ns: Option<u64>,
    /// Part of `classes.user_ns`: kernel mode outside system calls, as in page faults and
    /// interrupts; by the ticks that found it.
    pub fault_ns: u64,
    /// Page faults that needed no reading.
    pub minor_faults: u64,
    /// Page faults that waited for data to be read.
    pub major_faults: u64,
    /// Switches of its threads that were not seen: with any, how its time off the processor is
    /// divided into blocked and runnable is in doubt.
    pub switches_missed: u64,
    /// Time whose class is an estimate, by ticks, since system calls were not traced.
    pub estimated_ns: u64,
    /// What the profiler took from it, nanoseconds: its hooks and programs in these threads' own
    /// time, by calibrated prices.
    pub profiler_cost_ns: u64,
    /// `elapsed_ns` by class.
    pub classes: ClassValues,
    /// Time in whose kind no mark fell: in the row `[not sampled]`. Absent of spans of sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_sampled: Option<ClassValues>,
}

impl TotalValues {
    /// Of totals, and what of them has no mark, where that is told.
    pub(super) fn new(
        figures: &TotalFigures,
        exact: &Totals,
        not_sampled: Option<&ClassNs>,
    ) -> Self {
        let values = &figures.values;
        let estimated = values.fault_ns > 0 || values.estimated_ns > 0;
        let interval = estimated.then_some(figures.application);
        Self {
            samples: values.samples,
            elapsed_ns: values.elapsed_ns(),
            application_ns: values.application_ns(),
            application_low_ns: interval.map(|interval| interval.low_ns),
            application_high_ns: interval.map(|interval| interval.high_ns),
            fault_ns: values.fault_ns,
            minor_faults: exact.minor_faults,
            major_faults: exact.major_faults,
            switches_missed: exact.switches_missed,
            estimated_ns: values.estimated_ns,
            profiler_cost_ns: exact.profiler_cost_ns,
            classes: ClassValues::from(&values.classes),
            not_sampled: not_sampled.map(ClassValues::from),
        }
    }

    /// Of totals whose interval is not asked for.
    pub(super) fn measured(values: &Values, exact: &Totals, not_sampled: &ClassNs) -> Self {
        let ns = values.application_ns();
        let figures = TotalFigures {
            values: *values,
            application: Interval {
                low_ns: ns,
                high_ns: ns,
            },
        };
        Self {
            application_low_ns: None,
            application_high_ns: None,
            ..Self::new(&figures, exact, Some(not_sampled))
        }
    }

    /// The number in one of the columns.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<f64> {
        Some(match name {
            "samples" => self.samples as f64,
            "elapsed_ns" => self.elapsed_ns as f64,
            "application_ns" => self.application_ns as f64,
            "application_low_ns" => self.application_low_ns? as f64,
            "application_high_ns" => self.application_high_ns? as f64,
            "fault_ns" => self.fault_ns as f64,
            "minor_faults" => self.minor_faults as f64,
            "major_faults" => self.major_faults as f64,
            "switches_missed" => self.switches_missed as f64,
            "estimated_ns" => self.estimated_ns as f64,
            "profiler_cost_ns" => self.profiler_cost_ns as f64,
            _ => match name.strip_prefix("not_sampled.") {
                Some(class) => return self.not_sampled?.class(class),
                None => return self.classes.column(name),
            },
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
        self.class(name.strip_prefix("classes.")?)
    }

    /// Time on processors.
    #[must_use]
    pub fn running_ns(&self) -> u64 {
        let in_kernel_ns = self.syscall_ns.saturating_add(self.kernel_ns);
        self.user_ns.saturating_add(in_kernel_ns)
    }

    pub(super) fn class(&self, name: &str) -> Option<f64> {
        Some(match name {
            "user_ns" => self.user_ns as f64,
            "syscall_ns" => self.syscall_ns as f64,
            "blocked_ns" => self.blocked_ns as f64,
            "runnable_ns" => self.runnable_ns as f64,
            "kernel_ns" => self.kernel_ns as f64,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check the seeds' formulas: exclusive shares are of the session's inclusive time, and a share
    // of nothing is 0.
    #[test]
    fn percentages() {
        let values = |samples: u64, classes: ClassNs| Values {
            samples,
            classes,
            ..Values::default()
        };
        let of = Denominators {
            session: values(200, [500, 500, 0, 0, 0]),
            process: Some(values(100, [0, 400, 0, 0, 0])),
            samples_each: 1.0,
            ..Denominators::default()
        };
        let inclusive = Figures::from(values(50, [50, 200, 0, 0, 0]));
        let exclusive = Figures::from(values(10, [25, 75, 0, 0, 0]));
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
