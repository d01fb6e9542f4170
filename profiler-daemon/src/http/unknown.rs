//! What answers paths that are no endpoint, and methods that an endpoint does not take.

use axum::extract::{MatchedPath, Request};

use crate::api::endpoints::{self, ENDPOINTS};
use crate::api::problem::{Fault, Problem, shown};

/// What answers every path that is no endpoint.
pub(super) async fn not_found(request: Request) -> Problem {
    let detail = format!(
        "{} is no endpoint; those that exist are listed in errors",
        shown(request.uri().path())
    );
    let errors = ENDPOINTS.iter().map(|endpoint| {
        Fault::plain(format!(
            "{} {}: {}",
            endpoint.methods().join(","),
            endpoint.path,
            endpoint.about
        ))
    });
    Problem::new(404, "unknown-endpoint", "There is no such endpoint", detail)
        .with_errors(errors.collect())
}

/// What answers a method that an endpoint does not take. The router adds the `Allow` header.
pub(super) async fn method_not_allowed(request: Request) -> Problem {
    let path = request.extensions().get::<MatchedPath>();
    let methods = path
        .and_then(|path| endpoints::find(path.as_str()))
        .map_or_else(
            || "GET and HEAD".to_owned(),
            |endpoint| {
                let head = endpoint.get.is_some().then_some("HEAD");
                let methods: Vec<&str> = endpoint.methods().into_iter().chain(head).collect();
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
