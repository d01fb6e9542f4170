//! Instrumentations over HTTP: allowed only where the configuration says so.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::changes::respond_json;
use super::respond::respond;
use super::room::Output;
use super::shared::{ServerState, in_time};
use crate::api::BoxFuture;
use crate::api::answer::{Answer, write_answer};
use crate::api::endpoint::Sending;
use crate::api::format::Format;
use crate::api::instrumentation::InstrumentationMeant;
use crate::api::problem::Problem;
use crate::api::questions::unknown_instrumentation;

/// Nothing where functions may be measured over HTTP.
///
/// # Errors
/// That they may not, and how that is changed; or that there is no kernel.
pub(super) fn is_allowed(shared: &ServerState) -> Result<(), Problem> {
    shared.needs_kernel("functions cannot be measured")?;
    if shared.options.instrumentation {
        return Ok(());
    }
    Err(Problem::new(
        403,
        "instrumentation-off",
        "Measuring functions over HTTP is off",
        "whoever reaches this address could slow any process down: set over_http = true in the table [instrumentation] of the \
         configuration (instrumentation.over_http = true) and start the daemon again, or use profiler-daemon record --trace as root",
    ))
}

/// Answers what is so now.
pub(super) async fn send(
    shared: &Arc<ServerState>,
    ask: BoxFuture<'static, Result<Box<dyn Answer>, Problem>>,
    sending: Sending,
) -> Result<Response, Problem> {
    shared.needs_kernel("instrumentations are those of a daemon that runs")?;
    let format = match sending {
        Sending::Once(format) => format,
        Sending::Events { .. } => Format::Json,
    };
    let answer = in_time(shared, ask).await??;
    let write = move |out: &mut Output| write_answer(&*answer, format, out);
    Ok(respond(format, shared.room.write(write).await?))
}

/// Begins one, and answers how it stands; of a dry run, how it would.
pub(super) async fn begin(
    shared: &Arc<ServerState>,
    meant: InstrumentationMeant,
) -> Result<Response, Problem> {
    let InstrumentationMeant { wanted, dry_run } = meant;
    let begun = shared.source.instrument(wanted, dry_run).await?;
    let mut response = respond_json(&begun)?;
    if let Some(id) = begun.id {
        *response.status_mut() = StatusCode::CREATED;
        let location = HeaderValue::try_from(format!("/api/v1/instrumentations/{id}"))
            .map_err(|_| Problem::internal("a number is no part of an address"))?;
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Ends one that runs and answers what it has measured; removes one that has ended.
pub(super) async fn end(shared: &Arc<ServerState>, id: u32) -> Result<Response, Problem> {
    match shared.source.end_instrumentation(id).await? {
        Some(Some(ended)) => respond_json(&ended),
        Some(None) => Ok(StatusCode::NO_CONTENT.into_response()),
        None => Err(unknown_instrumentation(id)),
    }
}
