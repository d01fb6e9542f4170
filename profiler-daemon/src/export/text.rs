//! Aligned columns for people: numbers to the right, names last, remarks on lines that begin with `#`.
//!
//! One writer for every answer; what an answer puts into its columns is said in `tables`. Programs should read the JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::human;
pub use super::human::{name, nanoseconds};
use crate::report::{WindowSpan, completeness::Completeness};

/// Widest a column is made; longer cells push the rest of their row to the right.
const MAX_WIDTH: usize = 48;

/// An answer that can be written for people.
pub trait TextReport {
    /// What every answer carries.
    fn envelope(&self) -> Envelope<'_>;

    /// Lines of one name and one value, written first.
    fn facts(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The rows, if it has any.
    fn table(&self) -> Option<Table> {
        None
    }
}

/// What every answer carries.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// Time of the drain pass.
    pub as_of: &'a str,
    /// The time covered.
    pub window: &'a WindowSpan,
    /// What the answer lacks.
    pub completeness: &'a Completeness,
}

/// The side a column's cells stand on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Names.
    Left,
    /// Numbers.
    Right,
}

/// Cells in columns. Cells hold no control characters.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Title and side of each column.
    pub columns: Vec<(&'static str, Side)>,
    /// One cell per column.
    pub rows: Vec<Vec<String>>,
    /// A remark written below.
    pub remark: Option<String>,
}

/// Writes an answer.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write<R: TextReport + ?Sized>(report: &R, out: &mut impl Write) -> io::Result<()> {
    let Envelope {
        as_of,
        window,
        completeness,
    } = report.envelope();
    writeln!(out, "# as of {as_of}")?;
    writeln!(out, "# covers {} to {}", window.from, window.to)?;
    write_completeness(completeness, out)?;
    let facts = report.facts();
    let width = facts
        .iter()
        .map(|(name, _)| name.len())
        .max()
        .unwrap_or_default();
    for (name, value) in &facts {
        writeln!(out, "{name:<width$}  {value}")?;
    }
    if let Some(table) = report.table() {
        if !facts.is_empty() {
            writeln!(out)?;
        }
        write_table(&table, out)?;
    }
    Ok(())
}

/// Shares by reason, behind their sum.
fn by_reason(reasons: &BTreeMap<&'static str, f64>) -> String {
    let reasons = reasons.iter();
    let reasons: Vec<String> = reasons
        .map(|(why, share)| format!("{why} {}", human::percent(*share)))
        .collect();
    if reasons.is_empty() {
        String::new()
    } else {
        format!(": {}", reasons.join(", "))
    }
}

fn write_completeness(lacks: &Completeness, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "# lacks: {} without a stack, {} samples, {} truncated stacks, {} failed stacks, names of {} of frames{}",
        human::nanoseconds(lacks.elapsed_unattributed_ns),
        lacks.samples_lost,
        lacks.stacks_truncated,
        lacks.stacks_unwind_failed,
        human::percent(lacks.frames_unknown_percent),
        lacks
            .frames_unknown
            .as_ref()
            .map(by_reason)
            .unwrap_or_default(),
    )?;
    if let (Some(percent), Some(reasons)) = (lacks.lines_unknown_percent, &lacks.lines_unknown) {
        let reasons = by_reason(reasons);
        let share = human::percent(percent);
        writeln!(out, "# lacks lines of {share} of frames{reasons}")?;
    }
    if !lacks.causes.is_empty() {
        let causes: Vec<String> = lacks
            .causes
            .iter()
            .map(|(cause, count)| format!("{cause} {count}"))
            .collect();
        writeln!(out, "# causes: {}", causes.join(", "))?;
    }
    Ok(())
}

/// A table alone, as text.
pub(super) fn rows_to_text(table: &Table) -> String {
    let mut text = Vec::new();
    write_table(table, &mut text).expect("a vector takes all");
    String::from_utf8(text).expect("cells are text")
}

fn write_table(table: &Table, out: &mut impl Write) -> io::Result<()> {
    let titles: Vec<String> = table
        .columns
        .iter()
        .map(|(title, _)| (*title).to_owned())
        .collect();
    let width = |column: usize| {
        let cells = table
            .rows
            .iter()
            .chain([&titles])
            .map(|row| row[column].chars().count());
        cells.max().unwrap_or_default().min(MAX_WIDTH)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    for row in [&titles].into_iter().chain(&table.rows) {
        let mut line = String::new();
        for (cell, ((_, side), width)) in row.iter().zip(table.columns.iter().zip(&widths)) {
            let separator = if line.is_empty() { "" } else { "  " };
            match side {
                Side::Left => line.push_str(&format!("{separator}{cell:<width$}")),
                Side::Right => line.push_str(&format!("{separator}{cell:>width$}")),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    if let Some(remark) = &table.remark {
        writeln!(out, "# {remark}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that numbers stand to the right, names to the left, that one long cell widens no column beyond the bound,
    // and that no line ends in blanks.
    #[test]
    fn columns_are_aligned() {
        let long = "m".repeat(MAX_WIDTH + 2);
        let cells = |a: &str, b: &str, c: &str| vec![a.to_owned(), b.to_owned(), c.to_owned()];
        let table = Table {
            columns: vec![
                ("N", Side::Right),
                ("MODULE", Side::Left),
                ("NAME", Side::Left),
            ],
            rows: vec![cells("1", &long, "x"), cells("1000", "é", "")],
            remark: Some("end".to_owned()),
        };
        let mut out = Vec::new();
        write_table(&table, &mut out).expect("a vector takes all");
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("   N  {:<MAX_WIDTH$}  NAME", "MODULE"));
        assert_eq!(lines[1], format!("   1  {long}  x"));
        assert_eq!(lines[2], "1000  é");
        assert_eq!(lines[3], "# end");
    }
}
