//! Functions that are measured exactly: their probes, each instrumentation within its budget and
//! its time, and what was counted.

mod attaching;
mod command;
pub(super) mod departed;
mod instrumentation;
mod plan;
pub(super) mod point_limits;
mod profiled;
mod reading;
pub(super) mod spent;
mod state;
mod trial;
mod untold;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use profiler_common::measured::{MAX_INSTRUMENTATIONS, MeasuredKey, MeasuredRow};
use tracing::{info, warn};

use crate::kernel::{Calibration, FunctionProbes, Kernel, Pass, ProbeCosts};
use crate::processes::ids::ProcessKey;
use crate::processes::live::Processes;
use crate::profile::frames::{FrameTable, LiveFrames};
use crate::profile::measured as profile;
use crate::sys::clock::monotonic_ns;
use crate::sys::code_file::CodeFileIdentity;
use crate::units::{BootNs, FileOffset, MonoNs};

use super::callers::CallersOf;

pub use command::InstrumentationCommand;
use departed::{Departed, Moved};
use instrumentation::RunningInstrumentation;
pub use instrumentation::{End, InstrumentationError, InstrumentationState, Stage};
pub use plan::{MoreFunctions, Plan, PlannedFunction, PlannedPoint, RefusedFunction};
pub use state::{MeasuredFunction, MeasuredFunctions, MeasuringCounts};
use trial::Trial;
pub use untold::Untold;

/// Points that are attached at a time, over all processes and instrumentations.
const MAX_POINTS: usize = 4096;
/// Instrumentations that are kept, those that run included: of more, the one that ended first is
/// given up.
pub const MAX_KEPT: usize = 64;
/// Functions that one instrumentation refuses by name; of further ones nothing is kept.
const MAX_REFUSED: usize = 256;
/// Rows by function and process that are kept of threads that are gone, of all instrumentations;
/// further ones are added up by function ([`OTHERS`]). A row has about a kilobyte.
const MAX_ENDED_ROWS: usize = 8192;
/// Stands for processes that have no row of their own.
const OTHERS: ProcessKey = ProcessKey {
    pid: 0,
    start_ns: BootNs::ZERO,
};
/// Numbers of functions below this are used for calibration.
const FIRST_NUMBER: u32 = 16;
/// The least time over which the cost of probes is judged, nanoseconds.
const BUDGET_LOOK_NS: u64 = 190_000_000;

/// Where a function is entered: the file, bytes from its start.
type EntryPlace = (CodeFileIdentity, FileOffset);

/// One function, from its attachment on.
struct AttachedFunction {
    /// The number of its instrumentation.
    of: u32,
    plan: Arc<PlannedFunction>,
    entry: Option<EntryPlace>,
    attached_ns: MonoNs,
    gave_up: Option<String>,
    /// How long calls were not seen because others in the same links were given up, nanoseconds.
    unseen_ns: u64,
    /// When its probes were detached before the end, monotonic nanoseconds.
    detached_ns: Option<MonoNs>,
    /// As the profile keeps it, once it was told.
    profiled: Option<Arc<profile::ProbedFunction>>,
    /// Of threads that are gone.
    ended: HashMap<ProcessKey, MeasuredRow>,
    /// All was read of it: what goroutines tell of calls that were open then is no part of it.
    is_over: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Measuring {
    instrumentations: BTreeMap<u32, RunningInstrumentation>,
    functions: BTreeMap<u32, AttachedFunction>,
    /// Functions that are tried.
    trials: BTreeMap<u32, Trial>,
    last_id: u32,
    next_number: u32,
    calibration: Calibration,
    given_up: u64,
    /// Of threads that live, or of which nothing was read since they ended.
    living: HashMap<MeasuredKey, MeasuredRow>,
    /// Calls as the profile keeps them, and of whom they have changed since.
    counted: Arc<profile::Counted>,
    changed: HashSet<(u32, ProcessKey)>,
    /// When the cost was judged last, and the probes hit since, by process and function.
    looked_ns: MonoNs,
    spent: HashMap<(u32, u32), u64>,
    callers: CallersOf,
    /// As of the last pass.
    moved: Moved,
}

impl Measuring {
    /// Begins an instrumentation, and answers its number: it ends where that cannot be told.
    ///
    /// # Errors
    /// [`InstrumentationError`]; nothing is then attached.
    pub(super) fn start(
        &mut self,
        kernel: &mut Kernel,
        processes: &Processes,
        plan: Plan,
    ) -> Result<Untold, InstrumentationError> {
        FunctionProbes::supported()?;
        let mut pids = plan.whom.pids.iter();
        if let Some(pid) = pids.find(|pid| crate::sys::proc_fs::stat(**pid).is_none()) {
            return Err(InstrumentationError::NoProcess(*pid));
        }
        let running = self.running().map(|(_, one)| one.slot);
        let taken: HashSet<u8> = running.collect();
        let mut slots = 0..MAX_INSTRUMENTATIONS as u8;
        let slot = slots.find(|slot| !taken.contains(slot));
        let slot = slot.ok_or(InstrumentationError::TooMany(taken.len()))?;
        self.calibration
            .begin(&mut kernel.measured, &mut kernel.targets)?;
        self.make_room();
        self.last_id += 1;
        let id = self.last_id;
        let mut one = RunningInstrumentation::new(slot, &plan, monotonic_ns());
        let fate = one.fate.clone();
        let begun = one.begin(kernel, processes);
        self.instrumentations.insert(id, one);
        let more = MoreFunctions {
            functions: plan.functions,
            refused: plan.refused,
            items: plan.items,
            missing: plan.missing,
        };
        let begun = begun
            .map_err(InstrumentationError::from)
            .and_then(|()| self.add(kernel, id, more));
        if let Err(error) = begun {
            self.end(kernel, id, End::Asked);
            self.forget(id);
            return Err(error);
        }
        Ok(Untold::new(id, fate))
    }

