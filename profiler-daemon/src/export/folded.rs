//! Folded stacks: a line per stack, functions from the outermost on separated by `;`, a space, the value. What
//! `flamegraph.pl`, inferno and speedscope read.

use std::io::{self, Write};

use super::human;
use crate::report::{StackValue, Stacks};

/// Writes the stacks that have any of the value, in the order of their text.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write(stacks: &Stacks, value: StackValue, out: &mut impl Write) -> io::Result<()> {
    for line in lines(stacks, value) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The lines, without their ends.
pub(super) fn lines(stacks: &Stacks, value: StackValue) -> Vec<String> {
    let names: Vec<String> = stacks
        .functions
        .iter()
        .map(|function| step(&function.name))
        .collect();
    let mut lines = Vec::new();
    for (index, node) in stacks.nodes.iter().enumerate().skip(1) {
        let amount = value.of(&node.own);
        if amount > 0 {
            let path = stacks.path(index);
            let path: Vec<&str> = path.iter().map(|f| &*names[*f as usize]).collect();
            lines.push(format!("{} {amount}", path.join(";")));
        }
    }
    lines.sort_unstable();
    lines
}

/// A name as one step of a line: nothing in it ends the step or the line.
fn step(name: &str) -> String {
    let name = human::name(name).replace(';', ":");
    let name = name.trim();
    if name.is_empty() {
        "[unnamed]".to_owned()
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that separators, line breaks and emptiness in a name cannot make another stack.
    #[test]
    fn steps() {
        for (name, shown) in [
            ("main", "main"),
            ("a;b", "a:b"),
            ("a\nb 7", "a\\u{a}b 7"),
            ("", "[unnamed]"),
            (" ", "[unnamed]"),
            ("core::ops [u8; 4]", "core::ops [u8: 4]"),
        ] {
            assert_eq!(step(name), shown);
        }
    }
}
