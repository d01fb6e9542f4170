//! The format of an answer: asked for by `format=`, else by the `Accept` header, else the first of the endpoint's: JSON, but for the first screen.

use std::io;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use crate::api::parameter::{FORMAT, INTERVAL};
use crate::api::problem::{Fault, Problem};
use crate::api::query_string::Params;
use crate::api::value::listed;
use crate::export::csv::{self, CsvReport};
use crate::export::text::{self, TextReport};
use crate::export::{firefox, flamegraph, folded, speedscope};
use crate::report::{StackValue, Stacks};

/// The longest `Accept` header that is read, in bytes; a longer one is taken for one that accepts everything.
const MAX_ACCEPT_BYTES: usize = 1_024;

/// A format that reports come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// For programs.
    Json,
    /// Aligned columns for people.
    Text,
    /// For spreadsheets.
    Csv,
    /// A line per stack.
    Folded,
    /// A flame graph.
    Svg,
    /// For speedscope.
    Speedscope,
    /// For the Firefox Profiler.
    Firefox,
    /// The JSON again and again, as server-sent events.
    Events {
        /// How often; 0 where that was not asked yet.
        interval_ns: u64,
    },
}

/// Events, at an interval that is still to be read.
const EVENTS: Format = Format::Events { interval_ns: 0 };
/// The formats of every report.
pub(super) const REPORT: &[Format] = &[Format::Json, Format::Text, EVENTS];
/// The formats of the first screen.
pub(super) const SCREEN: &[Format] = &[Format::Text, Format::Json, EVENTS];
/// The formats of a table.
pub(super) const TABLE: &[Format] = &[Format::Json, Format::Text, Format::Csv, EVENTS];

/// The formats of a call tree.
pub(super) const TREE: &[Format] = &[
    Format::Json,
    Format::Text,
    Format::Folded,
    Format::Svg,
    Format::Speedscope,
    Format::Firefox,
];

/// What a flame graph may do where a browser shows it as a page of this server: show itself. Its script does not run, so that no name
/// of a function can become one; in a file of its own it does.
const SVG_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

impl Format {
    /// What the request asks for, out of `formats`. A wrong `format=` is a fault of `params`.
    ///
    /// # Errors
    ///
    /// 406 when the `Accept` header leaves no format that exists.
    pub(super) fn asked(
        params: &mut Params,
        headers: &HeaderMap,
        formats: &[Self],
    ) -> Result<Self, Problem> {
        let mut named = false;
        let format = params.take(FORMAT.name, |value| {
            named = true;
            let found = formats.iter().find(|format| format.name() == value);
            found.copied().ok_or_else(|| {
                let names: Vec<&str> = formats.iter().map(|format| format.name()).collect();
                format!("must be {}", listed(&names))
            })
        });
        let format = match format {
            Some(format) => format,
            // The fault is told with the others.
            None if named => return Ok(Self::Json),
            None => accepted(headers, formats)?,
        };
        if let Self::Events { .. } = format {
            let interval_ns = params.or_default(&INTERVAL);
            return Ok(Self::Events { interval_ns });
        }
        if params.is_given(INTERVAL.name) {
            params.fault(Fault {
                parameter: Some(INTERVAL.name.to_owned()),
                given: None,
                detail: format!(
                    "{} is for format=events: {} is sent once",
                    INTERVAL.name,
                    format.name()
                ),
            });
        }
        Ok(format)
    }