    /// What probes cost, measured where that was not done of late; those of `goroutines` too.
    fn calibrated(
        &mut self,
        kernel: &mut Kernel,
        goroutines: bool,
    ) -> Result<ProbeCosts, InstrumentationError> {
        if goroutines {
            kernel.measured.follow_goroutines()?;
        }
        self.calibration
            .once(&mut kernel.measured, &mut kernel.targets)?;
        Ok(self.costs())
    }

    /// What probes cost, as far as it was measured.
    fn costs(&self) -> ProbeCosts {
        self.calibration.costs().unwrap_or_default()
    }

    /// What probes cost while each of them ran.
    fn costs_by_instrumentation(&self) -> BTreeMap<u64, ProbeCosts> {
        let now = self.costs();
        let all = self.instrumentations.iter();
        all.map(|(id, one)| (u64::from(*id), one.costs.unwrap_or(now)))
            .collect()
    }

    /// Ends what measures the cost of probes, once nothing is measured.
    fn end_calibration(&mut self, kernel: &mut Kernel) {
        if self.running().next().is_none()
            && let Err(error) = self
                .calibration
                .end(&mut kernel.measured, &mut kernel.targets)
        {
            warn!("the programs believe that the cost of probes is still measured: {error}");
        }
    }

    /// Attaches the probes of more functions.
    ///
    /// # Errors
    /// [`InstrumentationError`]; none of them is then attached.
    pub(super) fn add(
        &mut self,
        kernel: &mut Kernel,
        id: u32,
        more: MoreFunctions,
    ) -> Result<(), InstrumentationError> {
        let now_ns = monotonic_ns();
        let one = self.instrumentations.get_mut(&id);
        let one = one.filter(|one| one.runs());
        let one = one.ok_or(InstrumentationError::Over)?;
        let room = MAX_REFUSED.saturating_sub(one.refused.len());
        one.refused.extend(more.refused.into_iter().take(room));
        one.missing = more.missing;
        let is_trial = one.trial;
        let new = more.functions.iter().map(PlannedFunction::points);
        let places = more.items.iter().map(|item| item.places.len());
        let wanted = new.chain(places).sum::<usize>() + self.planned_points(id);
        if let Err(error) = point_limits::check_planned(wanted) {
            self.trouble(
                id,
                format!("functions of a new file are not measured: {error}"),
            );
            return Err(error.into());
        }
        if more.functions.iter().any(|plan| plan.goroutines) {
            kernel.measured.follow_goroutines()?;
            self.calibration
                .begin(&mut kernel.measured, &mut kernel.targets)?;
        }
        let mut numbers = Vec::new();
        self.next_number = self.next_number.max(FIRST_NUMBER);
        for plan in more.functions {
            let entry = entry_of(&plan);
            if let Some(other) = self.measured_by(entry) {
                self.refuse(id, &plan, other);
                continue;
            }
            let number = self.next_number;
            self.next_number += 1;
            numbers.push(number);
            let plan = Arc::new(plan);
            if is_trial {
                self.trials
                    .insert(number, Trial::new(id, plan, entry, now_ns));
            } else {
                self.functions
                    .insert(number, AttachedFunction::new(id, plan, entry, now_ns));
            }
        }
        let attached = self.attach_all(kernel, id, &numbers);
        if let Err(error) = attached {
            self.functions.retain(|number, _| !numbers.contains(number));
            self.trials.retain(|number, _| !numbers.contains(number));
            self.drop_probes(kernel, &numbers.into_iter().collect());
            self.trouble(
                id,
                format!("functions of a new file are not measured: {error}"),
            );
            return Err(error.into());
        }
        if let Some(one) = self.instrumentations.get_mut(&id) {
            let slot = one.slot;
            if let Err(error) = one.spanning.start(kernel, slot, more.items, now_ns) {
                one.trouble = Some(format!(
                    "USDT points and spans of a new file are not followed: {error}"
                ));
                return Err(error.into());
            }
        }
        if self.looked_ns == MonoNs::ZERO {
            self.looked_ns = now_ns;
        }
        Ok(())
    }

