//! Answers about two things, in columns for people: sides compared, and a function with its callers or callees.

use super::{
    human::{self, name, nanoseconds, percent},
    text::{Envelope, Side, Table, TextReport},
};
use crate::report::{Diff, DiffRow, FunctionRow, Neighbours};

impl TextReport for Diff {
    fn envelope(&self) -> Envelope<'_> {
        Envelope {
            as_of: &self.as_of,
            window: &self.other.window,
            completeness: &self.other.completeness,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let fact = |side: &crate::report::diff::Side| {
            format!(
                "{}: {} samples, elapsed {}, application {}, without a stack {}",
                name(&side.name),
                side.samples,
                nanoseconds(side.elapsed_ns),
                nanoseconds(side.application_ns),
                nanoseconds(side.completeness.elapsed_unattributed_ns),
            )
        };
        vec![("base", fact(&self.base)), ("other", fact(&self.other))]
    }

    fn table(&self) -> Option<Table> {
        let numbers = [
            "CHANGE",
            "EXCL% BASE",
            "EXCL% OTHER",
            "EXCL% CHANGE",
            "EXCL CHANGE",
            "INCL% CHANGE",
            "APP EXCL% CHANGE",
            "SAMPLES BASE",
            "SAMPLES OTHER",
        ];
        let columns = numbers.map(|title| (title, Side::Right)).into_iter();
        let names = ["KIND", "MODULE", "FUNCTION"].map(|title| (title, Side::Left));
        let shown = self.rows.len();
        Some(Table {
            columns: columns.chain(names).collect(),
            rows: self.rows.iter().map(cells).collect(),
            remark: self
                .truncated
                .then(|| format!("{shown} of {} rows; limit=0 shows all", self.total_rows)),
        })
    }
}

fn cells(row: &DiffRow) -> Vec<String> {
    vec![
        percent(row.largest_change_percent),
        percent(row.base.elapsed.exclusive_percent),
        percent(row.other.elapsed.exclusive_percent),
        points(row.change.elapsed.exclusive_percent),
        signed(row.change.elapsed.exclusive_ns),
        points(row.change.elapsed.inclusive_percent),
        points(row.change.application.exclusive_percent),
        row.base.samples.exclusive.to_string(),
        row.other.samples.exclusive.to_string(),
        row.kind.to_owned(),
        name(&row.module),
        name(&row.function),
    ]
}

fn points(change: f64) -> String {
    format!("{change:+.2}")
}

fn signed(change_ns: i64) -> String {
    let sign = if change_ns < 0 { '-' } else { '+' };
    format!("{sign}{}", human::nanoseconds(change_ns.unsigned_abs()))
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
