//! What holds for files as a whole: their opening, their length, no path of one machine, and no
//! markup made from text by the page.

use super::Finding;

/// Lines at which a source file is to be split.
const LONGEST_LINES: usize = 600;

/// Beginnings of paths that exist on the machine of whoever wrote them. Written in halves, as this
/// file is checked too.
const MACHINE_PATHS: [(&str, &str); 3] = [("/wo", "rk/"), ("/ro", "ot/"), ("/tmp", "/wt")];

/// Words by which a script makes markup or code out of text. The page shows names that programs
/// choose: it has no use for them.
const MARKUP_WORDS: [&str; 8] = [
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "setHTMLUnsafe",
    "createContextualFragment",
    "document.write",
    "DOMParser",
    "eval(",
];

/// Findings on markup or code made out of text, in a script of the page.
pub(super) fn markup(path: &str, text: &str) -> Vec<Finding> {
    let lines = text.lines().enumerate();
    let found = lines.flat_map(|(index, line)| {
        let words = MARKUP_WORDS.iter().filter(|word| line.contains(**word));
        words.map(move |word| Finding {
            path: path.to_owned(),
            line: index + 1,
            what: format!("`{word}` can make markup or code out of a name: use dom.js"),
        })
    });
    found.collect()
}

/// Findings on the opening and the length of a source file, whose opening comment begins with
/// `opening`.
pub(super) fn shape(path: &str, text: &str, opening: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, what: String| {
        findings.push(Finding {
            path: path.to_owned(),
            line,
            what,
        })
    };
    if !text.starts_with(opening) {
        find(
            1,
            format!("does not open with `{opening}` and what the file is for"),
        );
    }
    let lines = text.lines().count();
    if lines > LONGEST_LINES {
        find(
            lines,
            format!("has {lines} lines: split it, {LONGEST_LINES} are the most"),
        );
    }
    findings
}

/// Findings on absolute paths of one machine, in any text file.
pub(super) fn machine_paths(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (head, tail) in MACHINE_PATHS {
            let folder = format!("{head}{tail}");
            if line
                .match_indices(&folder)
                .any(|(at, _)| begins_a_path(&line[..at]))
            {
                let what = format!("`{folder}` is a path of one machine");
                findings.push(Finding {
                    path: path.to_owned(),
                    line: index + 1,
                    what,
                });
            }
        }
    }
    findings
}

/// Whether a slash after this text begins an absolute path rather than continues another.
fn begins_a_path(before: &str) -> bool {
    !before.ends_with(|last: char| last.is_alphanumeric() || "/._-}>*".contains(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_open_with_their_purpose() {
        // Check that a source file without an opening comment is refused.
        assert_eq!(shape("a.rs", "use std::fs;\n", "//!").len(), 1);
        assert_eq!(shape("a.rs", "//! Reads.\n", "//!"), []);
    }

    #[test]
    fn markup_from_text_is_refused() {
        // Check that a script of the page that makes markup out of text is refused at its line.
        let found = markup(
            "ui/a.js",
            "// Shows.\nb.innerHTML = name;\nc.textContent = name;\n",
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].line, 2);
    }

    #[test]
    fn long_files_are_refused() {
        // Check that the longest permitted file passes and one line more does not.
        let text = |lines: usize| "//! Long.\n".repeat(lines);
        assert_eq!(shape("a.rs", &text(LONGEST_LINES), "//!"), []);
        assert_eq!(shape("a.rs", &text(LONGEST_LINES + 1), "//!").len(), 1);
    }

    #[test]
    fn paths_of_one_machine_are_refused() {
        // Check that an absolute path of one machine is found, and the same words within another
        // path are not.
        for (head, tail) in MACHINE_PATHS {
            let folder = format!("{head}{tail}");
            assert_eq!(
                machine_paths("README.md", &format!("x\ncd {folder}a")).len(),
                1,
                "{folder}"
            );
            assert_eq!(
                machine_paths("README.md", &format!("`{folder}a`")).len(),
                1,
                "{folder}"
            );
            assert_eq!(
                machine_paths("README.md", &format!("/proc/1{folder}a")),
                [],
                "{folder}"
            );
            assert_eq!(
                machine_paths("README.md", &format!("/proc/{{pid}}{folder}a")),
                [],
                "{folder}"
            );
        }
    }
}
