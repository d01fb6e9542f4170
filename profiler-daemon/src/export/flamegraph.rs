//! Flame graphs as SVG, drawn from folded stacks, whose size is bounded. Colours depend on the
//! names only, so the same stacks give the same bytes.

use std::io::{self, Write};

use inferno::flamegraph::{self, Options};

use super::{folded, human};
use crate::report::{StackTree, StackValue};

/// How wide it is, pixels. Fixed, so that it needs no script to be right.
const WIDTH: usize = 1200;

/// Writes a flame graph. With no stack at all it says so in the picture.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write(stacks: &StackTree, value: StackValue, out: &mut impl Write) -> io::Result<()> {
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
    if let Some(smaller) = scaled_down(&text) {
        text = smaller;
    }
    flamegraph::from_lines(&mut options, text.lines(), out).map_err(io::Error::other)
}

/// The same stacks with smaller amounts, where all together would be more than 64 bits: only what
/// was made to be read has so much.
fn scaled_down(text: &str) -> Option<String> {
    let parts = || {
        let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
        lines.filter_map(|(stack, amount)| Some((stack, amount.parse::<u64>().ok()?)))
    };
    let sum: u128 = parts().map(|(_, amount)| u128::from(amount)).sum();
    let shift = 64u32
        .checked_sub(sum.leading_zeros())
        .filter(|by| *by > 0)?;
    let lines = parts().map(|(stack, amount)| format!("{stack} {}\n", amount >> shift));
    Some(lines.collect())
}

fn unit(value: StackValue) -> &'static str {
    if value.is_time() { "ns" } else { "samples" }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that amounts that are more than 64 bits together are drawn in proportion, and others as
    // they are.
    #[test]
    fn sums_have_64_bits() {
        assert_eq!(scaled_down("a 1\nb 18446744073709551614\n"), None);
        let most = format!("a {0}\nb {0}\nc 2\n", u64::MAX);
        let half = u64::MAX / 4;
        assert_eq!(
            scaled_down(&most),
            Some(format!("a {half}\nb {half}\nc 0\n"))
        );
        let mut picture = Vec::new();
        let text = scaled_down("a 18446744073709551615\nb 1\n").expect("the sum begins at zero");
        flamegraph::from_lines(&mut Options::default(), text.lines(), &mut picture)
            .expect("there is something to draw");
    }
}
