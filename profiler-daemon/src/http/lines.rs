//! Reports that need debug information: lines, instructions, and functions with the inlined ones.
//!
//! Waiting for it takes longer than making a report, so few of these are made at a time: the others go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Response;
use tokio::sync::SemaphorePermit;

use super::Shared;
use super::ask::Ask;
use super::events::{self, Made};
use super::format::Format;
use super::reports::{aside, permit};
use crate::api::problem::Problem;
use crate::api::query_string::Params;
use crate::profile::frames::FrameId;
use crate::profile::snapshot::Snapshot;
use crate::report;
use crate::report::names::{Lines, Names};
use crate::report::query::{CodeQuery, Scope, TableQuery};

/// Longest time from a request until debug information is waited for no longer.
const MAX_PATIENCE: Duration = Duration::from_secs(5);
/// What is there already takes no longer.
const MIN_PATIENCE: Duration = Duration::from_millis(20);

type Answer = Result<Response, Problem>;
type App = State<Arc<Shared>>;

/// `GET …/lines`.
pub(super) async fn lines(State(shared): App, ask: Ask) -> Answer {
    let (query, format) = ask.read(Params::code)?;
    let scope = ask.scope();
    let asked = Asked::of(&scope, &query);
    make(&shared, format, asked, move |snapshot, names, lines| {
        format.write_table(&report::lines(snapshot, &scope, &query, names, lines)?)
    })
    .await
}

/// `GET …/instructions`.
pub(super) async fn instructions(State(shared): App, ask: Ask) -> Answer {
    let (query, format) = ask.read(Params::code)?;
    let scope = ask.scope();
    let asked = Asked::of(&scope, &query);
    make(&shared, format, asked, move |snapshot, names, lines| {
        format.write_table(&report::instructions(
            snapshot, &scope, &query, names, lines,
        )?)
    })
    .await
}

/// `GET …/functions?inlines=true`.
pub(super) async fn functions(
    shared: &Arc<Shared>,
    scope: Scope,
    table: TableQuery,
    format: Format,
) -> Answer {
    let asked = Asked {
        scope,
        table: table.clone(),
        function: None,
        module: None,
    };
    make(shared, format, asked, move |snapshot, names, lines| {
        format.write_table(&report::functions_with_inlines(
            snapshot, &scope, &table, names, lines,
        )?)
    })
    .await
}

/// Whose debug information is asked for.
struct Asked {
    scope: Scope,
    table: TableQuery,
    /// Only of frames of this function.
    function: Option<String>,
    /// Only of frames of this module.
    module: Option<String>,
}

impl Asked {
    fn of(scope: &Scope, query: &CodeQuery) -> Self {
        Self {
            scope: *scope,
            table: query.table.clone(),
            // An inlined function is in frames of any other.
            function: query.function.clone().filter(|_| !query.inlines),
            module: query.module.clone(),
        }
    }

    fn frames(&self, snapshot: &Snapshot, names: &dyn Names) -> Result<Vec<FrameId>, Problem> {
        let module = self.module.as_deref();
        let mut frames = report::lines_needed(snapshot, &self.scope, self.table.window, module)?;
        if let Some(function) = &self.function {
            frames.retain(|frame| *names.function(*frame).name == **function);
        }
        Ok(frames)
    }
}

async fn make<W>(shared: &Arc<Shared>, format: Format, asked: Asked, write: W) -> Answer
where
    W: Fn(&Snapshot, &dyn Names, &dyn Lines) -> Result<Vec<u8>, Problem> + Send + Sync + 'static,
{
    let question = Arc::new((asked, write));
    if let Format::Events { interval_ns } = format {
        return events::open(shared, interval_ns, move |shared, moment| {
            let question = Arc::clone(&question);
            Box::pin(async move {
                let Some(snapshot) = moment.snapshot(&shared).await? else {
                    return Ok(None);
                };
                let as_of_unix_ns = snapshot.as_of_unix_ns();
                let _turn = turn(&shared).await?;
                let body = body_of(&shared, snapshot, question).await?;
                Ok(Some(Made {
                    as_of_unix_ns,
                    body,
                }))
            })
        })
        .await;
    }
    let _turn = turn(shared).await?;
    let snapshot = shared.backend.snapshot().await?;
    Ok(format.respond(body_of(shared, snapshot, question).await?))
}

/// Waits for its turn to wait for debug information.
async fn turn(shared: &Shared) -> Result<SemaphorePermit<'_>, Problem> {
    let turn = shared.line_reports.acquire().await;
    turn.map_err(|_| Problem::overloaded("the server is stopping"))
}

/// The bytes of an answer from this snapshot.
async fn body_of<W>(
    shared: &Shared,
    snapshot: Arc<Snapshot>,
    question: Arc<(Asked, W)>,
) -> Result<Vec<u8>, Problem>
where
    W: Fn(&Snapshot, &dyn Names, &dyn Lines) -> Result<Vec<u8>, Problem> + Send + Sync + 'static,
{
    let start = Instant::now();
    let permit = permit(shared).await?;
    let (seen, scope) = (Arc::clone(&snapshot), question.0.scope);
    let (permit, frames) = aside(permit, move || report::frames_needed(&seen, &scope)).await?;
    let names = shared.backend.names(Arc::clone(&snapshot), frames?).await;
    let (seen, known, asked) = (
        Arc::clone(&snapshot),
        Arc::clone(&names),
        Arc::clone(&question),
    );
    let (permit, frames) = aside(permit, move || asked.0.frames(&seen, &*known)).await?;
    // The rest of the time is for making the report.
    let patience = (shared.options.request_timeout / 2)
        .min(MAX_PATIENCE)
        .saturating_sub(start.elapsed())
        .max(MIN_PATIENCE);
    let lines = shared
        .backend
        .lines(Arc::clone(&snapshot), frames?, patience)
        .await;
    let made = move || question.1(&snapshot, &*names, &*lines);
    let (_permit, body) = aside(permit, made).await?;
    body
}
