//! How answers go out: with the headers of their format, or as what went wrong.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api::format::Format;
use crate::api::problem::Problem;

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, self.to_json()).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(seconds) = self.retry_after_s() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// What a flame graph may do where a browser shows it as a page of this server: show itself. Its
/// script does not run, so that no name of a function can become one; in a file of its own it does.
const SVG_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
);

/// An answer in this format.
pub(super) fn respond(format: Format, body: impl Into<Body>) -> Response {
    let mut response = (StatusCode::OK, body.into()).into_response();
    let headers = response.headers_mut();
    let content_type = HeaderValue::from_static(format.content_type());
    headers.insert(header::CONTENT_TYPE, content_type);
    match format.download() {
        Some(name) => {
            let as_file = HeaderValue::try_from(format!("attachment; filename=\"{name}\""));
            let as_file = as_file.expect("names of files to save are plain");
            headers.insert(header::CONTENT_DISPOSITION, as_file);
        }
        None => {
            headers.append(header::VARY, HeaderValue::from_static("accept"));
        }
    }
    if format == Format::Svg {
        headers.insert(header::CONTENT_SECURITY_POLICY, SVG_POLICY);
    }
    response
}
