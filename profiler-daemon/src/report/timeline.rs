//! What each thread of a process, or each process, did when: its time by class in each of the spans
//! of a window.
//!
//! Invariant: the spans of a row sum to its classes, and the rows to the window's totals, to the
//! nanosecond.

use std::{cmp::Ordering, collections::BTreeMap};

use profiler_common::ClassNs;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    completeness::Completeness,
    error::ReportError,
    member::Member,
    places::Places,
    query::{Moment, Scope, TimelineQuery, Window},
    scope::View,
    table::{Columns, Row, SortKey, arrange},
    times::{WindowSpan, rfc3339},
    values::ClassValues,
};
use crate::{
    processes::ids::ThreadKey,
    profile::{
        input::ThreadState,
        over::{Gain, Span},
        snapshot::Snapshot,
        values::{Totals, add_classes, sum},
    },
    report::names::Names,
    units::{MonoNs, UnixNs},
};

/// Most spans of an answer.
pub const MAX_SPANS: usize = 600;

/// The answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Timeline<W> {
    /// Time of the drain pass it was made from, RFC 3339.
    pub as_of: String,
    /// The time it covers.
    pub window: WindowSpan,
    /// What it lacks.
    pub completeness: Completeness,
    /// Rows there are, those cut by `limit` included.
    pub total_rows: usize,
    /// Whether `limit` cut rows.
    pub truncated: bool,
    /// The spans, oldest first, without gaps.
    pub spans: Vec<TimelineSpan>,
    /// The rows, in the order asked for.
    pub rows: Vec<Line<W>>,
}

/// One span.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TimelineSpan {
    /// RFC 3339.
    pub from_at: String,
    /// RFC 3339.
    pub to_at: String,
    /// How long it is.
    pub duration_ns: u64,
}

/// The line of one thread or process.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Line<W> {
    /// Whose it is.
    #[serde(flatten)]
    pub who: W,
    /// All its time in the window, by class.
    pub classes: ClassValues,
    /// All its time in the window.
    pub elapsed_ns: u64,
    /// Its timer samples in the window.
    pub samples: u64,
    /// Its time in each span, in nanoseconds: user, system call, blocked, runnable, kernel; null
    /// where it has none.
    #[schema(value_type = Vec<Option<Vec<u64>>>)]
    pub spans: Vec<Option<ClassNs>>,
}

/// Whose a line can be.
pub trait Who: Serialize {
    /// The columns of a line.
    const COLUMNS: &'static [&'static str];

    /// Number and text that order equal lines.
    fn order(&self) -> (u32, u64, &str);

    /// Its name.
    fn comm(&self) -> &str;

    /// Its columns that hold text.
    fn text(&self, column: &str) -> Option<&str>;
}

/// A thread; without a number, all threads that have no row of their own any more.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ThreadWho {
    /// The thread; 0 for threads folded into one row.
    pub tid: u32,
    /// Its name.
    pub comm: String,
    /// `running`, `blocked`, `runnable` or `exited`, now.
    pub state: &'static str,
    #[serde(skip)]
    key: Option<ThreadKey>,
}

/// A process; without a number, all that were dropped.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ProcessWho {
    /// The process; 0 for processes that were dropped.
    pub pid: u32,
    /// Its start, 10 ms ticks since boot.
    pub start_ticks: u64,
    /// Its name.
    pub comm: String,
    /// Path of its program.
    #[schema(required)]
    pub exe: Option<String>,
    /// `running` or `exited`, now.
    pub state: &'static str,
}

impl Who for ThreadWho {
    const COLUMNS: &'static [&'static str] = &[
        "tid",
        "comm",
        "state",
        "classes.user_ns",
        "classes.syscall_ns",
        "classes.blocked_ns",
        "classes.runnable_ns",
        "classes.kernel_ns",
        "elapsed_ns",
        "samples",
    ];

    fn order(&self) -> (u32, u64, &str) {
        let start_ns = self.key.map_or(0, |key| key.start_ns.ns());
        (self.tid, start_ns, &self.comm)
    }

    fn comm(&self) -> &str {
        &self.comm
    }

    fn text(&self, column: &str) -> Option<&str> {
        match column {
            "comm" => Some(&self.comm),
            "state" => Some(self.state),
            _ => None,
        }
    }
}

impl Who for ProcessWho {
    const COLUMNS: &'static [&'static str] = &[
        "pid",
        "start_ticks",
        "comm",
        "exe",
        "state",
        "classes.user_ns",
        "classes.syscall_ns",
        "classes.blocked_ns",
        "classes.runnable_ns",
        "classes.kernel_ns",
        "elapsed_ns",
        "samples",
    ];

    fn order(&self) -> (u32, u64, &str) {
        (self.pid, self.start_ticks, &self.comm)
    }

    fn comm(&self) -> &str {
        &self.comm
    }

    fn text(&self, column: &str) -> Option<&str> {
        match column {
            "comm" => Some(&self.comm),
            "exe" => self.exe.as_deref(),
            "state" => Some(self.state),
            _ => None,
        }
    }
}

impl<W: Who> Columns for Line<W> {
    const COLUMNS: &'static [&'static str] = W::COLUMNS;
}

