//! What the server asks, answered by the collector's thread and the symbolizer's.
//!
//! Who serves it, and who is told that it is ready, is theirs.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use profiler_common::StackEnd;
use profiler_common::unwind::UnwindFailure;
use tracing::{debug, error, info};

use crate::api::{
    AttachedProgram, Coverage, Degraded, FileWithoutInformation, LineReading, OwnCost,
    ProfileMemory, ProgramCost, Status, Unwinding,
};
use crate::api::{
    BoxFuture, InstrumentationFailure, SessionFailure, Source, TargetsFailure, Unavailable,
};
use crate::collect::{CollectorState, Command, MemoryPart, SessionUnchanged};
use crate::config::Config;
use crate::config::targets::Targets;
use crate::metrics::{self, MetricsInput, RequestCounts};
use crate::profile::frames::FrameId;
use crate::profile::sessions::{SessionChange, SessionChanged};
use crate::profile::snapshot::Snapshot;
use crate::report::Instrumentation;
use crate::report::names::{Lines, Names};
use crate::stages::instrumenting::{InstrumentationRequest, Turns};
use crate::stages::{Access, Unanswered};
use crate::symbols::lines::NoLine;
use crate::symbols::lines::finder::LineCounts;
use crate::sys::clock::monotonic_ns;
use crate::sys::heartbeat::{Pulse, Watch};
use crate::sys::{heap, own_cost};
use crate::units::MonoNs;

use super::facts::DaemonFacts;
use super::memory;
use super::spending;

/// A pass, or a state, that is not older than this is fresh.
const FRESH_NS: u64 = 100_000_000;
/// How long a report waits for names.
pub(super) const NAMES_PATIENCE: Duration = Duration::from_secs(5);
/// How often the collector's state is asked for where nobody asks for it, and threads are looked
/// at: each time wakes threads of an idle machine. A service manager waits longer.
const STATE_PERIOD: Duration = Duration::from_secs(4);
/// The same until the first pass is over.
const FIRST_STATE_PERIOD: Duration = Duration::from_millis(50);
/// How long a status waits for the collector's state, and before that for its turn to ask.
const STATUS_PATIENCE: Duration = Duration::from_millis(500);
/// How often memory that is free is given back to the system.
const TRIM_PERIOD: Duration = Duration::from_secs(10);

/// Running stages, as the server sees them.
pub struct Live {
    pub(super) config: Config,
    facts: Mutex<DaemonFacts>,
    access: Access,
    pub(super) requests: Arc<RequestCounts>,
    known: Mutex<LastAnswer>,
    /// Whoever asks for the state, so that others who want it wait for that answer.
    asking: tokio::sync::Mutex<()>,
    /// Who chooses functions to be measured.
    pub(super) turns: Turns,
}

/// What is known of the collector.
#[derive(Clone, Default)]
struct LastAnswer {
    /// How it was when it last answered.
    state: Option<Arc<CollectorState>>,
    /// When that was.
    at_ns: MonoNs,
    /// Why it did not answer when it was last asked.
    silence: Option<Unanswered>,
}

impl Live {
    /// A backend over the stages that `access` asks, which were started with `config`. `requests`
    /// is where the server counts what it answers.
    #[must_use]
    pub fn new(config: Config, access: Access, requests: Arc<RequestCounts>) -> Self {
        Self {
            facts: Mutex::new(DaemonFacts::gather(&config)),
            config,
            access,
            requests,
            known: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            turns: Turns::default(),
        }
    }

    /// Asks the stages.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Adds what was found to work less well while the stages were built.
    pub fn set_degraded(&self, degraded: Vec<(String, String)>) {
        let mut facts = lock(&self.facts);
        for (what, why) in degraded {
            facts.degrade(&what, why);
        }
    }

    /// Asks for the collector's state, which what [`Source::status`] says is made from, and answers
    /// it. Where there is no answer, the last one stays.
    pub async fn refresh(&self) -> Option<Arc<CollectorState>> {
        match self.access.state().await {
            Ok(state) => Some(self.note(state)),
            Err(silence) => {
                lock(&self.known).silence = Some(silence);
                None
            }
        }
    }

