//! `cargo xtask tidy`: what neither compiler nor clippy checks about the shape of the sources.
//!
//! The checks read tokens, not meaning: what a macro hides stays hidden from them.

mod circles;
mod files;
mod layers;
mod owners;
mod prose;
mod shown;
mod tokens;

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::shell;
use crate::workspace::Workspace;

use circles::Imports;
use tokens::Source;

/// One thing that should be otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    path: String,
    /// Counted from 1.
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Checks every file that git tracks or would track; fails when one should be otherwise.
pub(crate) fn tidy(workspace: &Workspace) -> anyhow::Result<()> {
    let paths = tracked(workspace.root())?;
    let mut findings = Vec::new();
    let mut imports = Imports::default();
    for path in &paths {
        let file = workspace.root().join(path);
        let Ok(bytes) = fs::read(&file) else {
            // Deleted, not yet committed.
            continue;
        };
        // Images and the like are not text.
        if let Ok(text) = String::from_utf8(bytes) {
            findings.extend(check(path, &text, &mut imports));
            if path.ends_with(".md") {
                findings.extend(prose::named_files(path, &text, &paths));
            }
            if path == shown::PAGE {
                findings.extend(shown::check(workspace.root(), &text));
            }
        }
    }
    findings.extend(imports.circles());
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} lines are not tidy", findings.len());
    }
    println!("tidy: {} files are as they should be", paths.len());
    Ok(())
}

/// All findings in one file, whose path is relative to the root of the checkout; what it imports
/// is added to `imports`.
fn check(path: &str, text: &str, imports: &mut Imports) -> Vec<Finding> {
    // What others wrote stays as they wrote it.
    if path.contains("/third-party/") {
        return Vec::new();
    }
    let mut findings = files::machine_paths(path, text);
    let is = |ending: &str| path.ends_with(ending);
    if is(".js") || is(".mjs") {
        findings.extend(files::shape(path, text, "// "));
    }
    if is(".js") && path.starts_with("profiler-daemon/ui/") {
        findings.extend(files::markup(path, text));
    }
    if is(".css") {
        findings.extend(files::shape(path, text, "/* "));
    }
    if is(".md") {
        findings.extend(prose::page(path, text));
    }
    if is(".rs") {
        findings.extend(files::shape(path, text, "//!"));
        findings.extend(prose::comments(path, text));
        match Source::read(path, text) {
            Ok(source) => {
                imports.add(path, &source);
                findings.extend(owners::check(path, &source));
                if let Some(module) = layers::daemon_module(path) {
                    findings.extend(layers::check(path, &module, &source));
                }
            }
            Err(finding) => findings.push(finding),
        }
    }
    findings
}

/// The paths that git tracks, and those it would track if they were added.
fn tracked(root: &Path) -> anyhow::Result<Vec<String>> {
    // The checkout may belong to another user than the one who checks it.
    let mut list = Command::new("git");
    list.args([
        "-c",
        "safe.directory=*",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let text =
        shell::output(list.current_dir(root)).context("listing the files of the checkout")?;
    let mut paths: Vec<_> = text.lines().map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_checkout_is_read() {
        // Check that the list of files is that of the checkout: it names this very file.
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("the package lies in a workspace");
        let paths = tracked(root).expect("git lists its files");
        assert!(
            paths.iter().any(|path| path == "xtask/src/tidy/mod.rs"),
            "{paths:?}"
        );
    }

    #[test]
    fn a_bad_file_is_refused_for_each_fault() {
        // Check that the checks are wired: one file with every fault yields a finding of each kind,
        // at its line.
        let text = "use crate::http::app;\nuse axum::Router;\nfn f() { unsafe { g() } }\n";
        let mut imports = Imports::default();
        let found = check("profiler-daemon/src/profile/tree.rs", text, &mut imports);
        let lines: Vec<_> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(lines, [1, 2, 3, 1], "{found:?}");
    }
}
