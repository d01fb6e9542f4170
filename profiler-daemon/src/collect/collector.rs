//! The collector's thread: waits for the side-band, for the next pass and for commands, whichever
//! comes first.

mod commands;
mod waiting;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use tokio::sync::watch;
use tracing::{debug, warn};

use crate::config::targets::Targets;
use crate::kernel::{Kernel, Pass};
use crate::processes::kernel_modules::KernelModules;
use crate::processes::live::Processes;
use crate::profile::Profile;
use crate::profile::input::DrainPass;
use crate::profile::losses::counts;
use crate::profile::snapshot::Snapshot;
use crate::sys::clock::{ClockOffsets, monotonic_ns, unix_ns};
use crate::sys::heartbeat::Heartbeat;
use crate::sys::perf_event::SideBand;
use crate::sys::proc_fs;
use crate::sys::waker::Waker;
use crate::units::{BootNs, MonoNs};

use super::backoff::Backoff;
use super::command::Command;
use super::convert::{Owners, Unowned, convert};
use super::coverage::WalksByExecutable;
use super::descriptions::Descriptions;
use super::fills;
use super::losses::{COLLECTOR_LOSSES, Sources};
use super::measuring::Measuring;
use super::memory::{self, MemoryPart};
use super::naming::Naming;
use super::options::CollectorOptions;
use super::outside::Outside;
use super::own_frames::OwnFrames;
use super::processors;
use super::quotas::{Mounted, Quotas};
use super::spending::SpendingControl;
use super::stacks::StackCache;
use super::state::TornRecords;
use super::sweep::Sweeps;
use super::tables::Tables;
use super::targets;
use super::unwinding::UnwindingControl;

/// Time between two passes.
const PASS_NS: u64 = 1_000_000_000;
/// How long a pass waits, from its begin, for the kernel's programs to leave what it reads: much
/// longer than they need unless the kernel itself has no time. Meanwhile nothing else is done.
const PATIENCE_NS: u64 = 500_000_000;
/// The same where there is no answer without the pass. Less than a client is made to wait.
const LONG_PATIENCE_NS: u64 = 5_000_000_000;
/// Time between two looks whether they have.
const AWAITED_NS: u64 = 100_000_000;
/// How long the start waits for the unwind tables of programs that run already: without, nearly all
/// walks of the first second would end where the first table is missing. Most come from the disk,
/// and the small files first, so that it is rarely as long.
const FIRST_TABLES_NS: u64 = 1_000_000_000;
/// Passes in between leave out processes that sleep, while nobody asks: what is kept of those that
/// sleep grows no older.
const WHOLE_EVERY_NS: u64 = 15_000_000_000;
/// Who has asked within this time is expected to ask again: a page does so once a second, and who
/// scrapes metrics does not.
const ASKED_NS: u64 = 1_200_000_000;
/// Time between two reads of the ring of stacks, so that it need not hold a whole drain period's.
const READ_NS: u64 = 100_000_000;
/// The same while hardly any stack comes and nothing is instrumented, so that an idle machine is
/// woken less.
const QUIET_READ_NS: u64 = 250_000_000;
/// A read that finds fewer stacks has hardly any. A burst after it has the whole ring until the
/// next read: 16 MB of stacks a second, by default.
const QUIET_STACKS: usize = 16;
/// Time between two checks whether ticks stand still on some processor: a few system calls each.
/// Less than [`QUIET_READ_NS`], so that each read and each pass of a quiet machine is one.
const STILL_CHECK_NS: u64 = 200_000_000;
/// Time between two checks which groups lie below the named control groups, and at which
/// processors are online.
const GROUPS_NS: u64 = 1_000_000_000;
/// Passes between two checks which kernel modules are loaded.
const MODULES_PASSES: u64 = 30;
/// No list of kernel modules is longer.
const MAX_MODULES_TEXT_BYTES: usize = 1 << 20;