    /// Notes what the collector answered.
    fn note(&self, state: CollectorState) -> Arc<CollectorState> {
        let state = Arc::new(state);
        *lock(&self.known) = LastAnswer {
            state: Some(Arc::clone(&state)),
            at_ns: monotonic_ns(),
            silence: None,
        };
        state
    }

    /// Keeps the collector's state at hand, and memory that is free with the system, until the
    /// future is dropped, and tells it, or that there is none, each time. Says in the log when
    /// threads get stuck, and when they move again.
    pub async fn watch(&self, tell: impl FnMut(Option<&CollectorState>)) -> Infallible {
        tokio::select! {
            never = self.watch_collector(tell) => never,
            never = self.watch_threads() => never,
            never = self.give_memory_back() => never,
        }
    }

    async fn watch_collector(&self, mut tell: impl FnMut(Option<&CollectorState>)) -> Infallible {
        let mut is_ready = false;
        loop {
            let state = self.refresh().await;
            tell(state.as_deref());
            is_ready |= state.is_some_and(|state| state.passes > 0);
            tokio::time::sleep(if is_ready {
                STATE_PERIOD
            } else {
                FIRST_STATE_PERIOD
            })
            .await;
        }
    }

    async fn watch_threads(&self) -> Infallible {
        let mut watch = Watch::over(self.access.heartbeats().clone());
        loop {
            for pulse in watch.changes(monotonic_ns()) {
                match pulse.trouble {
                    Some(_) => error!("{pulse}"),
                    None => info!("{pulse}"),
                }
            }
            tokio::time::sleep(STATE_PERIOD).await;
        }
    }

    /// Gives memory that is free back to the system. Not on a thread that serves: it can take
    /// milliseconds.
    async fn give_memory_back(&self) -> Infallible {
        loop {
            tokio::time::sleep(TRIM_PERIOD).await;
            if let Err(error) = tokio::task::spawn_blocking(heap::trim_if_much).await {
                error!("giving memory back failed: {error}");
            }
        }
    }

    /// Where the memory is that is resident.
    pub(super) fn memory(
        &self,
        state: Option<&CollectorState>,
        own: own_cost::ResourceUsage,
    ) -> Vec<MemoryPart> {
        let symbols = self.access.symbol_counts();
        let lines = self.access.line_counts();
        let mut known = state.map(|state| state.memory.clone()).unwrap_or_default();
        known.extend([
            ("names", symbols.cache_bytes + symbols.kernel_bytes),
            ("lines", lines.cache_bytes),
        ]);
        memory::parts(&known, heap::usage(), own)
    }

    /// The threads that are stuck now.
    fn stuck(&self) -> Vec<Pulse> {
        self.access.heartbeats().stuck(monotonic_ns()).collect()
    }

    /// Whether the first pass is over: until then a question would wait for it.
    pub(super) fn has_begun(&self) -> Result<(), Unavailable> {
        let known = lock(&self.known).state.as_ref().map(|state| state.passes);
        if known.is_some_and(|passes| passes > 0) {
            return Ok(());
        }
        let ready = self.readiness();
        ready.map_err(|missing| Unavailable(missing.join("; ").into()))
    }

    /// The snapshot, or a newer one.
    async fn fresh(&self) -> Result<Arc<Snapshot>, Unavailable> {
        self.has_begun()?;
        self.access.snapshot(FRESH_NS).await.map_err(unavailable)
    }

    async fn find_names(
        &self,
        snapshot: Arc<Snapshot>,
        frames: Vec<FrameId>,
    ) -> Arc<dyn Names + Send + Sync> {
        self.access.names(snapshot, frames, NAMES_PATIENCE).await
    }

