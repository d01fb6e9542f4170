//! The stages from the kernel to the names of functions: built, asked and stopped in the same way
//! by the daemon and by a recording. Who asks, and what for, is theirs.

mod access;
pub mod choosing;
pub mod instrumenting;
pub mod looking;
pub mod spanning;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::sync::{oneshot, watch};
use tracing::{debug, warn};

use crate::collect::{self, Budget, Collector, CollectorOptions, Command, Commander};
use crate::config::targets::Targets;
use crate::config::{Config, SystemCalls};
use crate::kernel::{self, Kernel, KernelSettings};
use crate::processes::live::{ProcessOptions, Processes};
use crate::processes::source::ProcFs;
use crate::profile::Profile;
use crate::profile::limits::Limits;
use crate::symbols::lines::finder::{LineFinder, LineOptions, WorkerOptions as LineWorker};
use crate::symbols::symbolizer::{SymbolOptions, Symbolizer};
use crate::sys::clock::{ClockOffsets, monotonic_ns, unix_ns};
use crate::sys::heartbeat::Heartbeat;
use crate::sys::limited_child::ChildLimits;
use crate::sys::own_cost;
use crate::sys::own_thread::{NotJoined, OwnThread};
use crate::sys::perf_event::{self, SideBand};
use crate::sys::priority::put_own_thread_ahead;
use crate::sys::proc_fs;
use crate::sys::waker::Waker;
use crate::unwind::cache::TableCache;
use crate::unwind::worker::{TableWorker, UnwindOptions};

pub use access::{Access, Unanswered};

/// This program, also where its file was replaced.
const PROGRAM: &str = "/proc/self/exe";
/// File descriptors beside the files that names are read from: rings, maps, programs, connections
/// (1024), links to measured functions (no more than points), and the files of these.
const OTHER_FILES: u64 = 1_024 + 4_096 + 1_024;
/// How long the last pass may take once the stages are told to stop.
const LAST_PASS: Duration = Duration::from_secs(2);

/// How long the threads that find names and lines and make unwind tables may take to end. What
/// they still do is of no use to anybody.
const LAST_NAMES: Duration = Duration::from_millis(500);

/// Memory for lines of source already found, bytes.
const LINE_CACHE_BYTES: usize = 32 << 20;
/// What a process may take that reads debug information, beside its memory.
const LINE_WORKER: ChildLimits = ChildLimits {
    memory_bytes: 0,
    processor_s: 20,
    time: Duration::from_secs(30),
    output_bytes: 32 << 20,
};

/// What works less well than it should: what, and why.
pub type DegradedParts = Vec<(String, String)>;

/// Tells what works less well, once the kernel programs are attached; or why they are not.
pub type StartOutcome = oneshot::Receiver<anyhow::Result<DegradedParts>>;

/// The stages, each on its thread.
pub struct Stages {
    /// Asks them.
    pub access: Access,
    /// Whether the kernel programs are attached.
    pub attached: StartOutcome,
    collector: OwnThread,
    /// The thread that makes unwind tables, which ends after the collector's, where there is one.
    unwind: oneshot::Receiver<OwnThread>,
}

/// Starts the threads. Loading the kernel programs takes a second or two; the stages can be asked
/// meanwhile, and answer then.
///
/// # Errors
/// The system gives no thread or no file descriptor.
pub fn start(config: &Config) -> anyhow::Result<Stages> {
    let open_files = own_cost::raise_open_files(config.limits.open_files as u64 + OTHER_FILES);
    let (commander, commands, waker) =
        Commander::new().context("cannot make a way to the collector")?;
    let (tell, attached) = oneshot::channel();
    let (unwind_thread, unwind) = oneshot::channel();
    let (targets, in_force) = watch::channel(config.targets.clone());
    let heartbeat = collect::heartbeat();
    let tables = UnwindOptions::default();
    let beats = [heartbeat.clone(), tables.heartbeat.clone()];
    let collector = {
        let config = config.clone();
        let life = heartbeat.clone();
        let work = move || {
            let mut degraded = DegradedParts::new();
            if let Err(error) = open_files {
                degraded.push((
                    "open files".to_owned(),
                    format!("the limit on open files cannot be raised: {error}"),
                ));
            }
            let parts = CollectorParts {
                targets,
                tables,
                heartbeat,
                unwind_thread,
            };
            match build(&config, parts, Arc::clone(&waker), &mut degraded) {
                Ok(collector) => {
                    // Nobody hears it only if all is stopping already; then the loop below ends at
                    // once as well.
                    tell.send(Ok(degraded)).ok();
                    // Programs that begin are followed once it has heard of them, on a busy machine
                    // too.
                    if let Err(error) = put_own_thread_ahead() {
                        debug!("the collector waits for its turn like others: {error}");
                    }
                    collector.run(&commands, &waker);
                }
                Err(error) => {
                    tell.send(Err(error)).ok();
                }
            }
        };
        OwnThread::spawn("collector", move || life.live(work))
            .context("cannot start the collector's thread")?
    };
    let symbolizer = Symbolizer::spawn(SymbolOptions {
        cache_bytes: config.limits.symbol_cache_bytes,
    })
    .context("cannot start the thread that finds names")?;
    let lines = LineFinder::spawn(LineOptions {
        cache_bytes: LINE_CACHE_BYTES,
        worker: LineWorker {
            program: PROGRAM.into(),
            limits: ChildLimits {
                memory_bytes: config.limits.line_worker_bytes,
                ..LINE_WORKER
            },
        },
    })
    .context("cannot start the thread that finds lines")?;
    Ok(Stages {
        access: Access::new(commander, symbolizer, lines, in_force, beats),
        attached,
        collector,
        unwind,
    })
}

