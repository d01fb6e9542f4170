//! The page: its files, compiled in. What the page asks, it asks of the same endpoints as
//! everybody.
//!
//! A browser that opens `/` gets the page; `curl` gets the first screen there as text (see
//! `control::index`).

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

use super::files::{Site, files};
use super::unknown;

/// Where the page's own files are.
pub(super) const ROUTE: &str = "/ui/{*file}";

/// The longest `Accept` header that is read, in bytes.
const MAX_ACCEPT_BYTES: usize = 1_024;

/// The page. It may run and show what this server sends, ask this server, and nothing else. Text
/// that arrives as data cannot become markup: Trusted Types refuse the ways there.
const PAGE: Site = Site {
    policy: HeaderValue::from_static(
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    files: files![
        "../../ui/":
        "api.js",
        "base.css",
        "capacity.js",
        "classes.js",
        "controls.js",
        "dom.js",
        "downloads.js",
        "flame.css",
        "flame/canvas.js",
        "flame/layout.js",
        "flame/merge.js",
        "flame/panel.js",
        "flame/sandwich.js",
        "flame/sandwich_view.js",
        "flame/tree.js",
        "format.js",
        "history.js",
        "icon.svg",
        "index.html",
        "known.js",
        "main.js",
        "parts.css",
        "receipt.js",
        "route.js",
        "sides.js",
        "span_choice.js",
        "table.js",
        "timeline.css",
        "timeline/model.js",
        "timeline/strip.js",
        "values.js",
        "views/compare.js",
        "views/compare_flame.js",
        "views/compare_processes.js",
        "views/compare_table.js",
        "views/compare_values.js",
        "views/daemon.js",
        "views/flame.js",
        "views/lines.js",
        "views/list.js",
        "views/measured.js",
        "views/measuring.js",
        "views/os_events.js",
        "views/processes.js",
        "views/scope.js",
        "views/standouts.js",
        "views/tables.js",
        "views/timeline.js",
        "views/where_most.js",
    ],
};

/// Whether this is a browser that wants to show something. `curl` and programs accept everything
/// and mean none of it.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .filter(|value| value.len() <= MAX_ACCEPT_BYTES)
        .flat_map(|value| value.split(','))
        .any(|range| {
            let kind = range.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("text/html")
        })
}

/// The page itself.
pub(super) fn index(headers: &HeaderMap) -> Response {
    let index = PAGE.respond("index.html", headers);
    let mut response = index.expect("the page has an index");
    // At this address others get text.
    response
        .headers_mut()
        .append(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// `GET /ui/…`: a file of the page.
pub(super) async fn file(name: Result<Path<String>, PathRejection>, request: Request) -> Response {
    let found = name
        .ok()
        .and_then(|Path(name)| PAGE.respond(&name, request.headers()));
    match found {
        Some(response) => response,
        None => unknown::not_found(request).await.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::assert_files_of;
    use super::PAGE;

    #[test]
    fn every_file_is_served() {
        // Check that the table names each file of the page's folder, in order, and that each has a
        // content type of its own.
        assert_files_of(PAGE.files, "ui", |name| {
            !name.starts_with("speedscope/") && !name.starts_with("third-party/")
        });
    }
}
