//! Flame graphs as SVG, drawn from folded stacks, whose size is bounded. Colours depend on the names only, so the same stacks give
//! the same bytes.

use std::io::{self, Write};

use inferno::flamegraph::{self, Options};

use super::{folded, human};
use crate::report::{StackValue, Stacks};

/// How wide it is, pixels. Fixed, so that it needs no script to be right.
const WIDTH: usize = 1200;

/// Writes a flame graph. With no stack at all it says so in the picture.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write(stacks: &Stacks, value: StackValue, out: &mut impl Write) -> io::Result<()> {
    let mut options = Options::default();
    options.title = human::name(&stacks.title);
    options.subtitle = Some(format!("{}, {}", value.name(), unit(value)));
    options.count_name = unit(value).to_owned();
    options.image_width = Some(WIDTH);
    options.hash = true;
    options.deterministic = true;
    options.no_sort = true;
    let mut text = Vec::new();
    folded::write(stacks, value, &mut text)?;
    let mut text = String::from_utf8(text).map_err(io::Error::other)?;
    if text.is_empty() {
        text = format!("[no {}] 1", value.name());
    }
    let lines = drawable(&text);
    let lines = lines.iter().map(String::as_str);
    flamegraph::from_lines(&mut options, lines, out).map_err(io::Error::other)
}

/// The same lines so that each is drawn as it is: a line without a name would be left out, a number at the end of a name be taken for a
/// second count, and a sum beyond 64 bits begin at zero again.
fn drawable(text: &str) -> Vec<String> {
    let parts = || {
        let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
        lines.filter_map(|(stack, count)| Some((stack, count.parse::<u64>().ok()?)))
    };
    let sum: u128 = parts().map(|(_, count)| u128::from(count)).sum();
    let shift = 64u32.saturating_sub(sum.leading_zeros());
    let lines = parts().map(|(stack, count)| {
        let count = count >> shift;
        match stack.rsplit_once(' ') {
            _ if stack.trim().is_empty() => format!("[no name] {count}"),
            Some((name, end)) if end.starts_with(|c: char| c.is_ascii_digit()) => {
                format!("{name}\u{a0}{end} {count}")
            }
            _ => format!("{stack} {count}"),
        }
    });
    lines.collect()
}

fn unit(value: StackValue) -> &'static str {
    if value.is_time() { "ns" } else { "samples" }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that names that look like counts, or like nothing, are drawn as names, and that sums stay below the largest number.
    #[test]
    fn every_line_is_drawn() {
        let lines = drawable("worker 3;work 12 5\n 7\na;b 1\n");
        assert_eq!(lines, ["worker 3;work\u{a0}12 5", "[no name] 7", "a;b 1"]);
        let most = drawable(&format!("a {0}\nb {0}\nc 2\n", u64::MAX));
        let counts = most.iter().filter_map(|line| line[2..].parse::<u64>().ok());
        assert!(counts.map(u128::from).sum::<u128>() <= u128::from(u64::MAX));
        for text in [" 7\n", "a 1\n"] {
            let lines = drawable(text);
            let lines = lines.iter().map(String::as_str);
            let mut picture = Vec::new();
            flamegraph::from_lines(&mut Options::default(), lines, &mut picture)
                .expect("there is something to draw");
        }
    }
}
