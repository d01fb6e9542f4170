//! Every report: read the query, take the profile as it is, find the names, make and write the report.
//!
//! What takes a processor runs on threads of its own, a bounded number at a time; the permit stays with the work, so
//! that a client that leaves does not make room for more than the machine can do.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use tokio::sync::OwnedSemaphorePermit;

use super::Shared;
use super::ask::Ask;
use super::format::{Format, REPORT, TABLE, TREE};
use super::lines;
use super::params::Params;
use super::problem::{Fault, Problem};
use super::questions::{
    DIFF, FUNCTIONS, NEIGHBOURS, TABLE as TABLE_PARAMS, TREE as TREE_PARAMS, VIEW,
};
use crate::profile::frames::FrameId;
use crate::profile::snapshot::Snapshot;
use crate::report;
use crate::report::names::Names;
use crate::report::query::{ReportError, Scope, Sections, StackQuery};

type Answer = Result<Response, Problem>;
type App = State<Arc<Shared>>;

/// `GET /api/v1/session`.
pub(super) async fn session(State(shared): App, ask: Ask) -> Answer {
    let (view, format) = ask.read(VIEW, REPORT, Params::view)?;
    make(&shared, format, no_frames, move |snapshot, _| {
        format.write(&report::session(snapshot, &view)?)
    })
    .await
}

/// `GET /api/v1/processes`.
pub(super) async fn processes(State(shared): App, ask: Ask) -> Answer {
    let (table, format) = ask.read(TABLE_PARAMS, TABLE, Params::table)?;
    let frames = |snapshot: &Snapshot| Ok(report::outermost_frames(snapshot, None));
    make(&shared, format, frames, move |snapshot, names| {
        format.write_table(&report::processes(snapshot, &table, names)?)
    })
    .await
}

/// `GET /api/v1/processes/{pid}`.
pub(super) async fn process(State(shared): App, ask: Ask) -> Answer {
    let (view, format) = ask.read(VIEW, REPORT, Params::view)?;
    let Scope::Process(selector) = ask.scope() else {
        return Err(Problem::internal("the route of one process names none"));
    };
    let wanted = selector;
    let frames = move |snapshot: &Snapshot| Ok(report::outermost_frames(snapshot, Some(&wanted)));
    make(&shared, format, frames, move |snapshot, names| {
        format.write(&report::process(snapshot, &selector, &view, names)?)
    })
    .await
}

/// `GET …/functions`.
pub(super) async fn functions(State(shared): App, ask: Ask) -> Answer {
    let ((table, inlines), format) = ask.read(FUNCTIONS, TABLE, |params| {
        (params.table(), params.inlines())
    })?;
    let scope = ask.scope();
    if inlines {
        return lines::functions(&shared, scope, table, format).await;
    }
    make(
        &shared,
        format,
        all_frames(&scope),
        move |snapshot, names| {
            format.write_table(&report::functions(snapshot, &scope, &table, names)?)
        },
    )
    .await
}

/// `GET …/callers`.
pub(super) async fn callers(State(shared): App, ask: Ask) -> Answer {
    let (query, format) = ask.read(NEIGHBOURS, TABLE, Params::neighbours)?;
    let scope = ask.scope();
    make(
        &shared,
        format,
        all_frames(&scope),
        move |snapshot, names| {
            format.write_table(&report::callers(snapshot, &scope, &query, names)?)
        },
    )
    .await
}

/// `GET …/callees`.
pub(super) async fn callees(State(shared): App, ask: Ask) -> Answer {
    let (query, format) = ask.read(NEIGHBOURS, TABLE, Params::neighbours)?;
    let scope = ask.scope();
    make(
        &shared,
        format,
        all_frames(&scope),
        move |snapshot, names| {
            format.write_table(&report::callees(snapshot, &scope, &query, names)?)
        },
    )
    .await
}

/// `GET …/modules`.
pub(super) async fn modules(State(shared): App, ask: Ask) -> Answer {
    let (table, format) = ask.read(TABLE_PARAMS, TABLE, Params::table)?;
    let scope = ask.scope();
    make(&shared, format, no_frames, move |snapshot, _| {
        format.write_table(&report::modules(snapshot, &scope, &table)?)
    })
    .await
}

/// `GET …/threads`.
pub(super) async fn threads(State(shared): App, ask: Ask) -> Answer {
    let (table, format) = ask.read(TABLE_PARAMS, TABLE, Params::table)?;
    let scope = ask.scope();
    make(&shared, format, no_frames, move |snapshot, _| {
        format.write_table(&report::threads(snapshot, &scope, &table)?)
    })
    .await
}

