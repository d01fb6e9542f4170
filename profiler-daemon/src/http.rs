//! The HTTP server: what `curl`, a scraper and the page may ask (docs/http-api.md).
//!
//! Handlers are thin: a query is read strictly, the report is made by `report`, written by `export`. Everything a client
//! can do is bounded in time, bytes and number. Nothing here knows where the data comes from: that is the
//! [`Source`]'s.

mod answers;
mod ask;
mod client;
mod control;
mod endpoints;
mod events;
mod files;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod guard;
mod lines;
mod openapi;
mod options;
mod page;
mod pprof;
mod profile;
mod reports;
mod respond;
mod seats;
mod serve;
mod sessions;
mod speedscope;
mod stall;
mod ties;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use tokio::sync::Semaphore;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate as _, SizeAbove};

use crate::api::Source;
use crate::api::problem::Problem;
use events::Streams;

pub use client::{Client, NoAnswer};
pub use endpoints::{ENDPOINTS, Endpoint};
pub use openapi::document as openapi_document;
pub use options::HttpOptions;
pub use profile::saved;
pub use serve::serve;

/// Answers shorter than this are not compressed, in bytes.
const MIN_COMPRESSED_BYTES: u16 = 1_024;

/// What every handler shares.
struct Shared {
    backend: Arc<dyn Source>,
    options: HttpOptions,
    /// Permits for reports that are made at the same time.
    reports: Arc<Semaphore>,
    /// Permits to wait for one of these.
    waiting_reports: Semaphore,
    /// Permits for those that wait for debug information.
    line_reports: Semaphore,
    /// Permits for profiles of the next seconds.
    recordings: Semaphore,
    /// What streams of events share.
    streams: Streams,
    /// The description of the interface.
    openapi: Bytes,
}

impl Shared {
    /// Nothing where a kernel is behind the answers.
    ///
    /// # Errors
    /// That `what` is not to be had from a saved profile.
    fn needs_kernel(&self, what: &str) -> Result<(), Problem> {
        match self.backend.replay() {
            None => Ok(()),
            Some(replay) => Err(Problem::replayed(format!("{what}: this is a {replay}"))),
        }
    }
}

/// The routes over a backend, with every guard but those of the connection itself (see [`serve`]).
pub fn app(backend: Arc<dyn Source>, options: HttpOptions) -> Router {
    let reports = Arc::new(Semaphore::new(options.max_reports));
    let shared = Arc::new(Shared {
        backend,
        reports,
        waiting_reports: Semaphore::new((options.max_connections / 4).max(1)),
        line_reports: Semaphore::new(options.max_line_reports),
        recordings: Semaphore::new(options.max_recordings),
        streams: Streams::new(options.max_streams),
        openapi: openapi::document().into(),
        options,
    });
    let mut router = Router::new();
    for endpoint in ENDPOINTS {
        let routes = match endpoint.handler {
            "index" => get(control::index),
            "top" => get(reports::top),
            "listing" => get(control::list),
            "healthy" => get(control::healthy),
            "ready" => get(control::ready),
            "metrics" => get(control::metrics),
            "openapi" => get(control::openapi),
            "status" => get(control::status),
            "targets" => get(control::targets).put(control::set_targets),
            "session" => get(reports::session),
            "processes" => get(reports::processes),
            "process" => get(reports::process),
            "functions" => get(reports::functions),
            "lines" => get(lines::lines),
            "instructions" => get(lines::instructions),
            "modules" => get(reports::modules),
            "threads" => get(reports::threads),
            "callers" => get(reports::callers),
            "callees" => get(reports::callees),
            "calltree" => get(reports::calltree),
            "pprof" => get(pprof::process),
            "pprof_profile" => get(pprof::profile),
            "pprof_wall" => get(pprof::wall),
            "profile" => get(profile::profile),
            "diff" => get(reports::diff),
            "process_diff" => get(reports::process_diff),
            "os_events" => get(reports::os_events),
            "sessions" => get(sessions::list).post(sessions::start),
            "named_session" => get(sessions::one).delete(sessions::end),
            "marks" => post(sessions::mark),
            "process_timeline" | "thread_timeline" => get(reports::timeline),
            unknown => {
                unreachable!("the endpoint table names a handler that does not exist: {unknown}")
            }
        };
        router = router.route(endpoint.path, routes);
    }
    router
        .route(page::ROUTE, get(page::file))
        .route(speedscope::ROUTE, get(speedscope::index))
        .route(speedscope::FILES_ROUTE, get(speedscope::file))
        .fallback(control::not_found)
        .method_not_allowed_fallback(control::method_not_allowed)
        // The last layer is the outermost.
        .layer(axum::middleware::from_fn_with_state(
            Arc::clone(&shared),
            guard::limit_time,
        ))
        .layer(axum::middleware::from_fn_with_state(
            Arc::clone(&shared),
            guard::check_host,
        ))
        .layer(axum::middleware::from_fn(guard::check_site))
        .layer(axum::middleware::from_fn(guard::limit_head))
        .layer(axum::middleware::from_fn_with_state(
            Arc::clone(&shared),
            guard::count,
        ))
        .layer(
            CompressionLayer::new().gzip(true).compress_when(
                // Profiles are compressed as they are.
                SizeAbove::new(MIN_COMPRESSED_BYTES)
                    .and(NotForContentType::const_new(pprof::CONTENT_TYPE))
                    // Compression would hold events back.
                    .and(NotForContentType::SSE),
            ),
        )
        .layer(axum::middleware::from_fn(guard::add_headers))
        .with_state(shared)
}