impl<W: Who> Row for Line<W> {
    const DEFAULT_SORT: &'static str = "elapsed_ns";

    fn key(&self, column: &str) -> Option<SortKey<'_>> {
        let (number, start_ticks, _) = self.who.order();
        match column {
            "pid" | "tid" => Some(SortKey::Number(number.into())),
            "start_ticks" => Some(SortKey::Number(start_ticks as f64)),
            "elapsed_ns" => Some(SortKey::Number(self.elapsed_ns as f64)),
            "samples" => Some(SortKey::Number(self.samples as f64)),
            _ => self
                .who
                .text(column)
                .map(SortKey::Text)
                .or_else(|| self.classes.column(column).map(SortKey::Number)),
        }
    }

    fn running_ns(&self) -> Option<u64> {
        Some(self.classes.running_ns())
    }

    fn name(&self) -> &str {
        self.who.comm()
    }

    fn tie(&self, other: &Self) -> Ordering {
        self.who.order().cmp(&other.who.order())
    }
}

/// The spans of an answer.
struct Spans {
    /// When each begins, monotonic nanoseconds, and at last when the last one ends.
    borders_ns: Vec<MonoNs>,
    shown: Vec<TimelineSpan>,
}

impl Spans {
    /// The buckets of the window, neighbours put together where there are more than `most`.
    fn new(view: &View<'_>, most: usize) -> Self {
        let coverage = &view.coverage;
        let (from_ns, to_ns) = (coverage.from_ns, coverage.to_ns);
        let mut buckets: Vec<(MonoNs, UnixNs)> = view.snapshot.borders(from_ns, to_ns).collect();
        buckets.push((to_ns, coverage.to_unix_ns));
        let borders = few(&buckets, most);
        let span = |pair: &[(MonoNs, UnixNs)]| TimelineSpan {
            from_at: rfc3339(pair[0].1),
            to_at: rfc3339(pair[1].1),
            duration_ns: pair[1].0 - pair[0].0,
        };
        let shown = borders.windows(2).map(span).collect();
        let mut borders_ns: Vec<MonoNs> = borders.iter().map(|(at_ns, _)| *at_ns).collect();
        if let (Some(last_ns), Span::Between { to_ns, .. }) = (borders_ns.last_mut(), coverage.span)
        {
            *last_ns = to_ns;
        }
        Self { borders_ns, shown }
    }

    fn len(&self) -> usize {
        self.shown.len()
    }
}

/// The borders of at most so many spans, each of neighbouring buckets that together are no longer
/// than they must be; longer buckets stay by themselves.
fn few(buckets: &[(MonoNs, UnixNs)], most: usize) -> Vec<(MonoNs, UnixNs)> {
    let joined = |width_ns: u64| {
        let mut borders: Vec<(MonoNs, UnixNs)> = Vec::new();
        for (index, bucket) in buckets.iter().enumerate() {
            let end_ns = buckets.get(index + 1).map_or(MonoNs::MAX, |next| next.0);
            let goes_on = borders
                .last()
                .is_some_and(|last| end_ns - last.0 <= width_ns);
            if !goes_on {
                borders.push(*bucket);
            }
        }
        borders
    };
    let (mut enough_ns, mut too_little_ns) = match buckets {
        [first, .., last] => (last.0 - first.0, 0),
        _ => (0, 0),
    };
    if buckets.len() <= most + 1 {
        return buckets.to_vec();
    }
    while enough_ns - too_little_ns > 1 {
        let width_ns = too_little_ns + (enough_ns - too_little_ns) / 2;
        if joined(width_ns).len() <= most + 1 {
            enough_ns = width_ns;
        } else {
            too_little_ns = width_ns;
        }
    }
    joined(enough_ns)
}

/// A row per thread of a process.
///
/// # Errors
/// No such process, column or window.
pub fn thread_timeline(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &TimelineQuery,
    names: &dyn Names,
) -> Result<Timeline<ThreadWho>, ReportError> {
    let view = view(snapshot, scope, query)?;
    let mut lines = Vec::new();
    for member in &view.members {
        let over = member.aggregate.threads_over(view.coverage.span);
        for (key, thread, totals) in &over.rows {
            let who = ThreadWho {
                tid: key.tid,
                comm: thread.comm.to_string(),
                state: thread.state.name(),
                key: Some(*key),
            };
            lines.extend(line(who, totals));
        }
        let folded = ThreadWho {
            tid: 0,
            comm: "[exited threads]".to_owned(),
            state: ThreadState::Exited.name(),
            key: None,
        };
        lines.extend(line(folded, &over.folded));
    }
    let fill = |lines: &mut [Line<ThreadWho>], spans: &Spans| {
        let mut places: BTreeMap<Option<ThreadKey>, &mut Line<ThreadWho>> =
            lines.iter_mut().map(|line| (line.who.key, line)).collect();
        for member in &view.members {
            member
                .aggregate
                .gains_by_span(&spans.borders_ns, |thread, span, gain| {
                    if let Some(line) = places.get_mut(&thread) {
                        add(line, span, gain);
                    }
                });
        }
    };
    answer(&view, (query, names), lines, fill)
}

