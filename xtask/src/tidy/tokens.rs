//! Rust source as words and signs with their lines: comments, strings and characters left out.
//!
//! Just enough to follow paths and blocks; it does not parse, and accepts what no compiler would.

/// One word or sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    /// An identifier, keyword or number as written; `::`; or one other sign. A literal is `"`.
    pub(super) text: String,
    /// Counted from 1.
    pub(super) line: usize,
    /// Whether it stands in an item under `#[cfg(test)]`.
    pub(super) in_tests: bool,
    /// How many inline modules (`mod name { … }`) enclose it.
    pub(super) inline_modules: usize,
}

/// A source file, read.
pub(super) struct Source {
    /// All tokens in order.
    pub(super) tokens: Vec<Token>,
}

impl Source {
    /// Reads a source file; that one which holds nothing but tests is told by its path.
    pub(super) fn read(path: &str, text: &str) -> Self {
        let mut tokens = split(text);
        mark_blocks(&mut tokens);
        if holds_only_tests(path) {
            tokens.iter_mut().for_each(|token| token.in_tests = true);
        }
        Self { tokens }
    }

    /// The token's text, or nothing past the end.
    pub(super) fn text(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| &token.text)
    }

    /// Every path in the source, also each within a group (`use a::{b::c, d};`), as its words.
    ///
    /// The index is that of the path's first token in the source.
    pub(super) fn paths(&self) -> Vec<(usize, Vec<&str>)> {
        let mut paths = Vec::new();
        let mut index = 0;
        while index < self.tokens.len() {
            if is_word(self.text(index)) {
                index = self.path(index, Vec::new(), &mut paths);
            } else {
                index += 1;
            }
        }
        paths
    }

    /// Reads the path that begins at `index` after the words of `prefix`; answers with the index
    /// after it.
    fn path<'a>(
        &'a self,
        mut index: usize,
        prefix: Vec<&'a str>,
        paths: &mut Vec<(usize, Vec<&'a str>)>,
    ) -> usize {
        let start = index;
        let mut words = prefix;
        loop {
            match self.text(index) {
                "{" if index > start => {
                    index += 1;
                    while !matches!(self.text(index), "}" | "") {
                        index = match self.text(index) {
                            text if is_word(text) || text == "{" => {
                                self.path(index, words.clone(), paths)
                            }
                            _ => index + 1,
                        };
                    }
                    return index + 1;
                }
                word if is_word(word) || word == "*" => words.push(word),
                _ => break,
            }
            index += 1;
            if self.text(index) != "::" {
                break;
            }
            index += 1;
        }
        paths.push((start, words));
        index.max(start + 1)
    }
}

/// Whether the file is one of tests: `tests.rs`, `tests/…`, or `…_tests.rs`.
fn holds_only_tests(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.contains("/tests/")
}

/// Whether the token is an identifier or a keyword.
pub(super) fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

fn split(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, token) = next(rest, first);
        let (taken, after) = rest.split_at(length);
        if let Some(text) = token {
            tokens.push(Token {
                text: text.to_owned(),
                line,
                in_tests: false,
                inline_modules: 0,
            });
        }
        line += taken.matches('\n').count();
        rest = after;
    }
    tokens
}

/// The length in bytes of what `rest` begins with, and the token it is, if it is one.
fn next(rest: &str, first: char) -> (usize, Option<&str>) {
    let until = |end: &str| rest.find(end).map_or(rest.len(), |at| at + end.len());
    if rest.starts_with("//") {
        return (until("\n"), None);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), None);
    }
    if let Some(length) = raw_string(rest) {
        return (length, Some("\""));
    }
    for prefix in ["\"", "b\"", "c\""] {
        if rest.starts_with(prefix) {
            return (quoted(rest, prefix.len(), '"'), Some("\""));
        }
    }
    if rest.starts_with("b'") {
        return (quoted(rest, 2, '\''), Some("\""));
    }
    if first == '\'' {
        return quote(rest);
    }
    if first.is_alphanumeric() || first == '_' {
        let length = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        return (length, Some(&rest[..length]));
    }
    if rest.starts_with("::") {
        return (2, Some("::"));
    }
    let length = first.len_utf8();
    (length, (!first.is_whitespace()).then(|| &rest[..length]))
}

