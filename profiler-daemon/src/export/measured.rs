//! Functions that were measured exactly, for people.

use std::io::{self, Write};

use super::{
    human::{last_part, name, nanoseconds, percent},
    spans::{span_table, usdt_table},
    text::{Cell, Kind, Table, write_table},
};
use crate::report::{Measured, MeasuredValues};

/// Writes the tables alone.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write_measured(measured: &Measured, out: &mut impl Write) -> io::Result<()> {
    for (number, table) in measured_tables(measured).iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        write_table(table, out)?;
    }
    Ok(())
}

/// A table of functions, one of USDT points and one of spans: those that were asked for.
pub(super) fn measured_tables(measured: &Measured) -> Vec<Table> {
    let mut tables = Vec::new();
    let only_others = !measured.usdt.is_empty() || !measured.spans.is_empty();
    if !measured.functions.is_empty() || !only_others {
        tables.push(measured_table(measured));
    }
    if !measured.usdt.is_empty() {
        tables.push(usdt_table(&measured.usdt));
    }
    if !measured.spans.is_empty() {
        tables.push(span_table(&measured.spans));
    }
    tables
}

/// The table: a row for each function, and what is to be known of some of them below.
fn measured_table(measured: &Measured) -> Table {
    let columns = vec![
        ("CALLS", Kind::Number),
        ("MEAN", Kind::Number),
        ("P50", Kind::Number),
        ("P99", Kind::Number),
        ("MAX", Kind::Number),
        ("ELAPSED", Kind::Part),
        ("SELF", Kind::Part),
        ("APP", Kind::Part),
        ("APP%", Kind::Number),
        ("FUNCTION", Kind::Function),
        ("MODULE", Kind::Name),
    ];
    let remarks: Vec<String> = measured.functions.iter().filter_map(remark).collect();
    Table {
        head: Some(format!(
            "every call of these functions, from entry to exit: ELAPSED all of its time, SELF less measured\n\
             # functions that it called, APP in user mode outside system calls; probes took {}, subtracted",
            nanoseconds(measured.probes_ns)
        )),
        columns,
        rows: measured.functions.iter().map(cells).collect(),
        remark: (!remarks.is_empty()).then(|| remarks.join("\n# ")),
    }
}

fn cells(row: &MeasuredValues) -> Vec<Cell> {
    let (elapsed, application) = (&row.elapsed, &row.application);
    let time = |ns: Option<u64>| Cell::Text(ns.map_or_else(|| "-".to_owned(), nanoseconds));
    let share = match elapsed.inclusive_ns {
        0 => "-".to_owned(),
        all => percent(100.0 * application.inclusive_ns as f64 / all as f64),
    };
    vec![
        row.calls.to_string().into(),
        time(elapsed.mean_ns),
        time(elapsed.p50_ns),
        time(elapsed.p99_ns),
        time(elapsed.max_ns),
        Cell::Time(elapsed.inclusive_ns),
        Cell::Time(elapsed.exclusive_ns),
        Cell::Time(application.inclusive_ns),
        share.into(),
        name(&row.function).into(),
        name(last_part(&row.module)).into(),
    ]
}

/// What is to be known of a function's values.
fn remark(row: &MeasuredValues) -> Option<String> {
    let mut parts = Vec::new();
    parts.extend(row.why.clone().map(|why| name(&why)));
    if row.mostly_probe {
        parts.push(format!(
            "most of what was measured are its probes: its times may be off by {} a call",
            nanoseconds(row.error_ns.checked_div(row.outermost).unwrap_or_default())
        ));
    }
    if row.attached_after_ns > 0 {
        parts.push(format!(
            "measured from {} after the begin on: earlier calls are not counted",
            nanoseconds(row.attached_after_ns)
        ));
    }
    if row.left_unseen > 0 {
        parts.push(format!(
            "{} calls ended without a return (an exception, a jump, the end of the thread): their time is their caller's",
            row.left_unseen
        ));
    }
    if row.open > 0 {
        parts.push(format!(
            "{} calls are under way: not in its times",
            row.open
        ));
    }
    if row.counted_only > 0 {
        parts.push(format!("{} calls were counted only", row.counted_only));
    }
    if row.untraced_calls > 0 {
        parts.push(format!(
            "system calls were not traced during {} calls: their time is in APP",
            row.untraced_calls
        ));
    }
    if row.minor_faults + row.major_faults > 0 {
        parts.push(format!(
            "{} page faults are in APP",
            row.minor_faults + row.major_faults
        ));
    }
    (!parts.is_empty()).then(|| format!("{}: {}", name(&row.function), parts.join("; ")))
}
