//! Builds the stages, owns the threads, and stops them. The only module that knows them all; it decides nothing else.

mod backend;
mod facts;
mod scrape;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use crate::collect::{Collector, CollectorOptions, Command, Commander};
use crate::config::targets::Targets;
use crate::config::{Config, SystemCalls};
use crate::http::{self, HttpOptions};
use crate::kernel::{self, Kernel, KernelSettings, NamedTargets};
use crate::metrics::RequestCounts;
use crate::processes::live::{ProcessOptions, Processes};
use crate::processes::source::ProcFs;
use crate::profile::Profile;
use crate::profile::limits::Limits;
use crate::symbols::symbolizer::{SymbolOptions, Symbolizer};
use crate::sys::bell::Bell;
use crate::sys::clock::{ClockOffsets, monotonic_ns, unix_ns};
use crate::sys::heap;
use crate::sys::own_cost;
use crate::sys::perf_event::SideBand;
use crate::unwind::cache::TableCache;
use crate::unwind::worker::{TableWorker, WorkerOptions};

use backend::Daemon;
use facts::Facts;

/// Bytes of each processor's ring of process events.
const SIDE_BAND_RING_BYTES: usize = 64 << 10;
/// File descriptors beside the files that names are read from: rings, maps, programs, connections.
const OTHER_FILES: u64 = 1_024;
/// How long the last pass may take once the daemon is told to stop.
const LAST_PASS: Duration = Duration::from_secs(2);

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
    let mut facts = Facts::gather(&config);
    if let Err(error) = own_cost::raise_open_files(config.limits.open_files as u64 + OTHER_FILES) {
        facts.degrade(
            "open files",
            format!("the limit on open files cannot be raised: {error}"),
        );
    }
    let requests = Arc::new(RequestCounts::default());
    let mut options = HttpOptions::new(&config, Arc::clone(&requests));
    options.listen = address;
    let (commander, commands, bell) =
        Commander::new().context("cannot make a way to the collector")?;
    let started = Instant::now();
    // Loading takes the verifier a second or two: on a thread of its own, so that the server answers from the start.
    let (loaded, loading) = tokio::sync::oneshot::channel();
    let collector = {
        let (config, targets) = (config.clone(), config.targets.clone());
        thread::Builder::new()
            .name("collector".into())
            .spawn(move || match build(&config, &targets, Arc::clone(&bell)) {
                Ok((collector, degraded)) => {
                    // Gone only if the daemon is stopping already; then the loop below ends at once as well.
                    loaded.send(Ok(degraded)).ok();
                    collector.run(&commands, &bell);
                }
                Err(error) => {
                    loaded.send(Err(error)).ok();
                }
            })
            .context("cannot start the collector's thread")?
    };
    let symbolizer = Symbolizer::spawn(SymbolOptions {
        cache_bytes: config.limits.symbol_cache_bytes,
    })
    .context("cannot start the thread that finds names")?;
    let daemon = Arc::new(Daemon::new(
        config,
        facts,
        commander.clone(),
        symbolizer,
        requests,
    ));
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
        outcome = loading => match outcome {
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
    // The collector answers what is still asked, does its last pass and detaches; if it is gone already, so much the better.
    server.await.context("the server broke")??;
    commander.send(Command::Stop).ok();
    let deadline = Instant::now() + LAST_PASS;
    while !collector.is_finished() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if collector.is_finished() {
        if collector.join().is_err() {
            return Err(anyhow!("the collector's thread broke"));
        }
    } else {
        warn!("the last pass takes too long; it is left alone");
    }
    result
}

/// The stages from the kernel to the profile, on the thread that will own them, and what works less well than it should.
fn build(
    config: &Config,
    targets: &Targets,
    bell: Arc<Bell>,
) -> anyhow::Result<(Collector, Vec<(String, String)>)> {
    let mut degraded = Vec::new();
    let mut kernel = Kernel::start(KernelSettings {
        frequency_hz: config.frequency_hz,
        min_interval_ns: config.min_interval_ns,
        system_calls: match config.system_calls {
            SystemCalls::All => kernel::SystemCalls::All,
            SystemCalls::Targets => kernel::SystemCalls::Named,
            SystemCalls::Off => kernel::SystemCalls::Off,
        },
        max_threads: config.limits.max_threads,
        stacks_per_drain: config.limits.stack_entries,
        ring_bytes: config.limits.stack_ring_bytes,
        user_frames: config.limits.user_frames,
        mappings: config.limits.mappings,
        unwind_chunks: config.limits.unwind_table_bytes >> 20,
    })?;
    if let Err(error) = kernel.measure(true).and_then(|()| kernel.measure(false)) {
        degraded.push((
            "cost of the kernel programs".to_owned(),
            format!("BPF_ENABLE_STATS is refused ({error}): it takes CAP_SYS_ADMIN, and `profiler_program_*` stay 0 without"),
        ));
    }
    let side_band = match SideBand::open(SIDE_BAND_RING_BYTES) {
        Ok(side_band) => Some(side_band),
        Err(error) => {
            degraded.push((
                "process events".to_owned(),
                format!("perf_event_open is refused ({error}): mappings are read from /proc, so short-lived processes have no names"),
            ));
            None
        }
    };
    let tables = if kernel.unwinds_by_tables() {
        Some(table_worker(config, bell, &mut degraded)?)
    } else {
        degraded.push((
            "user stacks".to_owned(),
            "this kernel has no bpf_loop (Linux 5.17): stacks are followed by frame pointers alone, and end early in programs built without".to_owned(),
        ));
        None
    };
    let offsets = ClockOffsets::now();
    let processes = Processes::new(
        Box::new(ProcFs),
        ProcessOptions {
            cmdline: config.show_command_lines,
            open_files: config.limits.open_files,
        },
        offsets.boot_minus_monotonic_ns,
    );
    let limits = Limits {
        tree_bytes: config.limits.profile_stack_bytes,
        exited_processes: config.limits.exited_processes,
        exited_threads: config.limits.exited_threads_per_process,
        groups: config.metrics.max_groups,
        ..Limits::default()
    };
    let collector = Collector::start(CollectorOptions {
        kernel,
        side_band,
        processes,
        profile: Profile::new(limits, monotonic_ns(), unix_ns()),
        targets: named(targets),
        tables,
    })?;
    Ok((collector, degraded))
}

/// The thread that makes unwind tables, with its folder on disk where there can be one.
fn table_worker(
    config: &Config,
    bell: Arc<Bell>,
    degraded: &mut Vec<(String, String)>,
) -> anyhow::Result<TableWorker> {
    let folder = config.state_directory.join("unwind");
    let cache = match TableCache::open(&folder, config.limits.unwind_cache_bytes) {
        Ok(cache) => Some(cache),
        Err(error) => {
            degraded.push((
                "unwind tables on disk".to_owned(),
                format!("{} cannot be used ({error}): tables are made again after each start; state_directory in the configuration names another folder", folder.display()),
            ));
            None
        }
    };
    TableWorker::spawn(WorkerOptions::default(), cache, move || bell.ring())
        .context("cannot start the thread that makes unwind tables")
}

/// Targets as the kernel stage takes them.
fn named(targets: &Targets) -> NamedTargets {
    NamedTargets {
        all: targets.all,
        children: targets.children,
        pids: targets.pids.clone(),
        comms: targets
            .comms
            .iter()
            .map(|comm| comm.clone().into_bytes())
            .collect(),
        cgroups: targets.cgroups.clone(),
    }
}