    async fn scrape(&self) -> Result<String, Unavailable> {
        // Once anything was counted, a scrape without it would be taken for a restart.
        let (state, snapshot) = if self.has_begun().is_ok() {
            let state = self.access.state().await.map_err(unavailable)?;
            (Some(state), Some(self.fresh().await?))
        } else {
            (None, None)
        };
        let facts = lock(&self.facts).clone();
        let state = state.as_ref();
        let pulses: Vec<Pulse> = self.access.heartbeats().pulses(monotonic_ns()).collect();
        let own = own_cost::ResourceUsage::now();
        let input = MetricsInput {
            version: &facts.version,
            kernel_release: &facts.kernel_release,
            config: &self.config,
            degraded_features: degraded(&facts, state, &pulses).len(),
            pulses: &pulses,
            state,
            snapshot: snapshot.as_deref(),
            groups: snapshot.as_deref().map(Snapshot::groups),
            symbols: self.access.symbol_counts(),
            lines: self.access.line_counts(),
            own,
            open_files: own_cost::open_files(),
            started_unix_ns: facts.started_unix_ns,
            memory: &self.memory(state, own),
            requests: &self.requests,
        };
        metrics::exposition(&input).map_err(|error| Unavailable(error.into()))
    }

    async fn change_sessions(
        &self,
        change: SessionChange,
    ) -> Result<(SessionChanged, Arc<Snapshot>), SessionFailure> {
        self.has_begun()?;
        let changed = self
            .access
            .ask(|answer| Command::ChangeSession { change, answer })
            .await
            .map_err(unavailable)?;
        changed.map_err(|unchanged| match unchanged {
            SessionUnchanged::Refused(refusal) => refusal.into(),
            SessionUnchanged::NoPass => Unavailable(unchanged.into()).into(),
        })
    }

    async fn change_targets(&self, targets: Targets) -> Result<Targets, TargetsFailure> {
        let set = self.access.set_targets(targets).await;
        set.map_err(unavailable)?.map_err(|refused| {
            if refused.is_system_failure() {
                TargetsFailure::Failed(refused.into())
            } else {
                TargetsFailure::Refused(refused.into())
            }
        })
    }
}

