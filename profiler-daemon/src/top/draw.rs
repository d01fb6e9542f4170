//! How it looks. Names come ready from `answer`; everything else is this file's own words.

use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table};
use ratatui::{Frame, Terminal};

use crate::args::TopWindow;

use super::answer::{CLASSES, ScreenAnswer};
use super::columns::{SPACING, columns};
use super::question::ScreenView;
use super::state::State;

/// Lines above the table.
const HEAD_LINES: u16 = 5;
/// A colour and, for terminals without, a letter for each class.
const BAR: [(Color, &str); CLASSES.len()] = [
    (Color::Green, "u"),
    (Color::Cyan, "s"),
    (Color::Yellow, "k"),
    (Color::Magenta, "r"),
    (Color::DarkGray, "b"),
];
const HELP: [(&str, &str); 11] = [
    ("up down j k", "move; also page up, page down, g, G"),
    ("enter", "functions of the process"),
    ("tab t", "its threads, and back to its functions"),
    ("esc", "back"),
    (
        "s",
        "sort by samples, elapsed, application, syscall, runnable, blocked",
    ),
    (
        "w",
        "numbers of the recent time, the session, the last 30 s, 5 min",
    ),
    ("/", "show only names that contain something; esc shows all"),
    ("p", "pause: ask for nothing new"),
    ("space", "freeze the order of the rows; their numbers go on"),
    ("?", "this help"),
    ("q", "quit"),
];

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let areas = Layout::vertical([
        Constraint::Length(HEAD_LINES),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [head, table, foot] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(head_lines(state, head.width)), head);
    draw_table(frame, table, state);
    frame.render_widget(Paragraph::new(foot_line(state)), foot);
    if state.helps {
        draw_help(frame);
    }
}

fn head_lines(state: &State, width: u16) -> Vec<Line<'static>> {
    let covers = state.answer.as_ref().map_or("", |answer| &answer.covers);
    let window = match state.window {
        TopWindow::Recent if covers.is_empty() => "recent".to_owned(),
        TopWindow::Recent => format!("last {covers}"),
        TopWindow::Session => "session".to_owned(),
        TopWindow::HalfMinute => "last 30 s".to_owned(),
        TopWindow::FiveMinutes => "last 5 min".to_owned(),
    };
    let what = match &state.view {
        ScreenView::Processes => "processes",
        ScreenView::Functions(_) => "functions of",
        ScreenView::Threads(_) => "threads of",
    };
    let Some(answer) = &state.answer else {
        return vec![Line::from(format!("{}  {what}  {window}", state.source))];
    };
    let what = match &state.view {
        ScreenView::Processes => answer.title.clone(),
        _ => format!("{what} {}", answer.title),
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut first = vec![
        Span::from(format!("{}  ", state.source)),
        Span::styled(what, bold),
        Span::from(format!("  {window}  as of {}", answer.as_of)),
    ];
    if let Some(replay) = &answer.replay {
        first.push(Span::styled(format!("  {replay}"), bold));
    }
    vec![
        Line::from(first),
        bar(answer, width),
        shares(answer),
        Line::from(format!("lacks  {}", answer.lacks)),
        Line::from(format!("costs  {}", answer.cost)),
    ]
}

/// Columns of the bar for each class: their sum is `width`, and a class with time is never left out
/// where there is room.
fn bar_columns(classes_ns: &[u64; CLASSES.len()], width: u16) -> [u16; CLASSES.len()] {
    let all: u128 = classes_ns.iter().map(|ns| u128::from(*ns)).sum();
    let mut columns = [0; CLASSES.len()];
    if all == 0 {
        return columns;
    }
    let (mut before, mut filled) = (0u128, 0u16);
    for (columns, ns) in columns.iter_mut().zip(classes_ns) {
        before += u128::from(*ns);
        let until = u16::try_from(before * u128::from(width) / all).unwrap_or(width);
        let least = filled.saturating_add(u16::from(*ns > 0)).min(width);
        let until = until.max(least);
        *columns = until - filled;
        filled = until;
    }
    columns
}

