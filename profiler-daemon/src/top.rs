//! A live view of processes and functions in the terminal.
//!
//! It asks what the HTTP interface can be asked and computes nothing that a report says: of a
//! daemon that runs, or of a profiler that starts and ends with it. `state` is what keys change,
//! `question` what is asked for it, `peer` who is asked, `answer` what came of it, `columns` what
//! of that there is room for, `draw` how it looks; `screen` is the terminal.

mod answer;
mod columns;
mod draw;
mod peer;
mod question;
mod screen;
mod state;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::args::TopArgs;
use crate::backends::Live;
use crate::config::Config;
use crate::http::Client;
use crate::stages::{self, Stages};
use crate::sys::heap;

use answer::{DottedTexts, ScreenAnswer};
use peer::Peer;
use question::ScreenQuestion;
use screen::TakenScreen;
use state::{KeyEffect, State};

/// The width of what is printed once, columns.
const PRINTED_COLUMNS: u16 = 120;
/// Rows of the table that is printed once.
const PRINTED_ROWS: u16 = 30;

/// Shows it until the person has seen enough, or prints it once.
///
/// # Errors
/// A sentence: there is no terminal, no privilege, or nobody at the address.
pub fn run(args: &TopArgs) -> anyhow::Result<()> {
    let has_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !args.once && !has_terminal {
        return Err(anyhow!(
            "top needs a terminal to show itself and to hear keys: --once prints it once as text"
        ));
    }
    heap::tune();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot wait for answers")?;
    let result = runtime.block_on(async {
        let mut asked = AskedDaemon::start(args)?;
        let shown = async {
            asked.ready().await?;
            if args.once {
                print(args, &asked.peer).await
            } else {
                show(args, &asked.peer).await
            }
        };
        let result = shown.await;
        asked.stop().await?;
        result
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

/// Whom to ask, and what runs for it.
struct AskedDaemon {
    peer: Peer,
    own: Option<OwnStages>,
}

/// The profiler of this process.
struct OwnStages {
    stages: Stages,
    live: Arc<Live>,
    watch: JoinHandle<()>,
}

impl AskedDaemon {
    fn start(args: &TopArgs) -> anyhow::Result<Self> {
        if let Some(url) = &args.connect {
            let client = Client::at(url).map_err(|form| anyhow!("--connect {form}"))?;
            return Ok(Self {
                peer: Peer::Daemon(client),
                own: None,
            });
        }
        let config = match &args.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        let stages = stages::start(&config)?;
        let live = Arc::new(Live::new(config, stages.access.clone(), Arc::default()));
        let watched = Arc::clone(&live);
        Ok(Self {
            peer: Peer::Own(Arc::<Live>::clone(&live)),
            own: Some(OwnStages {
                stages,
                live,
                watch: tokio::spawn(async move { match watched.watch(|_| ()).await {} }),
            }),
        })
    }

    /// Waits until there is something to ask for.
    async fn ready(&mut self) -> anyhow::Result<()> {
        if let Some(own) = &mut self.own {
            let attached = (&mut own.stages.attached).await;
            let degraded =
                attached.map_err(|_| anyhow!("the collector's thread ended without a word"))??;
            own.live.set_degraded(degraded);
            own.live.access().snapshot(u64::MAX).await?;
            own.live.refresh().await;
        }
        self.peer.is_ready().await
    }

    async fn stop(self) -> anyhow::Result<()> {
        match self.own {
            Some(own) => {
                own.watch.abort();
                own.stages.stop().await
            }
            None => Ok(()),
        }
    }
}

/// Asks all of a question.
async fn ask(peer: Peer, question: ScreenQuestion) -> anyhow::Result<ScreenAnswer> {
    let answers = peer.ask(&question).await?;
    ScreenAnswer::read(
        question.view,
        &DottedTexts(&answers.totals),
        &DottedTexts(&answers.table),
        &DottedTexts(&answers.status),
    )
    .context("the daemon's answer has another form than this version knows")
}

/// Asks once and prints the answer.
async fn print(args: &TopArgs, peer: &Peer) -> anyhow::Result<()> {
    let mut state = State::new(args, peer.to_string());
    // One that began just now has seen nothing yet.
    if matches!(peer, Peer::Own(_)) {
        tokio::time::sleep(Duration::from_nanos(args.every)).await;
    }
    let answer = ask(peer.clone(), state.question()).await?;
    state.take(Ok(answer));
    let text = draw::as_text(&mut state, PRINTED_COLUMNS, PRINTED_ROWS);
    screen::print(&text).context("cannot print")
}

/// Shows the screen until it is left.
async fn show(args: &TopArgs, peer: &Peer) -> anyhow::Result<()> {
    let mut state = State::new(args, peer.to_string());
    let period = Duration::from_nanos(args.every);
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    let mut screen = TakenScreen::open().context("cannot use the terminal")?;
    let mut asking: Option<JoinHandle<anyhow::Result<ScreenAnswer>>> = None;
    let mut next = Instant::now();
    loop {
        screen.draw(|frame| draw::draw(frame, &mut state))?;
        let may_ask = asking.is_none() && state.asks();
        tokio::select! {
            event = screen.next() => match state.handle(&event.context("the terminal is gone")?) {
                KeyEffect::None => {}
                // What is on its way is about something else.
                KeyEffect::Question => {
                    if let Some(old) = asking.take() {
                        old.abort();
                    }
                    next = Instant::now();
                }
                KeyEffect::Quit => return Ok(()),
            },
            answer = answered(&mut asking) => {
                asking = None;
                next = Instant::now() + period;
                state.take(answer);
            }
            () = tokio::time::sleep_until(next), if may_ask => {
                asking = Some(tokio::spawn(ask(peer.clone(), state.question())));
            }
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        }
    }
}

/// Waits for what is asked; for ever where nothing is.
async fn answered(
    asking: &mut Option<JoinHandle<anyhow::Result<ScreenAnswer>>>,
) -> Result<ScreenAnswer, String> {
    let Some(task) = asking else {
        return std::future::pending().await;
    };
    match task.await {
        Ok(answer) => answer.map_err(|error| crate::args::failure_sentence(&error)),
        Err(_) => Err("the question was given up".to_owned()),
    }
}
