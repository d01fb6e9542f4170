//! The routes: one for each endpoint that is declared, and what stands before all of them.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::routing::{MethodRouter, get};
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate as _, SizeAbove};

use super::options::HttpOptions;
use super::shared::ServerState;
use super::{answer, guard, page, speedscope, unknown};
use crate::api::change::Method;
use crate::api::format::Format;
use crate::api::{ENDPOINTS, Source};

/// Answers shorter than this are not compressed, in bytes.
const MIN_COMPRESSED_BYTES: u16 = 1_024;

/// The routes over a source of answers, with every guard but those of the connection itself (see
/// [`serve`](super::serve())).
pub fn app(source: Arc<dyn Source>, options: HttpOptions) -> Router {
    let shared = Arc::new(ServerState::new(source, options));
    let mut router = Router::new();
    for endpoint in ENDPOINTS {
        let mut methods = MethodRouter::new();
        if let Some(does) = endpoint.get {
            let shared = Arc::clone(&shared);
            methods =
                methods.get(move |request: Request| answer::get(shared, endpoint, does, request));
        }
        for change in endpoint.changes {
            let shared = Arc::clone(&shared);
            let make = move |request: Request| answer::change(shared, endpoint, *change, request);
            methods = match change.method() {
                Method::Put => methods.put(make),
                Method::Post => methods.post(make),
                Method::Delete => methods.delete(make),
            };
        }
        router = router.route(endpoint.path, methods);
    }
    router
        .route(page::ROUTE, get(page::file))
        .route(speedscope::ROUTE, get(speedscope::index))
        .route(speedscope::FILES_ROUTE, get(speedscope::file))
        .fallback(unknown::not_found)
        .method_not_allowed_fallback(unknown::method_not_allowed)
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
                    .and(NotForContentType::const_new(Format::Pprof.content_type()))
                    // Compression would hold events back.
                    .and(NotForContentType::SSE),
            ),
        )
        .layer(axum::middleware::from_fn(guard::add_headers))
        .with_state(shared)
}
