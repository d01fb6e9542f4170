//! A backend over a hand-made profile: one process of forty functions, one that exited and was
//! dropped.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use profiler_common::{StackEnd, kinds::Primary};
use profiler_daemon::api::{
    BoxFuture, Degraded, InstrumentationFailure, SessionFailure, Source, Status, TargetsFailure,
    Unavailable,
};
use profiler_daemon::collect::{
    End, InstrumentationState, MeasuredFunction, MeasuredFunctions, PlannedFunction, PlannedPoint,
    RefusedFunction, Stage, planned,
};
use profiler_daemon::config::Config;
use profiler_daemon::config::targets::Targets;
use profiler_daemon::processes::ids::{ProcessKey, ThreadKey};
use profiler_daemon::processes::mappings::Place;
use profiler_daemon::processes::module::ModuleId;
use profiler_daemon::profile::Profile;
use profiler_daemon::profile::frames::{Frame, FrameId};
use profiler_daemon::profile::input::{
    CommName, DrainPass, ProcessInfo, StackDelta, ThreadState, ThreadUpdate,
};
use profiler_daemon::profile::limits::Limits;
use profiler_daemon::profile::sessions::{SessionChange, SessionChanged};
use profiler_daemon::profile::snapshot::Snapshot;
use profiler_daemon::report::names::{Lines, Names};
use profiler_daemon::report::{Instrumentation, instrumentation};
use profiler_daemon::stages::choosing::Exits;
use profiler_daemon::stages::instrumenting::InstrumentationRequest;
use profiler_daemon::stages::spanning::{Followed, SpanChooser};
use profiler_daemon::symbols::lines::{Code, LineTable, NoLine, SourceLine, Step};
use profiler_daemon::symbols::names::{FunctionKind, FunctionName};
use profiler_daemon::units::{BootNs, FileOffset, ModuleAddress, ModuleOffset, MonoNs, UnixNs};

/// The process that runs, its start in ticks, and the one that was dropped.
pub(crate) const RUNNING: u32 = 42;
pub(crate) const START_TICKS: u64 = 7_000;
pub(crate) const DROPPED: u32 = 43;
/// Command line of the one that runs: an argument sets the terminal's title.
pub(crate) const COMMAND_LINE: &str = "example --title \u{1b}]0;x\u{7}";
/// Functions of the running process.
pub(crate) const FUNCTIONS: usize = 40;

const MS: u64 = 1_000_000;
/// Instrumentations that are kept.
const KEPT: usize = 8;

/// A backend whose every answer a test can choose.
pub(crate) struct Fake {
    pub(crate) state: Mutex<State>,
    pub(crate) targets: Mutex<Targets>,
    pub(crate) ready: Result<(), Vec<String>>,
    /// How long a snapshot takes.
    pub(crate) delay: Duration,
    pub(crate) unavailable: bool,
    /// The size of the metrics in bytes.
    pub(crate) metrics_bytes: usize,
    /// What is added to each name of a function, in bytes.
    pub(crate) name_bytes: usize,
    /// A profile that goes on: each snapshot is that of a further pass.
    pub(crate) live: Option<Mutex<Live>>,
    /// Snapshots that were asked for.
    pub(crate) snapshots: Arc<AtomicU64>,
    /// Functions that are measured, or were.
    pub(crate) instrumentations: Mutex<Vec<InstrumentationState>>,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            state: Mutex::new(State::new()),
            targets: Mutex::new(Targets::default()),
            ready: Ok(()),
            delay: Duration::ZERO,
            unavailable: false,
            metrics_bytes: 100,
            name_bytes: 0,
            live: None,
            snapshots: Arc::default(),
            instrumentations: Mutex::new(vec![measuring(
                1,
                InstrumentationRequest {
                    name: "first".to_owned(),
                    patterns: Vec::new(),
                    followed: Followed::default(),
                    callers: true,
                    whom: Targets::default(),
                    exits: Exits::Sites,
                    length_ns: 60_000 * MS,
                    budget: 0.05,
                },
            )]),
        }
    }
}