impl Stages {
    /// Has the collector answer what is still asked, do its last pass and detach, and the other
    /// threads end. If it is gone already, so much the better.
    ///
    /// # Errors
    /// Its thread broke.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.access.tell(Command::Stop);
        let mut unwind = self.unwind;
        let collector_and_unwind = async {
            let collector = self.collector.join(LAST_PASS).await;
            if let Ok(thread) = unwind.try_recv()
                && let Err(error) = thread.join(LAST_NAMES).await
            {
                debug!("the thread unwind is left alone: {error}");
            }
            collector
        };
        let (collector, ()) =
            tokio::join!(collector_and_unwind, self.access.end_finders(LAST_NAMES));
        match collector {
            Ok(()) => Ok(()),
            Err(NotJoined::Late) => {
                warn!("the last pass takes too long; it is left alone");
                Ok(())
            }
            Err(NotJoined::Broke) => Err(anyhow!("the collector's thread broke")),
        }
    }
}

/// What the collector's thread gets from the one that starts it.
struct CollectorParts {
    targets: watch::Sender<Targets>,
    tables: UnwindOptions,
    heartbeat: Heartbeat,
    /// Where the thread goes that makes unwind tables.
    unwind_thread: oneshot::Sender<OwnThread>,
}

/// The stages from the kernel to the profile, on the thread that will own them, and what works less
/// well than it should.
fn build(
    config: &Config,
    parts: CollectorParts,
    waker: Arc<Waker>,
    degraded: &mut DegradedParts,
) -> anyhow::Result<Collector> {
    let mut kernel = Kernel::start(KernelSettings {
        frequency_hz: config.frequency_hz,
        min_interval_ns: config.min_interval_ns,
        system_calls: match config.system_calls {
            SystemCalls::Auto | SystemCalls::All => kernel::TracedSystemCalls::All,
            SystemCalls::Targets => kernel::TracedSystemCalls::Named,
            SystemCalls::Off => kernel::TracedSystemCalls::Off,
        },
        max_threads: config
            .limits
            .max_threads
            .unwrap_or_else(|| kernel::threads_for(own_cost::machine_memory_bytes())),
        stacks_per_drain: config.limits.stack_entries,
        ring_bytes: config.limits.stack_ring_bytes,
        user_frames: config.limits.user_frames,
        mappings: config.limits.mappings,
        unwind_chunks: config.limits.unwind_table_bytes >> 20,
    })?;
    if let Err(error) = kernel
        .costs
        .measure(true)
        .and_then(|()| kernel.costs.measure(false))
    {
        degraded.push((
            "cost of the kernel programs".to_owned(),
            format!("BPF_ENABLE_STATS is refused ({error}): it takes CAP_SYS_ADMIN, and `profiler_program_*` stay 0 without"),
        ));
    }
    let processors = proc_fs::online_cpus().map_or(1, |online| online.len());
    let side_band = match SideBand::open(perf_event::ring_bytes(processors)) {
        Ok(side_band) => Some(side_band),
        Err(error) => {
            degraded.push((
                "process events".to_owned(),
                format!("perf_event_open is refused ({error}): mappings are read from /proc, so short-lived processes have no names"),
            ));
            None
        }
    };
    for (what, why) in kernel.lacks() {
        degraded.push((what.to_owned(), why));
    }
    let tables = kernel
        .unwind
        .is_some()
        .then(|| table_worker(config, parts.tables, Arc::clone(&waker), degraded))
        .transpose()?
        .map(|(worker, thread)| {
            // Nobody takes it only if all is stopping already.
            parts.unwind_thread.send(thread).ok();
            worker
        });
    let offsets = ClockOffsets::now();
    let processes = Processes::new(
        Box::new(ProcFs),
        ProcessOptions {
            cmdline: config.show_command_lines,
            open_files: config.limits.open_files,
        },
        offsets,
    );
    let limits = Limits {
        tree_bytes: config.limits.profile_stack_bytes,
        exited_processes: config.limits.exited_processes,
        images: config.limits.images,
        exited_threads: config.limits.exited_threads_per_process,
        recent_past_ns: config.limits.recent_past_ns,
        segment_bytes: config.limits.recent_past_bytes,
        sessions: config.limits.sessions,
        session_spans: config.limits.session_spans,
        groups: config.metrics.max_groups,
        tick_ns: 1_000_000_000 / u64::from(config.frequency_hz.max(1)),
        gap_ns: config.min_interval_ns,
        ..Limits::default()
    };
    let options = CollectorOptions {
        kernel,
        side_band,
        processes,
        profile: Profile::new(limits, monotonic_ns(), unix_ns()),
        targets: parts.targets,
        tables,
        program: PROGRAM.into(),
        budget: budget(config),
        may_sample_calls: config.system_calls == SystemCalls::Auto,
        heartbeat: parts.heartbeat,
    };
    Collector::start(options, &waker)
}

/// What profiling may cost; `None`: anything. Where only one of the two is bounded, the other is as
/// good as not.
fn budget(config: &Config) -> Option<Budget> {
    const ANYTHING: f64 = 1e6;
    let (machine, process) = (config.budget_millionths, config.budget_process_millionths);
    let share = |millionths: Option<u32>| millionths.map_or(ANYTHING, |part| f64::from(part) / 1e6);
    (machine.is_some() || process.is_some()).then(|| Budget {
        machine: share(machine),
        process: share(process),
    })
}

/// The thread that makes unwind tables, with its folder on disk where there can be one.
fn table_worker(
    config: &Config,
    options: UnwindOptions,
    waker: Arc<Waker>,
    degraded: &mut DegradedParts,
) -> anyhow::Result<(TableWorker, OwnThread)> {
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
    TableWorker::spawn(options, cache, move || waker.wake())
        .context("cannot start the thread that makes unwind tables")
}
