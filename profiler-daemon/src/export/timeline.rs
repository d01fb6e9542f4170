//! Timelines as text and as CSV: a strip of one letter per span for people, a line per row and span
//! for spreadsheets.

use profiler_common::{Class, ClassNs};
use serde::Serialize;
use serde_json::Value;

use super::{
    csv::CsvReport,
    human::name,
    text::{Cell, ColumnKind, Envelope, Table, TextReport},
};
use crate::report::timeline::{Line, ProcessWho, ThreadWho, Timeline, Who};

/// What the letters of a strip mean.
const LEGEND: &str = "U user, S syscall, K kernel: on a processor for half of the span or more; u, s, k: less; r waiting for a processor, . asleep";

/// Whose line it is: what its number is called.
trait TextWho: Who {
    const NUMBER: &'static str;

    /// The last cells of a row.
    fn cells(&self) -> [String; 3] {
        let (number, ..) = self.order();
        [
            self.text("state").unwrap_or_default().to_owned(),
            number.to_string(),
            name(self.comm()),
        ]
    }
}

impl TextWho for ThreadWho {
    const NUMBER: &'static str = "TID";
}

impl TextWho for ProcessWho {
    const NUMBER: &'static str = "PID";
}

impl<W: TextWho> TextReport for Timeline<W> {
    fn envelope(&self) -> Envelope<'_> {
        Envelope {
            as_of: &self.as_of,
            window: &self.window,
            completeness: &self.completeness,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        vec![("letters", LEGEND.to_owned())]
    }

    fn table(&self) -> Option<Table> {
        let on_processor = |line: &Line<W>| {
            let classes = &line.classes;
            Cell::Time(classes.running_ns())
        };
        let row = |line: &Line<W>| {
            let durations = self.spans.iter().map(|span| span.duration_ns);
            let strip = line.spans.iter().zip(durations);
            let strip = strip.map(|(time, duration_ns)| letter(time.as_ref(), duration_ns));
            let mut cells = vec![on_processor(line), Cell::Text(strip.collect())];
            cells.extend(line.who.cells().map(Cell::Text));
            cells
        };
        let columns = vec![
            ("RUNNING", ColumnKind::Time),
            // As many letters as there are spans: never cut.
            ("WHEN", ColumnKind::Number),
            ("STATE", ColumnKind::Name),
            (W::NUMBER, ColumnKind::Number),
            ("COMM", ColumnKind::Name),
        ];
        let shown = self.rows.len();
        Some(Table {
            head: None,
            columns,
            rows: self.rows.iter().map(row).collect(),
            remark: self
                .truncated
                .then(|| format!("{shown} of {} rows; limit=0 shows all", self.total_rows)),
        })
    }
}

/// What a row did most in a span.
fn letter(time: Option<&ClassNs>, duration_ns: u64) -> char {
    let Some(time) = time else { return ' ' };
    let of = |class: Class| time[class as usize];
    let running = [
        (Class::User, 'u'),
        (Class::Syscall, 's'),
        (Class::Kernel, 'k'),
    ];
    let running_ns: u64 = running.iter().map(|(class, _)| of(*class)).sum();
    // A process can run on several processors at a time.
    if running_ns.saturating_mul(20) >= duration_ns && running_ns >= of(Class::Runnable) {
        let most = running.iter().max_by_key(|(class, _)| of(*class));
        let letter = most.map_or('u', |(_, letter)| *letter);
        return if running_ns.saturating_mul(2) >= duration_ns {
            letter.to_ascii_uppercase()
        } else {
            letter
        };
    }
    if of(Class::Runnable).saturating_mul(20) >= duration_ns {
        'r'
    } else {
        '.'
    }
}

/// A row of a timeline in one span.
#[derive(Serialize)]
struct SpanLine<'a, W> {
    #[serde(flatten)]
    who: &'a W,
    from_at: &'a str,
    to_at: &'a str,
    user_ns: u64,
    syscall_ns: u64,
    blocked_ns: u64,
    runnable_ns: u64,
    kernel_ns: u64,
}

fn cells<W: Who>(timeline: &Timeline<W>) -> impl Iterator<Item = serde_json::Result<Value>> {
    timeline.rows.iter().flat_map(|line| {
        let spans = line.spans.iter().zip(&timeline.spans);
        spans.filter_map(|(time, span)| {
            let [user_ns, syscall_ns, blocked_ns, runnable_ns, kernel_ns] = (*time)?;
            Some(serde_json::to_value(SpanLine {
                who: &line.who,
                from_at: &span.from_at,
                to_at: &span.to_at,
                user_ns,
                syscall_ns,
                blocked_ns,
                runnable_ns,
                kernel_ns,
            }))
        })
    })
}

impl CsvReport for Timeline<ThreadWho> {
    const COLUMNS: &'static [&'static str] = &[
        "tid",
        "comm",
        "state",
        "from_at",
        "to_at",
        "user_ns",
        "syscall_ns",
        "blocked_ns",
        "runnable_ns",
        "kernel_ns",
    ];

    fn rows(&self) -> impl Iterator<Item = serde_json::Result<Value>> {
        cells(self)
    }
}

impl CsvReport for Timeline<ProcessWho> {
    const COLUMNS: &'static [&'static str] = &[
        "pid",
        "start_ticks",
        "comm",
        "exe",
        "state",
        "from_at",
        "to_at",
        "user_ns",
        "syscall_ns",
        "blocked_ns",
        "runnable_ns",
        "kernel_ns",
    ];

    fn rows(&self) -> impl Iterator<Item = serde_json::Result<Value>> {
        cells(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that a letter says what a row did most, whether it filled half of the span, and that
    // nothing is blank.
    #[test]
    fn letters() {
        assert_eq!(letter(None, 100), ' ');
        for (time, shown) in [
            ([60, 0, 40, 0, 0], 'U'),
            ([10, 20, 70, 0, 0], 's'),
            ([0, 0, 0, 0, 50], 'K'),
            ([4, 0, 96, 0, 0], '.'),
            ([10, 0, 50, 40, 0], 'r'),
            ([150, 0, 50, 0, 0], 'U'),
        ] {
            assert_eq!(letter(Some(&time), 100), shown, "{time:?}");
        }
    }
}
