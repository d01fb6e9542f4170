//! The terminal: taken over, read, and given back as it was, whatever ends the program.

use std::io::{self, Stdout, Write as _, stdout};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};
use tokio::sync::mpsc;

/// How long the thread that reads keys waits before it looks whether it is over.
const POLL: Duration = Duration::from_millis(100);
/// Keys that may wait.
const MAX_WAITING: usize = 256;

/// The terminal, taken over. Dropped, it is as it was.
pub(super) struct TakenScreen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    events: mpsc::Receiver<io::Result<Event>>,
    over: Arc<AtomicBool>,
    keys: Option<JoinHandle<()>>,
}

impl TakenScreen {
    pub(super) fn open() -> io::Result<Self> {
        give_back_on_panic();
        enable_raw_mode()?;
        let taken = execute!(stdout(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        let terminal = match taken {
            Ok(terminal) => terminal,
            Err(error) => {
                give_back();
                return Err(error);
            }
        };
        let over = Arc::new(AtomicBool::new(false));
        let (sender, events) = mpsc::channel(MAX_WAITING);
        let mut screen = Self {
            terminal,
            events,
            over: Arc::clone(&over),
            keys: None,
        };
        let keys = thread::Builder::new().name("keys".into());
        screen.keys = Some(keys.spawn(move || read_keys(&sender, &over))?);
        Ok(screen)
    }

    /// Draws all of it anew; only what is different is sent.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(drop)
    }

    /// The next key, or change of size.
    pub(super) async fn next(&mut self) -> io::Result<Event> {
        match self.events.recv().await {
            Some(event) => event,
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Drop for TakenScreen {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.events.close();
        // What is typed from now on is for whoever reads the terminal next. One that broke reads no
        // more either.
        if let Some(keys) = self.keys.take() {
            keys.join().ok();
        }
        give_back();
    }
}

/// Prints text to standard output; one who has read enough is no error.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn read_keys(sender: &mpsc::Sender<io::Result<Event>>, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let event = match event::poll(POLL) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let is_last = event.is_err();
        if sender.blocking_send(event).is_err() || is_last {
            return;
        }
    }
}

/// Once for the program: a panic is told on the screen that was there before.
fn give_back_on_panic() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        give_back();
        tell(panic);
    }));
}

fn give_back() {
    // A terminal that is gone needs nothing.
    execute!(stdout(), LeaveAlternateScreen, Show).unwrap_or_default();
    disable_raw_mode().unwrap_or_default();
}
