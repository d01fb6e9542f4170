//! Named sessions for people.

use super::{
    human::{name, nanoseconds},
    tables::classes,
    text::{Envelope, Side, Table, TextReport, rows_to_text},
};
use crate::report::{SessionList, SessionTotals, values::TotalValues};

/// The list, a line per session.
#[must_use]
pub fn to_text(list: &SessionList) -> String {
    let row = |session: &crate::report::sessions::SessionHead| {
        let spans: Vec<String> = session.spans.iter().map(|span| name(span)).collect();
        vec![
            session.state.to_owned(),
            session.started_at.clone(),
            session.stopped_at.clone().unwrap_or_else(|| "-".to_owned()),
            nanoseconds(session.duration_ns),
            name(&session.name),
            spans.join(", "),
        ]
    };
    let table = Table {
        columns: vec![
            ("STATE", Side::Left),
            ("STARTED", Side::Left),
            ("STOPPED", Side::Left),
            ("DURATION", Side::Right),
            ("NAME", Side::Left),
            ("SPANS", Side::Left),
        ],
        rows: list.sessions.iter().map(row).collect(),
        remark: None,
    };
    format!("# as of {}\n{}", list.as_of, rows_to_text(&table))
}

const PART: [(&str, Side); 8] = [
    ("DURATION", Side::Right),
    ("ELAPSED", Side::Right),
    ("SAMPLES", Side::Right),
    ("USER", Side::Right),
    ("SYSCALL", Side::Right),
    ("BLOCKED", Side::Right),
    ("RUNNABLE", Side::Right),
    ("KERNEL", Side::Right),
];

fn part(duration_ns: u64, totals: &TotalValues) -> Vec<String> {
    let mut cells = vec![
        nanoseconds(duration_ns),
        nanoseconds(totals.elapsed_ns),
        totals.samples.to_string(),
    ];
    cells.extend(classes(&totals.classes));
    cells
}

impl TextReport for SessionTotals {
    fn envelope(&self) -> Envelope<'_> {
        Envelope {
            as_of: &self.as_of,
            window: &self.window,
            completeness: &self.completeness,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        vec![
            ("session", name(&self.name)),
            ("state", self.state.to_owned()),
            ("started", self.started_at.clone()),
            (
                "stopped",
                self.stopped_at.clone().unwrap_or_else(|| "-".to_owned()),
            ),
        ]
    }

    fn table(&self) -> Option<Table> {
        let all = ("[all]".to_owned(), part(self.duration_ns, &self.totals));
        let spans = self.spans.iter();
        let spans = spans.map(|span| (name(&span.name), part(span.duration_ns, &span.totals)));
        let rows = std::iter::once(all).chain(spans).map(|(title, mut cells)| {
            cells.push(title);
            cells
        });
        Some(Table {
            columns: PART.into_iter().chain([("SPAN", Side::Left)]).collect(),
            rows: rows.collect(),
            remark: None,
        })
    }
}
