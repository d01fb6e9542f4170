//! Everything that is not a report: health, metrics, status, targets, and what there is to ask.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Shared;
use super::ask::Ask;
use super::endpoints::{ENDPOINTS, listing};
use super::events::{self, Made};
use super::format::Format;
use super::page;
use super::reports;
use crate::api::Status;
use crate::api::TargetsFailure;
use crate::api::problem::shown;
use crate::api::problem::{Fault, Problem};
use crate::api::query_string::Params;
use crate::config::targets::Targets;
use crate::export::text::name as shown_name;
use crate::metrics;
use crate::report::query::Window;

/// `GET /`: for a browser the page, for others the first screen.
pub(super) async fn index(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    ask: Ask,
) -> Result<Response, Problem> {
    if page::is_wanted(&headers) {
        return Ok(page::index(&headers));
    }
    ask.read_only(|_| ())?;
    reports::overview(&shared, Window::Recent, Format::Text).await
}

/// `GET /api/v1`: what there is to ask.
pub(super) async fn list(ask: Ask) -> Result<Response, Problem> {
    ask.read_only(|_| ())?;
    Ok(Format::Text.respond(listing().into_bytes()))
}

/// `GET /healthz`: that the server answers. Probes may add parameters of their own, here and below, and a service must not be
/// restarted for that.
pub(super) async fn healthy() -> Response {
    Format::Text.respond(b"ok\n".to_vec())
}

/// `GET /readyz`: whether there is something to read.
pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    if let Some(replay) = shared.backend.replay() {
        return Ok(Format::Text.respond(format!("{replay}\n").into_bytes()));
    }
    match shared.backend.readiness() {
        Ok(()) => Ok(Format::Text.respond(b"ready\n".to_vec())),
        Err(missing) => {
            let problem = Problem::new(503, "not-ready", "Not ready", missing.join("; "));
            Err(problem
                .with_errors(missing.into_iter().map(Fault::plain).collect())
                .retry_after(1))
        }
    }
}

/// `GET /metrics`. Scrapers may add parameters of their own, so that none is refused here.
pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    shared.needs_kernel("there are no metrics")?;
    let text = shared.backend.metrics().await?;
    Ok((
        [(
            header::CONTENT_TYPE,
            HeaderValue::from_static(metrics::CONTENT_TYPE),
        )],
        text,
    )
        .into_response())
}

/// `GET /api/v1/status`.
pub(super) async fn status(
    State(shared): State<Arc<Shared>>,
    ask: Ask,
) -> Result<Response, Problem> {
    answer(
        &shared,
        &ask,
        |shared| shared.backend.status(),
        Status::to_text,
    )
    .await
}

/// Answers with what is so now, or with a stream of it.
async fn answer<T: Serialize + 'static>(
    shared: &Arc<Shared>,
    ask: &Ask,
    now: fn(&Shared) -> T,
    to_text: fn(&T) -> String,
) -> Result<Response, Problem> {
    let ((), format) = ask.read(|_| ())?;
    let body = match format {
        Format::Events { interval_ns } => {
            return events::open(shared, interval_ns, move |shared, _| {
                let made = json(&now(&shared)).map(|body| Some(Made::now(body)));
                Box::pin(std::future::ready(made))
            })
            .await;
        }
        Format::Text => to_text(&now(shared)).into_bytes(),
        _ => json(&now(shared))?,
    };
    Ok(format.respond(body))
}

/// `GET /api/v1/openapi.json`.
pub(super) async fn openapi(
    State(shared): State<Arc<Shared>>,
    ask: Ask,
) -> Result<Response, Problem> {
    ask.read_only(|_| ())?;
    Ok(Format::Json.respond(shared.openapi.clone()))
}

/// `GET /api/v1/targets`.
pub(super) async fn targets(
    State(shared): State<Arc<Shared>>,
    ask: Ask,
) -> Result<Response, Problem> {
    answer(
        &shared,
        &ask,
        |shared| shared.backend.targets(),
        targets_text,
    )
    .await
}

