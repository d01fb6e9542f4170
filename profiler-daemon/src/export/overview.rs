//! The first screen as text, 80 columns wide and at most 24 lines: who is busy, who waits, for what and in which function.

use std::io::{self, Write};

use super::human::name;
use crate::report::overview::{Overview, OverviewRow};

/// The widest line, columns.
const WIDTH: usize = 80;
/// The widest name of a process or of a system call, columns.
const MAX_NAME: usize = 18;
/// The last column: it gets what the others leave.
const FUNCTION: &str = "HOTTEST FUNCTION";

/// A column: its title, whether its cells stand to the right, and what is in it.
type Column = (&'static str, bool, fn(&OverviewRow) -> String);

const PID: Column = ("PID", true, |row| {
    row.pid
        .map_or_else(|| "-".to_owned(), |pid| pid.to_string())
});
const BUSIEST: Column = ("BUSIEST", false, title);
const WAITING: Column = ("WAITING LONGEST", false, title);
const CPU: Column = ("CPU%", true, |row| share(row.processor_percent));
const WAIT: Column = ("WAIT%", true, |row| share(row.runnable_percent));
const BLOCK: Column = ("BLOCK%", true, |row| share(row.blocked_percent));
const IN: Column = ("IN%", true, |row| {
    row.blocks_in
        .as_ref()
        .map_or_else(String::new, |call| format!("{:.0}", call.percent))
});
const CALL: Column = ("BLOCKS IN", false, |row| {
    row.blocks_in
        .as_ref()
        .map_or_else(|| "-".to_owned(), |call| name(&call.call))
});
const HOT: Column = ("HOT%", true, |row| {
    row.hottest
        .as_ref()
        .map_or_else(String::new, |hottest| format!("{:.0}", hottest.percent))
});
const HOTTEST: Column = (FUNCTION, false, |row| {
    row.hottest.as_ref().map_or_else(
        || "-".to_owned(),
        |hottest| {
            let path = hottest.module.trim_end_matches('/');
            let module = path.rsplit('/').next().unwrap_or(path);
            format!("{} ({})", name(&hottest.function), name(module))
        },
    )
});

/// Writes the screen.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write(overview: &Overview, out: &mut impl Write) -> io::Result<()> {
    let mut lines = head(overview);
    lines.push(String::new());
    lines.extend(table(
        &[PID, BUSIEST, CPU, WAIT, IN, CALL, HOT, HOTTEST],
        &overview.busiest,
    ));
    lines.push(String::new());
    lines.extend(table(
        &[PID, WAITING, WAIT, BLOCK, IN, CALL, HOT, HOTTEST],
        &overview.waiting,
    ));
    lines.extend(
        [
            "",
            "CPU, WAIT (for a processor) and BLOCK: of the time; IN: of blocked; HOT: of CPU",
            "More: /api/v1/processes?format=text; all there is to ask: /api/v1; README.md",
        ]
        .map(str::to_owned),
    );
    for line in lines {
        writeln!(out, "{}", cut(line.trim_end(), WIDTH))?;
    }
    Ok(())
}

fn head(of: &Overview) -> Vec<String> {
    let busy = match (of.window.processors, of.busy_percent) {
        (Some(1), Some(percent)) => format!("1 processor {percent:.0} % busy"),
        (Some(count), Some(percent)) => format!("{count} processors {percent:.0} % busy"),
        _ => format!("{:.2} processors busy", of.busy_processors),
    };
    let length = length(of.window.duration_ns);
    let window = match (of.whole_session, of.until_now) {
        (true, _) => format!("whole session ({length})"),
        (false, true) => format!("last {length}"),
        (false, false) => format!("{length} until {}", seconds_of(&of.window.to)),
    };
    let share = |part: u64, whole: u64| match whole {
        0 => "none".to_owned(),
        // Rounded down: only all is 100.
        _ => format!(
            "{:.1} %",
            (1_000.0 * part as f64 / whole as f64).floor() / 10.0
        ),
    };
    let placed_ns = of
        .elapsed_ns
        .saturating_sub(of.completeness.elapsed_unattributed_ns);
    vec![
        format!(
            "{busy}, {} processes with {} threads, {window}",
            of.processes, of.threads
        ),
        format!(
            "as of {}, complete: {} of stacks, {} of time",
            seconds_of(&of.as_of),
            share(of.stacks.complete, of.stacks.walked),
            share(placed_ns, of.elapsed_ns),
        ),
    ]
}

/// A length of time in one unit, or in minutes and seconds.
fn length(ns: u64) -> String {
    let seconds = (ns + 500_000_000) / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// A time as RFC 3339 without what is below a second.
fn seconds_of(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => time.to_owned(),
    }
}

fn title(row: &OverviewRow) -> String {
    match row.ended {
        Some(ended) => format!("{} ({ended} ended)", name(&row.comm)),
        None => name(&row.comm),
    }
}

fn share(percent: f64) -> String {
    if percent < 1_000.0 {
        format!("{percent:.1}")
    } else {
        format!("{percent:.0}")
    }
}

/// A line of titles and a line per row; the last column has what the others leave.
fn table(columns: &[Column], rows: &[OverviewRow]) -> Vec<String> {
    let titles: Vec<String> = columns
        .iter()
        .map(|(title, ..)| (*title).to_owned())
        .collect();
    let cells = rows.iter().map(|row| {
        let cells = columns.iter().map(|(title, _, cell)| match *title {
            FUNCTION => cell(row),
            _ => cut(&cell(row), MAX_NAME),
        });
        cells.collect::<Vec<String>>()
    });
    let lines: Vec<Vec<String>> = std::iter::once(titles).chain(cells).collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| lines.iter().map(|cells| columns_of(&cells[column])).max())
        .map(Option::unwrap_or_default)
        .collect();
    let line = |cells: &Vec<String>| {
        let mut line = String::new();
        for ((cell, width), (_, right, _)) in cells.iter().zip(&widths).zip(columns) {
            let blanks = " ".repeat(width - columns_of(cell));
            let (before, after) = if *right {
                (blanks, String::new())
            } else {
                (String::new(), blanks)
            };
            line.push_str(&format!("{before}{cell}{after} "));
        }
        line
    };
    lines.iter().map(line).collect()
}

/// How many columns of a terminal a text takes at most: wide characters take two.
fn columns_of(text: &str) -> usize {
    text.chars().map(columns_of_char).sum()
}

fn columns_of_char(c: char) -> usize {
    // Whatever is wide comes after the alphabets.
    if c < '\u{1100}' || c == '…' { 1 } else { 2 }
}

/// The beginning of a text that is too wide.
fn cut(text: &str, width: usize) -> String {
    if columns_of(text) <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = text.chars().take_while(|c| {
        let columns = columns_of_char(*c);
        let fits = columns <= left;
        left = left.saturating_sub(columns);
        fits
    });
    fits.chain(['…']).collect()
}
