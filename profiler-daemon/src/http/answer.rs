//! What each endpoint is answered with: the question is read as the endpoint says, and sent as the
//! client wants it.

use std::sync::Arc;

use axum::extract::{FromRequestParts as _, Path, Request};
use axum::http::Method;
use axum::response::Response;

use super::accept::accepted;
use super::respond::respond;
use super::shared::ServerState;
use super::{changes, control, instrumentations, page, record, reports};
use crate::api::change::ChangeRequest;
use crate::api::endpoint::{Context, Does, Endpoint};
use crate::api::endpoints::listing;
use crate::api::format::Format;
use crate::api::problem::{Problem, shown};
use crate::api::query_string::Params;
use crate::api::questions::Screen;
use crate::report::query::Window;

/// Answers a `GET`.
pub(super) async fn get(
    shared: Arc<ServerState>,
    endpoint: &'static Endpoint,
    does: Does,
    request: Request,
) -> Result<Response, Problem> {
    let (context, request) = context(&shared, endpoint, request).await?;
    let headers = request.headers();
    let query = request.uri().query();
    let accepted = |formats: &[Format]| accepted(headers, formats);
    let nothing = || endpoint.read(query, |_| ());
    match does {
        Does::Report(read, described) => {
            let read = |params: &mut Params| read(params, &context);
            let (question, sending) =
                endpoint.read_with_format(query, described.formats, accepted, read)?;
            reports::send(&shared, question, sending).await
        }
        Does::Now(now, described) => {
            let ((), sending) =
                endpoint.read_with_format(query, described.formats, accepted, |_| ())?;
            reports::send_now(&shared, now, sending).await
        }
        Does::Later(ask, described) => {
            let ((), sending) =
                endpoint.read_with_format(query, described.formats, accepted, |_| ())?;
            let ask = ask(Arc::clone(&shared.source), context.instrumentation);
            instrumentations::send(&shared, ask, sending).await
        }
        Does::File(read, format, _) => {
            let question = endpoint.read(query, |params| read(params, &context))?;
            let format = accepted(&[format])?;
            let body = reports::body(&shared, question.into(), format).await?;
            Ok(respond(format, body))
        }
        Does::Record(content) => {
            let recording = endpoint.read(query, Params::recording)?;
            accepted(&[Format::Pprof])?;
            let has_body = request.method() != Method::HEAD;
            record::record(&shared, recording, content, has_body).await
        }
        Does::Index if page::is_wanted(headers) => Ok(page::index(headers)),
        Does::Index => {
            nothing()?;
            let screen = Arc::new(Screen::of(Window::Recent, &context));
            let body = reports::body(&shared, screen, Format::Text).await?;
            Ok(respond(Format::Text, body))
        }
        Does::Listing => {
            nothing()?;
            Ok(respond(Format::Text, listing()))
        }
        // Probes and scrapers may add parameters of their own, and a service must not be restarted
        // for that.
        Does::Healthy => Ok(respond(Format::Text, "ok\n")),
        Does::Ready => control::ready(&shared),
        Does::Metrics => control::metrics(&shared).await,
        Does::OpenApi => {
            nothing()?;
            Ok(respond(Format::Json, shared.openapi.clone()))
        }
    }
}

/// Makes a change.
pub(super) async fn change(
    shared: Arc<ServerState>,
    endpoint: &'static Endpoint,
    change: ChangeRequest,
    request: Request,
) -> Result<Response, Problem> {
    let (context, request) = context(&shared, endpoint, request).await?;
    changes::make(&shared, change, context, request).await
}

/// What the path says, and the request again.
async fn context(
    shared: &ServerState,
    endpoint: &Endpoint,
    request: Request,
) -> Result<(Context, Request), Problem> {
    let (mut parts, body) = request.into_parts();
    let path = Option::<Path<String>>::from_request_parts(&mut parts, &()).await;
    let named = path.map_err(|rejection| {
        let detail = shown(&rejection.body_text());
        Problem::new(400, "invalid-path", "The path is not text", detail)
    })?;
    let named = named.as_ref().map(|Path(text)| text.as_str());
    let source = Arc::clone(&shared.source);
    let context = endpoint.context(named, source, shared.options.sampling_period_ns)?;
    Ok((context, Request::from_parts(parts, body)))
}
