//! Whether the tests that `docs/security.md` names are there.

use std::fs;
use std::path::Path;

use super::Finding;
use super::prose::in_backticks;

/// The page whose tables name tests in their last column.
pub(super) const PAGE: &str = "docs/security.md";
/// Where the files are that it names.
const FOLDER: &str = "profiler-daemon";

/// Findings on tests that are not where the page says. Each cell names a file and tests in it,
/// again and again.
pub(super) fn check(root: &Path, page: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in page.lines().enumerate() {
        let Some(cell) = last_cell(line) else {
            continue;
        };
        let mut file = None;
        for word in in_backticks(cell) {
            if word.ends_with(".rs") || word.ends_with(".mjs") {
                file = fs::read_to_string(root.join(FOLDER).join(word)).ok();
                continue;
            }
            let is_there = file.as_deref().is_some_and(|text| names_test(text, word));
            if !is_there {
                findings.push(Finding {
                    path: PAGE.to_owned(),
                    line: index + 1,
                    what: format!("no test `{word}` is where it says"),
                });
            }
        }
    }
    findings
}

/// The last cell of a row; nothing for other lines.
fn last_cell(line: &str) -> Option<&str> {
    line.strip_suffix('|')?.rsplit('|').next()
}

/// Whether a file has a test of this name: a function, or a sentence of a script.
fn names_test(text: &str, name: &str) -> bool {
    text.contains(&format!("fn {name}(")) || text.contains(&format!("check(\"{name}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_are_not_there_are_found() {
        // Check that a test is found in its file, in each of several files, and that one of another
        // name or file is told with its line.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let row = |cell: &str| format!("text\n| a | b | {cell} |\n");
        let good = "`src/export/csv.rs` `cells`; `src/export/human.rs` `units`, `hostile_names`";
        assert_eq!(check(&root, &row(good)), []);
        for bad in [
            "`src/export/csv.rs` `units`",
            "`cells`",
            "`src/export/no.rs` `cells`",
        ] {
            let found = check(&root, &row(bad));
            assert_eq!(found.len(), 1, "{bad}");
            assert_eq!(found[0].line, 2);
        }
    }
}
