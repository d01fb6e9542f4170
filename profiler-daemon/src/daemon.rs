//! The service: starts what answers and the server, waits for signals or until the session is full,
//! and stops both; then it ends, or begins anew. It decides nothing else.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use crate::api::Source;
use crate::backends::{Live, Replay};
use crate::collect::CollectorState;
use crate::config::{Config, duration};
use crate::http::{self, HttpOptions};
use crate::metrics::RequestCounts;
use crate::stages;
use crate::sys::clock::monotonic_ns;
use crate::sys::ending_signal::EndingSignal;
use crate::sys::heap;
use crate::sys::heartbeat::Heartbeats;
use crate::units::MonoNs;

/// Runs until SIGTERM, SIGINT or SIGHUP.
///
/// # Errors
/// A sentence about what is missing: a privilege, a feature of the kernel, the port.
pub fn run(config: Config) -> anyhow::Result<()> {
    heap::tune();
    until_stopped(async move {
        let mut config = config;
        while profile(&mut config).await? == ProfileEnd::SessionFull {
            warn!(
                "a new session begins: the threads of the last one have lived for {} all together (limits.session_thread_time)",
                duration::format(config.limits.session_thread_time_ns)
            );
        }
        Ok(())
    })
}

/// Why profiling ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProfileEnd {
    /// The service is to stop.
    Stopped,
    /// It is to begin anew.
    SessionFull,
}

/// Serves a saved profile until SIGTERM, SIGINT or SIGHUP. Needs no privilege. Of `config` only
/// what is said of serving matters.
///
/// # Errors
/// A sentence about what is wrong with the file, or the port.
pub fn replay(config: &Config, file: &Path) -> anyhow::Result<()> {
    heap::tune();
    let replay = Replay::open(file)?;
    until_stopped(show(config, replay))
}

fn until_stopped(service: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("http")
        .enable_all()
        .build()
        .context("cannot start the threads that serve HTTP")?;
    let result = runtime.block_on(service);
    // Reports that are still being made are of no use to anybody.
    runtime.shutdown_timeout(Duration::from_millis(500));
    result
}

async fn profile(config: &mut Config) -> anyhow::Result<ProfileEnd> {
    let (listener, address) = bind(config).await?;
    // The next session has the same.
    config.listen = address;
    let requests = Arc::new(RequestCounts::default());
    let mut options = HttpOptions::new(config, Arc::clone(&requests));
    options.listen = address;
    let started = Instant::now();
    // On a thread of its own, so that the server answers from the start.
    let mut stages = stages::start(config)?;
    let live = Arc::new(Live::new(config.clone(), stages.access.clone(), requests));
    let server = Server::start(listener, Arc::<Live>::clone(&live), options);
    let mut stop = Stop::new()?;
    let mut result = Ok(ProfileEnd::Stopped);
    tokio::select! {
        outcome = &mut stages.attached => match outcome {
            Ok(Ok(degraded)) => {
                live.set_degraded(degraded);
                info!("profiling; ready in {:.1} s; http://{address}/api/v1/processes?format=text", started.elapsed().as_secs_f64());
                // A task among those that serve: where none of them gets on, the service manager
                // hears nothing.
                let watched = Arc::clone(&live);
                let mut tell = tell_service_manager(stages.access.heartbeats().clone());
                let (full, most_ns) = (Arc::new(Notify::new()), config.limits.session_thread_time_ns);
                let is_full = Arc::clone(&full);
                let tell = move |state: Option<&CollectorState>| {
                    tell(state);
                    if state.is_some_and(|state| state.thread_time_ns >= most_ns) {
                        is_full.notify_one();
                    }
                };
                let mut watch = tokio::spawn(async move { watched.watch(tell).await });
                tokio::select! {
                    () = stop.told() => watch.abort(),
                    () = full.notified() => {
                        watch.abort();
                        result = Ok(ProfileEnd::SessionFull);
                    }
                    broken = &mut watch => match broken {
                        Ok(never) => match never {},
                        Err(error) => result = Err(error).context("watching over the threads failed"),
                    },
                }
            }
            Ok(Err(error)) => result = Err(error),
            Err(_) => result = Err(anyhow!("the collector's thread ended without a word")),
        },
        () = stop.told() => {}
    }
    if matches!(result, Ok(ProfileEnd::Stopped)) {
        info!("stopping");
    }
    if !matches!(result, Ok(ProfileEnd::SessionFull)) {
        notify(&[sd_notify::NotifyState::Stopping]);
    }
    server.stop().await?;
    stages.stop().await?;
    result
}