impl Source for Live {
    fn snapshot(&self) -> BoxFuture<'_, Result<Arc<Snapshot>, Unavailable>> {
        Box::pin(self.fresh())
    }

    fn names(
        &self,
        snapshot: Arc<Snapshot>,
        frames: Vec<FrameId>,
    ) -> BoxFuture<'_, Arc<dyn Names + Send + Sync>> {
        Box::pin(self.find_names(snapshot, frames))
    }

    fn lines(
        &self,
        snapshot: Arc<Snapshot>,
        frames: Vec<FrameId>,
        patience: Duration,
    ) -> BoxFuture<'_, Arc<dyn Lines + Send + Sync>> {
        Box::pin(async move { self.access.lines(snapshot, frames, patience).await })
    }

    fn status(&self) -> Status {
        let facts = lock(&self.facts).clone();
        let state = lock(&self.known).state.clone();
        let state = state.as_deref();
        let pulses: Vec<Pulse> = self.access.heartbeats().pulses(monotonic_ns()).collect();
        let own = own_cost::ResourceUsage::now();
        let mut settings = self.config.in_force();
        settings.insert("targets".to_owned(), self.targets().in_force().into());
        let degraded = degraded(&facts, state, &pulses);
        Status {
            version: facts.version,
            kernel_release: facts.kernel_release,
            uptime_s: crate::sys::clock::unix_ns().saturating_since(facts.started_unix_ns)
                / 1_000_000_000,
            settings,
            attached: state.map(attached).unwrap_or_default(),
            degraded,
            own_cost: OwnCost {
                cpu_seconds_total: (own.user_ns + own.system_ns) as f64 / 1e9,
                resident_bytes: own.resident_bytes,
                memory_bytes: self
                    .memory(state, own)
                    .into_iter()
                    .map(|(part, bytes)| (part.to_owned(), bytes))
                    .collect(),
                kernel_map_bytes: state.map(kernel_bytes),
                programs: state
                    .iter()
                    .flat_map(|state| &state.programs)
                    .map(|(program, cost)| ProgramCost {
                        program: program.clone(),
                        bpf_run_ns: cost.run_ns,
                        runs: cost.runs,
                    })
                    .collect(),
            },
            spending: state.map(spending::status).unwrap_or_default(),
            instrumentation: state.map(|state| state.measuring).unwrap_or_default(),
            profile: ProfileMemory {
                stack_bytes: state.map_or(0, |state| state.stack_bytes),
                stack_max_bytes: self.config.limits.profile_stack_bytes as u64,
                recent_past_bytes: state.map_or(0, |state| state.recent_past_bytes),
                recent_past_max_bytes: self.config.limits.recent_past_bytes as u64,
                losses: state
                    .iter()
                    .flat_map(|state| &state.losses)
                    .map(|(name, count)| (name.to_string(), *count))
                    .collect(),
            },
            unwinding: state.map(unwinding).unwrap_or_default(),
            replay: None,
            lines: line_reading(&self.access.line_counts()),
        }
    }

    fn renew_status(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let turn = tokio::time::timeout(STATUS_PATIENCE, self.asking.lock()).await;
            let Ok(_turn) = turn else {
                return;
            };
            if monotonic_ns().saturating_since(lock(&self.known).at_ns) < FRESH_NS {
                return;
            }
            let ask = |answer| Command::State { answer };
            match self.access.ask_within(STATUS_PATIENCE, ask).await {
                Ok(state) => drop(self.note(state)),
                // Whoever watches says when it is silent for long.
                Err(silence) => debug!("the status is an earlier one: {silence}"),
            }
        })
    }

    fn readiness(&self) -> Result<(), Vec<String>> {
        let known = lock(&self.known);
        let silence = match (&known.state, known.silence) {
            (_, Some(silence)) => Some(silence.to_string()),
            (None, None) => Some("the kernel programs are not attached yet".to_owned()),
            (Some(state), None) if state.passes == 0 => {
                Some("the kernel's maps have not been read yet".to_owned())
            }
            (Some(_), None) => None,
        };
        let stuck = self.stuck();
        let missing: Vec<String> = silence
            .into_iter()
            .chain(stuck.iter().map(Pulse::to_string))
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(missing)
        }
    }

    fn targets(&self) -> Targets {
        self.access.targets()
    }

    fn set_targets(&self, targets: Targets) -> BoxFuture<'_, Result<Targets, TargetsFailure>> {
        Box::pin(self.change_targets(targets))
    }

    fn change_session(
        &self,
        change: SessionChange,
    ) -> BoxFuture<'_, Result<(SessionChanged, Arc<Snapshot>), SessionFailure>> {
        Box::pin(self.change_sessions(change))
    }

    fn instrument(
        &self,
        wanted: InstrumentationRequest,
        dry_run: bool,
    ) -> BoxFuture<'_, Result<Instrumentation, InstrumentationFailure>> {
        Box::pin(self.instrumented(wanted, dry_run))
    }

    fn instrumentations(&self) -> BoxFuture<'_, Result<Vec<Instrumentation>, Unavailable>> {
        Box::pin(self.all_instrumentations())
    }

    fn instrumentation(
        &self,
        id: u32,
    ) -> BoxFuture<'_, Result<Option<Instrumentation>, Unavailable>> {
        Box::pin(self.one_instrumentation(id))
    }

    fn end_instrumentation(
        &self,
        id: u32,
    ) -> BoxFuture<'_, Result<Option<Option<Instrumentation>>, Unavailable>> {
        Box::pin(self.ended_instrumentation(id))
    }

    fn metrics(&self) -> BoxFuture<'_, Result<String, Unavailable>> {
        Box::pin(self.scrape())
    }
}

