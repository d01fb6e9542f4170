//! What is shown, and how keys change it. Knows neither the terminal nor the daemon.

use std::collections::HashMap;

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::widgets::TableState;

use crate::args::{TopArgs, TopSort, TopWindow};

use super::answer::{ScreenAnswer, ScreenRow};
use super::question::{ScreenQuestion, ScreenView};

/// The longest filter, characters.
const MAX_FILTER: usize = 64;

/// What a key was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyEffect {
    /// Only how it looks, if anything.
    None,
    /// What is asked.
    Question,
    /// Enough was seen.
    Quit,
}

/// See the module.
pub(super) struct State {
    /// Whom the numbers are from.
    pub(super) source: String,
    pub(super) view: ScreenView,
    pub(super) sort: TopSort,
    pub(super) window: TopWindow,
    /// The filter, and whether it is being typed.
    pub(super) filter: String,
    pub(super) types: bool,
    /// No more questions.
    pub(super) paused: bool,
    /// The rows stay in the order they had, by key.
    frozen: Option<Vec<String>>,
    pub(super) helps: bool,
    pub(super) answer: Option<ScreenAnswer>,
    /// It is the answer to what is asked now, and not to what was asked before.
    pub(super) is_answered: bool,
    /// Why there is no new answer.
    pub(super) trouble: Option<String>,
    pub(super) table: TableState,
    /// The row that the list of processes is left at.
    left_at: Option<String>,
}

impl State {
    pub(super) fn new(args: &TopArgs, source: String) -> Self {
        Self {
            source,
            view: ScreenView::Processes,
            sort: args.sort,
            window: args.window,
            filter: String::new(),
            types: false,
            paused: false,
            frozen: None,
            helps: false,
            answer: None,
            is_answered: false,
            trouble: None,
            table: TableState::default(),
            left_at: None,
        }
    }

    /// What must be asked for it.
    pub(super) fn question(&self) -> ScreenQuestion {
        ScreenQuestion {
            view: self.view.clone(),
            sort: column(&self.view, self.sort),
            window: match self.window {
                TopWindow::Recent => "recent",
                TopWindow::Session => "session",
                TopWindow::HalfMinute => "30s",
                TopWindow::FiveMinutes => "5m",
            },
            filter: self.filter.clone(),
        }
    }

    /// Whether new numbers are wanted.
    pub(super) fn asks(&self) -> bool {
        !self.paused || !self.is_answered
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// The rows as they are shown.
    pub(super) fn rows(&self) -> &[ScreenRow] {
        self.answer.as_ref().map_or(&[], |answer| &answer.rows)
    }

    /// Takes an answer in; the selection stays on its row.
    pub(super) fn take(&mut self, answer: Result<ScreenAnswer, String>) {
        let mut answer = match answer {
            Ok(answer) if answer.view == self.view => answer,
            // It came too late.
            Ok(_) => return,
            Err(sentence) => {
                self.trouble = Some(sentence);
                return;
            }
        };
        self.trouble = None;
        if let Some(order) = &self.frozen {
            let places: HashMap<&str, usize> = order.iter().map(String::as_str).zip(0..).collect();
            // New rows come after those that are known, in their own order.
            let place = |row: &ScreenRow| places.get(row.key.as_str()).copied();
            answer
                .rows
                .sort_by_key(|row| place(row).unwrap_or(usize::MAX));
        }
        let selected = self.left_at.take().or_else(|| self.selected_key());
        self.answer = Some(answer);
        self.is_answered = true;
        let place = |key: String| self.rows().iter().position(|row| row.key == key);
        let at = selected.and_then(place).or(self.table.selected());
        self.select(at.unwrap_or(0));
        if self.frozen.is_some() {
            self.freeze();
        }
    }

    fn selected_key(&self) -> Option<String> {
        let row = self.rows().get(self.table.selected()?)?;
        Some(row.key.clone())
    }

    fn select(&mut self, at: usize) {
        let last = self.rows().len().checked_sub(1);
        self.table.select(last.map(|last| at.min(last)));
    }

    fn freeze(&mut self) {
        self.frozen = Some(self.rows().iter().map(|row| row.key.clone()).collect());
    }

    /// Takes a key, or whatever else the terminal tells.
    pub(super) fn handle(&mut self, event: &Event) -> KeyEffect {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(key),
            _ => KeyEffect::None,
        }
    }

