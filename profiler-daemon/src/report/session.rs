//! The totals of the session.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    answer::{WindowSpan, rfc3339},
    completeness::{Completeness, Stacks},
    query::{ReportError, Scope, ViewQuery, Window},
    scope::View,
    values::ClassValues,
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
    /// Timer samples.
    pub samples: u64,
    /// Samples discarded on purpose, by reason.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub discarded: BTreeMap<CounterName, u64>,
    /// All time of all threads.
    pub elapsed_ns: u64,
    /// Time without an operating-system event.
    pub application_ns: u64,
    /// `elapsed_ns` by class.
    pub classes: ClassValues,
    /// Processes seen in the time covered: the rows of the table of processes, and over the whole session the dropped ones.
    pub processes: u64,
    /// Threads seen in the time covered: those with a row of their own, and over the whole session all others.
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
    /// Timer samples.
    pub samples: u64,
    /// All time of all their threads.
    pub elapsed_ns: u64,
    /// Time without an operating-system event.
    pub application_ns: u64,
    /// `elapsed_ns` by class.
    pub classes: ClassValues,
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
    let totals = view.totals();
    let mut retired = Totals::default();
    let (mut processes, mut threads, mut retired_threads) = (0, 0, 0);
    let mut stacks = Stacks::default();
    for member in &view.members {
        let over = member.account.threads_over(view.coverage.span);
        let count = view.thread_count(&over);
        threads += count;
        match member.process {
            Some((_, process)) => {
                processes += u64::from(view.has_process(&process.info, &over.total()));
            }
            None => {
                retired_threads += count;
                retired.add(&over.total());
            }
        }
        stacks.count(
            member.account,
            &member.account.weights_over(view.coverage.span),
            names,
        );
    }
    let whole = view.coverage.span == Span::Session;
    let dropped = whole.then_some(snapshot.retired().processes);
    Ok(SessionReport {
        as_of: view.as_of(),
        window: view.window(),
        completeness: Completeness::of_one_total(&view, names),
        started_at: rfc3339(snapshot.started_unix_ns()),
        samples: totals.samples,
        discarded: view.coverage.discarded.iter().cloned().collect(),
        elapsed_ns: totals.elapsed_ns(),
        application_ns: totals.application_ns(),
        classes: ClassValues::from(&totals.classes),
        processes: processes + dropped.unwrap_or_default(),
        threads,
        stacks,
        retired: RetiredTotals {
            processes: dropped,
            threads: whole.then_some(retired_threads),
            samples: retired.samples,
            elapsed_ns: retired.elapsed_ns(),
            application_ns: retired.application_ns(),
            classes: ClassValues::from(&retired.classes),
        },
    })
}

/// Timer samples of the whole session so far: what can be told without a name.
#[must_use]
pub fn samples(snapshot: &Snapshot) -> u64 {
    View::new(snapshot, &Scope::Session, Window::Session).map_or(0, |view| view.totals().samples)
}
