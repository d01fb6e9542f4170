//! What holds for text that people read: the length of its lines, of comments too, and of the pages
//! that a newcomer begins with.

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
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") {
            in_code = !in_code;
        }
        let is_prose = !in_code
            && !["|", "![", "```"]
                .iter()
                .any(|word| start.starts_with(word));
        let columns = line.chars().count();
        if is_prose && columns > LONGEST_LINE {
            findings.push(find(
                index + 1,
                format!("has {columns} columns: prose ends at {LONGEST_LINE}"),
            ));
        }
    }
    findings
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