    fn key(&mut self, key: &KeyEvent) -> KeyEffect {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c' | 'd') => KeyEffect::Quit,
                _ => KeyEffect::None,
            };
        }
        if self.types {
            return self.type_key(key.code);
        }
        if self.helps {
            self.helps = false;
            return match key.code {
                KeyCode::Char('q') => KeyEffect::Quit,
                _ => KeyEffect::None,
            };
        }
        let at = self.table.selected().unwrap_or(0);
        match key.code {
            KeyCode::Char('q') => return KeyEffect::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.select(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(at + 1),
            KeyCode::PageUp => self.select(at.saturating_sub(20)),
            KeyCode::PageDown => self.select(at + 20),
            KeyCode::Home | KeyCode::Char('g') => self.select(0),
            KeyCode::End | KeyCode::Char('G') => self.select(usize::MAX),
            KeyCode::Char('?' | 'h') => self.helps = true,
            KeyCode::Char('/') => self.types = true,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char(' ') if self.frozen.is_some() => self.frozen = None,
            KeyCode::Char(' ') => self.freeze(),
            KeyCode::Char('s') => {
                self.sort = next_sort(&self.view, self.sort);
                return self.ask_anew();
            }
            KeyCode::Char('w') => {
                self.window = match self.window {
                    TopWindow::Recent => TopWindow::Session,
                    TopWindow::Session => TopWindow::HalfMinute,
                    TopWindow::HalfMinute => TopWindow::FiveMinutes,
                    TopWindow::FiveMinutes => TopWindow::Recent,
                };
                return self.ask_anew();
            }
            KeyCode::Enter | KeyCode::Right => return self.enter(),
            KeyCode::Tab | KeyCode::Char('t') => return self.turn(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => return self.leave(),
            _ => {}
        }
        KeyEffect::None
    }

    fn type_key(&mut self, code: KeyCode) -> KeyEffect {
        match code {
            KeyCode::Enter => {
                self.types = false;
                return KeyEffect::None;
            }
            KeyCode::Esc => {
                self.types = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) if !c.is_control() && self.filter.chars().count() < MAX_FILTER => {
                self.filter.push(c);
            }
            _ => return KeyEffect::None,
        }
        self.ask_anew()
    }

    /// Another order is wanted, so none is held.
    fn ask_anew(&mut self) -> KeyEffect {
        self.frozen = None;
        self.is_answered = false;
        KeyEffect::Question
    }

    /// From the list of processes to the functions of one; not from a list that is about to be
    /// another.
    fn enter(&mut self) -> KeyEffect {
        match (&self.view, self.selected_key()) {
            (ScreenView::Processes, Some(process)) if self.is_answered => {
                self.left_at = None;
                self.show(ScreenView::Functions(process))
            }
            _ => KeyEffect::None,
        }
    }

    /// From functions to threads and back.
    fn turn(&mut self) -> KeyEffect {
        match &self.view {
            ScreenView::Processes => KeyEffect::None,
            ScreenView::Functions(process) => self.show(ScreenView::Threads(process.clone())),
            ScreenView::Threads(process) => self.show(ScreenView::Functions(process.clone())),
        }
    }

    /// Back to the list of processes, to the row it was left at; there, back to all of it.
    fn leave(&mut self) -> KeyEffect {
        match &self.view {
            ScreenView::Processes if self.filter.is_empty() => KeyEffect::None,
            ScreenView::Processes => {
                self.filter.clear();
                self.ask_anew()
            }
            ScreenView::Functions(process) | ScreenView::Threads(process) => {
                let process = process.clone();
                let change = self.show(ScreenView::Processes);
                self.left_at = Some(process);
                change
            }
        }
    }

    fn show(&mut self, view: ScreenView) -> KeyEffect {
        self.view = view;
        self.answer = None;
        self.trouble = None;
        self.filter.clear();
        self.table = TableState::default();
        self.ask_anew()
    }
}

/// The column that a view is sorted by.
fn column(view: &ScreenView, sort: TopSort) -> &'static str {
    match (view, sort) {
        (ScreenView::Processes, TopSort::Samples) => "samples",
        (ScreenView::Processes, TopSort::Elapsed) => "elapsed_ns",
        (ScreenView::Processes, TopSort::Application) => "application_ns",
        (ScreenView::Processes | ScreenView::Threads(_), TopSort::Syscall) => "classes.syscall_ns",
        (ScreenView::Processes | ScreenView::Threads(_), TopSort::Runnable) => {
            "classes.runnable_ns"
        }
        (ScreenView::Processes | ScreenView::Threads(_), TopSort::Blocked) => "classes.blocked_ns",
        (_, TopSort::Samples) => "samples.exclusive",
        (_, TopSort::Application) => "application.exclusive_ns",
        // Functions have no time by class.
        (_, TopSort::Elapsed) | (ScreenView::Functions(_), _) => "elapsed.exclusive_ns",
    }
}

fn next_sort(view: &ScreenView, sort: TopSort) -> TopSort {
    match sort {
        TopSort::Samples => TopSort::Elapsed,
        TopSort::Elapsed => TopSort::Application,
        TopSort::Application if matches!(view, ScreenView::Functions(_)) => TopSort::Samples,
        TopSort::Application => TopSort::Syscall,
        TopSort::Syscall => TopSort::Runnable,
        TopSort::Runnable => TopSort::Blocked,
        TopSort::Blocked => TopSort::Samples,
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