/// A row per process.
///
/// # Errors
/// No such column or window.
pub fn process_timeline(
    snapshot: &Snapshot,
    query: &TimelineQuery,
    names: &dyn Names,
) -> Result<Timeline<ProcessWho>, ReportError> {
    let view = view(snapshot, &Scope::Session, query)?;
    let mut lines = Vec::new();
    let mut dropped = Totals::default();
    for member in &view.members {
        let totals = member.aggregate.threads_over(view.coverage.span).total();
        let Some((key, process)) = member.process else {
            dropped.add(&totals);
            continue;
        };
        let info = &process.info;
        let exited = info.exited_at_unix_ns.is_some();
        let who = ProcessWho {
            pid: key.pid,
            start_ticks: key.start_ticks(),
            comm: info.comm.to_string(),
            exe: info.exe.as_deref().map(str::to_owned),
            state: if exited { "exited" } else { "running" },
        };
        lines.extend(line(who, &totals));
    }
    let who = ProcessWho {
        pid: 0,
        start_ticks: 0,
        comm: "[exited processes]".to_owned(),
        exe: None,
        state: "exited",
    };
    lines.extend(line(who, &dropped));
    let name = |member: &Member<'_>| {
        let key = member.process.map(|(key, _)| key);
        key.map_or((0, 0), |key| (key.pid, key.start_ticks()))
    };
    let fill = |lines: &mut [Line<ProcessWho>], spans: &Spans| {
        let mut places: BTreeMap<(u32, u64), &mut Line<ProcessWho>> = lines
            .iter_mut()
            .map(|line| ((line.who.pid, line.who.start_ticks), line))
            .collect();
        for member in &view.members {
            let Some(line) = places.get_mut(&name(member)) else {
                continue;
            };
            member
                .aggregate
                .gains_by_span(&spans.borders_ns, |_, span, gain| add(line, span, gain));
        }
    };
    answer(&view, (query, names), lines, fill)
}

/// What is asked about. The session as a whole has a timeline as long as all of it is kept in
/// buckets.
fn view<'a>(
    snapshot: &'a Snapshot,
    scope: &Scope,
    query: &TimelineQuery,
) -> Result<View<'a>, ReportError> {
    let Window::Session = query.table.window else {
        return View::new(snapshot, scope, query.table.window);
    };
    let whole = Window::Between {
        from: Moment::Ago {
            ns: snapshot.now_ns().ns(),
        },
        to: None,
    };
    View::new(snapshot, scope, whole).map_err(|error| match error {
        ReportError::WindowTooOld { since_unix_ns } => ReportError::SessionTooOld { since_unix_ns },
        error => error,
    })
}

fn line<W>(who: W, totals: &Totals) -> Option<Line<W>> {
    (totals.elapsed_ns() > 0 || totals.samples() > 0).then(|| Line {
        who,
        classes: ClassValues::from(&totals.classes),
        elapsed_ns: totals.elapsed_ns(),
        samples: totals.samples(),
        spans: Vec::new(),
    })
}

fn add<W>(line: &mut Line<W>, span: usize, gain: Gain) {
    if let Gain::Time(classes) = gain
        && sum(&classes) > 0
    {
        add_classes(line.spans[span].get_or_insert_default(), &classes);
    }
}

/// Chooses the lines, and only then fills in their spans.
fn answer<W: Who>(
    view: &View<'_>,
    (query, names): (&TimelineQuery, &dyn Names),
    lines: Vec<Line<W>>,
    fill: impl FnOnce(&mut [Line<W>], &Spans),
) -> Result<Timeline<W>, ReportError> {
    let spans = Spans::new(view, query.max_spans.clamp(1, MAX_SPANS));
    let mut cut = arrange(lines, &query.table)?;
    for line in &mut cut.rows {
        line.spans = vec![None; spans.len()];
    }
    fill(&mut cut.rows, &spans);
    Ok(Timeline {
        as_of: view.as_of(),
        window: view.window(),
        completeness: Completeness::of_totals(view, &Places::new(view), names),
        total_rows: cut.total_rows,
        truncated: cut.rows.len() < cut.total_rows,
        spans: spans.shown,
        rows: cut.rows,
    })
}

#[cfg(test)]
mod tests {
    use super::{MonoNs, UnixNs, few};

    // Check that buckets are only put together where there are too many, and then the short ones
    // among themselves.
    #[test]
    fn short_buckets_are_put_together() {
        let at = |ns: &[u64]| {
            ns.iter()
                .map(|ns| (MonoNs::new(*ns), UnixNs::ZERO))
                .collect::<Vec<_>>()
        };
        let buckets = at(&[0, 60, 70, 71, 72, 73, 74]);
        assert_eq!(few(&buckets, 6), buckets);
        assert_eq!(few(&buckets, 4), at(&[0, 60, 70, 72, 74]));
        assert_eq!(few(&buckets, 3), at(&[0, 60, 70, 74]));
        assert_eq!(few(&buckets, 1), at(&[0, 74]));
        assert_eq!(few(&at(&[5]), 1), at(&[5]));
    }
}
