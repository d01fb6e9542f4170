//! The kernel stage: loads the programs, attaches them, and drains what they keep. The only stage
//! that knows aya.
//!
//! `offsets` (from the running kernel's BTF) -> `load` -> `programs`, which are attached and
//! detached. What they share with the daemon is in parts, each of which owns its maps: `targets`
//! (all that the programs are told), `drain` (what a pass reads), `looks`, `counts` and
//! `unwind_maps`. `ticks` and `calls` are changed all the time.

mod batch;
mod bpf_call;
mod btf;
mod calibration;
mod call_rows;
mod calls;
mod control;
mod cost;
mod counts;
mod drain;
mod extents;
mod last_read;
mod load;
mod log;
mod looks;
mod maps;
mod measure_error;
mod measured;
mod offsets;
mod phantoms;
mod probe_program;
mod probes;
mod probing;
mod process_walks;
mod program_code;
mod programs;
mod queues;
mod readmission;
mod records;
mod refusal;
mod row_finder;
mod settings;
mod spans;
mod targets;
mod task_iter;
mod thread_snapshot;
mod tick_account;
mod tick_schedule;
mod ticks;
mod unwind_maps;
mod uprobe_multi;
mod uprobe_single;
mod variant;

use std::time::Duration;

use profiler_common::limits::MAX_FRAME_POINTER_FRAMES;
use tracing::warn;

use load::{Loaded, load};
use log::ProgramLog;
use queues::QueueSearch;
use refusal::tick_refused;
use variant::Variant;

use crate::sys::grace_period::GracePeriod;

pub use calibration::{Calibration, ProbeCost, ProbeCosts};
pub use calls::{CallHooks, CallTracing};
pub use cost::{Costs, MapCost, ProgramStats};
pub use counts::{Counts, Work};
pub use drain::{Drain, MissingStack, Pass, RawStack, StackSum};
pub use looks::{Asked, Looks, OutsideLook};
pub use measure_error::MeasureError;
pub use measured::{FunctionProbes, ProbePoint};
pub use probes::Interrupted;
pub use probing::{MAX_SINGLE_POINTS, MAX_SINGLE_POINTS_IN_ALL, Probing};
pub use process_walks::{ProcessWalkTable, WalkTable};
pub use programs::Programs;
pub use refusal::StartError;
pub use row_finder::RowFinder;
pub use settings::{KernelSettings, TracedSystemCalls, threads_for};
pub use spans::{ProbePlace, SpanProbes};
pub use targets::{NamedTargets, TargetControl, TargetError, WalkParts, control_groups};
#[cfg(test)]
mod conditions_tests;
#[cfg(test)]
pub(crate) use thread_snapshot::made_up;
pub use thread_snapshot::{AwaitedStack, CallUnderWay, OffCpuStack, ThreadSnapshot, UnwalkedWait};
pub use ticks::{TickCounts, Ticks};
pub use unwind_maps::{MappingRange, Published, TableSize, UnwindFill, UnwindMaps};
pub use variant::has_loops;

/// The running programs and all that they share with the daemon, in parts.
///
/// Fields are dropped in their order, which is that of the end: first the programs of tracepoints
/// are detached, with the hooks on system calls, then the maps are closed, then the ticks, whose
/// program holds the maps that it writes for as long as it may run.
pub struct Kernel {
    /// Functions that are measured: their probes go first.
    pub measured: FunctionProbes,
    /// USDT points and spans: theirs too.
    pub spans: SpanProbes,
    /// The loaded programs.
    pub programs: Programs,
    /// Who is profiled, and how.
    pub targets: TargetControl,
    /// What a pass reads: [`Kernel::pass`].
    pub drain: Drain,
    /// Looks at threads from outside.
    pub looks: Looks,
    /// What the programs count.
    pub counts: Counts,
    /// What the walker looks up. `None`: this kernel cannot unwind by tables.
    pub unwind: Option<UnwindMaps>,
    /// The ticks of all processors.
    pub ticks: Ticks,
    /// The hooks on system calls.
    pub calls: CallHooks,
    log: ProgramLog,
    /// What programs and maps cost.
    pub costs: Costs,
    settings: KernelSettings,
    variant: Variant,
    creates_at_switch: bool,
    /// Whether the walker finds what is mapped in the kernel's own account of it, and need not be
    /// told at once.
    pub finds_mappings: bool,
    /// The pass that was begun: which of the two maps of sums the programs do not use any more once
    /// that grace period is over.
    begun: Option<(usize, GracePeriod)>,
    /// Where run queues are read.
    queue_search: Option<QueueSearch>,
    /// Why the kernel refused the newer build of the programs, where the older one runs for that
    /// reason.
    newer_refused: Option<String>,
}

