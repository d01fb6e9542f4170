//! Named sessions for people.

use super::{
    human::{name, nanoseconds},
    text::{Cell, Envelope, Kind, Table, TextReport, rows_to_text},
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
            ("STATE", Kind::Name),
            ("STARTED", Kind::Number),
            ("STOPPED", Kind::Number),
            ("DURATION", Kind::Number),
            ("NAME", Kind::Name),
            ("SPANS", Kind::Name),
        ],
        rows: list.sessions.iter().map(row).collect(),
        remark: None,
    };
    format!("# as of {}\n{}", list.as_of, rows_to_text(&table))
}

const PART: [(&str, Kind); 7] = [
    ("DURATION", Kind::Time),
    ("ELAPSED", Kind::Part),
    ("USER", Kind::Part),
    ("SYSTEM", Kind::Part),
    ("BLOCKED", Kind::Part),
    ("RUNNABLE", Kind::Part),
    ("SAMPLES", Kind::Number),
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
            columns: PART.into_iter().chain([("SPAN", Kind::Name)]).collect(),
            rows: std::iter::once(all).chain(spans).collect(),
            remark: None,
        })
    }
}
