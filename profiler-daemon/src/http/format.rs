//! The format of an answer: asked for by `format=`, else by the `Accept` header, else JSON.

use std::io;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use super::params::Params;
use super::problem::Problem;
use crate::export::text::{self, TextReport};

/// The longest `Accept` header that is read, in bytes; a longer one is taken for one that accepts everything.
const MAX_ACCEPT_BYTES: usize = 1_024;

/// A format that reports come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// For programs.
    Json,
    /// Aligned columns for people.
    Text,
}

impl Format {
    /// What the request asks for. A wrong `format=` is a fault of `params`.
    ///
    /// # Errors
    ///
    /// 406 when the `Accept` header leaves no format that exists.
    pub(super) fn asked(params: &mut Params, headers: &HeaderMap) -> Result<Self, Problem> {
        let mut named = false;
        let format = params.take("format", |value| {
            named = true;
            match value {
                "json" => Ok(Self::Json),
                "text" => Ok(Self::Text),
                _ => Err("must be json or text".to_owned()),
            }
        });
        match format {
            Some(format) => Ok(format),
            // The fault is told with the others.
            None if named => Ok(Self::Json),
            None => accepted(headers),
        }
    }

    /// Writes a report.
    ///
    /// # Errors
    ///
    /// When the report cannot be written in this format.
    pub(super) fn write<R: Serialize + TextReport>(self, report: &R) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        match self {
            Self::Json => {
                serde_json::to_writer(&mut body, report)?;
                body.push(b'\n');
            }
            Self::Text => text::write(report, &mut body)?,
        }
        Ok(body)
    }

    /// An answer in this format.
    pub(super) fn respond(self, body: Vec<u8>) -> Response {
        let content_type = match self {
            Self::Json => "application/json",
            Self::Text => "text/plain; charset=utf-8",
        };
        let mut response = (StatusCode::OK, body).into_response();
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
            .headers_mut()
            .append(header::VARY, HeaderValue::from_static("accept"));
        response
    }
}

/// The format that the `Accept` header wants most; JSON where it does not mind.
fn accepted(headers: &HeaderMap) -> Result<Format, Problem> {
    let mut quality = [None, None];
    let mut any = false;
    for value in headers.get_all(header::ACCEPT) {
        let Ok(value) = value.to_str() else { continue };
        if value.len() > MAX_ACCEPT_BYTES {
            return Ok(Format::Json);
        }
        for range in value.split(',').filter(|range| !range.trim().is_empty()) {
            any = true;
            weigh(range, &mut quality);
        }
    }
    let [json, text] =
        quality.map(|found: Option<(u8, f32)>| found.map_or(0.0, |(_, quality)| quality));
    if !any || (json > 0.0 && json >= text) {
        Ok(Format::Json)
    } else if text > 0.0 {
        Ok(Format::Text)
    } else {
        Err(Problem::new(
            StatusCode::NOT_ACCEPTABLE,
            "not-acceptable",
            "There is no such format",
            "the answer is available as application/json (format=json) and text/plain (format=text)",
        ))
    }
}

/// Notes what one media range says of JSON and of text. The more precise range decides.
fn weigh(range: &str, quality: &mut [Option<(u8, f32)>; 2]) {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
    let wanted = parts
        .find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")))
        .map_or(1.0, |text| {
            text.parse::<f32>()
                .ok()
                .filter(|q| (0.0..=1.0).contains(q))
                .unwrap_or(0.0)
        });
    for (slot, (exact, group)) in quality.iter_mut().zip([
        ("application/json", "application/*"),
        ("text/plain", "text/*"),
    ]) {
        let precision = match kind.as_str() {
            kind if kind == exact => 3,
            kind if kind == group => 2,
            "*/*" => 1,
            _ => continue,
        };
        if slot.is_none_or(|(known, _)| known < precision) {
            *slot = Some((precision, wanted));
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, header};

    use super::{Format, accepted};

    fn asked(accept: &str) -> Option<Format> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
        accepted(&headers).ok()
    }

    #[test]
    fn the_accept_header_decides() {
        // Check that the wanted format wins, that JSON wins a draw, and that a precise range beats a broad one.
        assert_eq!(accepted(&HeaderMap::new()).ok(), Some(Format::Json));
        for (accept, format) in [
            ("*/*", Some(Format::Json)),
            ("text/plain", Some(Format::Text)),
            ("text/*", Some(Format::Text)),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                Some(Format::Json),
            ),
            (
                "application/json;q=0.5, text/plain;q=0.6",
                Some(Format::Text),
            ),
            ("*/*, application/json;q=0", Some(Format::Text)),
            ("Application/JSON", Some(Format::Json)),
            ("text/csv", None),
            ("application/json;q=0", None),
            ("application/json;q=x", None),
            ("", Some(Format::Json)),
        ] {
            assert_eq!(asked(accept), format, "{accept}");
        }
    }
}