/// A profile that goes on.
pub(crate) struct Live {
    profile: Profile,
    /// The time of the next pass.
    second: u64,
    /// When the running process ends; passes after that it is dropped.
    end_second: u64,
}

impl Live {
    /// One whose process ends in so many passes.
    pub(crate) fn ending_in(passes: u64) -> Option<Mutex<Self>> {
        Some(Mutex::new(Self {
            profile: profile(),
            second: PASSES,
            end_second: PASSES + passes,
        }))
    }

    fn next(&mut self) -> Snapshot {
        let mut pass = pass(self.second);
        if self.second == self.end_second {
            pass.processes = vec![info(RUNNING, Some(1_700_000_100 * 1_000 * MS))];
            pass.threads = vec![update(RUNNING, ThreadState::Exited)];
        }
        self.profile.apply(pass);
        self.second += 1;
        self.profile.snapshot()
    }
}

/// Passes of the profile until it is asked for.
const PASSES: u64 = 20;

/// The profile, and how many seconds of it have passed.
pub(crate) struct State {
    profile: Profile,
    seconds: u64,
    pub(crate) snapshot: Arc<Snapshot>,
}

impl State {
    fn new() -> Self {
        let (profile, seconds) = (profile(), PASSES - 1);
        let snapshot = Arc::new(profile.snapshot());
        Self {
            profile,
            seconds,
            snapshot,
        }
    }

    /// One second more, in which the running process did nothing but run.
    fn pass(&mut self) {
        self.seconds += 1;
        let ran_ms = 500 + 1_000 * (self.seconds - (PASSES - 1));
        let mut running = update(RUNNING, ThreadState::Running);
        running.last_event_ns = MonoNs::new(ran_ms * MS);
        running.classes[0] = (ran_ms - 100) * MS;
        running.kinds[0] = (ran_ms - 100) * MS;
        self.profile.apply(DrainPass {
            threads: vec![running],
            ..pass(self.seconds)
        });
    }

    fn change(
        &mut self,
        change: SessionChange,
    ) -> Result<(SessionChanged, Arc<Snapshot>), SessionFailure> {
        self.pass();
        let changed = self.profile.change_session(change)?;
        self.snapshot = Arc::new(self.profile.snapshot());
        Ok((changed, Arc::clone(&self.snapshot)))
    }
}

fn key(pid: u32) -> ProcessKey {
    ProcessKey {
        pid,
        start_ns: BootNs::new(START_TICKS * 10 * MS),
    }
}

fn thread(tid: u32) -> ThreadKey {
    ThreadKey {
        tid,
        start_ns: BootNs::new(START_TICKS * 10 * MS),
    }
}

fn info(pid: u32, exited_at_unix_ns: Option<u64>) -> ProcessInfo {
    ProcessInfo {
        exited_at_unix_ns: exited_at_unix_ns.map(UnixNs::new),
        cmdline: (pid == RUNNING).then(|| COMMAND_LINE.into()),
        ..ProcessInfo::unknown(
            key(pid),
            CommName::new("example"),
            UnixNs::new(1_600_000_000 * 1_000 * MS),
        )
    }
}

fn update(pid: u32, state: ThreadState) -> ThreadUpdate {
    ThreadUpdate {
        thread: thread(pid),
        process: key(pid),
        comm: CommName::new("example"),
        state,
        first_event_ns: MonoNs::ZERO,
        last_event_ns: MonoNs::new(500 * MS),
        unobserved_ns: 0,
        classes: [400 * MS, 0, 100 * MS, 0, 0],
        kinds: [400 * MS, 0, 0, 0, 0, 0, 0, 0],
        minor_faults: 0,
        major_faults: 0,
        switches_missed: 0,
        profiler_cost_ns: 0,
        call: None,
        slot: pid,
    }
}

