//! Answers about two things, in columns for people: sides compared by function or by process, and a
//! function with its callers or callees.

use super::{
    human::{last_part, name, nanoseconds, share},
    text::{Cell, ColumnKind, Envelope, Table, TextReport},
};
use crate::report::{
    Diff, DiffRow, FunctionRow, Grouping, Neighbours, ProcessDiff, ProcessDiffRow, Side,
    StackValue, Whole,
};

impl TextReport for Diff {
    fn envelope(&self) -> Envelope<'_> {
        envelope(&self.as_of, &self.other)
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        facts(&self.base, &self.other)
    }

    fn table(&self) -> Option<Table> {
        let amounts = if self.value.is_time() {
            ColumnKind::Part
        } else {
            ColumnKind::Number
        };
        let columns = vec![
            ("LARGEST", ColumnKind::Number),
            ("BASE%", ColumnKind::Number),
            ("OTHER%", ColumnKind::Number),
            ("CHANGE", ColumnKind::Number),
            ("INCL", ColumnKind::Number),
            ("BASE", amounts),
            ("OTHER", amounts),
            ("FUNCTION", ColumnKind::Function),
            ("MODULE", ColumnKind::Name),
        ];
        let head = format!(
            "shares of each side's {}, exclusive; CHANGE in points, INCL that of inclusive",
            what(self.value)
        );
        Some(Table {
            head: Some(head),
            columns,
            rows: self.rows.iter().map(|row| cells(self.value, row)).collect(),
            remark: remark(self.truncated, self.rows.len(), self.total_rows),
        })
    }
}

fn cells(value: StackValue, row: &DiffRow) -> Vec<Cell> {
    let ([base, _], [other, _]) = (row.base.parts(value), row.other.parts(value));
    let [exclusive, inclusive] = row.change.points(value);
    vec![
        share(row.largest_change_percent).into(),
        share(base.percent).into(),
        share(other.percent).into(),
        points(exclusive).into(),
        points(inclusive).into(),
        amount(value, base.amount),
        amount(value, other.amount),
        name(&row.function).into(),
        name(last_part(&row.module)).into(),
    ]
}

impl TextReport for ProcessDiff {
    fn envelope(&self) -> Envelope<'_> {
        envelope(&self.as_of, &self.other)
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        facts(&self.base, &self.other)
    }

    fn table(&self) -> Option<Table> {
        let amounts = if self.value.is_time() {
            ColumnKind::Part
        } else {
            ColumnKind::Number
        };
        let mut columns = vec![
            ("CHANGE", ColumnKind::Number),
            ("BASE%", ColumnKind::Number),
            ("OTHER%", ColumnKind::Number),
            ("BASE", amounts),
            ("OTHER", amounts),
        ];
        columns.push(match self.by {
            Grouping::Name => ("PROCESSES", ColumnKind::Number),
            Grouping::Process => ("PID", ColumnKind::Number),
        });
        columns.push(("NAME", ColumnKind::Name));
        let of = match (self.percent_of, self.base.window.processors) {
            (Whole::Samples, _) => "all of each side".to_owned(),
            (Whole::Processors, Some(processors)) => {
                format!("what {processors} processors can do in the time covered")
            }
            (Whole::Processors | Whole::Duration, _) => {
                "the time covered (two threads: 200)".to_owned()
            }
        };
        let head = format!("{} as a share of {of}; CHANGE in points", what(self.value));
        Some(Table {
            head: Some(head),
            columns,
            rows: self.rows.iter().map(|row| self.cells(row)).collect(),
            remark: remark(self.truncated, self.rows.len(), self.total_rows),
        })
    }
}

impl ProcessDiff {
    fn cells(&self, row: &ProcessDiffRow) -> Vec<Cell> {
        let (base, other) = (row.base.of(self.value), row.other.of(self.value));
        let count = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
        let who = match self.by {
            Grouping::Name => format!(
                "{} > {}",
                count(row.base.processes),
                count(row.other.processes)
            ),
            Grouping::Process => row.pid.map_or("ended".to_owned(), |pid| pid.to_string()),
        };
        vec![
            points(row.change.of(self.value).percent).into(),
            share(base.percent).into(),
            share(other.percent).into(),
            amount(self.value, base.ns),
            amount(self.value, other.ns),
            who.into(),
            name(&row.comm).into(),
        ]
    }
}

fn envelope<'a>(as_of: &'a str, other: &'a Side) -> Envelope<'a> {
    Envelope {
        as_of,
        window: &other.window,
        completeness: &other.completeness,
    }
}

fn facts(base: &Side, other: &Side) -> Vec<(&'static str, String)> {
    let fact = |side: &Side| {
        format!(
            "{}: over {}, {} samples, elapsed {}, without a stack {}",
            name(&side.name),
            nanoseconds(side.window.duration_ns),
            side.samples,
            nanoseconds(side.elapsed_ns),
            nanoseconds(side.completeness.elapsed_unattributed_ns),
        )
    };
    let mut facts = vec![("base", fact(base)), ("other", fact(other))];
    let sides = [("of base", base), ("of other", other)];
    let named = sides.iter().filter(|(_, side)| !side.processes.is_empty());
    facts.extend(named.map(|(title, side)| (*title, side.processes.join(" "))));
    facts
}

fn remark(truncated: bool, shown: usize, total: usize) -> Option<String> {
    truncated.then(|| format!("{shown} of {total} rows; limit=0 shows all"))
}

/// A value as words in a sentence.
const fn what(value: StackValue) -> &'static str {
    match value {
        StackValue::Samples => "samples",
        StackValue::Elapsed => "elapsed time",
        StackValue::Application => "application time",
        StackValue::Running => "running time",
        StackValue::OffProcessor => "off-processor time",
        StackValue::Blocked => "blocked time",
        StackValue::Runnable => "runnable time",
        StackValue::Syscall => "system-call time",
    }
}

fn amount(value: StackValue, amount: u64) -> Cell {
    if value.is_time() {
        Cell::Time(amount)
    } else {
        amount.to_string().into()
    }
}

fn points(change: f64) -> String {
    format!("{change:+.2}")
}

impl TextReport for Neighbours {
    fn envelope(&self) -> Envelope<'_> {
        self.list.envelope()
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let fact = |of: &FunctionRow| {
            let values = &of.values;
            let text = format!(
                "{} in {}: inclusive {}, exclusive {}, samples {} and {}",
                name(&of.function),
                name(&of.module),
                nanoseconds(values.elapsed.inclusive_ns),
                nanoseconds(values.elapsed.exclusive_ns),
                values.samples.inclusive,
                values.samples.exclusive,
            );
            ("function", text)
        };
        self.of.iter().map(fact).collect()
    }

    fn table(&self) -> Option<Table> {
        self.list.table()
    }
}
