//! The page: its files, compiled in, and how they go out. What the page asks, it asks of the same endpoints as everybody.
//!
//! A browser that opens `/` gets the page; `curl` gets the list of endpoints there (see `control::index`).

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::control;

/// Where the page's own files are.
pub(super) const ROUTE: &str = "/ui/{*file}";

/// The longest `Accept` header that is read, in bytes.
const MAX_ACCEPT_BYTES: usize = 1_024;

/// What the page may do: run and show what this server sends, ask this server, and nothing else. Text that arrives as data
/// cannot become markup: Trusted Types refuse the ways there.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'",
);

/// One file of the page.
struct File {
    name: &'static str,
    content: &'static [u8],
}

/// The files by their paths in `profiler-daemon/ui`.
macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        &[$(File { name: $name, content: include_bytes!(concat!("../../ui/", $name)) }),+]
    };
}

/// Every file of the page.
const FILES: &[File] = files![
    "api.js",
    "base.css",
    "classes.js",
    "controls.js",
    "dom.js",
    "downloads.js",
    "flame.css",
    "flame/canvas.js",
    "flame/layout.js",
    "flame/sandwich.js",
    "flame/sandwich_view.js",
    "flame/tree.js",
    "format.js",
    "history.js",
    "icon.svg",
    "index.html",
    "main.js",
    "parts.css",
    "receipt.js",
    "route.js",
    "table.js",
    "values.js",
    "views/daemon.js",
    "views/flame.js",
    "views/os_events.js",
    "views/processes.js",
    "views/scope.js",
    "views/standouts.js",
    "views/tables.js",
];

/// Whether this is a browser that wants to show something. `curl` and programs accept everything and mean none of it.
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
    let file = find("index.html").expect("the page has an index");
    let mut response = respond(file, headers);
    // At this address others get the list of endpoints.
    response
        .headers_mut()
        .append(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// `GET /ui/…`: a file of the page.
pub(super) async fn file(name: Result<Path<String>, PathRejection>, request: Request) -> Response {
    match name.ok().and_then(|Path(name)| find(&name)) {
        Some(file) => respond(file, request.headers()),
        None => control::not_found(request).await.into_response(),
    }
}

fn find(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

fn respond(file: &File, headers: &HeaderMap) -> Response {
    let tag = format!("W/\"{:016x}\"", fnv1a(file.content));
    let known = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|part| part.trim() == tag));
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        file.content.into_response()
    };
    let tag = HeaderValue::try_from(tag).expect("a tag is digits and quotes");
    for (name, value) in [
        (header::CONTENT_TYPE, content_type(file.name)),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        // It may be kept, and is asked for again: the daemon may be another version by then.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::ETAG, tag),
    ] {
        response.headers_mut().insert(name, value);
    }
    response
}

fn content_type(name: &str) -> HeaderValue {
    HeaderValue::from_static(match name.rsplit_once('.').map(|(_, kind)| kind) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    })
}

/// A hash that differs where the file does; not one that withstands an attacker.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{FILES, content_type};

    fn names(folder: &Path, prefix: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                names(&entry.path(), &format!("{name}/"), found);
            } else {
                found.push(name);
            }
        }
    }

    #[test]
    fn every_file_is_served() {
        // Check that the table names each file of the folder, in order, and that each has a content type of its own.
        let mut found = Vec::new();
        names(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("ui"),
            "",
            &mut found,
        );
        found.sort();
        let listed: Vec<_> = FILES.iter().map(|file| file.name).collect();
        assert_eq!(listed, found);
        for name in listed {
            assert_ne!(content_type(name), "application/octet-stream", "{name}");
        }
    }
}
