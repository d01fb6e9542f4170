//! Named sessions and marks: what there is, and starting, marking, stopping and removing.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::Shared;
use super::ask::{Ask, AskNamed};
use super::control::{invalid_body, json, read_object};
use super::format::Format;
use super::reports::{make, no_frames, of_snapshot, outermost};
use crate::api::SessionFailure;
use crate::api::problem::Problem;
use crate::export::sessions;
use crate::profile::name::{Name, NotAName};
use crate::profile::sessions::{SessionChange, SessionChanged, SessionRefusal, is_reserved};
use crate::profile::snapshot::Snapshot;
use crate::report::{self, Scope, answer::rfc3339};

type Answer = Result<Response, Problem>;
type App = State<Arc<Shared>>;

/// `GET /api/v1/sessions`.
pub(super) async fn list(State(shared): App, ask: Ask) -> Answer {
    let ((), format) = ask.read(|_| ())?;
    make(&shared, format, no_frames, move |snapshot, _| {
        let list = report::sessions(snapshot);
        match format {
            Format::Text => Ok(sessions::to_text(&list).into_bytes()),
            _ => json(&list),
        }
    })
    .await
}

/// `GET /api/v1/sessions/{name}`.
pub(super) async fn one(State(shared): App, AskNamed { name, ask }: AskNamed) -> Answer {
    let ((), format) = ask.read(|_| ())?;
    let name = (!is_reserved(name)).then_some(name);
    let frames = outermost(&Scope::Session);
    make(&shared, format, frames, move |snapshot, names| {
        format.write(&report::session_totals(snapshot, name, names)?)
    })
    .await
}

/// What a session is started with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    #[serde(default, deserialize_with = "given")]
    name: Option<String>,
}

/// What a mark is made with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mark {
    name: String,
    #[serde(default, deserialize_with = "given")]
    session: Option<String>,
}

/// A field that may be left out, but is not null.
fn given<'de, D: Deserializer<'de>>(field: D) -> Result<Option<String>, D::Error> {
    String::deserialize(field).map(Some)
}

/// What a mark did.
#[derive(Serialize, ToSchema)]
pub(super) struct Marked {
    /// Time of the drain pass that made the border, RFC 3339.
    as_of: String,
    /// What was begun.
    spans: Vec<MarkedSpan>,
}

/// A span that was begun.
#[derive(Serialize, ToSchema)]
struct MarkedSpan {
    /// The session.
    session: String,
    /// The name of its new span.
    span: String,
}

/// `POST /api/v1/sessions`.
pub(super) async fn start(State(shared): App, request: Request) -> Answer {
    let wanted: Start = read_object(&shared, request, "{\"name\": \"checkout\"} or {}").await?;
    let name = wanted
        .name
        .map(|text| read_name("name", &text))
        .transpose()?;
    let (changed, snapshot) = change(&shared, SessionChange::Start { name }).await?;
    let SessionChanged::Started(name) = changed else {
        return Err(Problem::internal(
            "a session was to be started, and was not",
        ));
    };
    let mut response = totals(&shared, snapshot, name).await?;
    *response.status_mut() = StatusCode::CREATED;
    let location = format!("/api/v1/sessions/{}", name.as_str().replace(' ', "%20"));
    let location = HeaderValue::try_from(location)
        .map_err(|_| Problem::internal("the name of a session is no part of an address"))?;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

/// `POST /api/v1/marks`.
pub(super) async fn mark(State(shared): App, request: Request) -> Answer {
    let wanted: Mark = read_object(&shared, request, "{\"name\": \"warm-up done\"}").await?;
    let name = read_name("name", &wanted.name)?;
    let session = wanted
        .session
        .map(|text| read_name("session", &text))
        .transpose()?;
    let (changed, snapshot) = change(&shared, SessionChange::Mark { name, session }).await?;
    let SessionChanged::Marked(spans) = changed else {
        return Err(Problem::internal("a mark was to be made, and was not"));
    };
    let spans = spans.into_iter().map(|(session, span)| MarkedSpan {
        session: session.to_string(),
        span: span.to_string(),
    });
    let marked = Marked {
        as_of: rfc3339(snapshot.as_of_unix_ns()),
        spans: spans.collect(),
    };
    let mut response = Format::Json.respond(json(&marked)?);
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

/// `DELETE /api/v1/sessions/{name}`: stops one that runs and answers its totals; removes one that is stopped.
pub(super) async fn end(State(shared): App, AskNamed { name, ask }: AskNamed) -> Answer {
    ask.read_nothing()?;
    let (changed, snapshot) = change(&shared, SessionChange::End { name }).await?;
    match changed {
        SessionChanged::Stopped(name) => totals(&shared, snapshot, name).await,
        _ => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// The totals of a session as of the pass that changed it.
async fn totals(shared: &Arc<Shared>, snapshot: Arc<Snapshot>, name: Name) -> Answer {
    let frames = outermost(&Scope::Session);
    let body = of_snapshot(shared, snapshot, frames, move |snapshot, names| {
        Format::Json.write(&report::session_totals(snapshot, Some(name), names)?)
    });
    Ok(Format::Json.respond(body.await?))
}

async fn change(
    shared: &Shared,
    change: SessionChange,
) -> Result<(SessionChanged, Arc<Snapshot>), Problem> {
    shared.needs_kernel("named sessions cannot be changed")?;
    let changed = shared.backend.change_session(change).await;
    changed.map_err(|failure| match failure {
        SessionFailure::Unavailable(unavailable) => unavailable.into(),
        SessionFailure::Refused(refusal) => refusal.into(),
    })
}

/// A name out of a body.
fn read_name(field: &str, text: &str) -> Result<Name, Problem> {
    text.parse()
        .map_err(|wrong: NotAName| invalid_body(&format!("{field} {wrong}")))
}

impl From<SessionRefusal> for Problem {
    fn from(refusal: SessionRefusal) -> Self {
        let detail = refusal.to_string();
        let (status, kind, title) = match refusal {
            SessionRefusal::Unknown { .. } => (404, "unknown-session", "There is no such session"),
            SessionRefusal::UnknownSpan { .. } => {
                (404, "unknown-span", "The session has no such span")
            }
            SessionRefusal::GivenUp { .. } => {
                (410, "dropped-session", "The session is no longer kept")
            }
            SessionRefusal::Exists { .. }
            | SessionRefusal::Reserved { .. }
            | SessionRefusal::TooMany { .. }
            | SessionRefusal::TooManySpans { .. }
            | SessionRefusal::Stopped { .. }
            | SessionRefusal::NoneRuns
            | SessionRefusal::Default => (
                409,
                "session-refused",
                "The sessions could not be changed so",
            ),
        };
        Self::new(status, kind, title, detail)
    }
}
