//! Which columns a table has on a screen of some width, and how wide each of them is. What is in
//! them is for others.
//!
//! A number is never cut: its column is as wide as it must be. Where there is no room for all
//! columns, those that matter least are left out; the name and what the rows are sorted by stay.

use crate::args::TopSort;

use super::answer::ScreenRow;
use super::question::ScreenView;

/// Columns of the screen between two of the table.
pub(super) const SPACING: u16 = 1;
/// What marks the column that rows are sorted by.
const SORTED: char = '▾';
/// The least width of a name, of a process, thread or function.
const NAME: u16 = 20;
/// The least width of a time: that of its longest title, and of eleven days.
const TIME: u16 = 12;

/// A column as it is declared.
#[derive(Debug, PartialEq, Eq)]
struct ScreenColumn {
    title: &'static str,
    /// How much it matters: that with the greatest number is left out first, 0 never.
    rank: u8,
    /// The least width it is shown with. A number takes more where it must.
    least: u16,
    /// The width up to which a text gets of what is left over.
    most: u16,
    is_number: bool,
    /// It is what that sorts by.
    sort: Option<TopSort>,
}

/// A column as it is shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShownColumn {
    /// Its place in the cells of a row.
    pub(super) place: usize,
    /// With the mark where rows are sorted by it.
    pub(super) title: String,
    pub(super) is_number: bool,
    pub(super) width: u16,
}

const fn number(title: &'static str, rank: u8, least: u16) -> ScreenColumn {
    ScreenColumn {
        title,
        rank,
        least,
        most: 0,
        is_number: true,
        sort: None,
    }
}

const fn sorted(title: &'static str, rank: u8, least: u16, sort: TopSort) -> ScreenColumn {
    ScreenColumn {
        sort: Some(sort),
        ..number(title, rank, least)
    }
}

const fn text(title: &'static str, rank: u8, least: u16, most: u16) -> ScreenColumn {
    ScreenColumn {
        most,
        is_number: false,
        ..number(title, rank, least)
    }
}

const PROCESSES: [ScreenColumn; 12] = [
    number("PID", 1, 7),
    sorted("SAMPLES", 6, 9, TopSort::Samples),
    number("%", 2, 5),
    sorted("ELAPSED", 3, TIME, TopSort::Elapsed),
    sorted("APPLICATION", 5, TIME, TopSort::Application),
    sorted("SYSCALL", 4, TIME, TopSort::Syscall),
    sorted("RUNNABLE", 4, TIME, TopSort::Runnable),
    sorted("BLOCKED", 4, TIME, TopSort::Blocked),
    number("THREADS", 9, 7),
    text("STATE", 8, 7, 7),
    text("NAME", 0, NAME, 28),
    text("UNIT", 7, 14, u16::MAX),
];
const FUNCTIONS: [ScreenColumn; 7] = [
    sorted("SAMPLES", 5, 9, TopSort::Samples),
    number("%", 1, 5),
    sorted("ELAPSED", 2, TIME, TopSort::Elapsed),
    number("WITH CALLED", 3, TIME),
    sorted("APPLICATION", 6, TIME, TopSort::Application),
    text("FUNCTION", 0, NAME, u16::MAX),
    text("MODULE", 4, 14, 28),
];
const THREADS: [ScreenColumn; 10] = [
    number("TID", 1, 7),
    sorted("SAMPLES", 6, 9, TopSort::Samples),
    number("%", 2, 5),
    sorted("ELAPSED", 3, TIME, TopSort::Elapsed),
    sorted("APPLICATION", 5, TIME, TopSort::Application),
    sorted("SYSCALL", 4, TIME, TopSort::Syscall),
    sorted("RUNNABLE", 4, TIME, TopSort::Runnable),
    sorted("BLOCKED", 4, TIME, TopSort::Blocked),
    text("STATE", 7, 9, 9),
    text("NAME", 0, NAME, u16::MAX),
];

/// Of syscall, runnable and blocked time, for which there is room once, it is that which rows are
/// sorted by that is shown, else blocked.
const WAITS: [TopSort; 3] = [TopSort::Syscall, TopSort::Runnable, TopSort::Blocked];

