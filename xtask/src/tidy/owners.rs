//! One owner per outside crate, and `unsafe` only where it is expected.

use super::Finding;
use super::tokens::Source;

/// Outside crates and the one module of the daemon that may use each. Tests may drive what they
/// test with any.
const OWNERS: [(&str, &str); 28] = [
    ("addr2line", "symbols"),
    ("aya", "kernel"),
    ("aya_log", "kernel"),
    ("aya_obj", "kernel"),
    ("axum", "http"),
    ("blazesym", "symbols"),
    ("clap", "args"),
    ("crc32fast", "symbols"),
    ("fastrand", "kernel"),
    ("flate2", "export"),
    ("gimli", "unwind"),
    ("hashbrown", "profile"),
    ("http_body_util", "http"),
    ("hyper", "http"),
    ("hyper_util", "http"),
    ("iced_x86", "unwind"),
    ("inferno", "export"),
    ("miniz_oxide", "symbols"),
    ("object", "elf"),
    ("perf_event_open_sys", "sys"),
    ("postcard", "export"),
    ("prost", "export"),
    ("prometheus", "metrics"),
    ("ratatui", "top"),
    ("rustix", "sys"),
    ("tower", "http"),
    ("tower_http", "http"),
    ("utoipa", "api"),
];

/// What of an outside crate others than its owner may write, and who: types that are written into
/// answers describe themselves, unwind information that is compressed (Go's) is unpacked where it
/// is read, and moments are drawn where it is decided that there are any.
const SHARED: [(&str, &[&str]); 3] = [
    ("fastrand::Rng", &["collect"]),
    ("flate2::read::ZlibDecoder", &["unwind"]),
    ("utoipa::ToSchema", &["config", "collect", "report"]),
];

/// Where `unsafe` may stand. The daemon's tests and the workloads call libc.
const UNSAFE: [&str; 6] = [
    "profiler-ebpf/",
    "profiler-daemon/src/kernel",
    "profiler-daemon/src/sys",
    "profiler-daemon/tests/",
    "profiler-daemon/benches/",
    "workloads/",
];

/// Findings in one source file.
pub(super) fn check(path: &str, source: &Source) -> Vec<Finding> {
    let mut findings = foreign_crates(path, source);
    findings.extend(stray_unsafe(path, source));
    findings
}

fn foreign_crates(path: &str, source: &Source) -> Vec<Finding> {
    let Some(file) = path.strip_prefix("profiler-daemon/src/") else {
        return Vec::new();
    };
    let own = file.split(['/', '.']).next().unwrap_or_default();
    let mut findings = Vec::new();
    for (index, words) in source.paths() {
        let imported = index
            .checked_sub(1)
            .is_some_and(|before| matches!(source.text(before), "use" | "{" | ","));
        let Some((outside, owner)) = OWNERS
            .iter()
            .find(|(outside, _)| words.first() == Some(outside))
        else {
            continue;
        };
        // A lone word is a path only in an import; elsewhere it is a variable, field or function.
        let lone = words.len() == 1 && !(imported && source.text(index - 1) == "use");
        let written = words.join("::");
        let shared = SHARED
            .iter()
            .any(|(path, sharers)| *path == written && sharers.contains(&own));
        if !lone && !shared && own != *owner && !source.tokens[index].in_tests {
            let what = format!("`{outside}` belongs to `{owner}`, not to `{own}`");
            findings.push(Finding {
                path: path.to_owned(),
                line: source.tokens[index].line,
                what,
            });
        }
    }
    findings
}

fn stray_unsafe(path: &str, source: &Source) -> Vec<Finding> {
    if UNSAFE.iter().any(|allowed| path.starts_with(allowed)) {
        return Vec::new();
    }
    let stray = source.tokens.iter().enumerate().filter(|(index, token)| {
        token.text == "unsafe"
            && !(path.starts_with("profiler-common/") && marks_plain_data(source, *index))
    });
    let finding = |line: usize| {
        let what = "`unsafe` outside kernel/, sys/ and profiler-ebpf".to_owned();
        Finding {
            path: path.to_owned(),
            line,
            what,
        }
    };
    stray.map(|(_, token)| finding(token.line)).collect()
}

/// Whether this `unsafe` begins `unsafe impl … Pod for …`.
fn marks_plain_data(source: &Source, index: usize) -> bool {
    let line = source.tokens[index].line;
    let mut rest = source.tokens[index + 1..]
        .iter()
        .take_while(|token| token.line == line)
        .map(|token| &token.text);
    rest.next().is_some_and(|text| text == "impl") && rest.any(|text| text == "Pod")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        let source = Source::read(path, text).expect("it is made of Rust's tokens");
        check(path, &source).len()
    }

    #[test]
    fn a_crate_has_one_owner() {
        // Check that an outside crate is refused outside its owner however it is named, and allowed
        // within.
        let foreign = "profiler-daemon/src/report/session.rs";
        assert_eq!(count(foreign, "use axum::Router;"), 1);
        assert_eq!(count(foreign, "use axum;"), 1);
        assert_eq!(count(foreign, "fn f() -> aya::Ebpf { todo() }"), 1);
        assert_eq!(count(foreign, "#[derive(clap::Parser)] struct A;"), 1);
        let answer = "#[derive(utoipa::ToSchema)] struct A;";
        assert_eq!(count(foreign, answer), 0);
        assert_eq!(count(foreign, "use utoipa::ToSchema;"), 0);
        assert_eq!(count(foreign, "use utoipa::PartialSchema;"), 1);
        let unpacks = "use flate2::read::ZlibDecoder;";
        assert_eq!(count("profiler-daemon/src/unwind/section.rs", unpacks), 0);
        assert_eq!(count(foreign, unpacks), 1);
        assert_eq!(count("profiler-daemon/src/profile/tree.rs", answer), 1);
        assert_eq!(
            count("profiler-daemon/src/http/router.rs", "use axum::Router;"),
            0
        );
        assert_eq!(
            count(
                "profiler-daemon/src/metrics.rs",
                "use prometheus::Registry;"
            ),
            0
        );
        assert_eq!(count("xtask/src/main.rs", "use clap::Parser;"), 0);
    }

    #[test]
    fn words_that_look_like_crates() {
        // Check that modules, fields and variables named like an outside crate are left alone.
        let text =
            "use crate::metrics::prometheus; fn f() { let tower = x.tower; g(tower, prometheus) }";
        assert_eq!(count("profiler-daemon/src/daemon.rs", text), 0);
    }

    #[test]
    fn unsafe_has_its_places() {
        // Check that unsafe code is refused outside its places, and the word in a comment or lint
        // is not code.
        let text = "fn f() { unsafe { g() } }";
        assert_eq!(count("profiler-daemon/src/profile/tree.rs", text), 1);
        assert_eq!(count("profiler-common/src/clock.rs", text), 1);
        assert_eq!(count("profiler-daemon/src/kernel/load.rs", text), 0);
        assert_eq!(count("profiler-ebpf/src/main.rs", text), 0);
        assert_eq!(
            count(
                "profiler-common/src/records.rs",
                "unsafe impl aya::Pod for Key {}"
            ),
            0
        );
        assert_eq!(
            count(
                "xtask/src/main.rs",
                "// unsafe\n#![deny(unsafe_op_in_unsafe_fn)]"
            ),
            0
        );
    }
}
