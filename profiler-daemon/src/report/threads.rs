//! The table of threads. Its values are the threads' exact totals, so their sum is the process's,
//! with nothing missing.

use std::cmp::Ordering;

use serde::Serialize;

use super::{
    answer::List,
    completeness::Completeness,
    error::ReportError,
    figures::Figures,
    places::Places,
    query::{Scope, TableQuery},
    scope::View,
    table::{Columns, Row, SortKey, columns_with_values},
    times::rfc3339,
    values::RowValues,
};
use crate::{
    profile::{input::ThreadState, over::Span, snapshot::Snapshot, values::Totals},
    report::names::Names,
};

/// One thread, or in the row without `started_at` all exited threads that have no row of their own
/// any more: of a process, or of those that ended and are one by image.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ThreadRow {
    /// The process; 0 for processes that are one by image.
    pub pid: u32,
    /// The process's start, 10 ms ticks since boot.
    pub start_ticks: u64,
    /// The thread; 0 for threads folded into one row.
    pub tid: u32,
    /// Path of the file that its process executed last, as far as that is known.
    #[schema(required)]
    pub image: Option<String>,
    /// Of processes that are one by image: what `/api/v1/images/{id}` calls them.
    #[schema(required)]
    pub image_id: Option<String>,
    /// Its name.
    pub comm: String,
    /// `running`, `blocked`, `runnable` or `exited`.
    #[schema(pattern = "^(running|blocked|runnable|exited)$")]
    pub state: &'static str,
    /// RFC 3339.
    #[schema(required, format = DateTime)]
    pub started_at: Option<String>,
    /// How many threads this row stands for; null for the row of several in a part of the session,
    /// since which of them were there is no longer known.
    #[schema(required)]
    pub threads: Option<u64>,
    /// First event in the time covered, monotonic nanoseconds. In a row of several threads 0.
    pub first_event_ns: u64,
    /// Last event, monotonic nanoseconds. In a row of several threads the sum of their lives.
    pub last_event_ns: u64,
    /// Time in between in which it was no target.
    pub unobserved_ns: u64,
    /// Page faults that needed no reading.
    pub minor_faults: u64,
    /// Page faults that waited for data to be read.
    pub major_faults: u64,
    /// Switches of it that were not seen: with any, how its time off the processor is divided into
    /// blocked and runnable is in doubt.
    pub switches_missed: u64,
    /// The three groups; exclusive = inclusive. Elapsed is `last_event_ns - first_event_ns -
    /// unobserved_ns`.
    #[serde(flatten)]
    pub values: RowValues,
}

impl Columns for ThreadRow {
    const COLUMNS: &'static [&'static str] = columns_with_values![
        "pid",
        "start_ticks",
        "tid",
        "image",
        "image_id",
        "comm",
        "state",
        "started_at",
        "threads",
        "first_event_ns",
        "last_event_ns",
        "unobserved_ns",
        "minor_faults",
        "major_faults",
        "switches_missed",
    ];
}

impl Row for ThreadRow {
    const DEFAULT_SORT: &'static str = "elapsed.exclusive_ns";

    fn key(&self, column: &str) -> Option<SortKey<'_>> {
        Some(match column {
            "pid" => SortKey::Number(self.pid.into()),
            "start_ticks" => SortKey::Number(self.start_ticks as f64),
            "tid" => SortKey::Number(self.tid.into()),
            "image" => SortKey::Text(self.image.as_deref()?),
            "image_id" => SortKey::Text(self.image_id.as_deref()?),
            "comm" => SortKey::Text(&self.comm),
            "state" => SortKey::Text(self.state),
            "started_at" => SortKey::Text(self.started_at.as_deref()?),
            "threads" => SortKey::Number(self.threads? as f64),
            "first_event_ns" => SortKey::Number(self.first_event_ns as f64),
            "last_event_ns" => SortKey::Number(self.last_event_ns as f64),
            "unobserved_ns" => SortKey::Number(self.unobserved_ns as f64),
            "minor_faults" => SortKey::Number(self.minor_faults as f64),
            "major_faults" => SortKey::Number(self.major_faults as f64),
            "switches_missed" => SortKey::Number(self.switches_missed as f64),
            _ => SortKey::Number(self.values.column(column)?),
        })
    }

    fn running_ns(&self) -> Option<u64> {
        Some(self.values.classes.running_ns())
    }

    fn name(&self) -> &str {
        &self.comm
    }

    fn tie(&self, other: &Self) -> Ordering {
        (self.pid, self.start_ticks, self.tid)
            .cmp(&(other.pid, other.start_ticks, other.tid))
            .then_with(|| self.started_at.cmp(&other.started_at))
            .then_with(|| self.image_id.cmp(&other.image_id))
    }
}