    /// Points of one that runs once its trials are over, those of USDT points and spans included.
    fn planned_points(&self, id: u32) -> usize {
        let measured = self.functions.values();
        let measured = measured.filter(|one| one.of == id && one.gave_up.is_none());
        let tried = self.trials.values().filter(|tried| tried.of == id);
        let plans = measured.map(|one| &one.plan);
        let plans = plans.chain(tried.map(|tried| &tried.plan));
        let places = self.instrumentations.get(&id);
        plans.map(|plan| plan.points()).sum::<usize>()
            + places.map_or(0, |one| one.spanning.places())
    }

    fn trouble(&mut self, id: u32, trouble: String) {
        if let Some(one) = self.instrumentations.get_mut(&id) {
            one.trouble = Some(trouble);
        }
    }

    /// A check in between passes: new processes get probes, what was tried is measured, what costs
    /// too much loses its probes, and so does everything whose time is over.
    pub(super) fn check(&mut self, kernel: &mut Kernel, processes: &Processes, now_ns: MonoNs) {
        self.end_lost(kernel);
        if !self.is_running() {
            return;
        }
        self.calibration.again(&mut kernel.measured, now_ns);
        self.follow(kernel, processes);
        for one in self.instrumentations.values_mut().filter(|one| one.runs()) {
            if let Some(trouble) = one.spanning.check(kernel, one.slot) {
                one.trouble = Some(trouble);
            }
        }
        self.end_trials(kernel, now_ns);
        if now_ns.saturating_since(self.looked_ns) >= BUDGET_LOOK_NS {
            self.read(kernel);
            for one in self.instrumentations.values_mut().filter(|one| one.runs()) {
                one.spanning.read(kernel);
            }
            self.keep_budgets(kernel, now_ns);
        }
        let over = self.running().filter_map(|(id, one)| {
            if one.until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
                Some((id, End::Time))
            } else if one.is_alone() {
                Some((id, End::NoProcess))
            } else if self.is_given_up(id) {
                Some((id, End::GivenUp))
            } else {
                None
            }
        });
        let over: Vec<(u32, End)> = over.collect();
        for (id, why) in over {
            self.end(kernel, id, why);
        }
    }

    /// Ends and forgets those whose number cannot be told any more.
    fn end_lost(&mut self, kernel: &mut Kernel) {
        let lost = self.running().filter(|(_, one)| one.fate.is_lost());
        for id in lost.map(|(id, _)| id).collect::<Vec<_>>() {
            info!("instrumentation {id} is ended: whoever asked for it left while it began");
            self.end(kernel, id, End::Asked);
            self.forget(id);
        }
    }