/// An empty pass.
fn pass(second: u64) -> DrainPass {
    DrainPass {
        now_ns: MonoNs::new(second * 1_000 * MS),
        now_unix_ns: UnixNs::new((1_700_000_000 + second) * 1_000 * MS),
        boot_unix_ns: UnixNs::new(1_600_000_000 * 1_000 * MS),
        ..DrainPass::default()
    }
}

fn profile() -> Profile {
    let limits = Limits {
        exited_processes: 0,
        segment_ns: 1_000 * MS,
        recent_past_ns: 3_000 * MS,
        sessions: 3,
        session_spans: 6,
        ..Limits::default()
    };
    let mut profile = Profile::new(
        limits,
        MonoNs::ZERO,
        UnixNs::new(1_700_000_000 * 1_000 * MS),
    );
    let frames: Vec<FrameId> = (0..FUNCTIONS as u64)
        .map(|offset| {
            profile.frames().intern(Frame {
                module: ModuleId::JIT,
                offset: ModuleOffset::new(0x1000 + offset),
            })
        })
        .collect();
    let stack = |pid, user| StackDelta {
        process: key(pid),
        thread: thread(pid),
        user,
        kernel: Vec::new(),
        end: StackEnd::Complete,
        lost: None,
        primary: Primary {
            ticks: [1, 0, 0, 0, 0, 0, 0],
            walks: 1,
            ..Primary::default()
        },
    };
    let stacks = frames
        .iter()
        .map(|frame| stack(RUNNING, vec![frames[0], *frame]));
    let stacks = stacks.chain([stack(DROPPED, vec![frames[0]])]);
    profile.apply(DrainPass {
        processes: vec![info(RUNNING, None), info(DROPPED, None)],
        threads: vec![
            update(RUNNING, ThreadState::Running),
            update(DROPPED, ThreadState::Running),
        ],
        stacks: stacks.collect(),
        ..pass(1)
    });
    profile.apply(DrainPass {
        processes: vec![info(DROPPED, Some(1_700_000_001 * 1_000 * MS))],
        threads: vec![update(DROPPED, ThreadState::Exited)],
        ..pass(2)
    });
    // An exited process stays for a few passes, in case more of it arrives.
    for second in 3..PASSES {
        profile.apply(pass(second));
    }
    profile
}

struct FakeNames {
    names: HashMap<FrameId, FunctionName>,
    unknown: FunctionName,
}

impl Names for FakeNames {
    fn function(&self, frame: FrameId) -> &FunctionName {
        self.names.get(&frame).unwrap_or(&self.unknown)
    }
}

fn named(name: String, known: bool) -> FunctionName {
    FunctionName {
        name: name.into(),
        address: None,
        kind: FunctionKind::Jit,
        known,
    }
}

/// Two places make a line; there is none for one place in eight. The innermost function of all was
/// inlined.
fn code(offset: u64) -> Code {
    let step = |function: &str, line: u64| Step {
        function: Some(function.into()),
        source: Some(SourceLine {
            file: "/src/example.c".into(),
            line: Some(u32::try_from(line).unwrap()),
        }),
    };
    let line = 1 + (offset - 0x1000) / 2;
    let steps = vec![step("any", line), step("in_line", 1000 + line)];
    Code {
        address: Some(ModuleAddress::new(offset)),
        steps: if offset % 8 == 7 {
            Err(NoLine::NoDebugInformation)
        } else {
            Ok(steps.into())
        },
    }
}

/// The file of that function.
static PROGRAM: OnceLock<Arc<std::fs::File>> = OnceLock::new();

