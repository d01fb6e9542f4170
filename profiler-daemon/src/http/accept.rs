//! Which format a client accepts, of those that an answer has: by its `Accept` header.

use axum::http::{HeaderMap, header};

use crate::api::format::Format;
use crate::api::problem::Problem;

/// The longest `Accept` header that is read, in bytes; a longer one is taken for one that accepts
/// everything.
const MAX_ACCEPT_BYTES: usize = 1_024;

/// The format that the `Accept` header wants most; the first one where it does not mind.
pub(super) fn accepted(headers: &HeaderMap, formats: &[Format]) -> Result<Format, Problem> {
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
                let (media, _) = format.accepted_as()?;
                Some(match formats {
                    // There is no parameter to choose it by.
                    [_] => media.to_owned(),
                    _ => format!("{media} (format={})", format.name()),
                })
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
        let Some((exact, group)) = format.accepted_as() else {
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

    use super::accepted;
    use crate::api::described::{REPORT, TABLE};
    use crate::api::format::Format;

    const SCREEN: &[Format] = &[Format::Text, Format::Json, Format::Events];

    fn asked(accept: &str) -> Option<Format> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
        accepted(&headers, REPORT).ok()
    }

    #[test]
    fn the_accept_header_decides() {
        // Check that the wanted format wins, that the first one of the endpoint wins a draw, that a
        // precise range beats a broad one, and that what is a file alone is refused to clients
        // that want something else.
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
        for (accept, found) in [
            ("application/octet-stream", true),
            ("application/*", true),
            ("application/gzip, */*;q=0.1", true),
            ("application/json", false),
            ("application/octet-stream;q=0", false),
        ] {
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            for format in [Format::Pprof, Format::Profile] {
                let expected = found.then_some(format);
                assert_eq!(accepted(&headers, &[format]).ok(), expected, "{accept}");
            }
        }
        for (accept, format) in [("text/csv", Format::Csv), ("text/*", Format::Text)] {
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(accepted(&headers, TABLE).ok(), Some(format), "{accept}");
        }
    }
}