/// What is attached.
#[derive(Clone, Debug, Default)]
pub struct Attached {
    /// Tracepoints, by name.
    pub tracepoints: Vec<&'static str>,
    /// Processors with a timer tick.
    pub processors: Vec<u32>,
}

impl Kernel {
    /// Loads and attaches the programs; they do nothing until [`TargetControl::name`]. Where the
    /// kernel refuses the newer build of them, the older one is tried.
    ///
    /// # Errors
    /// [`StartError`], each a sentence that says what is missing: of the newer build, where both
    /// are refused.
    pub fn start(settings: KernelSettings) -> Result<Self, StartError> {
        let first = Variant::of_this_kernel()?;
        let (mut kernel, refused) =
            first.start_or_older(|variant| Self::start_with(settings.clone(), variant))?;
        if let Some(refused) = refused {
            warn!("the older programs run instead of the newer ones: {refused}");
            kernel.newer_refused = Some(refused.to_string());
        }
        Ok(kernel)
    }

    /// The same with one build of the programs.
    fn start_with(settings: KernelSettings, variant: Variant) -> Result<Self, StartError> {
        let Loaded {
            mut programs,
            costs,
            log,
            creates_at_switch,
            reads_queues,
            finds_mappings,
        } = load(&settings, variant)?;
        let tick = programs.tick()?;
        let maps = &mut programs.maps();
        let shared = maps.all()?.into();
        let mut kernel = Self {
            measured: FunctionProbes::new(maps, &shared, variant)?,
            spans: SpanProbes::new(maps, &shared, variant)?,
            targets: TargetControl::new(maps, &settings)?,
            drain: Drain::new(maps, &settings)?,
            looks: Looks::new(maps, &settings)?,
            counts: Counts::new(maps)?,
            unwind: (variant == Variant::Since517)
                .then(|| UnwindMaps::new(maps, &settings))
                .transpose()?,
            ticks: Ticks::new(tick, settings.frequency_hz),
            calls: CallHooks::new(settings.system_calls),
            programs,
            log,
            costs,
            settings,
            variant,
            creates_at_switch,
            finds_mappings,
            begun: None,
            queue_search: reads_queues.then(QueueSearch::default),
            newer_refused: None,
        };
        kernel
            .calls
            .start(&mut kernel.programs, &mut kernel.costs)?;
        kernel.programs.attach_all()?;
        let started = kernel.ticks.start();
        started.map_err(tick_refused)?;
        Ok(kernel)
    }

    /// One pass: frames to `each`, all else as the result; `is_partial`: without processes that
    /// sleep on. Every thread that is seen as exited is gone with the next pass. `None`: programs
    /// that were running did not end within that time; the next call goes on with this pass.
    ///
    /// # Errors
    /// [`StartError::Map`] if the kernel refuses to hand over a map.
    pub fn pass(
        &mut self,
        is_partial: bool,
        within: Duration,
        each: &mut dyn FnMut(RawStack),
    ) -> Result<Option<Pass>, StartError> {
        let (full, period) = match self.begun {
            Some(begun) => begun,
            None => {
                let full = self.targets.control.flip_half()?;
                *self.begun.insert((full, self.targets.grace.begin()))
            }
        };
        if !self.targets.grace.wait(period, within) {
            return Ok(None);
        }
        self.begun = None;
        if let Some(unwind) = &mut self.unwind {
            unwind.pass_over();
        }
        let (programs, search) = (&mut self.programs, &mut self.queue_search);
        let note_queued = || {
            if let Some(search) = search {
                search.note_queued(programs);
            }
        };
        let known = (&self.counts, &self.looks);
        let (pass, freed) = self
            .drain
            .pass((full, is_partial), known, note_queued, each)?;
        self.targets.readmit(&pass, freed, &mut self.programs);
        self.log.flush();
        Ok(Some(pass))
    }

    /// What is attached.
    #[must_use]
    pub fn attached(&self) -> Attached {
        let tracepoints = self.programs.tracepoints().iter().copied();
        Attached {
            tracepoints: tracepoints.chain(self.calls.attached()).collect(),
            processors: self.ticks.processors().collect(),
        }
    }

    /// What this kernel lacks, and what that costs.
    #[must_use]
    pub fn lacks(&self) -> Vec<(&'static str, String)> {
        self.variant.lacks(
            self.settings.max_threads,
            self.creates_at_switch,
            self.finds_mappings,
            self.newer_refused.as_deref(),
        )
    }

    /// The settings the programs were loaded with.
    #[must_use]
    pub const fn settings(&self) -> &KernelSettings {
        &self.settings
    }

    /// Frames that a user stack has at most.
    #[must_use]
    pub const fn max_user_frames(&self) -> usize {
        if self.unwind.is_some() {
            self.settings.user_frames as usize
        } else {
            MAX_FRAME_POINTER_FRAMES
        }
    }
}
