//! Circles among the files of the daemon: files that import each other, at first or at last hand.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::layers::daemon_module;
use super::tokens::Source;

/// Files that import each other may be so many: two halves of one thing.
const LARGEST: usize = 2;

/// What each file of the daemon imports of others, by module.
#[derive(Default)]
pub(super) struct Imports {
    files: BTreeMap<String, File>,
}

struct File {
    path: String,
    /// Paths that it names, from the crate's root.
    names: BTreeSet<String>,
}

impl Imports {
    /// Takes in a file; one that is no module of the daemon is none of this.
    pub(super) fn add(&mut self, path: &str, source: &Source) {
        let Some(module) = daemon_module(path) else {
            return;
        };
        let mut names = BTreeSet::new();
        for (index, words) in source.paths() {
            let token = &source.tokens[index];
            if !token.in_tests
                && let Some(name) = from_root(&words, &module, token.inline_modules)
            {
                names.insert(name);
            }
        }
        let path = path.to_owned();
        self.files.insert(module.join("::"), File { path, names });
    }

    /// A finding for each circle that is too large, at its first file.
    pub(super) fn circles(&self) -> Vec<Finding> {
        let edges = self.edges();
        let reached: BTreeMap<&str, BTreeSet<&str>> = edges
            .keys()
            .map(|module| (*module, reachable(module, &edges)))
            .collect();
        let mut findings = Vec::new();
        let mut told: BTreeSet<&str> = BTreeSet::new();
        for (module, from_here) in &reached {
            let circle: Vec<&str> = from_here
                .iter()
                .copied()
                .filter(|other| reached[other].contains(module))
                .collect();
            if circle.len() <= LARGEST || told.contains(module) {
                continue;
            }
            told.extend(&circle);
            findings.push(Finding {
                path: self.files[*module].path.clone(),
                line: 1,
                what: format!("these import each other in a circle: {}", circle.join(", ")),
            });
        }
        findings
    }

    /// Which module imports which. A module and those within it are one thing.
    fn edges(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let within = |inner: &str, outer: &str| {
            inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let all = self.files.iter();
        let edges = all.map(|(module, file)| {
            let targets = file.names.iter().filter_map(|name| self.module_of(name));
            let others = targets.filter(|other| !within(other, module) && !within(module, other));
            (module.as_str(), others.collect())
        });
        edges.collect()
    }

    /// The module in which something lies.
    fn module_of(&self, name: &str) -> Option<&str> {
        let mut name = name;
        loop {
            if let Some((module, _)) = self.files.get_key_value(name) {
                return Some(module);
            }
            name = name.rsplit_once("::")?.0;
        }
    }
}

fn reachable<'a>(from: &'a str, edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = edges[from].iter().copied().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(&edges[module]);
        }
    }
    reached
}

/// A path of a module as it is from the crate's root; `None` where it is of another crate or leads
/// into the module itself.
fn from_root(words: &[&str], module: &[String], inline_modules: usize) -> Option<String> {
    let (base, rest): (&[String], &[&str]) = match words {
        ["crate" | "profiler_daemon", rest @ ..] => (&[], rest),
        ["super", ..] => {
            let ups = words.iter().take_while(|word| **word == "super").count();
            let ups_of_file = ups.checked_sub(inline_modules)?;
            let base = module.get(..module.len().checked_sub(ups_of_file)?)?;
            (base, &words[ups..])
        }
        _ => return None,
    };
    let base = base.iter().map(String::as_str);
    let words: Vec<&str> = base.chain(rest.iter().copied()).collect();
    Some(words.join("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Imports {
        let mut imports = Imports::default();
        for (file, text) in files {
            let path = format!("profiler-daemon/src/{file}.rs");
            let source = Source::read(&path, text).expect("it is made of Rust's tokens");
            imports.add(&path, &source);
        }
        imports
    }

    #[test]
    fn circles_of_three_are_refused() {
        // Check that files that import each other over a third one are refused once, and named; two
        // that do, a folder and what is in it, and imports of tests are not.
        let three = [
            ("report/a", "use super::{b::B, x::X};"),
            ("report/b", "use crate::report::c::{self, C};"),
            ("report/c", "fn c() { super::a::a() }"),
            ("report/x", "use crate::profile::P;"),
        ];
        let found = imports(&three).circles();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.ends_with("report::a, report::b, report::c"));
        let fine = [
            ("report/mod", "mod a;\npub use a::A;"),
            ("report/a", "use super::b::B;\nuse super::Whole;"),
            ("report/b", "use super::a::A;"),
            (
                "report/c",
                "#[cfg(test)]\nmod tests { use super::super::a::A; }",
            ),
        ];
        assert_eq!(imports(&fine).circles(), []);
    }
}