/// Owns the stages from the kernel to the profile.
pub struct Collector {
    kernel: Kernel,
    side_band: Option<SideBand>,
    processes: Processes,
    profile: Profile,
    stacks: StackCache,
    unwinding: Option<UnwindingControl>,
    outside: Outside,
    backoff: Backoff,
    coverage: WalksByExecutable,
    owners: Owners,
    descriptions: Descriptions,
    quotas: Quotas,
    unowned: Unowned,
    unreadable: TornRecords,
    spending: SpendingControl,
    measuring: Measuring,
    /// How many stacks the last read of the ring found.
    stacks_read: usize,
    /// As of the last whole pass: a file is read for each program.
    skipped_runs: u64,
    sweeps: Sweeps,
    tables: Tables,
    memory: Vec<MemoryPart>,
    snapshot: Option<Arc<Snapshot>>,
    targets: watch::Sender<Targets>,
    last_pass: Option<LastPass>,
    /// When the pass was begun that the kernel's programs hold up.
    begun_ns: Option<MonoNs>,
    passes: u64,
    /// Of passes, living threads times the time since the last one.
    thread_time_ns: u64,
    failures: u64,
    busy_ns: u64,
    /// When a pass over all there is was made last.
    whole_at_ns: MonoNs,
    /// When somebody asked last.
    asked_at_ns: MonoNs,
    groups_at_ns: MonoNs,
    still_checked_ns: MonoNs,
    heartbeat: Heartbeat,
}

