//! Instrumentations for people and for spreadsheets.

use std::io::{self, Write};

use super::csv::CsvReport;
use super::human::name;
use super::measured::write_measured;
use super::text::{Cell, ColumnKind, Table, write_table};
use crate::report::{Instrumentation, Instrumentations};

/// A line for each.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write_list(all: &Instrumentations, out: &mut impl Write) -> io::Result<()> {
    let row = |one: &Instrumentation| {
        let numbers = [one.functions.len(), one.usdt.len(), one.spans.len()];
        let mut cells = vec![
            Cell::Text(one.id.unwrap_or_default().to_string()),
            Cell::Text(one.state.to_owned()),
        ];
        cells.extend(numbers.map(|number| Cell::Text(number.to_string())));
        cells.push(one.points.to_string().into());
        cells.push(one.until.as_deref().unwrap_or("-").to_owned().into());
        cells.push(name(&one.name).into());
        cells
    };
    let table = Table {
        columns: vec![
            ("NUMBER", ColumnKind::Number),
            ("STATE", ColumnKind::Name),
            ("FUNCTIONS", ColumnKind::Number),
            ("USDT", ColumnKind::Number),
            ("SPANS", ColumnKind::Number),
            ("POINTS", ColumnKind::Number),
            // A moment is of no use in part: never cut.
            ("UNTIL", ColumnKind::Number),
            ("NAME", ColumnKind::Name),
        ],
        rows: all.instrumentations.iter().map(row).collect(),
        ..Table::default()
    };
    write_table(&table, out)
}

/// How one stands, and its table.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write_one(one: &Instrumentation, out: &mut impl Write) -> io::Result<()> {
    let state = match one.ended {
        Some(why) => format!("{} ({why})", one.state),
        None => one.state.to_owned(),
    };
    writeln!(out, "state      {state}")?;
    writeln!(out, "began      {}", one.began_at)?;
    if let Some(until) = &one.until {
        writeln!(out, "until      {until}")?;
    }
    writeln!(out, "processes  {}", one.processes)?;
    writeln!(out, "points     {}", one.points)?;
    if let Some(trouble) = &one.trouble {
        writeln!(out, "trouble    {}", name(trouble))?;
    }
    for function in &one.functions {
        let why = function.why.as_deref().unwrap_or_default();
        if matches!(function.state, "trial" | "refused") || one.id.is_none() {
            writeln!(
                out,
                "{:9}  {} ({}) {}",
                function.state,
                name(&function.function),
                name(&function.module),
                name(why)
            )?;
        }
    }
    let usdt = one.usdt.iter().map(|point| {
        let what = format!("{}:{} ({})", point.provider, point.name, point.module);
        (point.state, what, &point.why)
    });
    let spans = one.spans.iter().map(|span| {
        let what = format!("{} ({} to {})", span.name, span.start, span.end);
        (span.state, what, &span.why)
    });
    for (state, what, why) in usdt.chain(spans) {
        if matches!(state, "waiting" | "refused") || one.id.is_none() {
            let why = why.as_deref().unwrap_or_default();
            writeln!(out, "{state:9}  {} {}", name(&what), name(why))?;
        }
    }
    for missing in &one.missing {
        writeln!(out, "missing    {}", name(missing))?;
    }
    write_measured(&one.measured, out)
}

impl CsvReport for Instrumentation {
    const COLUMNS: &'static [&'static str] = &[
        "function",
        "module",
        "calls",
        "outermost",
        "open",
        "left_unseen",
        "counted_only",
        "elapsed.inclusive_ns",
        "elapsed.exclusive_ns",
        "elapsed.min_ns",
        "elapsed.mean_ns",
        "elapsed.max_ns",
        "elapsed.p50_ns",
        "elapsed.p90_ns",
        "elapsed.p99_ns",
        "application.inclusive_ns",
        "application.exclusive_ns",
        "application.min_ns",
        "application.mean_ns",
        "application.max_ns",
        "application.p50_ns",
        "application.p90_ns",
        "application.p99_ns",
        "probe_ns",
        "error_ns",
        "mostly_probe",
        "exits",
        "why",
    ];

    fn rows(&self) -> impl Iterator<Item = serde_json::Result<serde_json::Value>> {
        self.measured.functions.iter().map(serde_json::to_value)
    }
}
