//! One function's truth beside what the daemon reports of it, and how far apart the two may be.
//!
//! The standard deviation comes from the number of marks: the report's own interval, but never more
//! than one mark and twice what follows from first principles (a share of n marks, each as likely
//! anywhere; ticks for time on the processor outside calls, one mark a millisecond for time in
//! calls), so that an interval that is too wide hides nothing. The error of the program's clock is
//! added.

use std::fmt;

use serde_json::Value;

use crate::daemon::Daemon;
use crate::reads::{self, number, text};
use crate::workload;

/// How far a report may be from the truth.
pub(crate) const DEVIATIONS: f64 = 4.0;
/// The default of `min_interval`: one mark of time in calls.
const MARK_NS: f64 = 1e6;
/// Standard deviations on either side of a 95 % interval.
const INTERVAL: f64 = 1.96;

/// One value of one function, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Side {
    truth: f64,
    reported: f64,
    deviation: f64,
}

impl Side {
    fn off(self) -> f64 {
        (self.reported - self.truth) / self.deviation
    }
}

/// One function.
#[derive(Debug)]
pub(crate) struct Row {
    function: String,
    elapsed: Side,
    application: Side,
}

impl Row {
    /// Whether both values are as near to the truth as they must be.
    pub(crate) fn holds(&self) -> bool {
        [self.elapsed, self.application]
            .iter()
            .all(|side| side.off().abs() <= DEVIATIONS)
    }

    /// The columns of the table, in milliseconds.
    pub(crate) fn columns(&self) -> String {
        let side = |side: Side| {
            format!(
                "{:.1} | {:.1} ({:.1})",
                side.truth / 1e6,
                side.reported / 1e6,
                side.deviation / 1e6
            )
        };
        format!(
            "{} | {} | {} |",
            self.function,
            side(self.elapsed),
            side(self.application)
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "  {:16}", self.function)?;
        for (name, side) in [("elapsed", self.elapsed), ("application", self.application)] {
            write!(
                out,
                " {name}: true {:.2} ms, reported {:.2} ms, off {:.1} sigma of {:.2} ms;",
                side.truth / 1e6,
                side.reported / 1e6,
                side.off(),
                side.deviation / 1e6
            )?;
        }
        Ok(())
    }
}

/// Time of one kind: what all functions have, and how many marks that is.
#[derive(Debug, Clone, Copy, Default)]
struct Kind {
    total_ns: f64,
    marks: f64,
}

impl Kind {
    /// The variance of a part of it. Two marks more, one in and one out, so that none is not taken
    /// for certainty.
    fn variance(self, part_ns: f64) -> f64 {
        if self.total_ns <= 0.0 {
            return 0.0;
        }
        let marks = self.marks.max(1.0);
        let share = (part_ns / self.total_ns * marks + 1.0) / (marks + 2.0);
        self.total_ns * self.total_ns * share * (1.0 - share) / marks
    }
}

/// Runs a program and compares each function of its truth with the daemon's report, which ticks
/// `frequency_hz` times a second.
pub(crate) fn measured(daemon: &Daemon, frequency_hz: f64, program: &str) -> Vec<Row> {
    // Nicer to it than to others: the less they take of it, the more marks its own time has.
    let finished = workload::run(&format!("{program} --nice -10"));
    let truth = &finished.truth;
    // The programs of many processes: all of them together. Names of functions are those of one
    // program only.
    let report = if truth["scope"] == "session" {
        reads::until(daemon, "/functions?limit=0", finished.unix_ns, |_| true)
    } else {
        reads::table(daemon, &finished, "functions")
    };
    let functions = truth["functions"]
        .as_object()
        .unwrap_or_else(|| panic!("no functions in {truth}"));
    let sum = |field: &str| -> f64 {
        functions
            .values()
            .map(|function| float(function, field))
            .sum()
    };
    let in_step = truth["threads_in_step"].as_f64().unwrap_or(1.0);
    let running_ns = sum("application_ns") + sum("fault_ns");
    let running = Kind {
        total_ns: running_ns,
        marks: running_ns / 1e9 * frequency_hz / in_step,
    };
    let calls = Kind {
        total_ns: sum("call_ns"),
        marks: sum("call_ns") / MARK_NS,
    };
    let outside = Kind {
        total_ns: sum("outside_ns"),
        marks: sum("outside_ns") / MARK_NS,
    };
    let mode = text_or(truth, "by", "inclusive");
    functions
        .iter()
        .map(|(name, function)| {
            let part = |field: &str| float(function, field);
            let application = running.variance(part("application_ns"));
            let elapsed = running.variance(part("application_ns") + part("fault_ns"))
                + calls.variance(part("call_ns"))
                + outside.variance(part("outside_ns"));
            let rows = rows_of(&report, name);
            let side = |value: &str, variance: f64| {
                // One mark more or less: code that no function of the truth holds has ticks as
                // well.
                let widest = 2.0 * variance.sqrt() + 1e9 / frequency_hz;
                let marks = reported_deviation(&rows, value, mode)
                    .map_or(variance.sqrt(), |given| given.min(widest));
                Side {
                    truth: part(&format!("{value}_ns")),
                    reported: rows
                        .iter()
                        .map(|row| number(row, &format!("/{value}/{mode}_ns")) as f64)
                        .sum(),
                    deviation: marks.hypot(part(&format!("{value}_error_ns"))).max(1.0),
                }
            };
            Row {
                function: name.clone(),
                elapsed: side("elapsed", elapsed),
                application: side("application", application),
            }
        })
        .collect()
}

/// The rows of this function of the workloads, in whatever process.
fn rows_of<'a>(report: &'a Value, name: &str) -> Vec<&'a Value> {
    reads::function_rows(report, name)
        .into_iter()
        .filter(|row| text(row, "/function").starts_with("workload::"))
        .collect()
}

/// What the report's own interval says, if there is a row and it has one.
fn reported_deviation(rows: &[&Value], value: &str, mode: &str) -> Option<f64> {
    let width = |row: &&Value| {
        let end = |end: &str| row[value][format!("{mode}_{end}_ns")].as_f64();
        Some(end("high")? - end("low")?)
    };
    let widths: Option<Vec<f64>> = rows.iter().map(width).collect();
    let widths = widths.filter(|widths| !widths.is_empty())?;
    Some(widths.iter().sum::<f64>() / 2.0 / INTERVAL)
}

fn float(value: &Value, field: &str) -> f64 {
    number(value, &format!("/{field}")) as f64
}

fn text_or<'a>(value: &'a Value, field: &str, otherwise: &'a str) -> &'a str {
    value[field].as_str().unwrap_or(otherwise)
}

#[test]
fn a_share_of_marks_has_its_variance() {
    // Check that half of 100 marks is known to a twentieth of the whole, that none of them is not
    // certain, and that nothing is.
    let kind = Kind {
        total_ns: 1e9,
        marks: 100.0,
    };
    assert!((kind.variance(5e8).sqrt() / 1e9 - 0.05).abs() < 1e-6);
    assert!(kind.variance(0.0).sqrt() > 5e6);
    assert!(Kind::default().variance(0.0) < f64::MIN_POSITIVE);
}