fn bar(answer: &ScreenAnswer, width: u16) -> Line<'static> {
    let columns = bar_columns(&answer.classes_ns, width);
    let parts = columns.iter().zip(BAR).map(|(columns, (color, letter))| {
        let style = Style::new().bg(color).fg(Color::Black);
        Span::styled(letter.repeat(usize::from(*columns)), style)
    });
    parts.collect()
}

fn shares(answer: &ScreenAnswer) -> Line<'static> {
    let all: u128 = answer.classes_ns.iter().map(|ns| u128::from(*ns)).sum();
    let parts = CLASSES.iter().zip(answer.classes_ns).zip(BAR);
    let spans = parts.flat_map(|(((name, _), ns), (color, _))| {
        let percent = 100.0 * ns as f64 / (all.max(1)) as f64;
        [
            Span::styled(*name, Style::new().fg(color)),
            Span::from(format!(" {percent:.1} %  ")),
        ]
    });
    spans.collect()
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, state: &mut State) {
    let columns = columns(&state.view, state.sort, state.rows(), area.width);
    let cell = |text: String, is_number: bool| {
        let line = Line::from(text);
        Cell::from(if is_number {
            line.right_aligned()
        } else {
            line
        })
    };
    let titles = columns
        .iter()
        .map(|column| cell(column.title.clone(), column.is_number));
    let rows = state.rows().iter().map(|row| {
        let cells = columns.iter().map(|column| {
            let text = row.cells.get(column.place).cloned().unwrap_or_default();
            cell(text, column.is_number)
        });
        Row::new(cells)
    });
    let widths = columns
        .iter()
        .map(|column| Constraint::Length(column.width));
    let style = if state.is_answered {
        Style::new()
    } else {
        Style::new().add_modifier(Modifier::DIM)
    };
    let table = Table::new(rows.collect::<Vec<_>>(), widths)
        .style(style)
        .column_spacing(SPACING)
        .header(Row::new(titles).style(Style::new().add_modifier(Modifier::UNDERLINED)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut state.table);
}

fn foot_line(state: &State) -> Line<'static> {
    if let Some(trouble) = &state.trouble {
        let style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        return Line::styled(trouble.clone(), style);
    }
    if state.types {
        return Line::from(format!("/{}_", state.filter));
    }
    let mut words = Vec::new();
    match &state.answer {
        Some(answer) if state.is_answered => {
            words.push(format!("{} of {}", answer.rows.len(), answer.total_rows))
        }
        Some(_) | None => words.push("asking …".to_owned()),
    }
    if !state.filter.is_empty() {
        words.push(format!("with \"{}\"", state.filter));
    }
    for (is, word) in [
        (state.paused, "PAUSED"),
        (state.is_frozen(), "ORDER FROZEN"),
    ] {
        if is {
            words.push(word.to_owned());
        }
    }
    words.push("? help  q quit".to_owned());
    Line::from(words.join("  "))
}

fn draw_help(frame: &mut Frame<'_>) {
    let lines: Vec<Line<'_>> = HELP
        .iter()
        .map(|(keys, what)| Line::from(format!("{keys:12} {what}")))
        .collect();
    let height = lines.len() as u16 + 2;
    let area = frame.area().inner(Margin::new(2, 1));
    let area = Rect {
        height: height.min(area.height),
        width: area.width.min(76),
        ..area
    };
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" keys ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// What is drawn as text, without colours: as many rows as there are, `max_rows` at most.
pub(super) fn as_text(state: &mut State, columns: u16, max_rows: u16) -> String {
    let rows = u16::try_from(state.rows().len()).unwrap_or(u16::MAX);
    // With its titles and the last line.
    let height = HEAD_LINES + rows.min(max_rows) + 2;
    // Nothing is selected on paper.
    state.table.select(None);
    let mut terminal = match Terminal::new(TestBackend::new(columns, height)) {
        Ok(terminal) => terminal,
        Err(never) => match never {},
    };
    match terminal.draw(|frame| draw(frame, state)) {
        Ok(_) => {}
        Err(never) => match never {},
    }
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    // The last line is about keys.
    for y in 0..height - 1 {
        let line: String = (0..columns).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