/// An instrumentation of one function; another is refused.
fn measuring(id: u32, wanted: InstrumentationRequest) -> InstrumentationState {
    let plan = PlannedFunction {
        name: "work".to_owned(),
        aliases: Vec::new(),
        module: "/usr/bin/example".into(),
        address: ModuleAddress::new(0x1000),
        file: Arc::clone(PROGRAM.get_or_init(|| {
            let file = std::fs::File::open("/proc/self/exe");
            Arc::new(file.unwrap())
        })),
        shared: false,
        entry: PlannedPoint {
            offset: FileOffset::new(0x1000),
            stepped: false,
            condition: profiler_common::measured::Condition::ALWAYS,
        },
        exits: Ok(vec![PlannedPoint {
            offset: FileOffset::new(0x1020),
            stepped: true,
            condition: profiler_common::measured::Condition::ALWAYS,
        }]),
        loops: false,
        goroutines: false,
    };
    // Spans that wait for the files of their ends.
    let items = SpanChooser::new(wanted.followed, 0).spans();
    let items = planned(&items, MonoNs::new(1_000 * MS));
    InstrumentationState {
        id,
        name: wanted.name,
        whom: wanted.whom,
        stage: Stage::Measuring,
        began_ns: MonoNs::new(1_000 * MS),
        began_unix_ns: UnixNs::new(1_700_000_000_000 * MS),
        until_ns: Some(MonoNs::new(1_000 * MS + wanted.length_ns)),
        budget: wanted.budget,
        processes: 1,
        points: 2,
        refused: vec![RefusedFunction {
            name: "other".to_owned(),
            module: "/usr/bin/example".to_owned(),
            why: "its symbol has no size".to_owned(),
        }],
        missing: Vec::new(),
        tried: Vec::new(),
        trouble: None,
        measured: MeasuredFunctions {
            items,
            functions: vec![MeasuredFunction {
                plan: Arc::new(plan),
                attached_ns: MonoNs::new(1_000 * MS),
                unseen: None,
                gave_up: None,
                calls: Default::default(),
                callers: Default::default(),
            }],
            costs: Default::default(),
        },
    }
}

/// Callers have no names here.
fn no_caller(_: FrameId) -> (String, String) {
    (String::new(), String::new())
}

