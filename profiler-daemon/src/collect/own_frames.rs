//! The profiler's own frames: a stack walked at a switch-out begins inside the tracepoint that walks it. Those frames are
//! no work of the thread, and are cut off.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

/// The functions through which the kernel calls the programs that walk: everything inside of them is the profiler's.
const BORDERS: [&str; 4] = [
    "__traceiter_sched_switch",
    "__traceiter_sched_process_exit",
    "__traceiter_sys_enter",
    "__traceiter_sys_exit",
];
/// No more frames than this lie between the border and the walk.
const MAX_INSIDE: usize = 12;

/// Where the borders are.
#[derive(Debug, Default)]
pub(super) struct OwnFrames(Vec<Range<u64>>);

impl OwnFrames {
    /// Finds them in /proc/kallsyms; where addresses are hidden, nothing is cut.
    #[must_use]
    pub(super) fn find() -> Self {
        let read = |each: &mut dyn FnMut(u64, &str)| {
            let Ok(file) = File::open("/proc/kallsyms") else {
                return;
            };
            let mut lines = BufReader::with_capacity(1 << 16, file);
            let mut line = Vec::new();
            while let Ok(1..) = lines.read_until(b'\n', &mut line) {
                if let Some((address, name)) = parse(&line) {
                    each(address, name);
                }
                line.clear();
            }
        };
        let mut ranges: Vec<Range<u64>> = Vec::new();
        read(&mut |address, name| {
            if address != 0 && BORDERS.contains(&name) && ranges.len() < BORDERS.len() {
                ranges.push(address..u64::MAX);
            }
        });
        // A function ends where the next one begins.
        read(&mut |address, _| {
            for range in &mut ranges {
                if address > range.start && address < range.end {
                    range.end = address;
                }
            }
        });
        Self(ranges)
    }

    /// The frames of the thread itself, innermost first.
    #[must_use]
    pub(super) fn cut<'a>(&self, kernel: &'a [u64]) -> &'a [u64] {
        let border = kernel
            .iter()
            .take(MAX_INSIDE)
            .rposition(|address| self.0.iter().any(|range| range.contains(address)));
        border.map_or(kernel, |index| &kernel[index + 1..])
    }
}

/// `ffffffff81000000 T name\t[module]`
fn parse(line: &[u8]) -> Option<(u64, &str)> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let address = u64::from_str_radix(fields.next()?, 16).ok()?;
    let kind = fields.next()?;
    kind.eq_ignore_ascii_case("t")
        .then_some((address, fields.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_inside_the_border_is_cut() {
        // Check that the frames up to and with the tracepoint's function go, that others stay, and that bad lines are none.
        let own = OwnFrames(vec![0x100..0x140, 0x900..0x910]);
        assert_eq!(own.cut(&[1, 2, 0x13f, 0x500, 0x600]), [0x500, 0x600]);
        assert_eq!(own.cut(&[0x500, 0x600]), [0x500, 0x600]);
        assert_eq!(own.cut(&[]), [0u64; 0]);
        assert_eq!(parse(b"00ff t name\t[module]\n"), Some((0xff, "name")));
        assert_eq!(parse(b"00ff D name\n"), None);
        assert_eq!(parse(b"\xff\xfe"), None);
    }
}
