//! What stands before every handler: which host is meant, how long it may take, what is counted,
//! which headers go out.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::options::HttpOptions;
use super::shared::{ServerState, in_time};
use super::{page, speedscope};
use crate::api::endpoint::Does;
use crate::api::endpoints;
use crate::api::problem::Problem;
use crate::api::problem::shown;

/// The longest address (path and query) of a request, in bytes.
const MAX_URI_BYTES: usize = 8 << 10;
/// The most headers of a request.
const MAX_HEADERS: usize = 100;
/// The most bytes in names and values of a request's headers.
const MAX_HEADER_BYTES: usize = 32 << 10;

/// Headers of every answer that does not set them itself.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        ),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// Adds the headers that every answer has.
pub(super) async fn add_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

/// Counts the answer under its handler and its code.
pub(super) async fn count(
    State(shared): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    let handler = handler_of(
        request
            .extensions()
            .get::<MatchedPath>()
            .map(MatchedPath::as_str),
    );
    let response = next.run(request).await;
    shared
        .options
        .requests
        .count(handler, response.status().as_u16());
    response
}

/// What a path is counted under; `none` for what is no endpoint.
fn handler_of(path: Option<&str>) -> &'static str {
    let of_page = [page::ROUTE, speedscope::ROUTE, speedscope::FILES_ROUTE];
    if path.is_some_and(|path| of_page.contains(&path)) {
        return "page";
    }
    let endpoint = path.and_then(endpoints::find);
    endpoint.map_or("none", |endpoint| endpoint.handler)
}

/// Bounds the time that an answer may take to be made. What is asked to wait does this itself.
pub(super) async fn limit_time(
    State(shared): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let endpoint = path.and_then(|path| endpoints::find(path.as_str()));
    if endpoint.is_some_and(|endpoint| matches!(endpoint.get, Some(Does::Record(_)))) {
        return next.run(request).await;
    }
    match in_time(&shared, next.run(request)).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

/// Refuses requests with a head that nobody needs. One beyond what the connection reads does not
/// come here: it is answered without a body.
pub(super) async fn limit_head(request: Request, next: Next) -> Response {
    match head_problem(request.headers(), request.uri()) {
        None => next.run(request).await,
        Some(problem) => problem.into_response(),
    }
}

pub(super) fn head_problem(headers: &HeaderMap, uri: &Uri) -> Option<Problem> {
    let uri_bytes = uri
        .path_and_query()
        .map_or(0, |address| address.as_str().len());
    if uri_bytes > MAX_URI_BYTES {
        return Some(Problem::new(
            414,
            "address-too-long",
            "The address is too long",
            format!("path and query have {uri_bytes} bytes, and may have {MAX_URI_BYTES}"),
        ));
    }
    let header_bytes: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    let detail = if headers.len() > MAX_HEADERS {
        format!(
            "there are {} headers, and may be {MAX_HEADERS}",
            headers.len()
        )
    } else if header_bytes > MAX_HEADER_BYTES {
        format!("the headers have {header_bytes} bytes, and may have {MAX_HEADER_BYTES}")
    } else {
        return None;
    };
    Some(Problem::new(
        431,
        "headers-too-large",
        "The headers are too large",
        detail,
    ))
}

/// Refuses requests that mean another host. A page that points its own name at this address would
/// else be allowed by the browser to read every report.
pub(super) async fn check_host(
    State(shared): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    match meant_host(request.headers(), request.uri(), &shared.options) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Refuses what a page of another site makes the browser fetch, as an image or in a frame: the page
/// could not read the answer, but take the places of those who may. To follow a link to here is
/// allowed. Who is no browser does not say where it comes from.
pub(super) async fn check_site(request: Request, next: Next) -> Response {
    if !is_embedded(request.headers()) {
        return next.run(request).await;
    }
    Problem::new(
        403,
        "cross-site",
        "The request comes from a page of another site",
        "a page of another site may link to this server, and not fetch from it (header Sec-Fetch-Site)",
    )
    .into_response()
}

/// Whether a page of another site asks, and not a person who followed its link.
fn is_embedded(headers: &HeaderMap) -> bool {
    let said = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    // What is fetched ahead of a link is not followed yet.
    let followed = said("sec-purpose").is_none()
        && said("sec-fetch-mode") == Some(b"navigate")
        && said("sec-fetch-dest").is_none_or(|kind| kind == b"document");
    said("sec-fetch-site") == Some(b"cross-site") && !followed
}

pub(super) fn meant_host(
    headers: &HeaderMap,
    uri: &Uri,
    options: &HttpOptions,
) -> Result<(), Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Problem::new(
            400,
            "invalid-host",
            "The host is missing",
            "the request must have exactly one Host header",
        ));
    };
    let host = host.to_str().unwrap_or_default();
    let in_line = uri.authority().map(axum::http::uri::Authority::as_str);
    for host in [Some(host), in_line].into_iter().flatten() {
        if !is_allowed(host, options) {
            return Err(Problem::new(
                421,
                "unknown-host",
                "This is not that host",
                format!(
                    "{:?} is not a name of this server: use localhost or {}, or add the name to the setting allowed_hosts",
                    shown(host),
                    options.listen
                ),
            ));
        }
    }
    Ok(())
}