/// A line per field, and per name where there are several.
fn targets_text(targets: &Targets) -> String {
    let mut text = format!(
        "all       {}\nchildren  {}\n",
        targets.all, targets.children
    );
    let pids = targets.pids.iter().map(|pid| format!("pid       {pid}\n"));
    text.extend(pids);
    for (title, names) in [("comm", &targets.comms), ("cgroup", &targets.cgroups)] {
        text.extend(
            names
                .iter()
                .map(|name| format!("{title:8}  {}\n", shown_name(name))),
        );
    }
    text
}

/// `PUT /api/v1/targets`: answers with what is profiled from now on.
pub(super) async fn set_targets(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    shared.needs_kernel("what was profiled cannot be changed")?;
    let examples = "{\"all\": true} or {\"pids\": [1234]}";
    let wanted: Targets = read_object(&shared, request, examples).await?;
    let set = shared.backend.set_targets(wanted).await;
    let targets = set.map_err(|failure| match failure {
        TargetsFailure::Unavailable(unavailable) => unavailable.into(),
        TargetsFailure::Refused(sentence) => Problem::new(
            409,
            "targets-refused",
            "The targets could not be set",
            sentence,
        ),
    })?;
    Ok(Format::Json.respond(json(&targets)?))
}

/// Reads what the body of a request that changes something asks for: a JSON object, as in `examples`. That it must say it is JSON
/// keeps pages of other servers out: a browser lets them send such a body only if this server allowed it.
pub(super) async fn read_object<T: DeserializeOwned>(
    shared: &Shared,
    request: Request,
    examples: &str,
) -> Result<T, Problem> {
    Params::parse(request.uri().query(), &[]).finish()?;
    let (parts, body) = request.into_parts();
    check_is_json(&parts.headers)?;
    checked_object(&read_body(shared, body).await?, examples)
}

/// The JSON object that a body is.
pub(super) fn checked_object<T: DeserializeOwned>(
    body: &[u8],
    examples: &str,
) -> Result<T, Problem> {
    // A list would be read as the object's values in their order.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(invalid_body(&format!(
            "the body must be a JSON object, as in {examples}"
        )));
    }
    serde_json::from_slice(body).map_err(|error| invalid_body(&shown_sentence(&error.to_string())))
}

pub(super) fn invalid_body(detail: &str) -> Problem {
    Problem::new(400, "invalid-body", "The body is not allowed", detail)
}

/// An error of the JSON reader can repeat what was sent.
fn shown_sentence(sentence: &str) -> String {
    sentence
        .chars()
        .take(400)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
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
async fn read_body(shared: &Shared, body: Body) -> Result<Vec<u8>, Problem> {
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
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.to_string().contains("length limit exceeded") {
            return true;
        }
        cause = error.source();
    }
    false
}

/// What answers every path that is no endpoint.
pub(super) async fn not_found(request: Request) -> Problem {
    let detail = format!(
        "{} is no endpoint; those that exist are listed in errors",
        shown(request.uri().path())
    );
    let errors = ENDPOINTS.iter().map(|endpoint| {
        Fault::plain(format!(
            "{} {}: {}",
            endpoint.methods.join(","),
            endpoint.path,
            endpoint.about
        ))
    });
    Problem::new(404, "unknown-endpoint", "There is no such endpoint", detail)
        .with_errors(errors.collect())
}

/// What answers a method that an endpoint does not take. The router adds the `Allow` header.
pub(super) async fn method_not_allowed(request: Request) -> Problem {
    let path = request
        .extensions()
        .get::<axum::extract::MatchedPath>()
        .map(axum::extract::MatchedPath::as_str);
    let methods = ENDPOINTS
        .iter()
        .find(|endpoint| Some(endpoint.path) == path)
        .map_or_else(
            || "GET and HEAD".to_owned(),
            |endpoint| {
                let head = endpoint.methods.contains(&"GET").then_some("HEAD");
                let methods: Vec<&str> = endpoint.methods.iter().copied().chain(head).collect();
                methods.join(" and ")
            },
        );
    Problem::new(
        405,
        "method-not-allowed",
        "This cannot be done here",
        format!(
            "{} is not possible here: possible are {methods}",
            shown(request.method().as_str())
        ),
    )
}

pub(super) fn json(value: &impl Serialize) -> Result<Vec<u8>, Problem> {
    let mut body =
        serde_json::to_vec(value).map_err(|error| Problem::internal(error.to_string()))?;
    body.push(b'\n');
    Ok(body)
}
