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
    flamegraph::from_lines(&mut options, text.lines(), out).map_err(io::Error::other)
}

fn unit(value: StackValue) -> &'static str {
    if value.is_time() { "ns" } else { "samples" }
}