/// A character literal, or the sign that begins a lifetime.
fn quote(rest: &str) -> (usize, Option<&str>) {
    let mut characters = rest.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), _) => (quoted(rest, 1, '\''), Some("\"")),
        (Some(_), Some((at, '\''))) => (at + 1, Some("\"")),
        // A lifetime: its name is no word of a path.
        _ => {
            let name = rest[1..]
                .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                .unwrap_or(rest.len() - 1);
            (1 + name, None)
        }
    }
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

fn raw_string(rest: &str) -> Option<usize> {
    let after = ["br", "cr", "r"]
        .into_iter()
        .find_map(|prefix| rest.strip_prefix(prefix))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].strip_prefix('"')?;
    let start = rest.len() - after.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(
        rest[start..]
            .find(&end)
            .map_or(rest.len(), |at| start + at + end.len()),
    )
}

/// The length of a literal that ends with `end` and may escape it; `start` is where its content
/// begins.
fn quoted(rest: &str, start: usize, end: char) -> usize {
    let mut escaped = false;
    for (at, character) in rest[start..].char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == end => return start + at + character.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// Fills in which tokens are in tests and in how many inline modules.
fn mark_blocks(tokens: &mut [Token]) {
    let mut depth = 0_usize;
    // Depths at which inline modules, and the outermost item of tests, opened.
    let mut modules: Vec<usize> = Vec::new();
    let mut tests: Option<usize> = None;
    let mut tests_announced = false;
    for index in 0..tokens.len() {
        let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.text == text);
        match tokens[index].text.as_str() {
            "cfg" if is(index + 1, "(") && is(index + 2, "test") && is(index + 3, ")") => {
                tests_announced = true
            }
            "{" => {
                depth += 1;
                if index >= 2 && is(index - 2, "mod") {
                    modules.push(depth);
                }
                if tests_announced && tests.is_none() {
                    tests = Some(depth);
                }
                tests_announced = false;
            }
            ";" => tests_announced = false,
            "}" => {
                modules.pop_if(|opened| *opened == depth);
                if tests == Some(depth) {
                    tests = None;
                }
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
        tokens[index].in_tests = tests.is_some() || tests_announced;
        tokens[index].inline_modules = modules.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        split(source).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_and_literals_are_no_words() {
        // Check that words in comments, strings and characters are not taken for code.
        assert_eq!(texts("a // b\n /* c /* d */ e */ f"), ["a", "f"]);
        assert_eq!(
            texts(r##"("x \" unsafe", r#"un"safe"#, b"q", 'u', '\'', '"')"##).join(""),
            "(\",\",\",\",\",\")"
        );
        assert_eq!(
            texts("fn f<'a>(x: &'a u8)"),
            ["fn", "f", "<", ">", "(", "x", ":", "&", "u8", ")"]
        );
    }

    #[test]
    fn lines_are_counted_through_literals() {
        // Check that a token after a string of several lines has the right line.
        let tokens = split("\"a\nb\"\n/* \n */ x");
        assert_eq!(tokens.last().map(|token| token.line), Some(4));
    }

    #[test]
    fn groups_are_spread() {
        // Check that each path of nested groups is found in full.
        let source = Source::read(
            "a.rs",
            "use crate::{a::{b, c::D}, http::*}; fn f() { crate::e::g() }",
        );
        let paths: Vec<_> = source
            .paths()
            .into_iter()
            .map(|(_, words)| words.join("::"))
            .collect();
        for path in [
            "crate::a::b",
            "crate::a::c::D",
            "crate::http::*",
            "crate::e::g",
        ] {
            assert!(
                paths.iter().any(|found| found == path),
                "{path} in {paths:?}"
            );
        }
    }

    #[test]
    fn tests_end_where_their_block_ends() {
        // Check that only the item under `#[cfg(test)]` counts as tests.
        let source = Source::read(
            "a.rs",
            "#[cfg(test)] use a; fn b() {} #[cfg(test)] mod t { mod u { c } d } e",
        );
        let find = |text: &str| {
            source
                .tokens
                .iter()
                .find(|token| token.text == text)
                .expect("it is there")
        };
        assert!(find("a").in_tests && find("c").in_tests && find("d").in_tests);
        assert!(!find("b").in_tests && !find("e").in_tests);
        assert_eq!(
            (
                find("c").inline_modules,
                find("d").inline_modules,
                find("e").inline_modules
            ),
            (2, 1, 0)
        );
    }
}
