//! What keys do.

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};

use super::{KeyEffect, State};
use crate::args::{TopArgs, TopSort, TopWindow};
use crate::top::answer::{ScreenAnswer, ScreenRow};
use crate::top::question::ScreenView;

fn state() -> State {
    let args = TopArgs {
        connect: None,
        window: TopWindow::Session,
        sort: TopSort::Samples,
        every: 1,
        once: false,
        config: None,
    };
    State::new(&args, "here".to_owned())
}

fn answer(view: ScreenView, keys: &[&str]) -> ScreenAnswer {
    let row = |key: &&str| ScreenRow {
        key: (*key).to_owned(),
        cells: vec![(*key).to_owned()],
    };
    ScreenAnswer {
        view,
        as_of: String::new(),
        covers: String::new(),
        title: String::new(),
        replay: None,
        classes_ns: [0; 5],
        lacks: String::new(),
        cost: String::new(),
        total_rows: keys.len() as u64,
        rows: keys.iter().map(row).collect(),
    }
}

fn press(state: &mut State, code: KeyCode) -> KeyEffect {
    state.handle(&Event::Key(KeyEvent::from(code)))
}

fn typed(state: &mut State, text: &str) -> KeyEffect {
    let changes = text.chars().map(|c| press(state, KeyCode::Char(c)));
    changes.last().unwrap()
}

fn shown(state: &State) -> Vec<&str> {
    state.rows().iter().map(|row| row.key.as_str()).collect()
}

fn selected(state: &State) -> &str {
    &state.rows()[state.table.selected().unwrap()].key
}

// Check that the selection moves within the rows and stays on its row when new numbers change the
// order.
#[test]
fn selection() {
    let mut state = state();
    assert_eq!(press(&mut state, KeyCode::Down), KeyEffect::None);
    state.take(Ok(answer(ScreenView::Processes, &["1.1", "2.2", "3.3"])));
    assert_eq!(selected(&state), "1.1");
    typed(&mut state, "jj");
    assert_eq!(selected(&state), "3.3");
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::PageDown);
    assert_eq!(selected(&state), "3.3");
    state.take(Ok(answer(ScreenView::Processes, &["3.3", "1.1", "2.2"])));
    assert_eq!(state.table.selected(), Some(0));
    press(&mut state, KeyCode::End);
    assert_eq!(selected(&state), "2.2");
    // The row is gone: the place stays.
    state.take(Ok(answer(ScreenView::Processes, &["3.3"])));
    assert_eq!(selected(&state), "3.3");
    state.take(Ok(answer(ScreenView::Processes, &[])));
    assert_eq!(state.table.selected(), None);
}

// Check the way to functions, threads and back to the row it began at, and that an answer about
// what was left is not shown.
#[test]
fn ways() {
    let mut state = state();
    assert_eq!(press(&mut state, KeyCode::Enter), KeyEffect::None);
    state.take(Ok(answer(ScreenView::Processes, &["1.1", "2.2"])));
    typed(&mut state, "j");
    assert_eq!(press(&mut state, KeyCode::Enter), KeyEffect::Question);
    let functions = ScreenView::Functions("2.2".to_owned());
    assert_eq!(state.question().view, functions);
    state.take(Ok(answer(ScreenView::Processes, &["1.1"])));
    assert_eq!(state.answer, None);
    state.take(Ok(answer(functions.clone(), &["f"])));
    assert_eq!(shown(&state), ["f"]);
    assert_eq!(press(&mut state, KeyCode::Enter), KeyEffect::None);
    assert_eq!(press(&mut state, KeyCode::Tab), KeyEffect::Question);
    assert_eq!(state.question().view, ScreenView::Threads("2.2".to_owned()));
    assert_eq!(typed(&mut state, "t"), KeyEffect::Question);
    assert_eq!(state.question().view, functions);
    assert_eq!(press(&mut state, KeyCode::Esc), KeyEffect::Question);
    state.take(Ok(answer(ScreenView::Processes, &["3.3", "1.1", "2.2"])));
    assert_eq!(selected(&state), "2.2");
    assert_eq!(press(&mut state, KeyCode::Esc), KeyEffect::None);
}