    /// Takes in what a pass has found.
    pub(super) fn pass(&mut self, kernel: &mut Kernel, pass: &Pass) {
        if !self.is_running() && self.living.is_empty() {
            // Nothing is kept of any thread: see `end`.
            self.moved.clear();
            return;
        }
        let departed = Departed::of(&pass.threads, &mut self.moved);
        for one in self.instrumentations.values_mut().filter(|one| one.runs()) {
            one.spanning.pass(kernel, one.slot, &departed);
        }
        if departed.any_gone() {
            kernel
                .spans
                .remove(|thread| departed.is_gone(thread), |_| false);
        }
        if !(self.functions.is_empty() && self.trials.is_empty()) {
            // Read after the threads: those that have exited have no more calls.
            self.read(kernel);
        }
        let is_over = |key: &MeasuredKey| departed.is_over(key);
        let over = self.living.extract_if(|key, _| is_over(key));
        let over: Vec<(MeasuredKey, MeasuredRow)> = over.collect();
        if over.is_empty() && !departed.any_gone() {
            return;
        }
        for (key, mut row) in over {
            let functions = &self.functions;
            let is_of_goroutines = |number| {
                let function: Option<&AttachedFunction> = functions.get(number);
                function.is_some_and(|function| function.plan.goroutines)
            };
            if !is_of_goroutines(&key.function) {
                // Nobody will see them end.
                let left = u64::from(std::mem::take(&mut row.open));
                if departed.has_executed(&key) {
                    row.left_exec += left;
                } else {
                    row.left_exit += left;
                }
            }
            self.keep_ended(&key, &row);
        }
        // In any case: what measured them may be forgotten by now.
        kernel
            .measured
            .remove(|thread| departed.is_gone(thread), is_over);
    }

    /// Ends an instrumentation that runs, whose rows are kept; forgets one that has ended. False if
    /// there is none.
    pub(super) fn end_or_forget(&mut self, kernel: &mut Kernel, id: u32) -> bool {
        if self.runs(id) {
            self.end(kernel, id, End::Asked);
        } else if self.instrumentations.contains_key(&id) {
            self.forget(id);
        } else {
            return false;
        }
        true
    }

    /// Whether there is one that runs.
    fn runs(&self, id: u32) -> bool {
        let one = self.instrumentations.get(&id);
        one.is_some_and(RunningInstrumentation::runs)
    }

    /// Detaches all of an instrumentation's probes.
    fn end(&mut self, kernel: &mut Kernel, id: u32, why: End) {
        self.read(kernel);
        let Some(one) = self.instrumentations.get_mut(&id) else {
            return;
        };
        one.ended = Some(why);
        one.until_ns = Some(monotonic_ns());
        one.processes.clear();
        one.spanning.end(kernel, one.slot);
        let Kernel {
            measured, targets, ..
        } = kernel;
        if let Err(error) = measured.detach(one.slot, targets) {
            warn!("the programs believe that functions are still measured: {error}");
        }
        // What was hit until then.
        self.read(kernel);
        let functions = self.functions.iter().filter(|(_, of)| of.of == id);
        let trials = self.trials.iter().filter(|(_, of)| of.of == id);
        let numbers = functions.map(|(number, _)| *number);
        let numbers = numbers.chain(trials.map(|(number, _)| *number));
        let numbers: HashSet<u32> = numbers.collect();
        self.trials.retain(|_, tried| tried.of != id);
        let last = self
            .living
            .extract_if(|key, _| numbers.contains(&key.function));
        for (key, row) in last.collect::<Vec<_>>() {
            self.keep_ended(&key, &row);
        }
        kernel
            .measured
            .remove(|_| false, |key| numbers.contains(&key.function));
        for function in self.functions.values_mut().filter(|one| one.of == id) {
            function.is_over = true;
        }
        if !self.is_running() {
            kernel.measured.remove_goroutines(|_| true);
        }
        self.end_calibration(kernel);
        if !self.is_running() {
            kernel.measured.forget_threads();
        }
        let costs = self.costs();
        if let Some(one) = self.instrumentations.get_mut(&id) {
            one.costs = Some(costs);
        }
    }

    /// Takes in who called, once the processes of a pass are known.
    pub(super) fn take_callers(
        &mut self,
        kernel: &mut Kernel,
        pass: &Pass,
        names: (&mut Processes, &mut FrameTable),
    ) {
        if self.next_number > 0 {
            let (functions, trials) = (&self.functions, &self.trials);
            let is_known = |number| functions.contains_key(&number) || trials.contains_key(&number);
            let measured = &mut kernel.measured;
            let gone = self.callers.pass(measured, pass, is_known, names);
            self.end_goroutines(kernel, &gone);
        }
    }