/// `GET …/calltree`: the tree, or one value of its stacks in the format of another tool.
pub(super) async fn calltree(State(shared): App, ask: Ask) -> Answer {
    let ((tree, value), format) =
        ask.read(TREE_PARAMS, TREE, |params| (params.tree(), params.value()))?;
    let scope = ask.scope();
    if !format.is_of_stacks() {
        if value.is_some() {
            return Err(value_without_use(format));
        }
        return make(
            &shared,
            format,
            all_frames(&scope),
            move |snapshot, names| format.write(&report::calltree(snapshot, &scope, &tree, names)?),
        )
        .await;
    }
    let value = value.unwrap_or_default();
    let query = StackQuery {
        tree,
        value,
        places: false,
        sections: match scope {
            Scope::Session => Sections::Process,
            Scope::Process(_) => Sections::None,
        },
    };
    make(
        &shared,
        format,
        all_frames(&scope),
        move |snapshot, names| {
            let stacks = report::stacks(snapshot, &scope, &query, names)?;
            format.write_stacks(&stacks, value)
        },
    )
    .await
}

fn value_without_use(format: Format) -> Problem {
    Problem::parameters(vec![Fault {
        parameter: Some("value".to_owned()),
        given: None,
        detail: format!(
            "value is for the formats folded, svg, speedscope and firefox: {} has all values",
            format.name()
        ),
    }])
}

/// `GET /api/v1/diff`.
pub(super) async fn diff(State(shared): App, ask: Ask) -> Answer {
    let (query, format) = ask.read(DIFF, TABLE, Params::diff)?;
    let scopes = [query.base.scope(), query.other.scope()];
    let frames = move |snapshot: &Snapshot| {
        let mut frames = Vec::new();
        for scope in &scopes {
            frames.extend(report::frames_needed(snapshot, scope)?);
        }
        frames.sort_unstable();
        frames.dedup();
        Ok(frames)
    };
    make(&shared, format, frames, move |snapshot, names| {
        format.write_table(&report::diff(snapshot, &query, names)?)
    })
    .await
}

/// `GET …/os-events`.
pub(super) async fn os_events(State(shared): App, ask: Ask) -> Answer {
    let (view, format) = ask.read(VIEW, TABLE, Params::view)?;
    let scope = ask.scope();
    make(&shared, format, no_frames, move |snapshot, _| {
        format.write_table(&report::os_events(snapshot, &scope, &view)?)
    })
    .await
}

pub(super) type Frames = Result<Vec<FrameId>, ReportError>;

fn no_frames(_: &Snapshot) -> Frames {
    Ok(Vec::new())
}

pub(super) fn all_frames(scope: &Scope) -> impl FnOnce(&Snapshot) -> Frames + Send + 'static {
    let scope = *scope;
    move |snapshot| report::frames_needed(snapshot, &scope)
}

/// Makes an answer from the profile as it is now. `frames` says which frames must be named before `write` can make it.
async fn make<F, W>(shared: &Arc<Shared>, format: Format, frames: F, write: W) -> Answer
where
    F: FnOnce(&Snapshot) -> Frames + Send + 'static,
    W: FnOnce(&Snapshot, &dyn Names) -> Result<Vec<u8>, Problem> + Send + 'static,
{
    Ok(format.respond(body(shared, frames, write).await?))
}

/// The bytes of an answer from the profile as it is now.
pub(super) async fn body<F, W>(
    shared: &Arc<Shared>,
    frames: F,
    write: W,
) -> Result<Vec<u8>, Problem>
where
    F: FnOnce(&Snapshot) -> Frames + Send + 'static,
    W: FnOnce(&Snapshot, &dyn Names) -> Result<Vec<u8>, Problem> + Send + 'static,
{
    let permit = Arc::clone(&shared.reports).acquire_owned().await;
    let permit = permit.map_err(|_| Problem::overloaded("the server is stopping"))?;
    let snapshot = shared.backend.snapshot().await?;
    let seen = Arc::clone(&snapshot);
    let (permit, frames) = aside(permit, move || frames(&seen)).await?;
    let names = shared.backend.names(Arc::clone(&snapshot), frames?).await;
    let (_permit, body) = aside(permit, move || write(&snapshot, &*names)).await?;
    body
}

/// Runs work that takes a processor on a thread of its own, and keeps the permit until it has ended.
pub(super) async fn aside<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<(OwnedSemaphorePermit, T), Problem> {
    tokio::task::spawn_blocking(move || (permit, work()))
        .await
        .map_err(|_| Problem::internal("making the report failed; the daemon's log says where"))
}
