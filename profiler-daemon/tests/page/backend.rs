//! A backend over the made-up machine: each question comes after as much of its time as passed on
//! the clock, or its time stands still.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use profiler_daemon::api::{
    AttachedProgram, BoxFuture, Degraded, OwnCost, ProgramCost, SessionFailure, Source, Status,
    TargetsFailure, Unavailable,
};
use profiler_daemon::config::Config;
use profiler_daemon::config::targets::Targets;
use profiler_daemon::profile::frames::FrameId;
use profiler_daemon::profile::sessions::{SessionChange, SessionChanged};
use profiler_daemon::profile::snapshot::Snapshot;
use profiler_daemon::report::names::{Lines, Names};

use crate::world::World;

/// The shortest pass, in nanoseconds.
const SHORTEST_PASS_NS: u64 = 300_000_000;

/// See the module.
pub(crate) struct Machine {
    state: Mutex<(World, Instant)>,
    moves: bool,
}

impl Machine {
    pub(crate) fn new(moves: bool) -> Self {
        let mut world = World::new();
        for _ in 0..24 {
            world.pass(1_000_000_000);
        }
        Self {
            state: Mutex::new((world, Instant::now())),
            moves,
        }
    }
}

impl Source for Machine {
    fn snapshot(&self) -> BoxFuture<'_, Result<Arc<Snapshot>, Unavailable>> {
        let mut state = self.state.lock().unwrap();
        let passed_ns = u64::try_from(state.1.elapsed().as_nanos()).unwrap();
        if self.moves && passed_ns >= SHORTEST_PASS_NS {
            state.0.pass(passed_ns);
            state.1 = Instant::now();
        }
        let snapshot = Arc::new(state.0.snapshot());
        Box::pin(std::future::ready(Ok(snapshot)))
    }

    fn names(
        &self,
        _: Arc<Snapshot>,
        _: Vec<FrameId>,
    ) -> BoxFuture<'_, Arc<dyn Names + Send + Sync>> {
        let names: Arc<dyn Names + Send + Sync> =
            Arc::new(self.state.lock().unwrap().0.functions());
        Box::pin(std::future::ready(names))
    }

    fn lines(
        &self,
        _: Arc<Snapshot>,
        _: Vec<FrameId>,
        _: Duration,
    ) -> BoxFuture<'_, Arc<dyn Lines + Send + Sync>> {
        let lines: Arc<dyn Lines + Send + Sync> =
            Arc::new(self.state.lock().unwrap().0.functions().lines());
        Box::pin(std::future::ready(lines))
    }

    fn status(&self) -> Status {
        let program = |name: &str, runs, bpf_run_ns| ProgramCost {
            program: name.to_owned(),
            bpf_run_ns,
            runs,
        };
        Status {
            version: "0.1.0".to_owned(),
            kernel_release: "6.18.0".to_owned(),
            uptime_s: 25,
            settings: Config::default().in_force(),
            attached: (0..8)
                .map(|processor| AttachedProgram {
                    program: "tick".to_owned(),
                    hook: format!("cpu-clock on processor {processor} at 99 Hz"),
                })
                .chain([AttachedProgram {
                    program: "switch".to_owned(),
                    hook: "tp_btf/sched_switch".to_owned(),
                }])
                .collect(),
            degraded: vec![Degraded {
                what: "kernel names".to_owned(),
                why: "CAP_SYSLOG is not granted: functions of the kernel are shown by their addresses"
                    .to_owned(),
            }],
            instrumentation: Default::default(),
            own_cost: OwnCost {
                cpu_seconds_total: 0.21,
                resident_bytes: 41 << 20,
                memory_bytes: [("call_trees".to_owned(), 10 << 20)].into(),
                kernel_map_bytes: Some(30 << 20),
                programs: vec![
                    program("tick", 19_800, 61_000_000),
                    program("switch", 410_000, 230_000_000),
                ],
            },
            ..Status::default()
        }
    }

    fn readiness(&self) -> Result<(), Vec<String>> {
        Ok(())
    }

    fn targets(&self) -> Targets {
        Targets::default()
    }

    fn set_targets(&self, targets: Targets) -> BoxFuture<'_, Result<Targets, TargetsFailure>> {
        Box::pin(std::future::ready(Ok(targets)))
    }

    fn change_session(
        &self,
        change: SessionChange,
    ) -> BoxFuture<'_, Result<(SessionChanged, Arc<Snapshot>), SessionFailure>> {
        let mut state = self.state.lock().unwrap();
        let passed_ns = u64::try_from(state.1.elapsed().as_nanos()).unwrap();
        state.0.pass(passed_ns.max(1));
        state.1 = Instant::now();
        let changed = state.0.change_session(change);
        let changed = changed.map(|changed| (changed, Arc::new(state.0.snapshot())));
        Box::pin(std::future::ready(changed.map_err(SessionFailure::from)))
    }

    fn metrics(&self) -> BoxFuture<'_, Result<String, Unavailable>> {
        Box::pin(std::future::ready(Ok(String::new())))
    }
}
