//! The first screen as text, 80 columns wide and at most 24 lines: who is busy, who waits, for what
//! and in which function.

use std::io::{self, Write};

use super::human::{at_most, columns, cut, last_part, name, padded, title};
use crate::report::overview::{Overview, OverviewRow};

/// The widest line, columns.
const WIDTH: usize = 80;
/// The widest name of a process or of a system call, columns.
const MAX_NAME: usize = 18;
/// The longest path of a control group, columns.
const MAX_GROUP: usize = 24;
/// The last column: it gets what the others leave.
const FUNCTION: &str = "HOTTEST FUNCTION";

/// A column: its title, whether its cells stand to the right, and what is in it.
type OverviewColumn = (&'static str, bool, fn(&OverviewRow) -> String);

const PID: OverviewColumn = ("PID", true, |row| {
    row.pid
        .map_or_else(|| "-".to_owned(), |pid| pid.to_string())
});
const BUSIEST: OverviewColumn = ("BUSIEST", false, |row| title(&row.comm, row.ended));
const WAITING: OverviewColumn = ("WAITING LONGEST", false, |row| title(&row.comm, row.ended));
const CPU: OverviewColumn = ("CPU%", true, |row| share(row.processor_percent));
const WAIT: OverviewColumn = ("WAIT%", true, |row| {
    let doubt = if row.waits_in_doubt { "?" } else { "" };
    format!("{}{doubt}", share(row.runnable_percent))
});
const BLOCK: OverviewColumn = ("BLOCK%", true, |row| share(row.blocked_percent));
const IN: OverviewColumn = ("IN%", true, |row| {
    row.blocks_in
        .as_ref()
        .map_or_else(String::new, |call| format!("{:.0}", call.percent))
});
const CALL: OverviewColumn = ("BLOCKS IN", false, |row| {
    row.blocks_in
        .as_ref()
        .map_or_else(|| "-".to_owned(), |call| name(&call.call))
});
const HOT: OverviewColumn = ("HOT%", true, |row| {
    row.hottest
        .as_ref()
        .map_or_else(String::new, |hottest| format!("{:.0}", hottest.percent))
});
const HOTTEST: OverviewColumn = (FUNCTION, false, |row| {
    row.hottest.as_ref().map_or_else(
        || "-".to_owned(),
        |hottest| {
            let module = last_part(&hottest.module);
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
    // In the place of the empty line: there are no more than fit.
    lines.push(throttled(overview).unwrap_or_default());
    lines.extend(
        [
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
    vec![
        format!(
            "{busy}, {} processes with {} threads, {window}",
            of.processes, of.threads
        ),
        format!(
            "as of {}, complete: {} of stacks, {} of time",
            seconds_of(&of.as_of),
            at_most(of.completeness.stacks_complete_percent),
            at_most(of.completeness.elapsed_attributed_percent),
        ),
    ]
}

/// Of those that wait longest, the first whose waits for a processor are those for more of a quota.
fn throttled(of: &Overview) -> Option<String> {
    let rows = of.waiting.iter().chain(&of.busiest);
    rows.filter_map(|row| {
        let (group, ns) = (row.throttled_group.as_ref()?, row.throttled_ns?);
        let group = name(group);
        // The end of a path tells most.
        let begin = columns(&group).saturating_sub(MAX_GROUP);
        let group: String = group.chars().skip(begin).collect();
        let pid = row.pid.map_or_else(String::new, |pid| format!(" {pid}"));
        let seconds = ns as f64 / 1e9;
        let who = cut(&row.comm, MAX_NAME);
        Some(format!(
            "WAIT of {}{pid}: quota of {group} used up for {seconds:.1} s",
            name(&who)
        ))
    })
    .next()
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

fn share(percent: f64) -> String {
    if percent < 1_000.0 {
        format!("{percent:.1}")
    } else {
        format!("{percent:.0}")
    }
}

/// A line of titles and a line per row; the last column has what the others leave.
fn table(shown: &[OverviewColumn], rows: &[OverviewRow]) -> Vec<String> {
    let titles: Vec<String> = shown
        .iter()
        .map(|(title, ..)| (*title).to_owned())
        .collect();
    let cells = rows.iter().map(|row| {
        let cells = shown.iter().map(|(title, _, cell)| match *title {
            FUNCTION => cell(row),
            _ => cut(&cell(row), MAX_NAME).into_owned(),
        });
        cells.collect::<Vec<String>>()
    });
    let lines: Vec<Vec<String>> = std::iter::once(titles).chain(cells).collect();
    let widths: Vec<usize> = (0..shown.len())
        .map(|column| lines.iter().map(|cells| columns(&cells[column])).max())
        .map(Option::unwrap_or_default)
        .collect();
    let line = |cells: &Vec<String>| {
        let mut line = String::new();
        for ((cell, width), (_, right, _)) in cells.iter().zip(&widths).zip(shown) {
            line.push_str(&padded(cell, *width, *right));
            line.push(' ');
        }
        line
    };
    lines.iter().map(line).collect()
}
