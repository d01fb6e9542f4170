//! What the operating system did for whoever is in scope: time by class, and system calls.

use std::{borrow::Cow, collections::BTreeMap};

use profiler_common::Class;
use serde::Serialize;

use super::{
    completeness::Completeness,
    error::ReportError,
    places::Places,
    product::Values,
    query::{Scope, ViewQuery},
    scope::View,
    syscall_names::syscall_name,
    table::Columns,
    times::WindowSpan,
    values::ClassValues,
};
use crate::{
    profile::{calls::CallTotals, snapshot::Snapshot},
    report::names::Names,
};

/// The answer.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct OsEvents {
    /// Time of the drain pass it was made from, RFC 3339.
    #[schema(format = DateTime)]
    pub as_of: String,
    /// The time it covers.
    pub window: WindowSpan,
    /// What it lacks.
    pub completeness: Completeness,
    /// All time of all threads.
    pub elapsed_ns: u64,
    /// `elapsed_ns` by class.
    pub classes: ClassValues,
    /// The part of the running time in which system calls were traced, in percent: counts, means,
    /// maxima and running time inside calls are of that part. Blocked and runnable time are of all
    /// of it.
    pub observed_percent: f64,
    /// A row per system call, most time first.
    pub syscalls: Vec<SyscallRow>,
}

/// One system call.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct SyscallRow {
    /// Its name; `syscall_NNN` for a number without one; followed by ` (32-bit)` for one of the
    /// table that 32-bit programs use.
    #[schema(value_type = String)]
    pub name: Cow<'static, str>,
    /// Its number; for one of the 32-bit table, 65536 + its number there.
    pub number: u32,
    /// Calls that returned in the window.
    pub count: u64,
    /// Time that threads were inside it, within the window: of each call the part that lies there,
    /// also of those that are under way.
    pub total_ns: u64,
    /// Of it, on a processor.
    pub running_ns: u64,
    /// Of it, blocked.
    pub blocked_ns: u64,
    /// Of it, waiting for a processor. The three add up to `total_ns`.
    pub runnable_ns: u64,
    /// Mean time from entry to exit of the calls that returned, whenever they began, rounded down;
    /// null where none was counted.
    #[schema(required)]
    pub average_ns: Option<u64>,
    /// The longest call that returned, whenever it began; null where none was counted.
    #[schema(required)]
    pub max_ns: Option<u64>,
    /// In a window: `max_ns` is an upper bound, the longest call of the window is not known
    /// exactly.
    pub max_is_bound: bool,
    /// Threads that are inside now.
    pub in_progress: u64,
    /// How long those have been inside, together: since they entered it, or were first observed in
    /// it. What of it lies in the window is part of `total_ns`.
    pub in_progress_ns: u64,
}

impl Columns for SyscallRow {
    const COLUMNS: &'static [&'static str] = &[
        "name",
        "number",
        "count",
        "total_ns",
        "running_ns",
        "blocked_ns",
        "runnable_ns",
        "average_ns",
        "max_ns",
        "max_is_bound",
        "in_progress",
        "in_progress_ns",
    ];
}

/// Time by class and system calls of a process or of the session.
///
/// # Errors
/// No such process or window.
pub fn os_events(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &ViewQuery,
    names: &dyn Names,
) -> Result<OsEvents, ReportError> {
    let view = View::new(snapshot, scope, query.window)?;
    let mut calls: BTreeMap<u32, (CallTotals, u64, u64)> = BTreeMap::new();
    for member in &view.members {
        for (number, totals) in member.aggregate.calls_over(view.coverage.span).iter() {
            calls.entry(*number).or_default().0.add(totals);
        }
        let threads = member.aggregate.threads_over(view.coverage.span).rows;
        // Nothing is under way in what was ended: not in a session stopped a moment ago either.
        let goes_on = view.coverage.span.goes_on();
        for (_, thread, _) in threads.into_iter().filter(|_| goes_on) {
            if let Some(number) = thread.in_syscall_now() {
                let entry = calls.entry(number).or_default();
                entry.1 += 1;
                entry.2 += snapshot
                    .now_ns()
                    .saturating_since(thread.in_syscall_since_ns);
            }
        }
    }
    let totals = &view.total.values;
    let row = |(number, (calls, in_progress, in_progress_ns)): (u32, (CallTotals, u64, u64))| {
        SyscallRow {
            name: syscall_name(number),
            number,
            count: calls.count,
            total_ns: calls.time.total_ns,
            running_ns: calls.time.running_ns,
            blocked_ns: calls.time.blocked_ns,
            runnable_ns: calls.time.runnable_ns(),
            average_ns: calls.returned_ns.checked_div(calls.count),
            max_ns: (calls.count > 0).then_some(calls.max_ns),
            max_is_bound: calls.max_is_bound,
            in_progress,
            in_progress_ns,
        }
    };
    let mut syscalls: Vec<SyscallRow> = calls.into_iter().map(row).collect();
    syscalls.sort_by_key(|row| (std::cmp::Reverse(row.total_ns), row.number));
    Ok(OsEvents {
        as_of: view.as_of(),
        window: view.window(),
        completeness: Completeness::of_totals(&view, &Places::new(&view), names),
        elapsed_ns: totals.elapsed_ns(),
        classes: ClassValues::from(&totals.classes),
        observed_percent: observed_percent(totals),
        syscalls,
    })
}

/// How much of its running time system calls were traced.
fn observed_percent(of: &Values) -> f64 {
    let running_ns = of.classes[Class::User as usize] + of.classes[Class::Syscall as usize];
    100.0 - 100.0 * of.estimated_ns.min(running_ns) as f64 / running_ns.max(1) as f64
}
