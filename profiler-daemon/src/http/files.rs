//! Files that are compiled in, and how they go out: with their type, a policy, and a tag by which a
//! browser keeps them. Which files there are and what they may do is said by `page` and
//! `speedscope`.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

/// One file.
pub(super) struct File {
    /// Its path below its site's address.
    pub(super) name: &'static str,
    /// Its bytes.
    pub(super) content: &'static [u8],
}

/// Files that belong together.
pub(super) struct Site {
    /// All of them.
    pub(super) files: &'static [File],
    /// What a browser lets them do.
    pub(super) policy: HeaderValue,
}

/// Files by their paths below a folder, which is named relative to `src/http`.
macro_rules! files {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$($crate::http::files::File {
            name: $name,
            content: include_bytes!(concat!($folder, $name)),
        }),+]
    };
}
pub(super) use files;

impl Site {
    /// The answer with a file, or that the browser has it already; none where there is no file of
    /// that name.
    pub(super) fn respond(&self, name: &str, headers: &HeaderMap) -> Option<Response> {
        let file = self.files.iter().find(|file| file.name == name)?;
        let tag = format!("W/\"{:016x}\"", fnv1a(file.content));
        let known = headers
            .get_all(header::IF_NONE_MATCH)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| is_among(&tag, value));
        let mut response = if known {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            file.content.into_response()
        };
        let tag = HeaderValue::try_from(tag).expect("a tag is digits and quotes");
        for (name, value) in [
            (header::CONTENT_TYPE, content_type(file.name)),
            (header::CONTENT_SECURITY_POLICY, self.policy.clone()),
            // It may be kept, and is asked for again: the daemon may be another version by then.
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (header::ETAG, tag),
        ] {
            response.headers_mut().insert(name, value);
        }
        Some(response)
    }
}

/// Whether `If-None-Match` has this tag, which is weak, or any at all (`*`). Whether the tags there
/// are weak does not matter (RFC 9110, 13.1.2).
fn is_among(tag: &str, value: &str) -> bool {
    let plain = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    let mut listed = value.split(',').map(str::trim);
    value.trim() == "*" || listed.any(|listed| plain(listed) == plain(tag))
}

fn content_type(name: &str) -> HeaderValue {
    HeaderValue::from_static(match name.rsplit_once('.').map(|(_, kind)| kind) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("woff2") => "font/woff2",
        Some("md") | None => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    })
}

/// A hash that differs where the file does; not one that withstands an attacker.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Checks that the files are those of a folder of the daemon, in order, and that each has a type of
/// its own. What `is_of_it` refuses is left aside.
#[cfg(test)]
pub(super) fn assert_files_of(files: &[File], folder: &str, is_of_it: impl Fn(&str) -> bool) {
    fn names(folder: &std::path::Path, prefix: &str, found: &mut Vec<String>) {
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
    let mut found = Vec::new();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    names(&root, "", &mut found);
    found.retain(|name| is_of_it(name));
    found.sort();
    let listed: Vec<_> = files.iter().map(|file| file.name).collect();
    assert_eq!(listed, found, "the table and {folder} differ");
    for name in listed {
        assert_ne!(content_type(name), "application/octet-stream", "{name}");
    }
}
