//! The sample file and the page of settings, made from the declared keys.

use std::fmt::Write as _;

use super::keys;

/// Columns that a comment may fill.
const WIDTH: usize = 100;

/// The sample configuration: every setting with its default, commented out.
#[must_use]
pub fn sample() -> String {
    let mut text = String::from(
        "# Configuration of profiler-daemon. Every setting is listed with its default.\n\
         # To change one, remove the # before its name. Unknown names and values out of bounds are refused.\n",
    );
    let mut table = "";
    for key in keys() {
        if key.table != table {
            table = key.table;
            line(&mut text, format_args!("\n[{table}]"));
        }
        text.push('\n');
        for row in wrapped(&format!("{} Allowed: {}.", key.comment, key.allowed)) {
            line(&mut text, format_args!("# {row}"));
        }
        line(&mut text, format_args!("#{} = {}", key.name, key.sample));
    }
    text
}

/// The page that lists every setting.
#[must_use]
pub fn documentation() -> String {
    let mut text = String::from(
        "# Settings\n\n\
         Generated from the code. `profiler-daemon --config FILE` reads a TOML file; `deploy/profiler.toml` is a\n\
         sample. Unknown names and values out of bounds are refused with their line.\n\n\
         | setting | default | allowed | what it decides |\n|---|---|---|---|\n",
    );
    for key in keys() {
        let name = super::section::full_name(key.table, key.name);
        line(
            &mut text,
            format_args!(
                "| `{name}` | `{}` | {} | {} |",
                key.sample, key.allowed, key.comment
            ),
        );
    }
    text
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(text, "{content}").expect("writing to a string cannot fail");
}

fn wrapped(comment: &str) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in comment.split(' ') {
        match rows.last_mut() {
            Some(row) if row.len() + word.len() < WIDTH - 2 => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.to_owned()),
        }
    }
    rows
}
