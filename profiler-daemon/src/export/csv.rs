//! Tables as CSV for spreadsheets and scripts (RFC 4180): a header of dotted column names, lines
//! that end in CR LF, quotes where they are needed. The columns are the same whatever the rows
//! hold; what a row lacks is empty.
//!
//! A text that a spreadsheet would take for a formula (it begins with `=`, `+`, `-` or `@`; quotes
//! do not help) gets an apostrophe before it: names come from programs, and a formula can read
//! other cells and files. Numbers are left alone. What would steer a terminal is shown as an
//! escape, as in the tables for people. Who needs the exact name reads the JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

use super::human;
use crate::report::{
    Columns, Diff, DiffRow, FunctionRow, List, Neighbours, OsEvents, ProcessDiff, ProcessDiffRow,
    os_events::SyscallRow,
};

/// An answer that is a table.
pub trait CsvReport {
    /// Every column, dotted as in the rows.
    const COLUMNS: &'static [&'static str];

    /// Its rows.
    fn rows(&self) -> impl Iterator<Item = serde_json::Result<Value>>;
}

impl<Row: Columns + Serialize> CsvReport for List<Row> {
    const COLUMNS: &'static [&'static str] = Row::COLUMNS;

    fn rows(&self) -> impl Iterator<Item = serde_json::Result<Value>> {
        self.rows.iter().map(serde_json::to_value)
    }
}

impl CsvReport for Neighbours {
    const COLUMNS: &'static [&'static str] = FunctionRow::COLUMNS;

    fn rows(&self) -> impl Iterator<Item = serde_json::Result<Value>> {
        self.list.rows.iter().map(serde_json::to_value)
    }
}

impl CsvReport for Diff {
    const COLUMNS: &'static [&'static str] = DiffRow::COLUMNS;

    fn rows(&self) -> impl Iterator<Item = serde_json::Result<Value>> {
        self.rows.iter().map(serde_json::to_value)
    }
}

impl CsvReport for ProcessDiff {
    const COLUMNS: &'static [&'static str] = ProcessDiffRow::COLUMNS;

    fn rows(&self) -> impl Iterator<Item = serde_json::Result<Value>> {
        self.rows.iter().map(serde_json::to_value)
    }
}

impl CsvReport for OsEvents {
    const COLUMNS: &'static [&'static str] = SyscallRow::COLUMNS;

    fn rows(&self) -> impl Iterator<Item = serde_json::Result<Value>> {
        self.syscalls.iter().map(serde_json::to_value)
    }
}

/// Writes the rows of an answer.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write<R: CsvReport>(report: &R, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{}\r\n", R::COLUMNS.join(","))?;
    for row in report.rows() {
        let row = row?;
        for (index, column) in R::COLUMNS.iter().enumerate() {
            if index > 0 {
                out.write_all(b",")?;
            }
            let cell = column
                .split('.')
                .try_fold(&row, |value, part| value.get(part));
            write_cell(cell.unwrap_or(&Value::Null), out)?;
        }
        out.write_all(b"\r\n")?;
    }
    Ok(())
}

fn write_cell(cell: &Value, out: &mut impl Write) -> io::Result<()> {
    let text = match cell {
        Value::Null => return Ok(()),
        Value::String(text) => human::name(text),
        number => return write!(out, "{number}"),
    };
    let guard = if text.starts_with(['=', '+', '-', '@']) {
        "'"
    } else {
        ""
    };
    if text.contains(['"', ',']) {
        write!(out, "\"{guard}{}\"", text.replace('"', "\"\""))
    } else {
        write!(out, "{guard}{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that quotes and separators are quoted, what steers a terminal is escaped, formulas are
    // defused, and numbers are written exactly.
    #[test]
    fn cells() {
        let shown = |cell: Value| {
            let mut out = Vec::new();
            write_cell(&cell, &mut out).expect("a Vec takes all bytes");
            String::from_utf8(out).expect("text")
        };
        for (text, cell) in [
            ("plain name", "plain name"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("two\nlines", "two\\u{a}lines"),
            (
                "\u{1b}[2J\u{9b}31m\u{202e}",
                "\\u{1b}[2J\\u{9b}31m\\u{202e}",
            ),
            (
                "=HYPERLINK(\"http://x\",\"y\")",
                "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\"",
            ),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "\\u{9}=1"),
            ("a=1", "a=1"),
        ] {
            assert_eq!(shown(Value::from(text)), cell, "{text:?}");
        }
        assert_eq!(shown(Value::Null), "");
        assert_eq!(shown(Value::from(u64::MAX)), "18446744073709551615");
        assert_eq!(shown(Value::from(-1.5)), "-1.5");
        assert_eq!(shown(Value::from(true)), "true");
    }
}
