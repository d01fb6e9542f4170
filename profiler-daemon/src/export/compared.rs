//! Answers about two things, in columns for people: sides compared, and a function with its callers or callees.

use super::{
    human::{last_part, name, nanoseconds, share},
    text::{Cell, Envelope, Kind, Table, TextReport},
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
        let columns = vec![
            ("LARGEST", Kind::Number),
            ("BASE%", Kind::Number),
            ("OTHER%", Kind::Number),
            ("CHANGE", Kind::Number),
            ("INCL", Kind::Number),
            ("APP", Kind::Number),
            ("SAMPLES", Kind::Number),
            ("FUNCTION", Kind::Function),
            ("MODULE", Kind::Name),
        ];
        let shown = self.rows.len();
        Some(Table {
            head: Some(HEAD.to_owned()),
            columns,
            rows: self.rows.iter().map(cells).collect(),
            remark: self
                .truncated
                .then(|| format!("{shown} of {} rows; limit=0 shows all", self.total_rows)),
        })
    }
}

/// What the columns are.
const HEAD: &str = "shares are of exclusive elapsed time; changes in points of it, of INCLusive and of APPlication time, and the LARGEST of all";

fn cells(row: &DiffRow) -> Vec<Cell> {
    let samples = (row.base.samples.exclusive, row.other.samples.exclusive);
    let cells = [
        share(row.largest_change_percent),
        share(row.base.elapsed.exclusive_percent),
        share(row.other.elapsed.exclusive_percent),
        points(row.change.elapsed.exclusive_percent),
        points(row.change.elapsed.inclusive_percent),
        points(row.change.application.exclusive_percent),
        format!("{} > {}", samples.0, samples.1),
        name(&row.function),
        name(last_part(&row.module)),
    ];
    cells.map(Cell::Text).to_vec()
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
