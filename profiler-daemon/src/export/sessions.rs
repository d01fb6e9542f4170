//! Named sessions for people.

use super::{
    human::{name, nanoseconds},
    text::{Cell, ColumnKind, Envelope, Table, TextReport, rows_to_text},
};
use crate::report::{SessionList, SessionTotals, values::TotalValues};

/// The list, a line per session.
#[must_use]
pub fn to_text(list: &SessionList) -> String {
    let row = |session: &crate::report::sessions::SessionHead| {
        let spans: Vec<String> = session.spans.iter().map(|span| name(span)).collect();
        [
            session.state.to_owned(),
            session.started_at.clone(),
            session.stopped_at.clone().unwrap_or_else(|| "-".to_owned()),
            nanoseconds(session.duration_ns),
            name(&session.name),
            spans.join(", "),
        ]
        .map(Cell::Text)
        .to_vec()
    };
    let table = Table {
        head: None,
        columns: vec![
            ("STATE", ColumnKind::Name),
            ("STARTED", ColumnKind::Number),
            ("STOPPED", ColumnKind::Number),
            ("DURATION", ColumnKind::Number),
            ("NAME", ColumnKind::Name),
            ("SPANS", ColumnKind::Name),
        ],
        rows: list.sessions.iter().map(row).collect(),
        remark: None,
    };
    format!("# as of {}\n{}", list.as_of, rows_to_text(&table))
}

const PART: [(&str, ColumnKind); 7] = [
    ("DURATION", ColumnKind::Time),
    ("ELAPSED", ColumnKind::Part),
    ("USER", ColumnKind::Part),
    ("SYSTEM", ColumnKind::Part),
    ("BLOCKED", ColumnKind::Part),
    ("RUNNABLE", ColumnKind::Part),
    ("SAMPLES", ColumnKind::Number),
];

fn part(title: String, duration_ns: u64, totals: &TotalValues) -> Vec<Cell> {
    let classes = &totals.classes;
    vec![
        Cell::Time(duration_ns),
        Cell::Time(totals.elapsed_ns),
        Cell::Time(classes.user_ns),
        Cell::Time(classes.syscall_ns + classes.kernel_ns),
        Cell::Time(classes.blocked_ns),
        Cell::Time(classes.runnable_ns),
        totals.samples.to_string().into(),
        title.into(),
    ]
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
        let all = part("[all]".to_owned(), self.duration_ns, &self.totals);
        let spans = self.spans.iter();
        let spans = spans.map(|span| part(name(&span.name), span.duration_ns, &span.totals));
        Some(Table {
            head: None,
            columns: PART
                .into_iter()
                .chain([("SPAN", ColumnKind::Name)])
                .collect(),
            rows: std::iter::once(all).chain(spans).collect(),
            remark: None,
        })
    }
}
