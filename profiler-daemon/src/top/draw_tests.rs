//! What is drawn of answers as the interface gives them.

use serde_json::{Value, json};

use super::{as_text, bar_columns, draw};
use crate::args::{TopArgs, TopSort, TopWindow};
use crate::top::answer::{DottedTexts, ScreenAnswer};
use crate::top::question::ScreenView;
use crate::top::state::State;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent};

const MS: u64 = 1_000_000;

fn totals() -> Value {
    json!({
        "processes": 2, "threads": 5, "pid": 7, "comm": "sql\u{1b}]0;owned\u{7}",
        "classes": {"user_ns": 60 * MS, "syscall_ns": 10 * MS, "kernel_ns": 0, "runnable_ns": 10 * MS, "blocked_ns": 20 * MS},
        "stacks": {"walked": 100, "complete": 97},
        "completeness": {"samples_lost": 3, "elapsed_unattributed_ns": 5 * MS},
    })
}

fn status(replay: Value) -> Value {
    json!({
        "uptime_s": 50, "replay": replay,
        "own_cost": {"cpu_seconds_total": 1.0, "resident_bytes": 10 << 20, "kernel_map_bytes": 2 << 20},
    })
}

fn processes() -> Value {
    let row = |pid: u32, comm: &str, unit: Value| {
        json!({
            "pid": pid, "start_ticks": 1, "samples": 90, "samples_percent": 45.25, "elapsed_ns": 1_500 * MS,
            "application_ns": 60 * MS, "threads": 3, "state": "running",
            "comm": comm, "unit": unit,
            "classes": {"syscall_ns": 3 * MS, "runnable_ns": 7 * MS, "blocked_ns": 20 * MS},
        })
    };
    json!({
        "as_of": "2026-01-01T00:00:00Z", "total_rows": 9,
        "window": {"from": "2025-12-31T23:59:29.6Z", "to": "2026-01-01T00:00:00Z"},
        "rows": [row(7, "sql\u{1b}[2J\u{202e}x\nline", json!("db.service")), row(8, "große", Value::Null)],
    })
}

fn functions() -> Value {
    json!({
        "as_of": "2026-01-01T00:00:00Z", "total_rows": 1,
        "rows": [{
            "function": "evil\u{1b}[31m\u{9b}5n()", "module": "/lib/a\r\nb.so",
            "samples": {"exclusive": 4, "exclusive_percent_of_process": 50.0},
            "elapsed": {"exclusive_ns": 2 * MS, "inclusive_ns": 3 * MS},
            "application": {"exclusive_ns": MS},
        }],
    })
}

fn threads() -> Value {
    let row = |tid: u32, threads: u32| {
        json!({
            "tid": tid, "threads": threads, "comm": "worker", "state": "blocked", "started_at": Value::Null,
            "samples": {"exclusive": 4, "exclusive_percent_of_process": 50.0},
            "elapsed": {"exclusive_ns": 2 * MS}, "application": {"exclusive_ns": MS},
            "classes": {"syscall_ns": MS, "runnable_ns": MS, "blocked_ns": MS},
        })
    };
    json!({"as_of": "", "total_rows": 2, "rows": [row(71, 1), row(0, 12)]})
}

fn shown(view: ScreenView, table: &Value, replay: Value) -> State {
    let args = TopArgs {
        connect: None,
        window: TopWindow::FiveMinutes,
        sort: TopSort::Blocked,
        every: 1,
        once: false,
        config: None,
    };
    let mut state = State::new(&args, "http://127.0.0.1:1".to_owned());
    state.view = view.clone();
    let (totals, status) = (totals(), status(replay));
    let answer = ScreenAnswer::read(
        view,
        &DottedTexts(&totals),
        &DottedTexts(table),
        &DottedTexts(&status),
    );
    state.take(Ok(answer.unwrap()));
    state
}

#[track_caller]
fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is missing from\n{text}");
    }
    let odd = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(odd, None, "in {text:?}");
}

// Check that the list of processes shows the numbers, what is lacking and the cost, and that names
// cannot do anything.
#[test]
fn the_list() {
    let text = as_text(
        &mut shown(ScreenView::Processes, &processes(), Value::Null),
        120,
        30,
    );
    contains(
        &text,
        &[
            "http://127.0.0.1:1  2 processes, 5 threads  last 5 min  as of 2026-01-01T00:00:00Z",
            "user 60.0 %  syscall 10.0 %  kernel 0.0 %  runnable 10.0 %  blocked 20.0 %",
            "lacks  3 samples lost, 3 of 100 stacks incomplete, 5.000 ms without a stack",
            "costs  1.0 s of processor time (2.0 % of one), 10.0 MiB of memory, 2.0 MiB in the kernel",
            "BLOCKED▾",
            "45.2",
            "1.500 s",
            "sql\\u{1b}[2J",
            "db.service",
            "große",
        ],
    );
    assert_eq!(text.lines().count(), 8);
    let bar = text.lines().nth(1).unwrap();
    assert_eq!(bar.matches('u').count(), 72);
    assert!(!text.contains('\u{202e}'));
}