/// A row per thread of a process or of the session.
///
/// # Errors
/// No such process, column or window.
pub fn threads(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &TableQuery,
    names: &dyn Names,
) -> Result<List<ThreadRow>, ReportError> {
    let view = View::new(snapshot, scope, query.window)?;
    let mut rows = Vec::new();
    for index in 0..view.members.len() {
        add_rows(&view, index, &mut rows);
    }
    let completeness = Completeness::of_totals(&view, &Places::new(&view), names);
    List::of(&view, completeness, rows, query)
}

fn add_rows(view: &View<'_>, index: usize, rows: &mut Vec<ThreadRow>) {
    let member = &view.members[index];
    let (pid, start_ticks) = member
        .process
        .map_or((0, 0), |(key, _)| (key.pid, key.start_ticks()));
    let over = member.aggregate.threads_over(view.coverage.span);
    let mut exact: Vec<Totals> = over.rows.iter().map(|(.., totals)| *totals).collect();
    exact.push(over.folded);
    let values = view.thread_values(index, &exact);
    let row = |place: usize| {
        let (totals, values) = (&exact[place], &values[place]);
        let figures = Figures::from(*values);
        ThreadRow {
            pid,
            start_ticks,
            tid: 0,
            image: member.image.map(|image| image.path.to_string()),
            image_id: member.image_id().map(|id| id.to_string()),
            comm: String::new(),
            state: ThreadState::Exited.name(),
            started_at: None,
            threads: Some(1),
            first_event_ns: 0,
            last_event_ns: totals.elapsed_ns() + totals.unobserved_ns,
            unobserved_ns: totals.unobserved_ns,
            minor_faults: totals.minor_faults,
            major_faults: totals.major_faults,
            switches_missed: totals.switches_missed,
            values: RowValues::new(&figures, &figures, &view.denominators),
        }
    };
    for (place, (key, thread, totals)) in over.rows.iter().enumerate() {
        if !view.has_thread(thread, totals) {
            continue;
        }
        // It may be later than the moment of the pass, which reads one thread after the other.
        let last_event_ns = match view.coverage.span {
            Span::Session => thread.last_ns,
            Span::Between { .. } => thread.last_ns.min(view.coverage.to_ns),
        };
        let first_event_ns = match view.coverage.span {
            Span::Session => thread.first_ns,
            Span::Between { .. } => {
                last_event_ns.saturating_sub(totals.elapsed_ns() + totals.unobserved_ns)
            }
        };
        rows.push(ThreadRow {
            tid: key.tid,
            comm: thread.comm.to_string(),
            state: thread.state.name(),
            started_at: Some(rfc3339(view.snapshot.unix_ns_of_boot_ns(key.start_ns))),
            first_event_ns: first_event_ns.ns(),
            last_event_ns: last_event_ns.ns(),
            ..row(place)
        });
    }
    if over.folded != Totals::default() || over.folded_count.is_some_and(|count| count > 0) {
        let comm = match member.process {
            Some(_) => "[exited threads]".to_owned(),
            None => member.title(),
        };
        rows.push(ThreadRow {
            comm,
            threads: over.folded_count,
            ..row(over.rows.len())
        });
    }
}