/// The columns for a table of that width.
pub(super) fn columns(
    view: &ScreenView,
    sort: TopSort,
    rows: &[ScreenRow],
    width: u16,
) -> Vec<ShownColumn> {
    let all: &[ScreenColumn] = match view {
        ScreenView::Processes => &PROCESSES,
        ScreenView::Functions(_) => &FUNCTIONS,
        ScreenView::Threads(_) => &THREADS,
    };
    let sort = match (view, sort) {
        // Functions have no time by class.
        (ScreenView::Functions(_), sort) if WAITS.contains(&sort) => TopSort::Elapsed,
        (_, sort) => sort,
    };
    let wait = if WAITS.contains(&sort) {
        sort
    } else {
        TopSort::Blocked
    };
    let is_other_wait = |of: TopSort| WAITS.contains(&of) && of != wait;
    let known = all.iter().enumerate();
    let known = known.filter(|(_, column)| !column.sort.is_some_and(is_other_wait));
    let mut shown: Vec<(&ScreenColumn, ShownColumn)> = known
        .map(|(place, column)| (column, as_needed(column, place, sort, rows)))
        .collect();
    while taken(&shown) > width {
        let Some(at) = least_important(&shown, sort) else {
            break;
        };
        shown.remove(at);
    }
    fit_name(&mut shown, width);
    grow(&mut shown, width);
    shown.into_iter().map(|(_, shown)| shown).collect()
}

/// A column with the width that it needs at least.
fn as_needed(
    column: &ScreenColumn,
    place: usize,
    sort: TopSort,
    rows: &[ScreenRow],
) -> ShownColumn {
    let mut title = column.title.to_owned();
    if column.sort == Some(sort) {
        title.push(SORTED);
    }
    let mut needed = usize::from(column.least);
    if column.is_number {
        // Of one byte and column each.
        let numbers = rows.iter().filter_map(|row| row.cells.get(place));
        let longest = numbers.map(String::len).max().unwrap_or(0);
        needed = needed.max(title.chars().count()).max(longest);
    }
    ShownColumn {
        place,
        title,
        is_number: column.is_number,
        width: u16::try_from(needed).unwrap_or(u16::MAX),
    }
}

/// The width of all of them with what is between them.
fn taken(shown: &[(&ScreenColumn, ShownColumn)]) -> u16 {
    let widths = shown.iter().map(|(_, shown)| shown.width);
    let all = widths.fold(0, |sum: u16, width| {
        sum.saturating_add(width).saturating_add(SPACING)
    });
    all.saturating_sub(SPACING)
}

/// The place of the column to be left out next; nothing where only those are left that stay.
fn least_important(shown: &[(&ScreenColumn, ShownColumn)], sort: TopSort) -> Option<usize> {
    let places = shown.iter().enumerate();
    let may_go = places.filter(|(_, (column, _))| column.rank > 0 && column.sort != Some(sort));
    let least = may_go.max_by_key(|(_, (column, _))| column.rank)?;
    Some(least.0)
}

/// On a screen that is too narrow for what stays, the name has what the number leaves. Where that
/// is nothing, there is no number, which would be cut.
fn fit_name(shown: &mut Vec<(&ScreenColumn, ShownColumn)>, width: u16) {
    let over = taken(shown).saturating_sub(width);
    if over == 0 {
        return;
    }
    let is_name = |(column, _): &(&ScreenColumn, ShownColumn)| column.rank == 0;
    if over >= NAME {
        shown.retain(is_name);
    }
    let over = taken(shown).saturating_sub(width);
    for (_, shown) in shown.iter_mut().filter(|pair| is_name(pair)) {
        shown.width = shown.width.saturating_sub(over);
    }
}

/// Gives texts what is left over: a column to each in turn until it has
/// what it may have.
fn grow(shown: &mut [(&ScreenColumn, ShownColumn)], width: u16) {
    let mut left = width.saturating_sub(taken(shown));
    loop {
        let before = left;
        for (column, shown) in shown.iter_mut() {
            if left > 0 && shown.width < column.most {
                shown.width += 1;
                left -= 1;
            }
        }
        if left == before {
            return;
        }
    }
}

#[cfg(test)]
#[path = "columns_tests.rs"]
mod tests;