// Check that the recent time is told by its length, and that what rows are sorted by is shown.
#[test]
fn the_default_time_and_every_sort() {
    let mut state = shown(ScreenView::Processes, &processes(), Value::Null);
    state.window = TopWindow::Recent;
    for (sort, title, other, number) in [
        (TopSort::Syscall, "SYSCALL▾", "BLOCKED", "3.000 ms"),
        (TopSort::Runnable, "RUNNABLE▾", "BLOCKED", "7.000 ms"),
        (TopSort::Samples, "SAMPLES▾", "RUNNABLE", "20.000 ms"),
    ] {
        state.sort = sort;
        let text = as_text(&mut state, 120, 30);
        contains(&text, &["5 threads  last 30 s  as of", title, number]);
        assert!(!text.contains(other), "{text}");
    }
}

// Check that functions and threads of a process are shown, folded threads as such, and a replay as
// one.
#[test]
fn one_process() {
    let process = || "7.1".to_owned();
    let replay = json!({"file": "a\u{1b}c.profile", "saved_at": "2025-01-01T00:00:00Z"});
    let text = as_text(
        &mut shown(ScreenView::Functions(process()), &functions(), replay),
        160,
        30,
    );
    contains(
        &text,
        &[
            "functions of 7 sql\\u{1b}]0;owned\\u{7}",
            "replay of a\\u{1b}c.profile, saved at 2025-01-01T00:00:00Z",
            "evil\\u{1b}[31m\\u{9b}5n()",
            "/lib/a\\u{d}\\u{a}b.so",
            "ELAPSED▾",
            "50.0",
        ],
    );
    let text = as_text(
        &mut shown(ScreenView::Threads(process()), &threads(), Value::Null),
        120,
        30,
    );
    contains(
        &text,
        &[
            "threads of 7",
            "worker",
            "12 threads that exited",
            "BLOCKED▾",
        ],
    );
    // Of a part of the session nobody knows how many they were.
    let mut table = threads();
    table["rows"][1]["threads"] = Value::Null;
    let state = &mut shown(ScreenView::Threads(process()), &table, Value::Null);
    let text = as_text(state, 120, 30);
    contains(&text, &["threads that exited"]);
    assert!(!text.contains("12 threads that exited"), "{text}");
}

// Check that an answer that lacks something is told by its name, and does not become a row of
// zeros.
#[test]
fn other_answers() {
    let mut table = processes();
    table["rows"][1]["elapsed_ns"] = json!("many");
    let (totals, status) = (totals(), status(Value::Null));
    let read = |totals: &Value, table: &Value| {
        ScreenAnswer::read(
            ScreenView::Processes,
            &DottedTexts(totals),
            &DottedTexts(table),
            &DottedTexts(&status),
        )
        .unwrap_err()
        .to_string()
    };
    assert_eq!(read(&totals, &table), "elapsed_ns is missing");
    assert_eq!(read(&totals, &json!([])), "rows is missing");
    assert_eq!(read(&json!(7), &processes()), "classes.user_ns is missing");
}

// Check that the bar is as wide as it may be, and shows a class with little time as long as there
// is room.
#[test]
fn bars() {
    assert_eq!(bar_columns(&[0; 5], 80), [0; 5]);
    assert_eq!(bar_columns(&[1, 1, 0, 1, 1], 80), [20, 20, 0, 20, 20]);
    assert_eq!(
        bar_columns(&[1, u64::MAX, 1, 0, u64::MAX], 80),
        [1, 39, 1, 0, 39]
    );
    for width in 0..6 {
        let sum: u16 = bar_columns(&[5, 1, 1, 1, 1], width).iter().sum();
        assert_eq!(sum, width);
    }
}

// Check that nothing breaks on a screen of any size, in any state, and that trouble and modes are
// told.
#[test]
fn every_size() {
    for (width, height) in [(1, 1), (3, 7), (20, 5), (80, 24), (400, 100)] {
        let mut state = shown(ScreenView::Processes, &processes(), Value::Null);
        for key in ['?', 'x', '/', 'a'] {
            state.handle(&Event::Key(KeyEvent::from(KeyCode::Char(key))));
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &mut state)).unwrap();
        }
    }
    let mut state = shown(ScreenView::Processes, &processes(), Value::Null);
    let foot = |state: &mut State| {
        let mut terminal = Terminal::new(TestBackend::new(100, 20)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        (0..100)
            .map(|x| buffer[(x, 19)].symbol())
            .collect::<String>()
    };
    assert!(foot(&mut state).starts_with("2 of 9  ? help  q quit"));
    state.paused = true;
    state.handle(&Event::Key(KeyEvent::from(KeyCode::Char(' '))));
    assert!(foot(&mut state).starts_with("2 of 9  PAUSED  ORDER FROZEN"));
    state.take(Err("http://127.0.0.1:1 cannot be asked".to_owned()));
    assert!(foot(&mut state).starts_with("http://127.0.0.1:1 cannot"));
}