    /// The value of `format=`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Text => "text",
            Self::Csv => "csv",
            Self::Folded => "folded",
            Self::Svg => "svg",
            Self::Speedscope => "speedscope",
            Self::Firefox => "firefox",
            Self::Events { .. } => "events",
        }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Json | Self::Speedscope | Self::Firefox => "application/json",
            Self::Text | Self::Folded => "text/plain; charset=utf-8",
            Self::Svg => "image/svg+xml",
            Self::Events { .. } => "text/event-stream",
            Self::Csv => "text/csv; charset=utf-8; header=present",
        }
    }

    /// What it is sent as, without parameters.
    pub(super) fn media_type(self) -> &'static str {
        let content_type = self.content_type();
        content_type
            .split_once(';')
            .map_or(content_type, |(media, _)| media)
    }

    /// The media type that chooses it, and the group of it; none where only `format=` does.
    const fn media(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Json => Some(("application/json", "application/*")),
            Self::Text => Some(("text/plain", "text/*")),
            Self::Csv => Some(("text/csv", "text/*")),
            Self::Svg => Some(("image/svg+xml", "image/*")),
            // Who takes any text does not expect one that never ends.
            Self::Events { .. } => Some(("text/event-stream", "text/event-stream")),
            Self::Folded | Self::Speedscope | Self::Firefox => None,
        }
    }

    /// Writes a report as JSON or as text.
    ///
    /// # Errors
    ///
    /// When the report cannot be written in this format.
    pub(super) fn write<R: Serialize + TextReport>(self, report: &R) -> Result<Vec<u8>, Problem> {
        self.write_with(report, |body| text::write(report, body))
    }

    /// Writes an answer as JSON, or as text by `to_text`.
    ///
    /// # Errors
    ///
    /// When it cannot be written in this format.
    pub(super) fn write_with(
        self,
        report: &impl Serialize,
        to_text: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> Result<Vec<u8>, Problem> {
        written(|body| match self {
            Self::Text => to_text(body),
            _ => {
                serde_json::to_writer(&mut *body, report)?;
                body.push(b'\n');
                Ok(())
            }
        })
    }

    /// Writes a table.
    ///
    /// # Errors
    ///
    /// When it cannot be written in this format.
    pub(super) fn write_table<R>(self, report: &R) -> Result<Vec<u8>, Problem>
    where
        R: Serialize + TextReport + CsvReport,
    {
        match self {
            Self::Csv => written(|body| csv::write(report, body)),
            _ => self.write(report),
        }
    }

    /// Whether it holds one value of the stacks, and not all about the tree.
    pub(super) const fn is_of_stacks(self) -> bool {
        matches!(
            self,
            Self::Folded | Self::Svg | Self::Speedscope | Self::Firefox
        )
    }

    /// Writes one value of stacks.
    ///
    /// # Errors
    ///
    /// When it cannot be written in this format.
    pub(super) fn write_stacks(
        self,
        stacks: &Stacks,
        value: StackValue,
    ) -> Result<Vec<u8>, Problem> {
        written(|body| match self {
            Self::Svg => flamegraph::write(stacks, value, body),
            Self::Speedscope => speedscope::write(stacks, value, body),
            Self::Firefox => firefox::write(stacks, value, body),
            _ => folded::write(stacks, value, body),
        })
    }

    /// An answer in this format.
    pub(super) fn respond(self, body: impl Into<Body>) -> Response {
        let mut response = (StatusCode::OK, body.into()).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(self.content_type()),
        );
        headers.append(header::VARY, HeaderValue::from_static("accept"));
        if self == Self::Svg {
            headers.insert(
                header::CONTENT_SECURITY_POLICY,
                HeaderValue::from_static(SVG_POLICY),
            );
        }
        response
    }
}

/// What `write` writes.
pub(super) fn written(
    write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
) -> Result<Vec<u8>, Problem> {
    let mut body = Vec::new();
    match write(&mut body) {
        Ok(()) => Ok(body),
        Err(error) => Err(Problem::internal(error.to_string())),
    }
}

/// The format that the `Accept` header wants most; the first one where it does not mind.
fn accepted(headers: &HeaderMap, formats: &[Format]) -> Result<Format, Problem> {
    let mut qualities: Vec<Option<(u8, f32)>> = vec![None; formats.len()];
    let mut any = false;
    let first = formats.first().copied().unwrap_or(Format::Json);
    for value in headers.get_all(header::ACCEPT) {
        let Ok(value) = value.to_str() else { continue };
        if value.len() > MAX_ACCEPT_BYTES {
            return Ok(first);
        }
        for range in value.split(',').filter(|range| !range.trim().is_empty()) {
            any = true;
            weigh(range, formats, &mut qualities);
        }
    }
    if !any {
        return Ok(first);
    }
    let mut best = None;
    for (format, quality) in formats.iter().zip(qualities) {
        let quality = quality.map_or(0.0, |(_, quality)| quality);
        if quality > best.map_or(0.0, |(_, known)| known) {
            best = Some((*format, quality));
        }
    }
    best.map(|(format, _)| format).ok_or_else(|| {
        let available: Vec<String> = formats
            .iter()
            .filter_map(|format| {
                let (media, _) = format.media()?;
                Some(format!("{media} (format={})", format.name()))
            })
            .collect();
        Problem::new(
            406,
            "not-acceptable",
            "There is no such format",
            format!("the answer is available as {}", available.join(", ")),
        )
    })
}

/// Notes what one media range says of each format. The more precise range decides.
fn weigh(range: &str, formats: &[Format], qualities: &mut [Option<(u8, f32)>]) {
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
    for (slot, format) in qualities.iter_mut().zip(formats) {
        let Some((exact, group)) = format.media() else {
            continue;
        };
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

    use super::{Format, REPORT, SCREEN, TABLE, accepted};

    fn asked(accept: &str) -> Option<Format> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
        accepted(&headers, REPORT).ok()
    }

    #[test]
    fn the_accept_header_decides() {
        // Check that the wanted format wins, that the first one of the endpoint wins a draw, and that a precise range beats a broad one.
        assert_eq!(accepted(&HeaderMap::new(), REPORT).ok(), Some(Format::Json));
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
        assert_eq!(accepted(&HeaderMap::new(), SCREEN).ok(), Some(Format::Text));
        let mut headers = HeaderMap::new();
        for (accept, format) in [("*/*", Format::Text), ("application/json", Format::Json)] {
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(accepted(&headers, SCREEN).ok(), Some(format), "{accept}");
        }
        for (accept, format) in [("text/csv", Format::Csv), ("text/*", Format::Text)] {
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(accepted(&headers, TABLE).ok(), Some(format), "{accept}");
        }
    }
}
