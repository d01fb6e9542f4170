//! The totals of the session.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    completeness::Completeness,
    error::ReportError,
    places::Places,
    product::Values,
    query::{Scope, ViewQuery, Window},
    scope::View,
    times::{WindowSpan, rfc3339},
    values::TotalValues,
    walks::Stacks,
};
use crate::{
    profile::{input::CounterName, over::Span, snapshot::Snapshot, values::Totals},
    report::names::Names,
};

/// The session. Its totals are the sums over the listed processes and `retired`, exactly.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct SessionReport {
    /// Time of the drain pass it was made from, RFC 3339.
    #[schema(format = DateTime)]
    pub as_of: String,
    /// The time it covers.
    pub window: WindowSpan,
    /// What it lacks.
    pub completeness: Completeness,
    /// Begin of the session, RFC 3339.
    #[schema(format = DateTime)]
    pub started_at: String,
    /// Samples discarded on purpose, by reason.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub discarded: BTreeMap<CounterName, u64>,
    /// The totals.
    #[serde(flatten)]
    pub totals: TotalValues,
    /// Processes seen in the time covered: the rows of the table of processes, and over the whole
    /// session the dropped ones.
    pub processes: u64,
    /// Threads seen in the time covered: those with a row of their own, and over the whole session
    /// all others.
    pub threads: u64,
    /// Walks of user stacks, by how the kernel saw them end.
    pub stacks: Stacks,
    /// What dropped processes were.
    pub retired: RetiredTotals,
}

/// Dropped processes together.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct RetiredTotals {
    /// How many; null for a part of the session, since which of them were there is no longer known.
    #[schema(required)]
    pub processes: Option<u64>,
    /// Threads they had; null likewise.
    #[schema(required)]
    pub threads: Option<u64>,
    /// Their totals.
    #[serde(flatten)]
    pub totals: TotalValues,
}

/// The totals of the session or of a window of it.
///
/// # Errors
/// No such window.
pub fn session(
    snapshot: &Snapshot,
    query: &ViewQuery,
    names: &dyn Names,
) -> Result<SessionReport, ReportError> {
    let view = View::new(snapshot, &Scope::Session, query.window)?;
    let places = Places::new(&view);
    let mut retired = Values::default();
    let (mut retired_exact, mut retired_not_sampled) = (Totals::default(), Values::default());
    let (mut processes, mut threads, mut retired_threads) = (0, 0, 0);
    for (index, member) in view.members.iter().enumerate() {
        let over = member.aggregate.threads_over(view.coverage.span);
        let count = view.thread_count(&over);
        threads += count;
        match member.process {
            Some((_, process)) => {
                processes += u64::from(view.has_process(&process.info, &view.totals[index]));
            }
            None => {
                retired_threads += count;
                retired.add(&view.figures[index].values);
                retired_exact.add(&view.totals[index]);
                retired_not_sampled.add(&places.not_sampled(index, member));
            }
        }
    }
    let whole = view.coverage.span == Span::Session;
    let dropped = whole.then_some(snapshot.ended());
    Ok(SessionReport {
        as_of: view.as_of(),
        window: view.window(),
        completeness: Completeness::of_one_total(&view, &places, names),
        started_at: rfc3339(snapshot.started_unix_ns()),
        discarded: view.coverage.discarded.iter().cloned().collect(),
        totals: places.all_values(&view),
        processes: processes + dropped.unwrap_or_default(),
        threads,
        stacks: places.all_stacks(&view, names),
        retired: RetiredTotals {
            processes: dropped,
            threads: whole.then_some(retired_threads),
            totals: TotalValues::measured(&retired, &retired_exact, &retired_not_sampled.classes),
        },
    })
}

/// Timer samples of the whole session so far: what can be told without a name.
#[must_use]
pub fn samples(snapshot: &Snapshot) -> u64 {
    View::new(snapshot, &Scope::Session, Window::Session).map_or(0, |view| view.totals().samples())
}
