//! The totals of the session.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    answer::{WindowSpan, rfc3339},
    completeness::{Completeness, Stacks},
    query::{ReportError, Scope, ViewQuery},
    scope::View,
    values::ClassValues,
};
use crate::profile::{input::CounterName, snapshot::Snapshot, values::Totals};

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
    /// Processes seen, dropped ones included.
    pub processes: u64,
    /// Threads seen, those of dropped processes included.
    pub threads: u64,
    /// Walks of user stacks, by how the kernel saw them end.
    pub stacks: Stacks,
    /// What dropped processes were.
    pub retired: RetiredTotals,
}

/// Dropped processes together.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct RetiredTotals {
    /// How many, in the whole session.
    pub processes: u64,
    /// Threads they had.
    pub threads: u64,
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
pub fn session(snapshot: &Snapshot, query: &ViewQuery) -> Result<SessionReport, ReportError> {
    let view = View::new(snapshot, &Scope::Session, query.window)?;
    let totals = view.totals();
    let mut retired = Totals::default();
    let (mut threads, mut retired_threads) = (0, 0);
    let mut stacks = Stacks::default();
    for member in &view.members {
        threads += member.account.thread_count();
        if member.process.is_none() {
            retired_threads += member.account.thread_count();
            retired.add(&member.account.threads_over(view.coverage.span).total());
        }
        stacks.count(
            member.account,
            &member.account.weights_over(view.coverage.span),
            None,
        );
    }
    let dropped = snapshot.retired().processes;
    Ok(SessionReport {
        as_of: view.as_of(),
        window: view.window(),
        completeness: Completeness::of_one_total(&view, None),
        started_at: rfc3339(snapshot.started_unix_ns()),
        samples: totals.samples,
        discarded: view.coverage.discarded.iter().cloned().collect(),
        elapsed_ns: totals.elapsed_ns(),
        application_ns: totals.application_ns(),
        classes: ClassValues::from(&totals.classes),
        processes: snapshot.processes().len() as u64 + dropped,
        threads,
        stacks,
        retired: RetiredTotals {
            processes: dropped,
            threads: retired_threads,
            samples: retired.samples,
            elapsed_ns: retired.elapsed_ns(),
            application_ns: retired.application_ns(),
            classes: ClassValues::from(&retired.classes),
        },
    })
}
