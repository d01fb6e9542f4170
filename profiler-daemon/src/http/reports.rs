//! Every report: take the profile as it is, find the names, answer the question and write the
//! answer.
//!
//! What takes a processor runs on threads of its own, a bounded number at a time; the permit stays
//! with the work, so that a client that leaves does not make room for more than the machine can do.
//! Waiting for debug information takes longer than making a report, so few that need it are made at
//! a time: the others go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, SemaphorePermit};

use super::events::{self, MadeEvent};
use super::report_memory::{NameBytes, memory_mib, report_bytes};
use super::respond::respond;
use super::room::{Lacking, Output, Written};
use super::shared::ServerState;
use crate::api::answer::write_answer;
use crate::api::endpoint::{AskNow, Sending};
use crate::api::format::Format;
use crate::api::problem::Problem;
use crate::api::question::{AnyQuestion, Known, no_lines};
use crate::profile::snapshot::Snapshot;
use crate::report::names::Lines;

/// Longest time from a request until debug information is waited for no longer.
const MAX_PATIENCE: Duration = Duration::from_secs(5);
/// What is there already takes no longer.
const MIN_PATIENCE: Duration = Duration::from_millis(20);

/// Answers from the profile as it is now, once or again and again.
pub(super) async fn send(
    shared: &Arc<ServerState>,
    mut question: Box<dyn AnyQuestion>,
    sending: Sending,
) -> Result<Response, Problem> {
    let interval_ns = match sending {
        Sending::Once(format) => {
            question.in_format(format);
            let body = body(shared, question.into(), format).await?;
            return Ok(respond(format, body));
        }
        Sending::Events { interval_ns } => interval_ns,
    };
    let question: Arc<dyn AnyQuestion> = question.into();
    events::open(shared, interval_ns, move |shared, moment| {
        let question = Arc::clone(&question);
        Box::pin(async move {
            let Some(snapshot) = moment.snapshot(&shared).await? else {
                return Ok(None);
            };
            let as_of_unix_ns = snapshot.as_of_unix_ns();
            let body = of_snapshot(&shared, snapshot, question, Format::Json).await?;
            Ok(Some(MadeEvent {
                as_of_unix_ns,
                body,
            }))
        })
    })
    .await
}

/// Answers with what is so now, or with a stream of it.
pub(super) async fn send_now(
    shared: &Arc<ServerState>,
    now: AskNow,
    sending: Sending,
) -> Result<Response, Problem> {
    match sending {
        Sending::Once(format) => {
            let answer = now(Arc::clone(&shared.source)).await;
            let write = move |out: &mut Output| write_answer(&*answer, format, out);
            Ok(respond(format, shared.room.write(write).await?))
        }
        Sending::Events { interval_ns } => {
            events::open(shared, interval_ns, move |shared, _| {
                Box::pin(async move {
                    let answer = now(Arc::clone(&shared.source)).await;
                    let write = move |out: &mut Output| write_answer(&*answer, Format::Json, out);
                    Ok(Some(MadeEvent::now(shared.room.write(write).await?)))
                })
            })
            .await
        }
    }
}

/// An answer from the profile as it is now.
pub(super) async fn body(
    shared: &ServerState,
    question: Arc<dyn AnyQuestion>,
    format: Format,
) -> Result<Written, Problem> {
    made(shared, None, question, format).await
}

/// An answer from this profile.
pub(super) async fn of_snapshot(
    shared: &ServerState,
    snapshot: Arc<Snapshot>,
    question: Arc<dyn AnyQuestion>,
    format: Format,
) -> Result<Written, Problem> {
    made(shared, Some(snapshot), question, format).await
}

/// An answer from this profile, or as it is once it is its turn; made anew where there was no room
/// for it, once there is.
async fn made(
    shared: &ServerState,
    snapshot: Option<Arc<Snapshot>>,
    question: Arc<dyn AnyQuestion>,
    format: Format,
) -> Result<Written, Problem> {
    let mut output = shared.room.output();
    loop {
        let turn = Turn::wait(shared, &*question).await?;
        let seen = match &snapshot {
            Some(snapshot) => Arc::clone(snapshot),
            None => shared.source.snapshot().await?,
        };
        let asked = Arc::clone(&question);
        match turn.answer(shared, seen, asked, format, output).await? {
            Ok(written) => return Ok(written),
            Err(lacking) => output = shared.room.wait(lacking).await?,
        }
    }
}

/// The right to make a report.
pub(super) struct Turn<'a> {
    since: Instant,
    permit: OwnedSemaphorePermit,
    memory: Option<OwnedSemaphorePermit>,
    _lines: Option<SemaphorePermit<'a>>,
}

