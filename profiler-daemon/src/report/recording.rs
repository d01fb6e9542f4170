//! Everything that a recording says at once.

use serde::Serialize;

use super::{
    answer::List,
    error::ReportError,
    functions::{FunctionRow, functions},
    measured::Measured,
    os_events::{OsEvents, os_events},
    processes::{ProcessRow, processes},
    query::{Scope, StackValue, TableQuery, ViewQuery},
    session::{SessionReport, session},
};
use crate::{profile::snapshot::Snapshot, report::names::Names};

/// The whole recording, each part as the same question would be answered over HTTP.
#[derive(Clone, Debug, Serialize)]
pub struct Recording {
    /// By which value the functions are sorted.
    #[serde(skip)]
    pub value: StackValue,
    /// Totals.
    pub session: SessionReport,
    /// A row for each process that received time.
    pub processes: List<ProcessRow>,
    /// A row for each function.
    pub functions: List<FunctionRow>,
    /// Time by class, and system calls.
    pub os_events: OsEvents,
    /// Functions that were measured exactly; `null` if none were to be.
    pub measured: Option<Measured>,
}

/// The column that functions are sorted by; none for a value that only stacks have.
#[must_use]
pub const fn function_column(value: StackValue) -> Option<&'static str> {
    match value {
        StackValue::Samples => Some("samples.exclusive"),
        StackValue::Elapsed => Some("elapsed.exclusive_ns"),
        StackValue::Application => Some("application.exclusive_ns"),
        StackValue::Running
        | StackValue::OffProcessor
        | StackValue::Blocked
        | StackValue::Runnable
        | StackValue::Syscall => None,
    }
}

/// The question for all functions, those with most of the value first.
#[must_use]
pub fn all_functions(value: StackValue, view: &ViewQuery) -> TableQuery {
    TableQuery {
        sort: function_column(value).map(str::to_owned),
        frames: view.frames,
        window: view.window,
        ..TableQuery::default()
    }
}

/// Everything about what is in scope.
///
/// # Errors
/// No such process.
pub fn recording(
    snapshot: &Snapshot,
    scope: &Scope,
    value: StackValue,
    view: &ViewQuery,
    names: &dyn Names,
    measured: Option<&Measured>,
) -> Result<Recording, ReportError> {
    let all = TableQuery {
        window: view.window,
        ..TableQuery::default()
    };
    let mut processes = processes(snapshot, &all, names)?;
    // Those that are no targets are known, but have no time.
    processes.rows.retain(|row| row.totals.elapsed_ns > 0);
    processes.total_rows = processes.rows.len();
    Ok(Recording {
        value,
        session: session(snapshot, view, names)?,
        processes,
        functions: functions(snapshot, scope, &all_functions(value, view), names)?,
        os_events: os_events(snapshot, scope, view, names)?,
        measured: measured.cloned(),
    })
}