/// Whether a host, with or without a port, is one that this server answers for. The port does not
/// matter: it may be forwarded, and another port is another origin to a browser anyway.
pub(super) fn is_allowed(host: &str, options: &HttpOptions) -> bool {
    let Some(name) = without_port(host) else {
        return false;
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    if name == "localhost" || name.ends_with(".localhost") {
        return true;
    }
    if options.allowed_hosts.contains(&name) {
        return true;
    }
    let Ok(address) = name.parse::<IpAddr>() else {
        return false;
    };
    // An address as host was not looked up by name, so no name can have been pointed here: where
    // the server listens on every address, all of them are its own.
    let own = options.listen.ip();
    address.is_loopback() || address == own || own.is_unspecified()
}

/// The host without its port and brackets; none where it is not a host at all.
fn without_port(host: &str) -> Option<&str> {
    let is_port = |port: &str| port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = host.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        address.parse::<Ipv6Addr>().ok()?;
        let rest_is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return rest_is_port.then_some(address);
    }
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    (is_port(port) && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{HttpOptions, is_allowed};
    use crate::config::Config;
    use crate::metrics::RequestCounts;

    fn options(listen: &str) -> HttpOptions {
        let mut options = HttpOptions::new(&Config::default(), Arc::new(RequestCounts::default()));
        options.listen = listen.parse().unwrap();
        options.allowed_hosts = vec!["profiler.example".to_owned(), "fd00::1".to_owned()];
        options
    }

    #[test]
    fn only_own_names_are_allowed() {
        // Check loopback names, the listen address and configured names with and without ports, and
        // nothing like them.
        let narrow = options("192.0.2.7:9797");
        for host in [
            "localhost",
            "LOCALHOST:1",
            "localhost.",
            "a.localhost",
            "127.0.0.1:9797",
            "127.9.9.9",
            "[::1]:80",
            "[::1]",
            "192.0.2.7",
            "profiler.example:9797",
            "Profiler.Example.",
            "[fd00::1]:1",
        ] {
            assert!(is_allowed(host, &narrow), "{host} was refused");
        }
        for host in [
            "",
            ":80",
            "evil.example",
            "localhost.evil.example",
            "evil-localhost",
            "192.0.2.8",
            "127.0.0.1.evil.example",
            "::1",
            "[::2]",
            "[::1",
            "[::1]x",
            "[localhost]",
            "localhost:80:80",
            "localhost:a",
            "0x7f.1",
            "a@localhost",
        ] {
            assert!(!is_allowed(host, &narrow), "{host} was allowed");
        }
    }

    #[test]
    fn a_server_on_every_address_answers_for_addresses() {
        // Check that listening on every address allows any address but still no foreign name.
        let wide = options("0.0.0.0:9797");
        assert!(is_allowed("192.0.2.8:9797", &wide) && is_allowed("[2001:db8::1]", &wide));
        assert!(!is_allowed("evil.example", &wide));
    }
}
