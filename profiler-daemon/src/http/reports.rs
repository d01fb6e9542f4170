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
use super::events::{self, Made};
use super::format::Format;
use super::lines;
use crate::api::problem::Problem;
use crate::api::query_string::Params;
use crate::export::overview;
use crate::profile::frames::FrameId;
use crate::profile::snapshot::Snapshot;
use crate::report;
use crate::report::OverviewQuery;
use crate::report::names::Names;
use crate::report::query::{
    ReportError, Scope, Sections, StackQuery, TimelineQuery, TreeQuery, Window,
};
use crate::report::timeline::MAX_SPANS;

/// Most spans of a timeline for people, a letter each, unless more are asked for.
const TEXT_SPANS: usize = 60;

type Answer = Result<Response, Problem>;
type App = State<Arc<Shared>>;

/// `GET /api/v1/session`.
pub(super) async fn session(State(shared): App, ask: Ask) -> Answer {
    let (view, format) = ask.read(Params::view)?;
    let frames = outermost(&Scope::Session);
    make(&shared, format, frames, move |snapshot, names| {
        format.write(&report::session(snapshot, &view, names)?)
    })
    .await
}

/// `GET /top`.
pub(super) async fn top(State(shared): App, ask: Ask) -> Answer {
    let (window, format) = ask.read(Params::recent)?;
    overview(&shared, window, format).await
}

/// Who is busy and who waits.
pub(super) async fn overview(shared: &Arc<Shared>, window: Window, format: Format) -> Answer {
    let query = OverviewQuery {
        window,
        // Who made a saved profile is not known.
        own_pid: shared.backend.replay().is_none().then(std::process::id),
    };
    let frames = move |snapshot: &Snapshot| report::overview_frames(snapshot, &query);
    make(shared, format, frames, move |snapshot, names| {
        let overview = report::overview(snapshot, &query, names)?;
        format.write_with(&overview, |body| overview::write(&overview, body))
    })
    .await
}

/// `GET /api/v1/processes`.
pub(super) async fn processes(State(shared): App, ask: Ask) -> Answer {
    let (table, format) = ask.read(Params::table)?;
    let frames = outermost(&Scope::Session);
    make(&shared, format, frames, move |snapshot, names| {
        format.write_table(&report::processes(snapshot, &table, names)?)
    })
    .await
}

/// `GET /api/v1/processes/{pid}`.
pub(super) async fn process(State(shared): App, ask: Ask) -> Answer {
    let (view, format) = ask.read(Params::view)?;
    let scope = ask.scope();
    let frames = outermost(&scope);
    make(&shared, format, frames, move |snapshot, names| {
        format.write(&report::process(snapshot, &scope, &view, names)?)
    })
    .await
}

/// `GET …/functions`.
pub(super) async fn functions(State(shared): App, ask: Ask) -> Answer {
    let ((table, inlines), format) = ask.read(|params| (params.table(), params.inlines()))?;
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
    let (query, format) = ask.read(Params::neighbours)?;
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
    let (query, format) = ask.read(Params::neighbours)?;
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
    let (table, format) = ask.read(Params::table)?;
    let scope = ask.scope();
    let frames = outermost(&scope);
    make(&shared, format, frames, move |snapshot, names| {
        format.write_table(&report::modules(snapshot, &scope, &table, names)?)
    })
    .await
}

/// `GET …/threads`.
pub(super) async fn threads(State(shared): App, ask: Ask) -> Answer {
    let (table, format) = ask.read(Params::table)?;
    let scope = ask.scope();
    let frames = outermost(&scope);
    make(&shared, format, frames, move |snapshot, names| {
        format.write_table(&report::threads(snapshot, &scope, &table, names)?)
    })
    .await
}

