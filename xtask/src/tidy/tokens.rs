//! Rust source as words and signs with their lines: comments and the contents of literals left out.
//!
//! Just enough to follow paths and blocks; it does not parse, and accepts what no compiler would.

use proc_macro2::{Delimiter, LexError, Spacing, Span, TokenStream, TokenTree};

use super::Finding;

/// One word or sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    /// An identifier or keyword as written; `::`; or one other sign. A literal is `"`.
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
    /// Reads a source file; that one holds nothing but tests is known by its path.
    ///
    /// # Errors
    /// It is not made of Rust's tokens.
    pub(super) fn read(path: &str, text: &str) -> Result<Self, Finding> {
        let trees: TokenStream = text.parse().map_err(|error: LexError| Finding {
            path: path.to_owned(),
            line: error.span().start().line,
            what: "cannot be read as Rust".to_owned(),
        })?;
        let place = Place {
            in_tests: holds_only_tests(path),
            inline_modules: 0,
        };
        let mut tokens = Vec::new();
        flatten(trees, place, &mut tokens);
        Ok(Self { tokens })
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

/// What surrounds a token.
#[derive(Clone, Copy)]
struct Place {
    in_tests: bool,
    inline_modules: usize,
}

impl Place {
    fn token(self, text: &str, span: Span) -> Token {
        Token {
            text: text.to_owned(),
            line: span.start().line,
            in_tests: self.in_tests,
            inline_modules: self.inline_modules,
        }
    }
}

/// Appends the tokens of `trees`, those of groups included.
fn flatten(trees: TokenStream, mut place: Place, tokens: &mut Vec<Token>) {
    let around = place;
    let mut trees = trees.into_iter();
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Ident(word) => tokens.push(place.token(&word.to_string(), word.span())),
            TokenTree::Literal(literal) => tokens.push(place.token("\"", literal.span())),
            // A lifetime: its name is no word of a path.
            TokenTree::Punct(sign) if sign.as_char() == '\'' => drop(trees.next()),
            TokenTree::Punct(sign) if sign.as_char() == ':' && sign.spacing() == Spacing::Joint => {
                tokens.push(place.token("::", sign.span()));
                trees.next();
            }
            TokenTree::Punct(sign) => {
                tokens.push(place.token(&sign.to_string(), sign.span()));
                if sign.as_char() == ';' {
                    place.in_tests = around.in_tests;
                }
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Parenthesis | Delimiter::None => ("(", ")"),
                };
                let is_block = group.delimiter() == Delimiter::Brace;
                let opens_module = is_block && texts(tokens).nth(1) == Some("mod");
                tokens.push(place.token(open, group.span_open()));
                let within = Place {
                    inline_modules: place.inline_modules + usize::from(opens_module),
                    ..place
                };
                flatten(group.stream(), within, tokens);
                // The item that follows the attribute, to the end of its block, is one of tests.
                let announces_tests = texts(tokens).take(5).eq([")", "test", "(", "cfg", "["]);
                tokens.push(place.token(close, group.span_close()));
                place.in_tests =
                    around.in_tests || announces_tests || (place.in_tests && !is_block);
            }
        }
    }
}

/// The tokens' texts, the last one first.
fn texts(tokens: &[Token]) -> impl Iterator<Item = &str> {
    tokens.iter().rev().map(|token| token.text.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Source {
        Source::read("a.rs", text).expect("it is made of Rust's tokens")
    }

    fn words(text: &str) -> Vec<String> {
        let tokens = read(text).tokens.into_iter();
        tokens.map(|token| token.text).collect()
    }

    #[test]
    fn comments_and_literals_are_no_words() {
        // Check that words in comments, strings and characters are not taken for code.
        assert_eq!(words("a // b\n /* c /* d */ e */ f"), ["a", "f"]);
        assert_eq!(
            words(r##"("x \" unsafe", r#"un"safe"#, b"q", 'u', '\'', '"')"##).join(""),
            "(\",\",\",\",\",\")"
        );
        assert_eq!(
            words("fn f<'a>(x: &'a u8)"),
            ["fn", "f", "<", ">", "(", "x", ":", "&", "u8", ")"]
        );
    }

    #[test]
    fn lines_are_counted_through_literals() {
        // Check that a token after a string of several lines has the right line.
        let tokens = read("\"a\nb\"\n/* \n */ x").tokens;
        assert_eq!(tokens.last().map(|token| token.line), Some(4));
    }

    #[test]
    fn what_is_no_rust_is_refused() {
        // Check that a file which does not end as it begins is a finding at its line.
        let found = Source::read("a.rs", "fn a() {}\nfn b() { (").err();
        assert_eq!(found.map(|found| found.line), Some(2));
    }

    #[test]
    fn groups_are_spread() {
        // Check that each path of nested groups is found in full.
        let source = read("use crate::{a::{b, c::D}, http::*}; fn f() { crate::e::g() }");
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
        let source = read("#[cfg(test)] use a; fn b() {} #[cfg(test)] mod t { mod u { c } d } e");
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
