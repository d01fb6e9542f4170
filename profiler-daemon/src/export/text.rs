//! Aligned columns for people: numbers to the right, names behind them, remarks on lines that begin
//! with `#`.
//!
//! One writer for every answer; what an answer puts into its columns is said in `tables`. Programs
//! should read the JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};

pub use super::human::{name, nanoseconds};
use super::{human, unit::Unit};
use crate::report::{WindowSpan, completeness::Completeness};

/// Columns that a line of a table has at most, as long as its names can be cut to that.
const MAX_WIDTH: usize = 100;
/// Names are not cut below this for others, columns.
const MIN_NAME: usize = 12;

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

    /// More rows of another kind, written last.
    fn more_tables(&self) -> Vec<Table> {
        Vec::new()
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

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Names, to the left. They are cut where the line would be too wide.
    Name,
    /// The same, of functions, which keep the last part of their names.
    Function,
    /// Numbers and words, to the right.
    Number,
    /// Times, to the right, all in one unit that the title says.
    Time,
    /// Times, to the right, in one unit for all such columns of the table, which a line above it
    /// says.
    Part,
}

/// A cell. Text holds no control characters.
#[derive(Clone, Debug)]
pub enum Cell {
    /// As it is.
    Text(String),
    /// Nanoseconds.
    Time(u64),
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Cells in columns.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What is to be known to read it, written above.
    pub head: Option<String>,
    /// Title and kind of each column.
    pub columns: Vec<(&'static str, ColumnKind)>,
    /// One cell per column.
    pub rows: Vec<Vec<Cell>>,
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
    for table in report.more_tables() {
        writeln!(out)?;
        write_table(&table, out)?;
    }
    Ok(())
}

/// Time of functions some of whose callers were folded that is not worth a word, percent.
const MAX_CALLERS_FOLDED: f64 = 1.0;

/// How complete the answer is, in a sentence: whether to believe it. The counts behind it are in
/// the JSON.
fn write_completeness(lacks: &Completeness, out: &mut impl Write) -> io::Result<()> {
    let lost = match lacks.samples_lost {
        0 => String::new(),
        lost => format!(", {lost} samples lost"),
    };
    // Less than that changes no inclusive value by much.
    let callers = match lacks.callers_folded_percent {
        folded if folded > MAX_CALLERS_FOLDED => {
            format!(", callers of {} of time", human::at_most(100.0 - folded))
        }
        _ => String::new(),
    };
    writeln!(
        out,
        "# complete: {} of stacks, {} of time, names of {} of frames{callers}{lost}",
        human::at_most(lacks.stacks_complete_percent),
        human::at_most(lacks.elapsed_attributed_percent),
        human::at_most(100.0 - lacks.frames_unknown_percent),
    )?;
    if let Some(ns) = lacks.probes_ns {
        writeln!(
            out,
            "# probes of measured functions took {} of it",
            nanoseconds(ns)
        )?;
    }
    if let Some(each) = lacks.samples_each {
        writeln!(
            out,
            "# of ticks only some were walked, within the budget: {each:.1} samples tell as much as one"
        )?;
    }
    if let Some(reasons) = lacks.frames_unknown.as_ref().filter(|why| !why.is_empty()) {
        writeln!(out, "# without a name{}", by_reason(reasons))?;
    }
    if let (Some(percent), Some(reasons)) = (lacks.lines_unknown_percent, &lacks.lines_unknown) {
        let (share, reasons) = (human::percent(percent), by_reason(reasons));
        writeln!(out, "# without a line {share} of frames{reasons}")?;
    }
    if !lacks.causes.is_empty() {
        writeln!(out, "# counts of what is lacking: format=json")?;
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

/// A table alone, as text.
pub(super) fn rows_to_text(table: &Table) -> String {
    let mut text = Vec::new();
    write_table(table, &mut text).expect("a vector takes all");
    String::from_utf8(text).expect("cells are text")
}

pub(super) fn write_table(table: &Table, out: &mut impl Write) -> io::Result<()> {
    let times = |column: usize| {
        table.rows.iter().filter_map(move |row| match row[column] {
            Cell::Time(ns) => Some(ns),
            Cell::Text(_) => None,
        })
    };
    let of_kind = |wanted: ColumnKind| {
        let columns = table.columns.iter().enumerate();
        columns
            .filter(move |(_, (_, kind))| *kind == wanted)
            .map(|(index, _)| index)
    };
    let shared = Unit::of(of_kind(ColumnKind::Part).flat_map(times));
    let units: Vec<Unit> = (0..table.columns.len())
        .map(|column| match table.columns[column].1 {
            ColumnKind::Time => Unit::of(times(column)),
            _ => shared,
        })
        .collect();
    let titles = table.columns.iter().zip(&units);
    let titles: Vec<String> = titles
        .map(|((title, kind), unit)| match kind {
            ColumnKind::Time => format!("{title} {}", unit.name()),
            _ => (*title).to_owned(),
        })
        .collect();
    let shown = |row: &Vec<Cell>| -> Vec<String> {
        let cells = row.iter().zip(&units);
        cells
            .map(|(cell, unit)| match cell {
                Cell::Text(text) => text.clone(),
                Cell::Time(ns) => unit.show(*ns),
            })
            .collect()
    };
    let mut lines: Vec<Vec<String>> = vec![titles];
    lines.extend(table.rows.iter().map(shown));
    let widths = widths(table, &lines);
    if of_kind(ColumnKind::Part).next().is_some() {
        writeln!(out, "# times in {}", shared.name())?;
    }
    if let Some(head) = &table.head {
        writeln!(out, "# {head}")?;
    }
    for row in &lines {
        let mut line = String::new();
        for (cell, ((_, kind), width)) in row.iter().zip(table.columns.iter().zip(&widths)) {
            let separator = if line.is_empty() { "" } else { "  " };
            let cell = match kind {
                ColumnKind::Name => human::padded(&human::cut(cell, *width), *width, false),
                ColumnKind::Function => {
                    human::padded(&human::cut_function(cell, *width), *width, false)
                }
                _ => human::padded(cell, *width, true),
            };
            line.push_str(separator);
            line.push_str(&cell);
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    if let Some(remark) = &table.remark {
        writeln!(out, "# {remark}")?;
    }
    Ok(())
}

/// How wide each column is: as its widest cell, but that names give way to one another where the
/// line would be too wide.
fn widths(table: &Table, lines: &[Vec<String>]) -> Vec<usize> {
    let width = |column: usize| lines.iter().map(|row| human::columns(&row[column])).max();
    let mut widths: Vec<usize> = (0..table.columns.len())
        .map(|column| width(column).unwrap_or_default())
        .collect();
    let separators = 2 * widths.len().saturating_sub(1);
    loop {
        let sum: usize = widths.iter().sum();
        if sum + separators <= MAX_WIDTH {
            return widths;
        }
        let names = widths.iter_mut().zip(&table.columns);
        let widest = names
            .filter(|(width, (_, kind))| {
                matches!(kind, ColumnKind::Name | ColumnKind::Function) && **width > MIN_NAME
            })
            .max_by_key(|(width, _)| **width);
        let Some((widest, _)) = widest else {
            return widths;
        };
        *widest -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(table: &Table) -> Vec<String> {
        rows_to_text(table).lines().map(str::to_owned).collect()
    }

    fn cells(cells: &[&str]) -> Vec<Cell> {
        cells.iter().map(|cell| (*cell).to_owned().into()).collect()
    }

    // Check that numbers stand to the right, names to the left, that names give way so that no line
    // is wider than a terminal, and that no line ends in blanks.
    #[test]
    fn columns_are_aligned() {
        let long = "m".repeat(200);
        let table = Table {
            columns: vec![
                ("N", ColumnKind::Number),
                ("FUNCTION", ColumnKind::Name),
                ("MODULE", ColumnKind::Name),
            ],
            rows: vec![cells(&["1", &long, "libx.so"]), cells(&["1000", "é", ""])],
            remark: Some("end".to_owned()),
            head: None,
        };
        let lines = lines(&table);
        assert!(lines[1].chars().count() == MAX_WIDTH && lines[1].ends_with("m…  libx.so"));
        assert_eq!(
            lines[0].find("MODULE"),
            lines[1].find("libx.so").map(|at| at - 2)
        );
        assert_eq!(lines[2], "1000  é");
        assert_eq!(lines[3], "# end");
    }

    // Check that all times of a column, and of all parts of a table, are in one unit that is said.
    #[test]
    fn one_unit() {
        let row = |times: [u64; 3]| times.map(Cell::Time).to_vec();
        let table = Table {
            columns: vec![
                ("A", ColumnKind::Part),
                ("B", ColumnKind::Part),
                ("MEAN", ColumnKind::Time),
            ],
            rows: vec![row([2_500_000_000, 1_000_000, 1_500]), row([0, 999, 20])],
            ..Table::default()
        };
        assert_eq!(
            lines(&table),
            [
                "# times in s",
                "    A      B  MEAN us",
                "2.500  0.001    1.500",
                "0.000  0.000    0.020"
            ]
        );
    }
}
