//! Functions that were measured exactly, for people.

use std::io::{self, Write};

use super::{
    human::{last_part, name, nanoseconds, percent},
    spans::{span_table, usdt_table},
    text::{Cell, ColumnKind, Table, write_table},
};
use crate::report::{FunctionRow, Measured, MeasuredValues};

/// Callers of a function that are named.
const MAX_CALLERS: usize = 5;

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
        ("CALLS", ColumnKind::Number),
        ("MEAN", ColumnKind::Number),
        ("P50", ColumnKind::Number),
        ("P99", ColumnKind::Number),
        ("MAX", ColumnKind::Number),
        ("ELAPSED", ColumnKind::Part),
        ("SELF", ColumnKind::Part),
        ("APP", ColumnKind::Part),
        ("APP%", ColumnKind::Number),
        ("FUNCTION", ColumnKind::Function),
        ("MODULE", ColumnKind::Name),
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
    let values = &row.values;
    let elapsed = &values.elapsed;
    let application_ns = values.application.as_ref().map(|times| times.inclusive_ns);
    let none = || "-".to_owned();
    let time = |ns: Option<u64>| Cell::Text(ns.map_or_else(none, nanoseconds));
    let share = match (elapsed.inclusive_ns, application_ns) {
        (0, _) | (_, None) => none(),
        (all, Some(ns)) => percent(100.0 * ns as f64 / all as f64),
    };
    vec![
        values.calls.to_string().into(),
        time(elapsed.mean_ns),
        time(elapsed.p50_ns),
        time(elapsed.p99_ns),
        time(elapsed.max_ns),
        Cell::Time(elapsed.inclusive_ns),
        Cell::Time(elapsed.exclusive_ns),
        application_ns.map_or_else(|| Cell::Text(none()), Cell::Time),
        share.into(),
        name(&row.function).into(),
        name(last_part(&row.module)).into(),
    ]
}

/// What is to be known of a function's values.
fn remark(row: &MeasuredValues) -> Option<String> {
    let values = &row.values;
    let mut parts = Vec::new();
    parts.extend(values.why.clone().map(|why| name(&why)));
    if values.mostly_probe {
        parts.push(format!(
            "most of what was measured are its probes: its times may be off by {} a call",
            nanoseconds(
                values
                    .error_ns
                    .checked_div(values.outermost)
                    .unwrap_or_default()
            )
        ));
    }
    if row.attached_after_ns > 0 {
        parts.push(format!(
            "measured from {} after the begin on: earlier calls are not counted",
            nanoseconds(row.attached_after_ns)
        ));
    }
    if values.left_unseen > 0 {
        parts.push(format!(
            "{} calls ended without a return (an exception, a jump, the end of the thread): their time is their caller's",
            values.left_unseen
        ));
    }
    if values.open > 0 {
        parts.push(format!(
            "{} calls are under way: not in its times",
            values.open
        ));
    }
    if values.counted_only > 0 {
        parts.push(format!("{} calls were counted only", values.counted_only));
    }
    if values.untraced_calls > 0 {
        parts.push(format!(
            "system calls were not traced during {} calls: their time is in APP",
            values.untraced_calls
        ));
    }
    if values.minor_faults + values.major_faults > 0 {
        parts.push(format!(
            "{} page faults are in APP",
            values.minor_faults + values.major_faults
        ));
    }
    parts.extend(called_by(row));
    (!parts.is_empty()).then(|| format!("{}: {}", name(&row.function), parts.join("; ")))
}

/// Where it was called from.
fn called_by(row: &MeasuredValues) -> Option<String> {
    let shown = row.callers.iter().take(MAX_CALLERS);
    let mut callers: Vec<String> = shown
        .map(|caller| {
            let mean_ns = caller.elapsed_ns.checked_div(caller.outermost);
            let mean = mean_ns.map_or_else(String::new, |mean_ns| {
                format!(", mean {}", nanoseconds(mean_ns))
            });
            format!("{} ({} calls{mean})", name(&caller.function), caller.calls)
        })
        .collect();
    match row.callers.len().saturating_sub(MAX_CALLERS) {
        0 => {}
        more => callers.push(format!("{more} more")),
    }
    (!callers.is_empty()).then(|| format!("called by {}", callers.join(", ")))
}

/// Whether any of these rows was measured exactly.
fn has_any(rows: &[FunctionRow]) -> bool {
    rows.iter().any(|row| row.measured.is_some())
}

/// Columns of what was measured, in tables of functions where anything was.
pub(super) fn add_columns(
    rows: &[FunctionRow],
    columns: &mut Vec<(&'static str, ColumnKind)>,
    at: usize,
) {
    if has_any(rows) {
        columns.splice(
            at..at,
            [("CALLS", ColumnKind::Number), ("MEAN", ColumnKind::Number)],
        );
    }
}

/// The cells of these.
pub(super) fn add_cells(rows: &[FunctionRow], cells: &mut [Vec<Cell>], at: usize) {
    if !has_any(rows) {
        return;
    }
    for (row, cells) in rows.iter().zip(cells) {
        let values = row.measured.as_ref().map(|measured| &measured.values);
        let calls = values.map(|values| values.calls.to_string());
        let mean = values.and_then(|values| values.elapsed.mean_ns);
        let added = [calls, mean.map(nanoseconds)];
        let added = added.map(|text| Cell::Text(text.unwrap_or_else(|| "-".to_owned())));
        cells.splice(at..at, added);
    }
}

/// What the table is headed by, and what these columns are.
pub(super) fn add_head(rows: &[FunctionRow], head: String) -> String {
    if has_any(rows) {
        format!("{head}\n# CALLS and MEAN (inclusive) were measured exactly, from entry to exit")
    } else {
        head
    }
}

/// Whether what was sampled of measured functions agrees with what was measured, in a sentence; of
/// those that do not, what both are.
pub(super) fn agreement(rows: &[FunctionRow]) -> Option<String> {
    let measured = || {
        rows.iter()
            .filter_map(|row| Some((row, row.measured.as_ref()?)))
    };
    let compared = measured().filter(|(_, of)| of.agrees.is_some()).count();
    if compared == 0 {
        return None;
    }
    let differing = measured().filter(|(_, of)| of.agrees == Some(false));
    let differing: Vec<String> = differing
        .map(|(row, of)| {
            let (compared, why) = (of.compared.as_ref(), of.agrees_why.as_deref());
            let times = compared.map_or_else(String::new, |compared| {
                format!(
                    "sampled {} to {}, measured {} to {} with probes; ",
                    nanoseconds(compared.sampled_low_ns),
                    nanoseconds(compared.sampled_high_ns),
                    nanoseconds(compared.measured_low_ns),
                    nanoseconds(compared.measured_high_ns),
                )
            });
            format!(
                "\n# {}: {times}{}",
                name(&row.function),
                why.unwrap_or_default()
            )
        })
        .collect();
    let agree = compared - differing.len();
    Some(format!(
        "sampled times of {agree} of {compared} agree with these, within their intervals{}",
        differing.concat()
    ))
}
