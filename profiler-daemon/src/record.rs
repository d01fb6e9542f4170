//! Profiling once, without a service: a command, some processes or the whole machine; one report at
//! the end.
//!
//! The same stages as the daemon's, asked once; or, with --connect, what a running daemon has of
//! the time. It serves nothing.

mod connected;
mod early;
mod ending;
mod nobody;
mod output;
mod program;
mod progress;
mod span;
mod spanned;
mod target;
mod traced;
mod wanted;
mod write;

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use tracing::warn;

use crate::api::Source as _;
use crate::args::RecordArgs;
use crate::backends::Live;
use crate::config::targets::Targets;
use crate::export::measured::write_measured;
use crate::http::Client;
use crate::report::Window;
use crate::stages::{self, StartOutcome};
use crate::sys::heap;

use ending::{Left, Signals};
use nobody::nobody;
use output::Output;
use target::Recorded;
use traced::TracedFunctions;
use wanted::OutputRequest;
use write::WrittenReport;

/// Who observes.
enum Profiler {
    /// A daemon that runs.
    Daemon(Client),
    /// The stages of this process, which look at these.
    Own(Recorded),
}

/// Records as was typed, and answers the exit code: the command's, where there is one, else 0.
///
/// # Errors
/// A sentence about what is missing or wrong; then no report was written.
pub fn run(args: &RecordArgs) -> anyhow::Result<u8> {
    heap::tune();
    let mut config = args.resolve()?;
    let wanted = OutputRequest::read(args, config.frequency_hz)?;
    let traced = TracedFunctions::read(args)?;
    let connected = args.connect.as_deref().map(Client::at).transpose();
    let connected = connected.map_err(|form| anyhow!("--connect {form}"))?;
    // What cannot be written is told before anything was recorded.
    let output = Output::open(args.output.as_deref())?;
    if wanted.format.is_binary() && output.is_terminal() {
        return Err(anyhow!(
            "a compressed profile is nothing for a terminal: name a file with -o"
        ));
    }
    let profiler = match connected {
        Some(client) => Profiler::Daemon(client),
        None => Profiler::Own(Recorded::new(args)?),
    };
    if !args.command.is_empty() {
        // Nobody yet: what a command waits before its program begins is not its own time.
        config.targets.all = false;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot wait for the recording")?;
    let result = runtime.block_on(async {
        let mut signals = Signals::new().context("cannot wait for signals")?;
        let recorded = match profiler {
            Profiler::Own(recorded) => recorded,
            Profiler::Daemon(client) => {
                let left = connected::record(args, &client, &wanted, output, &mut signals);
                return left.await?.exit_code(&mut signals).await;
            }
        };
        let mut stages = stages::start(&config)?;
        let live = Arc::new(Live::new(config, stages.access.clone(), Arc::default()));
        let attached = &mut stages.attached;
        let result = record(
            args,
            (recorded, traced),
            &wanted,
            output,
            attached,
            &live,
            &mut signals,
        )
        .await;
        let stopped = stages.stop().await;
        let left = result?;
        stopped?;
        left.exit_code(&mut signals).await
    });
    // A report that nobody waits for any more is of no use to anybody.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

/// From the start of the kernel programs to the written report. Answers what is left to wait for.
async fn record(
    args: &RecordArgs,
    (mut recorded, mut traced): (Recorded, Option<TracedFunctions>),
    wanted: &OutputRequest,
    output: Output,
    attached: &mut StartOutcome,
    live: &Arc<Live>,
    signals: &mut Signals,
) -> anyhow::Result<Left> {
    let attached = tokio::select! {
        attached = attached => attached,
        signal = signals.quit.next() => return Ok(Left::Nothing(signal.exit_code())),
    };
    let degraded =
        attached.map_err(|_| anyhow!("the collector's thread ended without a word"))??;
    for (what, why) in &degraded {
        warn!("{what}: {why}");
    }
    live.set_degraded(degraded);
    // The first pass takes its time. What begins while it lasts would be heard of late.
    live.access().snapshot(u64::MAX).await?;
    let program = early::map(&args.command);
    if program.is_some() {
        early::await_tables(live.access()).await?;
    }
    if let Some(traced) = &mut traced {
        let program = args.command.first().map(OsString::as_os_str);
        traced
            .begin(live, recorded.command_pid().zip(program))
            .await?;
    }
    // Last: what probes take to attach is no time of the command.
    if let Some(pid) = recorded.command_pid() {
        let targets = Targets::only(vec![pid], Vec::new(), true);
        let targets = targets.map_err(anyhow::Error::msg)?;
        live.set_targets(targets).await?;
    }
    let on_terminal = std::io::stderr().is_terminal();
    let began = Instant::now();
    if let Err(failure) = recorded.begin() {
        progress::say(&failure.sentence);
        return Ok(Left::Nothing(failure.exit_code));
    }
    // It has mapped it itself by now.
    drop(program);
    // A command's own words are not written over.
    let shows = on_terminal && args.command.is_empty();
    let length = args.duration.map(Duration::from_nanos);
    let ended = tokio::select! {
        ended = recorded.end(length, signals) => ended?,
        never = progress::show(live.access(), began, length, shows) => match never {},
        never = follow(&mut traced, live) => match never {},
    };
    let measured = match &traced {
        Some(traced) => Some(traced.end(live).await?),
        None => None,
    };
    let recorded_for = began.elapsed();
    if shows {
        progress::clear();
    }
    let scope = recorded.scope();
    let report = async {
        let saved = write::take(live, wanted, scope).await?;
        write::report(saved, *wanted, scope, Window::Session, measured.clone()).await
    };
    finish(report, output, (args, recorded_for), signals).await?;
    if let Some(measured) = measured.filter(|_| !wanted.holds_measured()) {
        // The format has no room for it.
        let mut table = Vec::new();
        write_measured(&measured, &mut table).context("cannot make the table")?;
        progress::say(String::from_utf8_lossy(&table).trim_end());
    }
    Ok(recorded.left(ended))
}

/// Measures functions that come to be there later.
async fn follow(traced: &mut Option<TracedFunctions>, live: &Live) -> Infallible {
    match traced {
        Some(traced) => traced.follow(live).await,
        None => std::future::pending().await,
    }
}

/// Writes the report and says so, and where nobody who was named is in it; a signal ends the wait
/// for it.
async fn finish(
    report: impl Future<Output = anyhow::Result<WrittenReport>>,
    output: Output,
    (args, recorded_for): (&RecordArgs, Duration),
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let report = tokio::select! {
        report = report => report?,
        signal = signals.quit.next() => {
            return Err(anyhow!("ended by {} before the report was made", signal.name()));
        }
    };
    let written = output.write(&report.bytes)?;
    if std::io::stderr().is_terminal() {
        progress::say(&report.summary(recorded_for, written.as_deref()));
    }
    if let Some(sentence) = nobody(args, &report.totals) {
        progress::say(&sentence);
    }
    Ok(())
}
