//! Requests that change something: the targets, and the named sessions. The body is read within its
//! bounds; what it may hold is said by `api::change`.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use http_body_util::LengthLimitError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::instrumentations;
use super::reports::of_snapshot;
use super::respond::respond;
use super::shared::ServerState;
use crate::api::answer::write_json;
use crate::api::change::{
    ChangeRequest, Mark, Marked, MarkedSpan, SessionStart, checked_object, invalid_body,
};
use crate::api::endpoint::Context;
use crate::api::format::Format;
use crate::api::instrumentation::InstrumentationAsked;
use crate::api::problem::Problem;
use crate::api::query_string::Params;
use crate::api::questions::NamedSession;
use crate::config::targets::Targets;
use crate::profile::name::Name;
use crate::profile::sessions::{SessionChange, SessionChanged};
use crate::profile::snapshot::Snapshot;
use crate::report::times::rfc3339;

type ChangeResponse = Result<Response, Problem>;

/// Makes a change, and answers what is so from then on.
pub(super) async fn make(
    shared: &Arc<ServerState>,
    change: ChangeRequest,
    context: Context,
    request: Request,
) -> ChangeResponse {
    match change {
        ChangeRequest::SetTargets => set_targets(shared, change, request).await,
        ChangeRequest::StartSession => {
            let wanted: SessionStart = read_object(shared, request, change).await?;
            start(shared, wanted.meant()?).await
        }
        ChangeRequest::Mark => {
            let wanted: Mark = read_object(shared, request, change).await?;
            mark(shared, wanted.meant()?).await
        }
        ChangeRequest::Instrument => {
            instrumentations::is_allowed(shared)?;
            let asked: InstrumentationAsked = read_object(shared, request, change).await?;
            instrumentations::begin(shared, asked.meant()?).await
        }
        ChangeRequest::EndInstrumentation => {
            takes_nothing(&request)?;
            instrumentations::is_allowed(shared)?;
            match context.instrumentation {
                Some(id) => instrumentations::end(shared, id).await,
                None => Err(Problem::internal("the path names no instrumentation")),
            }
        }
        ChangeRequest::EndSession => {
            takes_nothing(&request)?;
            match context.session {
                Some(name) => end(shared, name).await,
                None => Err(Problem::internal("the path names no session")),
            }
        }
    }
}

async fn set_targets(
    shared: &ServerState,
    change: ChangeRequest,
    request: Request,
) -> ChangeResponse {
    shared.needs_kernel("what was profiled cannot be changed")?;
    let wanted: Targets = read_object(shared, request, change).await?;
    let targets = shared.source.set_targets(wanted).await?;
    respond_json(&targets)
}

async fn start(shared: &Arc<ServerState>, change: SessionChange) -> ChangeResponse {
    let (changed, snapshot) = change_session(shared, change).await?;
    let SessionChanged::Started(name) = changed else {
        return Err(Problem::internal(
            "a session was to be started, and was not",
        ));
    };
    let mut response = totals(shared, snapshot, name).await?;
    *response.status_mut() = StatusCode::CREATED;
    let location = format!("/api/v1/sessions/{}", name.as_str().replace(' ', "%20"));
    let location = HeaderValue::try_from(location)
        .map_err(|_| Problem::internal("the name of a session is no part of an address"))?;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

async fn mark(shared: &ServerState, change: SessionChange) -> ChangeResponse {
    let (changed, snapshot) = change_session(shared, change).await?;
    let SessionChanged::Marked(spans) = changed else {
        return Err(Problem::internal("a mark was to be made, and was not"));
    };
    let spans = spans.into_iter().map(|(session, span)| MarkedSpan {
        session: session.to_string(),
        span: span.to_string(),
    });
    let mut response = respond_json(&Marked {
        as_of: rfc3339(snapshot.as_of_unix_ns()),
        spans: spans.collect(),
    })?;
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

/// Stops a session that runs and answers its totals; removes one that is stopped.
async fn end(shared: &Arc<ServerState>, name: Name) -> ChangeResponse {
    let (changed, snapshot) = change_session(shared, SessionChange::End { name }).await?;
    match changed {
        SessionChanged::Stopped(name) => totals(shared, snapshot, name).await,
        _ => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// The totals of a session as of the pass that changed it.
async fn totals(shared: &Arc<ServerState>, snapshot: Arc<Snapshot>, name: Name) -> ChangeResponse {
    let question = Arc::new(NamedSession(Some(name)));
    let body = of_snapshot(shared, snapshot, question, Format::Json).await?;
    Ok(respond(Format::Json, body))
}

async fn change_session(
    shared: &ServerState,
    change: SessionChange,
) -> Result<(SessionChanged, Arc<Snapshot>), Problem> {
    shared.needs_kernel("named sessions cannot be changed")?;
    Ok(shared.source.change_session(change).await?)
}

pub(super) fn respond_json(value: &impl Serialize) -> ChangeResponse {
    let mut body = Vec::new();
    match write_json(value, &mut body) {
        Ok(()) => Ok(respond(Format::Json, body)),
        Err(error) => Err(Problem::internal(error.to_string())),
    }
}

/// Refuses any parameter: a request that changes something takes none, whatever others of its
/// endpoint take.
fn takes_nothing(request: &Request) -> Result<(), Problem> {
    Params::parse(request.uri().query(), &[]).finish()
}

/// Reads what the body of a request that changes something asks for. That it must say it is JSON
/// keeps pages of other servers out: a browser lets them send such a body only if this server
/// allowed it.
async fn read_object<T: DeserializeOwned>(
    shared: &ServerState,
    request: Request,
    change: ChangeRequest,
) -> Result<T, Problem> {
    takes_nothing(&request)?;
    let (parts, body) = request.into_parts();
    check_is_json(&parts.headers)?;
    checked_object(&read_body(shared, body).await?, change.examples())
}

fn check_is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(
        415,
        "unsupported-media-type",
        "The body must be JSON",
        "send the body with Content-Type: application/json",
    ))
}

/// The whole body, within the bounds of bytes and time.
async fn read_body(shared: &ServerState, body: Body) -> Result<Vec<u8>, Problem> {
    let max_bytes = shared.options.max_body_bytes;
    let too_large = || {
        Problem::new(
            413,
            "body-too-large",
            "The body is too large",
            format!("a body may have {max_bytes} bytes (setting http.max_body_bytes)"),
        )
    };
    if axum::body::HttpBody::size_hint(&body).lower() > max_bytes as u64 {
        return Err(too_large());
    }
    // Half of what the whole request may take, so that this answer and not the outer one is given.
    let patience = shared.options.request_timeout / 2;
    match tokio::time::timeout(patience, to_bytes(body, max_bytes)).await {
        Ok(Ok(bytes)) => Ok(bytes.to_vec()),
        Ok(Err(error)) if is_too_large(&error) => Err(too_large()),
        Ok(Err(_)) => Err(invalid_body("the body ended before it was complete")),
        Err(_) => Err(Problem::new(
            408,
            "body-timeout",
            "The body did not arrive in time",
            format!("the body did not arrive within {} ms", patience.as_millis()),
        )),
    }
}

fn is_too_large(error: &axum::Error) -> bool {
    anyhow::Chain::new(error).any(|cause| cause.is::<LengthLimitError>())
}
