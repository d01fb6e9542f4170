//! The service: starts the stages and the server, waits for signals, and stops both. The only module that knows them all; it decides nothing else.

mod backend;
mod facts;
mod scrape;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use crate::config::Config;
use crate::http::{self, HttpOptions};
use crate::metrics::RequestCounts;
use crate::stages;
use crate::sys::heap;

use backend::Daemon;
use facts::Facts;

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// A sentence about what is missing: a privilege, a feature of the kernel, the port.
pub fn run(config: Config) -> anyhow::Result<()> {
    heap::tune();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("http")
        .enable_all()
        .build()
        .context("cannot start the threads that serve HTTP")?;
    let result = runtime.block_on(serve(config));
    // Reports that are still being made are of no use to anybody.
    runtime.shutdown_timeout(Duration::from_millis(500));
    result
}

async fn serve(config: Config) -> anyhow::Result<()> {
    // The port first: it is what fails most often, and costs nothing.
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        anyhow!(
            "cannot listen on {}: {error}; choose another address with --listen",
            config.listen
        )
    })?;
    let address = listener
        .local_addr()
        .context("cannot tell which address is listened on")?;
    if !address.ip().is_loopback() {
        warn!(
            "{address} can be reached from other machines, and there is no password: whoever reaches it reads every report"
        );
    }
    let facts = Facts::gather(&config);
    let requests = Arc::new(RequestCounts::default());
    let mut options = HttpOptions::new(&config, Arc::clone(&requests));
    options.listen = address;
    let started = Instant::now();
    // On a thread of its own, so that the server answers from the start.
    let mut stages = stages::start(&config)?;
    let daemon = Arc::new(Daemon::new(config, facts, stages.access.clone(), requests));
    let app = http::app(Arc::<Daemon>::clone(&daemon), options.clone());
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let server = tokio::spawn(http::serve(listener, app, options, async move {
        // An error means that the sender is gone, which is the end as well.
        stopped.wait_for(|stop| *stop).await.map(drop).unwrap_or(());
    }));
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    let mut result = Ok(());
    tokio::select! {
        outcome = &mut stages.attached => match outcome {
            Ok(Ok(degraded)) => {
                daemon.set_degraded(degraded);
                info!("profiling; ready in {:.1} s; http://{address}/api/v1/processes?format=text", started.elapsed().as_secs_f64());
                daemon.watch_ready();
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            Ok(Err(error)) => result = Err(error),
            Err(_) => result = Err(anyhow!("the collector's thread ended without a word")),
        },
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    if result.is_ok() {
        info!("stopping");
    }
    facts::notify(&[sd_notify::NotifyState::Stopping]);
    stop.send_replace(true);
    server.await.context("the server broke")??;
    stages.stop().await?;
    result
}