// Check that s and w go through every column and window that there is, and that functions are not
// sorted by what they lack.
#[test]
fn columns_and_windows() {
    let mut state = state();
    let mut columns = Vec::new();
    for _ in 0..6 {
        columns.push(state.question().sort);
        assert_eq!(typed(&mut state, "s"), KeyEffect::Question);
    }
    assert_eq!(
        columns,
        [
            "samples",
            "elapsed_ns",
            "application_ns",
            "classes.syscall_ns",
            "classes.runnable_ns",
            "classes.blocked_ns"
        ]
    );
    assert_eq!(state.question().sort, "samples");
    let mut windows = Vec::new();
    for _ in 0..4 {
        windows.push(state.question().window);
        assert_eq!(typed(&mut state, "w"), KeyEffect::Question);
    }
    assert_eq!(windows, ["session", "30s", "5m", "recent"]);
    state.view = ScreenView::Functions("1.1".to_owned());
    for sort in [TopSort::Syscall, TopSort::Runnable, TopSort::Blocked] {
        state.sort = sort;
        assert_eq!(state.question().sort, "elapsed.exclusive_ns");
    }
    state.view = ScreenView::Threads("1.1".to_owned());
    assert_eq!(state.question().sort, "classes.blocked_ns");
}

// Check that a filter is typed with the letters that are keys elsewhere, asked as it grows, kept by
// enter and given up by esc.
#[test]
fn filter() {
    let mut state = state();
    assert_eq!(typed(&mut state, "/"), KeyEffect::None);
    assert_eq!(typed(&mut state, "qsp"), KeyEffect::Question);
    assert_eq!(state.question().filter, "qsp");
    press(&mut state, KeyCode::Backspace);
    assert_eq!(press(&mut state, KeyCode::Enter), KeyEffect::None);
    assert_eq!(
        (state.question().filter.as_str(), state.types),
        ("qs", false)
    );
    assert_eq!(press(&mut state, KeyCode::Esc), KeyEffect::Question);
    assert_eq!(state.question().filter, "");
    typed(&mut state, "/a");
    press(&mut state, KeyCode::Esc);
    assert_eq!((state.question().filter.as_str(), state.types), ("", false));
    typed(&mut state, "/");
    typed(&mut state, &"é".repeat(200));
    assert_eq!(state.filter.chars().count(), 64);
}

// Check that rows of another question than the present one lead nowhere, and that it is asked in a
// pause too.
#[test]
fn rows_of_an_older_question() {
    let mut state = state();
    state.take(Ok(answer(ScreenView::Processes, &["1.1", "2.2"])));
    typed(&mut state, "p/b");
    press(&mut state, KeyCode::Enter);
    assert!(state.asks() && !state.is_answered);
    assert_eq!(press(&mut state, KeyCode::Enter), KeyEffect::None);
    assert_eq!(state.view, ScreenView::Processes);
    state.take(Ok(answer(ScreenView::Processes, &["2.2"])));
    assert!(!state.asks() && state.is_answered);
    assert_eq!(press(&mut state, KeyCode::Enter), KeyEffect::Question);
    assert_eq!(state.view, ScreenView::Functions("2.2".to_owned()));
}

// Check that a frozen order holds with new rows behind it, until it is given up or another order is
// asked for.
#[test]
fn frozen() {
    let mut state = state();
    state.take(Ok(answer(ScreenView::Processes, &["1.1", "2.2"])));
    typed(&mut state, " ");
    state.take(Ok(answer(ScreenView::Processes, &["3.3", "2.2", "1.1"])));
    assert_eq!(shown(&state), ["1.1", "2.2", "3.3"]);
    state.take(Ok(answer(ScreenView::Processes, &["4.4", "3.3", "1.1"])));
    assert_eq!(shown(&state), ["1.1", "3.3", "4.4"]);
    typed(&mut state, " ");
    state.take(Ok(answer(ScreenView::Processes, &["4.4", "3.3", "1.1"])));
    assert_eq!(shown(&state), ["4.4", "3.3", "1.1"]);
    typed(&mut state, " s");
    assert!(!state.is_frozen());
}

// Check that a pause asks for nothing but a first answer, that trouble leaves the last numbers, and
// what ends it.
#[test]
fn pause_trouble_and_end() {
    let mut state = state();
    typed(&mut state, "p");
    assert!(state.asks(), "there is nothing to look at yet");
    state.take(Ok(answer(ScreenView::Processes, &["1.1"])));
    assert!(!state.asks());
    typed(&mut state, "p");
    assert!(state.asks());
    state.take(Err("gone".to_owned()));
    assert_eq!(
        (shown(&state), state.trouble.as_deref()),
        (vec!["1.1"], Some("gone"))
    );
    state.take(Ok(answer(ScreenView::Processes, &["1.1"])));
    assert_eq!(state.trouble, None);
    typed(&mut state, "?");
    assert!(state.helps);
    assert_eq!(typed(&mut state, "j"), KeyEffect::None);
    assert!(!state.helps);
    assert_eq!(typed(&mut state, "q"), KeyEffect::Quit);
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    typed(&mut state, "/");
    assert_eq!(state.handle(&Event::Key(ctrl_c)), KeyEffect::Quit);
    assert_eq!(state.handle(&Event::Resize(1, 1)), KeyEffect::None);
}
