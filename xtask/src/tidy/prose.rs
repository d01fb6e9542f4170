//! What holds for text that people read: the length of its lines, of comments too, and of the pages
//! that a newcomer begins with; and that the files of code are there that pages name.

use super::Finding;

/// Columns at which a line of prose ends.
const LONGEST_LINE: usize = 100;

/// Pages that are read whole, with the lines that they may have.
const SHORT_PAGES: [(&str, usize); 2] = [("README.md", 150), ("ARCHITECTURE.md", 200)];

/// What a page says first that is written by a program.
const GENERATED: &str = "Generated from the code.";

/// Findings on a page. Tables, code and pictures may be as wide as they are.
pub(super) fn page(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let find = |line: usize, what: String| Finding {
        path: path.to_owned(),
        line,
        what,
    };
    let lines = text.lines().count();
    for (page, most) in SHORT_PAGES {
        if path == page && lines > most {
            findings.push(find(
                lines,
                format!("has {lines} lines: {most} are the most"),
            ));
        }
    }
    if text.contains(GENERATED) {
        return findings;
    }
    for (line, text) in outside_code(text) {
        let start = text.trim_start();
        let columns = text.chars().count();
        if columns > LONGEST_LINE && !start.starts_with('|') && !start.starts_with("![") {
            findings.push(find(
                line,
                format!("has {columns} columns: prose ends at {LONGEST_LINE}"),
            ));
        }
    }
    findings
}

/// The lines of a page, from 1, but for blocks of code.
fn outside_code(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(page.lines()).filter(move |(_, line)| {
        let is_border = line.trim_start().starts_with("```");
        in_code ^= is_border;
        !in_code && !is_border
    })
}

/// The words of a line that stand in backticks.
pub(super) fn in_backticks(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Findings on files of code that a page names, in backticks, by the end of their path, and that
/// none of `paths` is.
pub(super) fn named_files(path: &str, text: &str, paths: &[String]) -> Vec<Finding> {
    let is_there = |word: &str| {
        let mut before = paths.iter().filter_map(|path| path.strip_suffix(word));
        before.any(|before| before.is_empty() || before.ends_with('/'))
    };
    let words = outside_code(text)
        .flat_map(|(line, text)| in_backticks(text).map(move |word| (line, word)));
    let missing = words.filter(|(_, word)| names_code(word) && !is_there(word));
    let findings = missing.map(|(line, word)| Finding {
        path: path.to_owned(),
        line,
        what: format!("there is no file `{word}`"),
    });
    findings.collect()
}

/// Is it the path of a file of code, and nothing else?
fn names_code(word: &str) -> bool {
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let mut endings = [".rs", ".js", ".mjs"].iter();
    endings.any(|ending| {
        word.strip_suffix(ending)
            .is_some_and(|stem| !stem.is_empty())
    }) && word.chars().all(is_of_path)
}

/// Findings on the comments of a file of Rust that stand on lines of their own.
pub(super) fn comments(path: &str, text: &str) -> Vec<Finding> {
    let lines = text.lines().enumerate();
    let long = lines.filter_map(|(index, line)| {
        let columns = line.chars().count();
        let is_long = columns > LONGEST_LINE && line.trim_start().starts_with("//");
        is_long.then(|| Finding {
            path: path.to_owned(),
            line: index + 1,
            what: format!("has {columns} columns: comments end at {LONGEST_LINE}"),
        })
    });
    long.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_comments_are_refused() {
        // Check that a long comment is refused, and a long line of code is not.
        let long = "word ".repeat(21);
        let text = format!("//! {long}\nlet a = \"{long}\";\n    // {long}\n/// short\n");
        let found = comments("src/a.rs", &text);
        assert_eq!(found.iter().map(|of| of.line).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn files_that_are_not_there_are_found() {
        // Check that a file is named by its path or the end of it, at the border of a folder, and
        // that code and words that are no files are not looked at.
        let paths = ["a/src/main.rs".to_owned(), "ui/view.js".to_owned()];
        let page = "`main.rs` `src/main.rs` `a/src/main.rs` `view.js`\n\
                    ```\n`gone.rs`\n```\n`cargo run x.rs` `.rs` `other.css`\n\
                    `ain.rs` `src/lib.rs`\n";
        let found = named_files("docs/a.md", page, &paths);
        let found: Vec<_> = found.iter().map(|of| (of.line, of.what.as_str())).collect();
        assert_eq!(
            found,
            [
                (6, "there is no file `ain.rs`"),
                (6, "there is no file `src/lib.rs`")
            ]
        );
    }

    #[test]
    fn long_lines_and_long_pages_are_refused() {
        // Check that a long line of prose is refused, one of a table or of code is not, and that
        // the first pages stay short.
        let long = "word ".repeat(21);
        assert_eq!(page("docs/a.md", &format!("# A\n{long}\n")).len(), 1);
        let wide = format!("| {long} |\n```\n{long}\n```\n![{long}](a.png)\n");
        assert_eq!(page("docs/a.md", &wide), []);
        assert_eq!(page("README.md", &"a\n".repeat(150)), []);
        assert_eq!(page("README.md", &"a\n".repeat(151)).len(), 1);
        assert_eq!(page("docs/a.md", &"a\n".repeat(151)), []);
    }
}