impl Source for Fake {
    fn snapshot(&self) -> BoxFuture<'_, Result<Arc<Snapshot>, Unavailable>> {
        Box::pin(async {
            tokio::time::sleep(self.delay).await;
            self.snapshots.fetch_add(1, Ordering::Relaxed);
            if self.unavailable {
                return Err(Unavailable("the kernel's maps cannot be read".into()));
            }
            Ok(match &self.live {
                Some(live) => Arc::new(live.lock().unwrap().next()),
                None => Arc::clone(&self.state.lock().unwrap().snapshot),
            })
        })
    }

    fn names(
        &self,
        snapshot: Arc<Snapshot>,
        frames: Vec<FrameId>,
    ) -> BoxFuture<'_, Arc<dyn Names + Send + Sync>> {
        let name = |frame: FrameId| {
            (
                frame,
                named(
                    format!("function_{:#x}", snapshot.frame(frame).offset)
                        + &"x".repeat(self.name_bytes),
                    true,
                ),
            )
        };
        let names = frames.into_iter().map(name).collect();
        let names: Arc<dyn Names + Send + Sync> = Arc::new(FakeNames {
            names,
            unknown: named("[unknown]".to_owned(), false),
        });
        Box::pin(std::future::ready(names))
    }

    fn instrument(
        &self,
        wanted: InstrumentationRequest,
        dry_run: bool,
    ) -> BoxFuture<'_, Result<Instrumentation, InstrumentationFailure>> {
        let mut all = self.instrumentations.lock().unwrap();
        let is_known = |pid: &u32| *pid == RUNNING;
        let answer = if wanted.whom.pids.iter().all(is_known) {
            let last = all.last().map_or(0, |last| last.id);
            let state = measuring(if dry_run { 0 } else { last + 1 }, wanted);
            if !dry_run {
                if all.len() == KEPT {
                    all.remove(0);
                }
                all.push(state.clone());
            }
            Ok(instrumentation(&state, no_caller))
        } else {
            let why = format!("there is no process {}", wanted.whom.pids[0]);
            Err(InstrumentationFailure::Refused(why.into()))
        };
        Box::pin(std::future::ready(answer))
    }

    fn instrumentations(&self) -> BoxFuture<'_, Result<Vec<Instrumentation>, Unavailable>> {
        let all = self.instrumentations.lock().unwrap();
        let all = all
            .iter()
            .map(|state| instrumentation(state, no_caller))
            .collect();
        Box::pin(std::future::ready(Ok(all)))
    }

    fn instrumentation(
        &self,
        id: u32,
    ) -> BoxFuture<'_, Result<Option<Instrumentation>, Unavailable>> {
        let all = self.instrumentations.lock().unwrap();
        let one = all.iter().find(|state| state.id == id);
        Box::pin(std::future::ready(Ok(
            one.map(|state| instrumentation(state, no_caller))
        )))
    }

    fn end_instrumentation(
        &self,
        id: u32,
    ) -> BoxFuture<'_, Result<Option<Option<Instrumentation>>, Unavailable>> {
        let mut all = self.instrumentations.lock().unwrap();
        let place = all.iter().position(|state| state.id == id);
        let answer = place.map(|place| {
            if matches!(all[place].stage, Stage::Ended(_)) {
                all.remove(place);
                return None;
            }
            all[place].stage = Stage::Ended(End::Asked);
            Some(instrumentation(&all[place], no_caller))
        });
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn lines(
        &self,
        snapshot: Arc<Snapshot>,
        frames: Vec<FrameId>,
        _: Duration,
    ) -> BoxFuture<'_, Arc<dyn Lines + Send + Sync>> {
        let code = |id: FrameId| {
            let frame = snapshot.frame(id);
            let place = Place {
                module: frame.module,
                offset: frame.offset,
            };
            (place, code(frame.offset.get()))
        };
        let table: LineTable = frames.into_iter().map(code).collect();
        let lines: Arc<dyn Lines + Send + Sync> = Arc::new(table);
        Box::pin(std::future::ready(lines))
    }

    fn status(&self) -> Status {
        Status {
            version: "1.2.3".to_owned(),
            kernel_release: "6.1.0".to_owned(),
            settings: Config::default().in_force(),
            degraded: vec![Degraded {
                what: "kernel names".to_owned(),
                why: "CAP_SYSLOG is not granted".to_owned(),
            }],
            ..Status::default()
        }
    }

    fn readiness(&self) -> Result<(), Vec<String>> {
        self.ready.clone()
    }

    fn targets(&self) -> Targets {
        self.targets.lock().unwrap().clone()
    }

    fn set_targets(&self, targets: Targets) -> BoxFuture<'_, Result<Targets, TargetsFailure>> {
        let answer = if self.unavailable {
            Err(Unavailable("too many requests wait for the collector".into()).into())
        } else if targets.cgroups.iter().any(|cgroup| cgroup == "/missing") {
            Err(TargetsFailure::Refused(
                "there is no control group /missing".into(),
            ))
        } else {
            *self.targets.lock().unwrap() = targets.clone();
            Ok(targets)
        };
        Box::pin(std::future::ready(answer))
    }

    fn change_session(
        &self,
        change: SessionChange,
    ) -> BoxFuture<'_, Result<(SessionChanged, Arc<Snapshot>), SessionFailure>> {
        let unavailable = Unavailable("the kernel's maps cannot be read".into());
        let changed = if self.unavailable {
            Err(unavailable.into())
        } else {
            self.state.lock().unwrap().change(change)
        };
        Box::pin(std::future::ready(changed))
    }

    fn metrics(&self) -> BoxFuture<'_, Result<String, Unavailable>> {
        let answer = if self.unavailable {
            Err(Unavailable("the kernel's maps cannot be read".into()))
        } else {
            Ok("# a comment\n".repeat(self.metrics_bytes / 12))
        };
        Box::pin(std::future::ready(answer))
    }
}
