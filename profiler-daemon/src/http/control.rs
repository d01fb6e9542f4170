//! What is no report: health, metrics, and what there is to ask.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

use super::respond::respond;
use super::shared::ServerState;
use crate::api::format::Format;
use crate::api::problem::{Fault, Problem};
use crate::metrics;

/// Whether there is something to read.
pub(super) fn ready(shared: &ServerState) -> Result<Response, Problem> {
    if let Some(replay) = shared.source.replay() {
        return Ok(respond(Format::Text, format!("{replay}\n")));
    }
    match shared.source.readiness() {
        Ok(()) => Ok(respond(Format::Text, "ready\n")),
        Err(missing) => {
            let problem = Problem::new(503, "not-ready", "Not ready", missing.join("; "));
            Err(problem
                .with_errors(missing.into_iter().map(Fault::plain).collect())
                .retry_after(1))
        }
    }
}

/// The metrics.
pub(super) async fn metrics(shared: &ServerState) -> Result<Response, Problem> {
    shared.needs_kernel("there are no metrics")?;
    let text = shared.source.metrics().await?;
    let content_type = HeaderValue::from_static(metrics::CONTENT_TYPE);
    Ok(([(header::CONTENT_TYPE, content_type)], text).into_response())
}