struct LastPass {
    at_ns: MonoNs,
    counters: Vec<u64>,
    walk_ends: Vec<u64>,
    fill: [(&'static str, u64); 3],
    threads: usize,
    is_partial: bool,
}

impl Collector {
    /// Takes in the processes there are, sets the targets and lets the programs work. `waker` is
    /// what the thread of the tables wakes.
    ///
    /// # Errors
    /// The targets cannot be set, or the kernel refuses.
    pub fn start(options: CollectorOptions, waker: &Waker) -> anyhow::Result<Self> {
        let max_frames = options.kernel.max_user_frames();
        let mapping_rows = options.kernel.settings().mappings;
        let unwinding = options
            .tables
            .map(|tables| UnwindingControl::new(tables, mapping_rows));
        let mut kernel = options.kernel;
        let spending = SpendingControl::start(
            &mut kernel,
            options.budget,
            options.may_sample_calls,
            monotonic_ns(),
        );
        let own = OwnFrames::find(kernel.programs.code());
        let backoff = Backoff::new(kernel.finds_mappings, monotonic_ns());
        let mut collector = Self {
            outside: Outside::new(options.program, max_frames),
            kernel,
            side_band: options.side_band,
            processes: options.processes,
            profile: options.profile,
            stacks: StackCache::new(own),
            unwinding,
            backoff,
            coverage: WalksByExecutable::default(),
            owners: Owners::default(),
            descriptions: Descriptions::default(),
            quotas: Quotas::default(),
            unowned: Unowned::default(),
            unreadable: TornRecords::default(),
            spending,
            measuring: Measuring::default(),
            stacks_read: QUIET_STACKS,
            skipped_runs: 0,
            sweeps: Sweeps::default(),
            tables: Tables::default(),
            memory: Vec::new(),
            snapshot: None,
            targets: options.targets,
            last_pass: None,
            begun_ns: None,
            passes: 0,
            thread_time_ns: 0,
            failures: 0,
            busy_ns: 0,
            whole_at_ns: MonoNs::ZERO,
            asked_at_ns: MonoNs::ZERO,
            groups_at_ns: MonoNs::ZERO,
            still_checked_ns: MonoNs::ZERO,
            heartbeat: options.heartbeat,
        };
        collector.processes.seed_from_proc();
        collector.read_kernel_modules();
        collector.await_first_tables(waker);
        // Time in which nothing was observed is no part of the session.
        let now_ns = monotonic_ns();
        collector.profile.begin_session(now_ns, unix_ns());
        collector.spending.begin(&collector.kernel, now_ns);
        let targets = collector.targets.borrow().clone();
        targets::replace(&mut collector.kernel, &targets, None)?;
        Ok(collector)
    }

    /// Works until it is told to stop, or nobody is left who could tell it.
    pub fn run(mut self, commands: &Receiver<Command>, waker: &Waker) {
        let mut next_pass_ns = monotonic_ns();
        let mut next_read_ns = next_pass_ns;
        loop {
            let piece = self.heartbeat.begin("the rates of ticks");
            let now_ns = monotonic_ns();
            // First: the end of a pass is no drawn moment.
            if self.next_tick_change_ns() <= now_ns {
                self.kernel.ticks.change(now_ns, &self.kernel.counts);
            }
            if now_ns >= next_pass_ns {
                piece.next("a pass over the kernel's maps");
                self.spending.step(&mut self.kernel, now_ns);
                self.check_ticks(now_ns);
                self.routine_pass();
                self.look_from_outside();
                let now_ns = monotonic_ns();
                next_pass_ns = match self.begun_ns {
                    Some(_) => now_ns + AWAITED_NS,
                    None => now_ns.max(next_pass_ns + PASS_NS),
                };
                next_read_ns = monotonic_ns() + self.read_interval_ns();
            } else if now_ns >= next_read_ns {
                piece.next("the ring of stacks");
                self.stacks_read = self.read_stacks();
                self.measuring
                    .check(&mut self.kernel, &self.processes, monotonic_ns());
                self.spending.step(&mut self.kernel, monotonic_ns());
                self.look_from_outside();
                next_read_ns = monotonic_ns() + self.read_interval_ns();
            }
            if self.spending.due_ns() <= monotonic_ns() {
                self.spending.step(&mut self.kernel, monotonic_ns());
            }
            loop {
                piece.next("a question");
                match commands.try_recv() {
                    Ok(Command::Stop) | Err(TryRecvError::Disconnected) => {
                        self.pass(PATIENCE_NS);
                        return;
                    }
                    Ok(command) => self.obey(command),
                    Err(TryRecvError::Empty) => break,
                }
            }
            // A question may have begun to instrument.
            next_read_ns = next_read_ns.min(monotonic_ns() + self.read_interval_ns());
            piece.next("the cost of the programs");
            self.spending.measure(&mut self.kernel, monotonic_ns());
            drop(piece);
            let wait_ns = next_pass_ns
                .min(next_read_ns)
                .min(self.next_tick_change_ns())
                .min(self.spending.due_ns())
                .saturating_since(monotonic_ns());
            self.wait(Duration::from_nanos(wait_ns), waker);
        }
    }

    /// Has the tables of running programs made, as many as are within [`FIRST_TABLES_NS`].
    fn await_first_tables(&mut self, waker: &Waker) {
        let until_ns = monotonic_ns() + FIRST_TABLES_NS;
        self.sync_unwinding();
        while self
            .unwinding
            .as_ref()
            .is_some_and(UnwindingControl::awaits_tables)
            && let left_ns @ 1.. = until_ns.saturating_since(monotonic_ns())
        {
            self.wait(Duration::from_nanos(left_ns), waker);
        }
    }

    fn next_tick_change_ns(&self) -> MonoNs {
        self.kernel.ticks.next_change_ns().unwrap_or(MonoNs::MAX)
    }

    /// Takes in what the side-band has. True if there was anything.
    fn read_side_band(&mut self) -> bool {
        let mut has_events = false;
        if let Some(side_band) = &mut self.side_band {
            let processes = &mut self.processes;
            processes.begin_reading();
            side_band.read(|event| {
                processes.apply(&event);
                has_events = true;
            });
            processes.end_reading();
        }
        self.sync_unwinding();
        self.processes.describe_new();
        has_events
    }

    /// Has the walker know what processes have mapped by now.
    fn sync_unwinding(&mut self) {
        if let (Some(unwinding), Some(maps)) = (&mut self.unwinding, &mut self.kernel.unwind) {
            unwinding.sync(maps, &mut self.processes);
        }
    }

    /// Time until the next read of the ring of stacks.
    fn read_interval_ns(&self) -> u64 {
        if self.stacks_read < QUIET_STACKS && !self.measuring.is_running() {
            QUIET_READ_NS
        } else {
            READ_NS
        }
    }

    /// Starts ticks again that stand still, unless that was checked a moment ago.
    fn check_ticks(&mut self, now_ns: MonoNs) {
        if now_ns.saturating_since(self.still_checked_ns) >= STILL_CHECK_NS {
            self.still_checked_ns = now_ns;
            let side_band = self.side_band.as_mut();
            processors::mend(&mut self.kernel, side_band, &mut self.processes);
        }
    }

    /// Takes the frames that have travelled, while the processes they belong to are known. Returns
    /// of how many stacks.
    fn read_stacks(&mut self) -> usize {
        let side_band_read_ns = monotonic_ns();
        self.read_side_band();
        self.check_ticks(side_band_read_ns);
        let (kernel, mut naming) = self.naming(side_band_read_ns);
        let mut taken = 0;
        kernel.drain.take_stacks(&mut |raw| {
            naming.add(&raw);
            taken += 1;
        });
        taken
    }

    /// What names stacks, beside what they are taken from. The side-band was read at
    /// `side_band_read_ns`.
    fn naming(&mut self, side_band_read_ns: MonoNs) -> (&mut Kernel, Naming<'_>) {
        let naming = Naming {
            side_band: self.side_band.as_mut(),
            processes: &mut self.processes,
            stacks: &mut self.stacks,
            frames: self.profile.frames(),
            side_band_read_ns,
        };
        (&mut self.kernel, naming)
    }

    /// Finds stacks for waits that have none.
    fn look_from_outside(&mut self) {
        if let Some(unwinding) = &mut self.unwinding {
            let renewed = unwinding.take_renewed();
            self.outside.renew(monotonic_ns(), &renewed);
        }
        let (stacks, processes) = (&mut self.stacks, &mut self.processes);
        let frames = self.profile.frames();
        let add = &mut |raw: &_| stacks.add(raw, processes, frames);
        self.outside
            .work(&mut self.kernel, self.spending.outside(), add);
    }

    /// A pass for nobody: those that sleep are left out, where that is worth it.
    fn routine_pass(&mut self) {
        let now_ns = monotonic_ns();
        let is_partial = now_ns.saturating_since(self.whole_at_ns) < WHOLE_EVERY_NS
            && now_ns.saturating_since(self.asked_at_ns) > ASKED_NS
            && !self.stacks.is_crowded();
        self.pass_over(is_partial, PATIENCE_NS);
    }

    /// One pass over all there is: it can be asked about. There is none if the kernel's programs
    /// hold it up for so long, counted from its begin.
    fn pass(&mut self, patience_ns: u64) {
        self.pass_over(false, patience_ns);
    }

    /// One pass, from the kernel's maps to the profile.
    fn pass_over(&mut self, is_partial: bool, patience_ns: u64) {
        let began_ns = monotonic_ns();
        let begun_ns = *self.begun_ns.get_or_insert(began_ns);
        let offsets = ClockOffsets::now();
        self.processes.sweep(began_ns, offsets);
        if began_ns.saturating_since(self.groups_at_ns) >= GROUPS_NS {
            self.groups_at_ns = began_ns;
            self.read_side_band();
            let side_band = self.side_band.as_mut();
            processors::follow(&mut self.kernel.ticks, side_band, &mut self.processes, &[]);
            if self.passes % MODULES_PASSES == MODULES_PASSES - 1 {
                self.read_kernel_modules();
            }
            let cgroups = self.targets.borrow().cgroups.clone();
            let kernel = &mut self.kernel;
            let targets = &mut kernel.targets;
            if let Err(error) = targets.refresh_groups(&cgroups, &mut kernel.programs) {
                warn!("cannot look at the control groups again: {error}");
            }
        }
        let side_band_read_ns = monotonic_ns();
        self.read_stacks();
        let left_ns = (begun_ns + patience_ns).saturating_since(monotonic_ns());
        let within = Duration::from_nanos(left_ns);
        let (kernel, mut naming) = self.naming(side_band_read_ns);
        let passed = kernel.pass(is_partial, within, &mut |raw| naming.add(&raw));
        self.begun_ns = matches!(passed, Ok(None)).then_some(begun_ns);
        match passed {
            Ok(Some(pass)) => {
                let held_up_ns = monotonic_ns().saturating_since(begun_ns);
                if held_up_ns > LONG_PATIENCE_NS {
                    let s = held_up_ns / 1_000_000_000;
                    warn!("the kernel was too busy for a pass over its maps for {s} s");
                }
                self.take_in(&pass, offsets);
            }
            Ok(None) => {}
            Err(error) => {
                self.failures += 1;
                warn!("a pass over the kernel's maps failed: {error}");
            }
        }
        self.busy_ns += monotonic_ns().saturating_since(began_ns);
    }

    /// A kernel without loadable modules has no list of them; one that hides addresses lists none
    /// that can be used.
    fn read_kernel_modules(&mut self) {
        let text =
            proc_fs::read_bounded("/proc/modules", MAX_MODULES_TEXT_BYTES).unwrap_or_default();
        let modules = KernelModules::parse(&text, self.processes.modules_mut());
        self.stacks.set_kernel_modules(modules);
    }

    fn take_in(&mut self, pass: &Pass, offsets: ClockOffsets) {
        let mut drained = DrainPass {
            now_ns: pass.at_ns,
            now_unix_ns: offsets.unix_from_monotonic(pass.at_ns),
            boot_unix_ns: offsets.unix_from_boot(BootNs::ZERO),
            processors: self.kernel.ticks.processor_count(),
            ..DrainPass::default()
        };
        self.outside.note(pass);
        self.measuring.pass(&mut self.kernel, pass);
        convert(
            pass,
            &mut self.owners,
            &mut self.stacks,
            &mut drained,
            &mut self.unowned,
        );
        self.spending.pass(
            &mut self.kernel,
            &self.processes,
            pass,
            &mut drained.threads,
        );
        if !pass.unreadable.is_empty() {
            self.unreadable = TornRecords {
                total: self.unreadable.total + pass.unreadable.len() as u64,
                last: pass.unreadable.len(),
                last_ns: pass.at_ns,
            };
        }
        self.descriptions.describe(
            pass,
            &self.owners,
            &mut self.processes,
            offsets,
            &mut drained,
        );
        let names = (&mut self.processes, self.profile.frames());
        self.measuring.take_callers(&mut self.kernel, pass, names);
        self.quotas.pass(pass, &Mounted, &mut drained);
        let side_band = self.side_band.as_ref().map(SideBand::counts);
        if !pass.is_partial {
            self.skipped_runs = self.kernel.programs.skipped_runs();
        }
        let sources = Sources {
            side_band: side_band.unwrap_or_default(),
            processes: self.processes.counts(),
            stacks_refused: self.stacks.refused(),
            skipped_runs: self.skipped_runs,
            outside: self.outside.counts(),
            ticks: self.kernel.ticks.counts(),
            malformed_stacks: self.kernel.drain.malformed_stacks(),
            unowned: self.unowned,
            unreadable: self.unreadable.total,
            missed_ends: self.kernel.drain.missed_ends(),
            untraced_ns: self.spending.untraced_ns(),
            quota_groups_refused: self.quotas.refused(),
        };
        drained.losses.extend(counts(COLLECTOR_LOSSES, &sources));
        drained.measured = self.measuring.profiled(&mut self.processes, offsets);
        drained.modules = self.processes.modules().view();
        self.coverage.pass(&drained.stacks, &mut self.processes);
        self.profile.apply(drained);
        // Also where no tables are used: they would be kept for ever.
        let (used, missed) = self.stacks.take_modules();
        if let (Some(unwinding), Some(maps)) = (&mut self.unwinding, &mut self.kernel.unwind) {
            unwinding.pass(maps, &mut self.processes, used, missed);
        }
        if !pass.is_partial {
            self.stacks.end_pass();
        }
        let unwinding = self.unwinding_state();
        let fills = fills::of_pass(
            (&self.kernel, pass),
            (&self.processes, &self.stacks, self.profile.frames()),
            unwinding.as_ref(),
        );
        self.tables.read(pass.at_ns, fills);
        self.sweep();
        self.memory = memory::of_pass(&mut self.profile, &self.stacks, &self.processes);
        self.passes += 1;
        let last_ns = self
            .last_pass
            .as_ref()
            .map_or(pass.at_ns, |last| last.at_ns);
        let past_ns = pass.at_ns.saturating_since(last_ns);
        self.thread_time_ns = (pass.living as u64)
            .saturating_mul(past_ns)
            .saturating_add(self.thread_time_ns);
        if !pass.is_partial {
            self.whole_at_ns = pass.at_ns;
        }
        self.snapshot = None;
        self.last_pass = Some(LastPass {
            at_ns: pass.at_ns,
            counters: pass.counters.clone(),
            walk_ends: self.kernel.counts.walk_ends(),
            fill: pass.fill,
            threads: pass.living,
            is_partial: pass.is_partial,
        });
    }

    /// Has what nothing names any more leave, where that is worth its time.
    fn sweep(&mut self) {
        let began_ns = monotonic_ns();
        let wanted = self.profile.frames().wants_sweep()
            || self.processes.modules().wants_sweep()
            || (self.profile.frames().is_large() && self.sweeps.is_due(began_ns));
        if !wanted || !self.sweeps.may_begin(began_ns) {
            return;
        }
        let (stacks, measuring) = (&self.stacks, &self.measuring);
        let frames = self.profile.sweep_frames(|marks| {
            stacks.mark(marks);
            measuring.mark(marks);
        });
        // After these: the last frame of a module may have left.
        let profile = &self.profile;
        let gone = self.processes.sweep_modules(|marks| {
            profile.mark_modules(marks);
            stacks.mark_modules(marks);
        });
        if let (Some(unwinding), Some(maps)) = (&mut self.unwinding, &mut self.kernel.unwind) {
            unwinding.forget_modules(maps, &gone);
        }
        let ended_ns = monotonic_ns();
        self.sweeps.done(began_ns, ended_ns);
        debug!(
            "{frames} frames and {} modules left in {} us",
            gone.len(),
            (ended_ns - began_ns) / 1_000
        );
    }
}