    /// Calls of goroutines end with their process, not with a thread.
    fn end_goroutines(&mut self, kernel: &mut Kernel, gone: &HashSet<ProcessKey>) {
        if gone.is_empty() {
            return;
        }
        kernel.measured.remove_goroutines(|goroutine| {
            gone.contains(&ProcessKey {
                pid: goroutine.pid,
                start_ns: BootNs::new(goroutine.process_start_boot_ns),
            })
        });
        let functions = self.functions.iter_mut();
        for (number, function) in functions.filter(|(_, function)| function.plan.goroutines) {
            for process in gone {
                if let Some(row) = function.ended.get_mut(process)
                    && row.open() > 0
                {
                    row.left_exit += u64::from(row.open());
                    row.open = 0;
                    self.changed.insert((*number, *process));
                }
            }
        }
    }

    /// Marks the frames of callers.
    pub(super) fn mark(&self, marks: &mut LiveFrames) {
        self.callers.mark(marks);
    }

    fn forget(&mut self, id: u32) {
        self.instrumentations.remove(&id);
        self.functions.retain(|_, function| function.of != id);
        let functions = &self.functions;
        Arc::make_mut(&mut self.counted).retain(|(number, _), _| functions.contains_key(number));
    }

    /// Forgets the instrumentation that ended first, where too many are kept.
    fn make_room(&mut self) {
        if self.instrumentations.len() < MAX_KEPT {
            return;
        }
        let ended = self.instrumentations.iter().filter(|(_, one)| !one.runs());
        if let Some(id) = ended.min_by_key(|(_, one)| one.until_ns).map(|(id, _)| *id) {
            self.forget(id);
        }
    }

    /// Is anything instrumented?
    pub(super) fn is_running(&self) -> bool {
        self.running().next().is_some()
    }

    fn running(&self) -> impl Iterator<Item = (u32, &RunningInstrumentation)> {
        let all = self.instrumentations.iter();
        all.filter(|(_, one)| one.runs())
            .map(|(id, one)| (*id, one))
    }

    /// The running instrumentation that has probes at this entry: two at one place would end each
    /// other's calls.
    fn measured_by(&self, entry: Option<EntryPlace>) -> Option<u32> {
        let (file, offset) = entry?;
        let runs = |of: u32| self.instrumentations.get(&of).is_some_and(|one| one.runs());
        let measured = self.functions.values();
        let measured = measured.filter(|function| function.gave_up.is_none());
        let measured = measured.map(|function| (function.entry, function.of));
        let tried = self.trials.values().map(|tried| (tried.entry, tried.of));
        let mut all = measured.chain(tried);
        let is_there = |other: Option<EntryPlace>| {
            other.is_some_and(|(other, at)| at == offset && other.is_same(&file))
        };
        all.find(|(other, of)| is_there(*other) && runs(*of))
            .map(|(_, of)| of)
    }

    fn refuse(&mut self, id: u32, plan: &PlannedFunction, other: u32) {
        if let Some(one) = self.instrumentations.get_mut(&id)
            && one.refused.len() < MAX_REFUSED
        {
            one.refused.push(RefusedFunction {
                name: plan.name.clone(),
                module: plan.module.to_string(),
                why: format!(
                    "instrumentation {other} measures it already: read its values there, or end that one first"
                ),
            });
        }
    }
}

impl AttachedFunction {
    fn new(of: u32, plan: Arc<PlannedFunction>, entry: Option<EntryPlace>, now_ns: MonoNs) -> Self {
        Self {
            of,
            plan,
            entry,
            attached_ns: now_ns,
            gave_up: None,
            unseen_ns: 0,
            detached_ns: None,
            profiled: None,
            ended: HashMap::new(),
            is_over: false,
        }
    }
}

fn entry_of(plan: &PlannedFunction) -> Option<EntryPlace> {
    Some((CodeFileIdentity::of(&plan.file).ok()?, plan.entry.offset))
}

fn process_of(key: &MeasuredKey) -> ProcessKey {
    ProcessKey {
        pid: key.thread.pid,
        start_ns: BootNs::new(key.process_start_boot_ns),
    }
}