/// `GET …/calltree`: the tree, or one value of its stacks in the format of another tool.
pub(super) async fn calltree(State(shared): App, ask: Ask) -> Answer {
    let scope = ask.scope();
    let (tree, format) = ask.read(|params| TreeQuery {
        idle_apart: params.idle_apart(&scope),
        ..params.tree()
    })?;
    if !format.is_of_stacks() {
        return make(
            &shared,
            format,
            all_frames(&scope),
            move |snapshot, names| format.write(&report::calltree(snapshot, &scope, &tree, names)?),
        )
        .await;
    }
    let value = tree.value.unwrap_or_default();
    let query = StackQuery {
        tree: TreeQuery {
            value: Some(value),
            ..tree
        },
        places: false,
        sections: match scope {
            Scope::Session => Sections::Process,
            Scope::Process(_) | Scope::Image(_) | Scope::Named(_) => Sections::None,
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

/// `GET …/timeline`: a row per thread of a process, or a row per process.
pub(super) async fn timeline(State(shared): App, ask: Ask) -> Answer {
    let ((table, spans), format) = ask.read(Params::timeline)?;
    let of_format = if format == Format::Text {
        TEXT_SPANS
    } else {
        MAX_SPANS
    };
    let query = TimelineQuery {
        table,
        max_spans: spans.unwrap_or(of_format),
    };
    let scope = ask.scope();
    let frames = outermost(&scope);
    make(
        &shared,
        format,
        frames,
        move |snapshot, names| match scope {
            Scope::Session => {
                format.write_table(&report::process_timeline(snapshot, &query, names)?)
            }
            Scope::Process(_) | Scope::Image(_) | Scope::Named(_) => {
                format.write_table(&report::thread_timeline(snapshot, &scope, &query, names)?)
            }
        },
    )
    .await
}

/// `GET /api/v1/diff`.
pub(super) async fn diff(State(shared): App, ask: Ask) -> Answer {
    let (query, format) = ask.read(Params::diff)?;
    let scopes = [&query.base, &query.other].map(|side| query.scope(side).0);
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

/// `GET /api/v1/diff/processes`.
pub(super) async fn process_diff(State(shared): App, ask: Ask) -> Answer {
    let (query, format) = ask.read(Params::process_diff)?;
    let frames = outermost(&Scope::Session);
    make(&shared, format, frames, move |snapshot, names| {
        format.write_table(&report::process_diff(snapshot, &query, names)?)
    })
    .await
}

/// `GET …/os-events`.
pub(super) async fn os_events(State(shared): App, ask: Ask) -> Answer {
    let (view, format) = ask.read(Params::view)?;
    let scope = ask.scope();
    let frames = outermost(&scope);
    make(&shared, format, frames, move |snapshot, names| {
        format.write_table(&report::os_events(snapshot, &scope, &view, names)?)
    })
    .await
}

pub(super) type Frames = Result<Vec<FrameId>, ReportError>;

pub(super) fn no_frames(_: &Snapshot) -> Frames {
    Ok(Vec::new())
}

/// The frames of reports that name no function: those that say which stacks are complete.
pub(super) fn outermost(scope: &Scope) -> impl Fn(&Snapshot) -> Frames + Send + Sync + 'static {
    let scope = *scope;
    move |snapshot| report::outermost_frames(snapshot, &scope)
}

pub(super) fn all_frames(scope: &Scope) -> impl Fn(&Snapshot) -> Frames + Send + Sync + 'static {
    let scope = *scope;
    move |snapshot| report::frames_needed(snapshot, &scope)
}

/// Makes an answer from the profile as it is now, or a stream of such answers. `frames` says which frames must be named before `write`
/// can make it.
pub(super) async fn make<F, W>(shared: &Arc<Shared>, format: Format, frames: F, write: W) -> Answer
where
    F: Fn(&Snapshot) -> Frames + Send + Sync + 'static,
    W: Fn(&Snapshot, &dyn Names) -> Result<Vec<u8>, Problem> + Send + Sync + 'static,
{
    if let Format::Events { interval_ns } = format {
        let question = Arc::new((frames, write));
        return events::open(shared, interval_ns, move |shared, moment| {
            let question = Arc::clone(&question);
            Box::pin(async move {
                let Some(snapshot) = moment.snapshot(&shared).await? else {
                    return Ok(None);
                };
                let as_of_unix_ns = snapshot.as_of_unix_ns();
                let permit = permit(&shared).await?;
                let of_frames = Arc::clone(&question);
                let frames = move |snapshot: &Snapshot| of_frames.0(snapshot);
                let write =
                    move |snapshot: &Snapshot, names: &dyn Names| question.1(snapshot, names);
                let body = body_of(&shared, permit, snapshot, frames, write).await?;
                Ok(Some(Made {
                    as_of_unix_ns,
                    body,
                }))
            })
        })
        .await;
    }
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
    let permit = permit(shared).await?;
    let snapshot = shared.backend.snapshot().await?;
    body_of(shared, permit, snapshot, frames, write).await
}

/// The bytes of an answer from this profile.
pub(super) async fn of_snapshot<F, W>(
    shared: &Arc<Shared>,
    snapshot: Arc<Snapshot>,
    frames: F,
    write: W,
) -> Result<Vec<u8>, Problem>
where
    F: FnOnce(&Snapshot) -> Frames + Send + 'static,
    W: FnOnce(&Snapshot, &dyn Names) -> Result<Vec<u8>, Problem> + Send + 'static,
{
    let permit = permit(shared).await?;
    body_of(shared, permit, snapshot, frames, write).await
}

/// Waits for its turn to make a report.
pub(super) async fn permit(shared: &Shared) -> Result<OwnedSemaphorePermit, Problem> {
    // Whoever keeps asking for reports would else have all connections wait for them.
    let _waiting = shared
        .waiting_reports
        .try_acquire()
        .map_err(|_| Problem::overloaded("too many reports are waited for already"))?;
    let permit = Arc::clone(&shared.reports).acquire_owned().await;
    permit.map_err(|_| Problem::overloaded("the server is stopping"))
}

/// The bytes of an answer from this snapshot.
pub(super) async fn body_of<F, W>(
    shared: &Shared,
    permit: OwnedSemaphorePermit,
    snapshot: Arc<Snapshot>,
    frames: F,
    write: W,
) -> Result<Vec<u8>, Problem>
where
    F: FnOnce(&Snapshot) -> Frames + Send + 'static,
    W: FnOnce(&Snapshot, &dyn Names) -> Result<Vec<u8>, Problem> + Send + 'static,
{
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