fn attached(state: &CollectorState) -> Vec<AttachedProgram> {
    let tracepoints = state
        .attached
        .tracepoints
        .iter()
        .map(|name| AttachedProgram {
            program: (*name).to_owned(),
            hook: format!("tp_btf/{name}"),
        });
    let ticks = state.attached.processors.iter().map(|cpu| AttachedProgram {
        program: "tick".to_owned(),
        hook: format!(
            "cpu-clock on processor {cpu} at {} Hz",
            state.settings.frequency_hz
        ),
    });
    tracepoints.chain(ticks).collect()
}

/// What works less well than it should, as of now.
fn degraded(
    facts: &DaemonFacts,
    state: Option<&CollectorState>,
    pulses: &[Pulse],
) -> Vec<Degraded> {
    let without_ticks = state.iter().flat_map(|state| &state.without_ticks);
    let without_ticks = without_ticks.map(|(cpu, why)| Degraded {
        what: format!("samples on processor {cpu}"),
        why: format!("it has no timer tick: {why}"),
    });
    let stuck = pulses.iter().filter(|pulse| pulse.trouble.is_some());
    let stuck = stuck.map(|pulse| Degraded {
        what: format!("thread {}", pulse.thread),
        why: pulse.to_string(),
    });
    let now = facts.degraded_now(state, monotonic_ns());
    now.into_iter().chain(without_ticks).chain(stuck).collect()
}

pub(super) fn unavailable(unanswered: Unanswered) -> Unavailable {
    Unavailable(unanswered.into())
}

/// What a lock protects here is replaced whole, so a thread that broke while holding it left
/// nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How reading debug information went.
fn line_reading(counts: &LineCounts) -> LineReading {
    let by_reason = |counts: &[u64; NoLine::ALL.len()]| {
        let all = NoLine::ALL.iter().zip(counts);
        all.filter(|(_, count)| **count > 0)
            .map(|(why, count)| (why.name().to_owned(), *count))
            .collect()
    };
    LineReading {
        workers: counts.workers,
        worker_failures: by_reason(&counts.failures),
        worker_peak_bytes: counts.worker_peak_bytes,
        places_unknown: by_reason(&counts.unknown),
        cache_bytes: counts.cache_bytes,
    }
}

/// Kernel memory of all maps, bytes.
fn kernel_bytes(state: &CollectorState) -> u64 {
    let maps: u64 = state.maps.iter().map(|map| map.bytes).sum();
    let rows = state
        .unwinding
        .map_or(0, |unwinding| unwinding.fill.allocated_bytes);
    maps + rows
}

/// How far user stacks can be followed.
#[expect(
    clippy::cast_precision_loss,
    reason = "a percentage of walks needs no more than 53 bits"
)]
fn unwinding(state: &CollectorState) -> Unwinding {
    let ended = |failure: UnwindFailure| state.walks_ended(StackEnd::Incomplete(failure));
    Unwinding {
        tables: state.unwinding.map(|unwinding| unwinding.fill.tables),
        table_bytes: state
            .unwinding
            .map_or(0, |unwinding| unwinding.fill.allocated_bytes),
        failures: UnwindFailure::ALL
            .iter()
            .map(|failure| (failure.name().to_owned(), ended(*failure)))
            .filter(|(_, count)| *count > 0)
            .collect(),
        coverage: state
            .coverage
            .iter()
            .map(|(executable, counts)| Coverage {
                executable: executable.to_string(),
                walked: counts.walked,
                complete: counts.complete,
                truncated: counts.truncated,
                failed: counts.walked - counts.complete - counts.truncated,
                complete_percent: 100.0 * counts.complete as f64 / counts.walked.max(1) as f64,
            })
            .collect(),
        without_information: state
            .files_without
            .reasons
            .iter()
            .map(|(why, count)| (why.name().to_owned(), *count))
            .collect(),
        files_without_information: state
            .files_without
            .files
            .iter()
            .map(|file| FileWithoutInformation {
                path: file.path.to_string(),
                reason: file.why.name().to_owned(),
                followed_by: file.by.name().to_owned(),
            })
            .collect(),
    }
}