impl<'a> Turn<'a> {
    /// Waits for the turn to answer a question.
    pub(super) async fn wait(
        shared: &'a ServerState,
        question: &dyn AnyQuestion,
    ) -> Result<Self, Problem> {
        let stopping = |_| Problem::overloaded("the server is stopping");
        // Whoever keeps asking for reports would else have all connections wait for them.
        let wait = || {
            let waiting = shared.waiting_reports.try_acquire();
            waiting.map_err(|_| Problem::overloaded("too many reports are waited for already"))
        };
        // Kept until both turns have come. Who has them at once waits for nobody, and is not
        // refused because others wait for debug information.
        let mut waiting = None;
        let lines = match question.code().map(|_| shared.line_reports.try_acquire()) {
            None => None,
            Some(Ok(lines)) => Some(lines),
            Some(Err(_)) => {
                waiting = Some(wait()?);
                Some(shared.line_reports.acquire().await.map_err(stopping)?)
            }
        };
        let since = Instant::now();
        let permit = match Arc::clone(&shared.reports).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = match waiting {
                    Some(waiting) => waiting,
                    None => wait()?,
                };
                let permit = Arc::clone(&shared.reports).acquire_owned().await;
                permit.map_err(stopping)?
            }
        };
        Ok(Self {
            since,
            permit,
            memory: None,
            _lines: lines,
        })
    }

    /// Waits until there is memory for a report that takes so many bytes. It is the last that is
    /// waited for, so nobody waits for who waits.
    async fn wait_for_memory(mut self, shared: &ServerState, bytes: u64) -> Result<Self, Problem> {
        let memory = Arc::clone(&shared.reports_memory);
        let memory = memory.acquire_many_owned(memory_mib(bytes));
        let stopping = |_| Problem::overloaded("the server is stopping");
        self.memory = Some(memory.await.map_err(stopping)?);
        Ok(self)
    }

    /// Runs work that takes a processor on a thread of its own, and keeps the permit until it has
    /// ended.
    pub(super) async fn aside<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(Self, T), Problem> {
        let Self {
            since,
            permit,
            memory,
            _lines,
        } = self;
        let ((permit, memory), done) =
            tokio::task::spawn_blocking(move || ((permit, memory), work()))
                .await
                .map_err(|_| {
                    Problem::internal("making the report failed; the daemon's log says where")
                })?;
        let turn = Self {
            since,
            permit,
            memory,
            _lines,
        };
        Ok((turn, done))
    }

    /// Writes an answer. Where there was no room for it, all else that it took is free again: its
    /// turn is over, and it is made anew once there is.
    pub(super) async fn answer(
        self,
        shared: &ServerState,
        snapshot: Arc<Snapshot>,
        question: Arc<dyn AnyQuestion>,
        format: Format,
        mut output: Output,
    ) -> Result<Result<Written, Lacking>, Problem> {
        let (seen, asked) = (Arc::clone(&snapshot), Arc::clone(&question));
        let (turn, frames) = self.aside(move || asked.needs(&seen)).await?;
        let frames = frames?;
        let names = shared
            .source
            .names(Arc::clone(&snapshot), frames.clone())
            .await;
        let known = Arc::clone(&names);
        let measure = move || NameBytes::of(&frames, &*known);
        let (mut turn, name_bytes) = turn.aside(measure).await?;
        let mut lines: Arc<dyn Lines + Send + Sync> = Arc::new(no_lines());
        if question.code().is_some() {
            let (seen, known) = (Arc::clone(&snapshot), Arc::clone(&names));
            let asked = Arc::clone(&question);
            let find = move || asked.code().map(|code| code.frames(&seen, &*known));
            let found = turn.aside(find).await?;
            turn = found.0;
            let frames = found.1.transpose()?.unwrap_or_default();
            // The rest of the time is for making the report.
            let patience = (shared.options.request_timeout / 2)
                .min(MAX_PATIENCE)
                .saturating_sub(turn.since.elapsed())
                .max(MIN_PATIENCE);
            let snapshot = Arc::clone(&snapshot);
            lines = shared.source.lines(snapshot, frames, patience).await;
        }
        // Not before: nobody is to wait for debug information of others.
        let bytes = report_bytes(snapshot.stack_bytes(), name_bytes, question.names_nodes());
        let turn = turn.wait_for_memory(shared, bytes).await?;
        let write = move || {
            let known = Known {
                names: &*names,
                lines: &*lines,
            };
            write_answer(&*question.answer(&snapshot, known)?, format, &mut output)?;
            Ok(output.finish())
        };
        let (_turn, written) = turn.aside(write).await?;
        written
    }
}
