//! Who may import whom within the daemon, and which of its stages are pure.

use super::Finding;
use super::tokens::Source;

/// The daemon's modules in the order of the data. A module imports only from those before it.
/// Modules of one row do not know each other.
const ORDER: [&[&str]; 21] = [
    &["units", "error_chain"],
    &["sys"],
    &["config"],
    &["kernel"],
    &["elf"],
    &["processes"],
    &["unwind"],
    &["symbols"],
    &["profile"],
    &["collect"],
    &["report"],
    &["export"],
    &["stages"],
    &["metrics"],
    &["api"],
    &["args"],
    &["http"],
    &["backends"],
    &["doctor"],
    &["daemon", "record", "top"],
    &["main", "fuzzing"],
];

/// Modules without files, clocks, threads and globals: time and bytes are their arguments.
const PURE: [&str; 5] = [
    "processes::mappings",
    "processes::retire",
    "profile",
    "report",
    "export",
];

/// Paths by which an impure thing is reached.
const IMPURE: [&str; 13] = [
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "fs::File",
    "File::open",
    "Instant::now",
    "SystemTime::now",
    "thread::spawn",
    "thread::sleep",
    "tokio::*",
    "std::sync::OnceLock",
];

/// The module that a file of the daemon is, as words without `crate`; nothing for other files.
///
/// `lib.rs` only lists modules and is none of them.
pub(super) fn daemon_module(path: &str) -> Option<Vec<String>> {
    let file = path
        .strip_prefix("profiler-daemon/src/")?
        .strip_suffix(".rs")?;
    let mut words: Vec<_> = file.split('/').map(str::to_owned).collect();
    if words.len() > 1 && words.last().is_some_and(|word| word == "mod") {
        words.pop();
    }
    (words != ["lib"]).then_some(words)
}

/// Findings on the imports of one module of the daemon.
pub(super) fn check(path: &str, module: &[String], source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, what: String| {
        findings.push(Finding {
            path: path.to_owned(),
            line,
            what,
        })
    };
    let own = module.first().map_or("", String::as_str);
    let Some(own_rank) = rank(own) else {
        find(
            1,
            format!(
                "module `{own}` has no place in the order of layers (xtask/src/tidy/layers.rs)"
            ),
        );
        return findings;
    };
    let pure = PURE.iter().any(|pure| {
        let joined = module.join("::");
        joined == *pure || joined.starts_with(&format!("{pure}::"))
    });
    for (index, words) in source.paths() {
        let token = &source.tokens[index];
        if let Some(other) = top_module(&words, module.len(), token.inline_modules)
            && other != own
        {
            match rank(other) {
                Some(other_rank) if other_rank < own_rank => {}
                Some(other_rank) if other_rank == own_rank => {
                    find(
                        token.line,
                        format!("`{own}` imports `{other}`, which stands beside it"),
                    );
                }
                Some(_) => find(
                    token.line,
                    format!("`{own}` imports `{other}`, which comes later"),
                ),
                // Items of lib.rs itself, and modules that are found wanting above.
                None => {}
            }
        }
        if pure && !token.in_tests && is_impure(&words) {
            find(
                token.line,
                format!("`{}` in a module that should be pure", words.join("::")),
            );
        }
    }
    findings
}

/// The topmost module that a path leads into, if it leads there from the crate's root.
fn top_module<'a>(words: &[&'a str], depth: usize, inline_modules: usize) -> Option<&'a str> {
    match words {
        // The binary names the library by its name.
        ["crate" | "profiler_daemon", top, ..] => Some(top),
        ["super", ..] => {
            let ups = words.iter().take_while(|word| **word == "super").count();
            (ups == depth + inline_modules)
                .then(|| words.get(ups).copied())
                .flatten()
        }
        _ => None,
    }
}

fn is_impure(words: &[&str]) -> bool {
    let joined = words.join("::");
    IMPURE
        .iter()
        .any(|impure| match impure.strip_suffix("::*") {
            Some(prefix) => words.first() == Some(&prefix),
            None => {
                joined == *impure
                    || joined.starts_with(&format!("{impure}::"))
                    || joined.ends_with(&format!("::{impure}"))
            }
        })
}

fn rank(module: &str) -> Option<usize> {
    ORDER.iter().position(|row| row.contains(&module))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let module = daemon_module(path).expect("it is a module of the daemon");
        let source = Source::read(path, text).expect("it is made of Rust's tokens");
        check(path, &module, &source)
            .into_iter()
            .map(|finding| finding.to_string())
            .collect()
    }

    #[test]
    fn later_stages_are_refused() {
        // Check that importing a later stage is refused however it is written, with the line.
        let path = "profiler-daemon/src/profile/tree.rs";
        for text in [
            "\nuse crate::http::app;",
            "\nuse crate::{processes::ids::ProcessKey, http::app};",
            "\nfn f() { crate::http::app() }",
            "\nuse super::super::http::app;",
            "\nmod inner { use super::super::super::http::app; }",
        ] {
            assert_eq!(
                findings(path, text),
                [format!(
                    "{path}:2: `profile` imports `http`, which comes later"
                )],
                "{text}"
            );
        }
    }

    #[test]
    fn neighbours_are_refused() {
        // Check that modules of one row may not import each other.
        let found = findings("profiler-daemon/src/top.rs", "use crate::record::run;");
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn earlier_stages_are_fine() {
        // Check that imports of earlier stages, of oneself, and words that only look alike are left
        // alone.
        let path = "profiler-daemon/src/http/router.rs";
        let text =
            "use crate::{report::query, http::errors}; use super::errors; use axum::http::main;
            // crate::daemon
            const S: &str = \"crate::daemon\"; mod tests { use super::*; }";
        assert_eq!(findings(path, text), [""; 0]);
        assert_eq!(
            findings(
                "profiler-daemon/src/main.rs",
                "use profiler_daemon::daemon::run;"
            ),
            [""; 0]
        );
    }

    #[test]
    fn a_module_without_a_place_is_refused() {
        // Check that a new topmost module must be given a place in the order.
        assert_eq!(findings("profiler-daemon/src/utils.rs", "").len(), 1);
    }

    #[test]
    fn pure_stages_stay_pure() {
        // Check that clocks and files are refused in a pure stage, and allowed in its tests and
        // elsewhere.
        let clock = "fn f() { let t = std::time::Instant::now(); }";
        assert_eq!(
            findings("profiler-daemon/src/report/session.rs", clock).len(),
            1
        );
        assert_eq!(
            findings(
                "profiler-daemon/src/processes/mappings.rs",
                "use std::fs::File;"
            )
            .len(),
            1
        );
        assert_eq!(
            findings(
                "profiler-daemon/src/processes/live.rs",
                "use std::fs::File;"
            ),
            [""; 0]
        );
        let tests = format!("#[cfg(test)] mod tests {{ {clock} }}");
        assert_eq!(
            findings("profiler-daemon/src/report/session.rs", &tests),
            [""; 0]
        );
    }
}