async fn show(config: &Config, replay: Replay) -> anyhow::Result<()> {
    let (listener, address) = bind(config).await?;
    let mut options = HttpOptions::new(config, Arc::new(RequestCounts::default()));
    options.listen = address;
    options.sampling_period_ns = replay.sampling_period_ns();
    info!("{}; http://{address}/", replay.about());
    let server = Server::start(listener, Arc::new(replay), options);
    let mut stop = Stop::new()?;
    notify(&[sd_notify::NotifyState::Ready]);
    stop.told().await;
    info!("stopping");
    notify(&[sd_notify::NotifyState::Stopping]);
    server.stop().await
}

/// The address cannot be listened on.
#[derive(Debug, Error)]
#[error("cannot listen on {address}: {source}; choose another address with --listen")]
struct NotListening {
    address: SocketAddr,
    source: io::Error,
}

/// Listens. It is done first: it is what fails most often, and costs nothing.
async fn bind(config: &Config) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|source| NotListening {
            address: config.listen,
            source,
        })?;
    let address = listener
        .local_addr()
        .context("cannot tell which address is listened on")?;
    if !address.ip().is_loopback() {
        warn!(
            "{address} can be reached from other machines, and there is no password: whoever reaches it reads every report"
        );
    }
    Ok((listener, address))
}

/// The running server.
struct Server {
    task: JoinHandle<anyhow::Result<()>>,
    stop: watch::Sender<bool>,
}

impl Server {
    fn start(listener: TcpListener, backend: Arc<dyn Source>, options: HttpOptions) -> Self {
        let app = http::app(backend, options.clone());
        let (stop, mut stopped) = watch::channel(false);
        let task = tokio::spawn(http::serve(listener, app, options, async move {
            // An error means that the sender is gone, which is the end as well.
            stopped.wait_for(|stop| *stop).await.map(drop).unwrap_or(());
        }));
        Self { task, stop }
    }

    /// Answers what is asked already.
    async fn stop(self) -> anyhow::Result<()> {
        self.stop.send_replace(true);
        self.task.await.context("the server broke")?
    }
}

/// The signals that end the service.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
    /// The terminal is gone. Nothing is read again on it.
    hangup: EndingSignal,
}

impl Stop {
    fn new() -> anyhow::Result<Self> {
        let wait = |kind| signal(kind).context("cannot wait for signals");
        Ok(Self {
            terminate: wait(SignalKind::terminate())?,
            interrupt: wait(SignalKind::interrupt())?,
            hangup: EndingSignal::new(SignalKind::hangup()).context("cannot wait for signals")?,
        })
    }

    async fn told(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = self.hangup.recv() => {}
        }
    }
}

/// Tells the service manager once the daemon is ready, and then that it lives, for as long as all
/// threads move.
fn tell_service_manager(beats: Heartbeats) -> impl FnMut(Option<&CollectorState>) {
    let mut told_ready = false;
    move |state| {
        let Some(state) = state else { return };
        if state.passes > 0 && !told_ready {
            told_ready = true;
            let status = format!("profiling {} threads", state.threads);
            notify(&[
                sd_notify::NotifyState::Ready,
                sd_notify::NotifyState::Status(&status),
            ]);
        }
        if all_move(&beats, monotonic_ns()) {
            notify(&[sd_notify::NotifyState::Watchdog]);
        }
    }
}

/// Whether no thread is stuck.
fn all_move(beats: &Heartbeats, now_ns: MonoNs) -> bool {
    beats.stuck(now_ns).next().is_none()
}

/// Tells systemd, where it listens.
fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        debug!("the service manager cannot be told: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sys::heartbeat::Heartbeat;

    // Check that the service manager is told that the daemon lives while its threads move or wait
    // for work, and not while one is at a piece of work for too long.
    #[test]
    fn a_stuck_thread_starves_the_watchdog() {
        let [busy, idle] =
            ["busy", "idle"].map(|name| Heartbeat::new(name, Duration::from_secs(5)));
        let beats: Heartbeats = [busy.clone(), idle].into_iter().collect();
        let piece = busy.begin("names");
        let now_ns = monotonic_ns();
        assert!(all_move(&beats, now_ns));
        assert!(!all_move(&beats, now_ns + 6_000_000_000));
        drop(piece);
        assert!(all_move(&beats, MonoNs::MAX));
    }
}
