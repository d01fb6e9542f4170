//! Functions that are measured exactly: their probes, within a budget, and what was counted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::sync::Arc;

use profiler_common::Phase;
use profiler_common::measured::{Cookie, MeasuredKey, MeasuredRow, PROBE_KINDS};
use tracing::warn;

use crate::kernel::{Kernel, MeasureError, Measured, Pass, ProbeCosts, ProbePoint};
use crate::processes::ids::ProcessKey;
use crate::sys::clock::monotonic_ns;

/// Points that are attached at a time, over all processes.
pub(super) const MAX_POINTS: usize = 4096;
/// Numbers of functions below this are used for calibration.
const FIRST_NUMBER: u32 = 16;
/// The least time over which the cost of probes is looked at, nanoseconds.
const BUDGET_LOOK_NS: u64 = 190_000_000;
/// The number of the only instrumentation there is at a time.
const INSTRUMENTATION: u8 = 0;

/// A place to be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedPoint {
    /// Where, from the start of the file, bytes.
    pub offset: u64,
    /// Whether the kernel executes the instruction out of its line.
    pub stepped: bool,
}

/// A function to be measured.
#[derive(Clone, Debug)]
pub struct PlannedFunction {
    /// Its name.
    pub name: String,
    /// Other names of the same code.
    pub aliases: Vec<String>,
    /// The file's path.
    pub module: Arc<str>,
    /// The file.
    pub file: Arc<File>,
    /// Whether probes are in the memory of measured processes alone: the file is others' too.
    pub shared: bool,
    /// Where it is entered.
    pub entry: PlannedPoint,
    /// Where it is left; or why its calls are counted only.
    pub exits: Result<Vec<PlannedPoint>, String>,
}

/// What is to be measured, of whom.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The processes.
    pub pids: Vec<u32>,
    /// Whether those that they make are measured too.
    pub children: bool,
    /// The functions.
    pub functions: Vec<PlannedFunction>,
    /// How much of one processor the probes may take from a process; 0 = any.
    pub budget: f64,
}

/// A measured function, with its calls.
#[derive(Clone, Debug)]
pub struct MeasuredFunction {
    /// What was planned.
    pub plan: Arc<PlannedFunction>,
    /// When its probes were attached, monotonic nanoseconds.
    pub attached_ns: u64,
    /// Why its probes were detached before the end.
    pub gave_up: Option<String>,
    /// Its calls by process.
    pub calls: BTreeMap<ProcessKey, MeasuredRow>,
}

/// All that is measured.
#[derive(Clone, Debug, Default)]
pub struct MeasuredFunctions {
    /// The functions, in the order in which they were asked for.
    pub functions: Vec<MeasuredFunction>,
    /// What probes cost.
    pub costs: ProbeCosts,
    /// Points that are attached.
    pub points: usize,
}

/// One function, from its attachment on.
struct Function {
    plan: Arc<PlannedFunction>,
    attached_ns: u64,
    gave_up: Option<String>,
    /// Of threads that are gone.
    ended: HashMap<ProcessKey, MeasuredRow>,
    /// Processes whose memory has probes of its own.
    in_processes: HashSet<u32>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Measuring {
    functions: BTreeMap<u32, Function>,
    next_number: u32,
    costs: Option<ProbeCosts>,
    budget: f64,
    /// Of threads that live, or of which nothing was read since they ended.
    living: HashMap<MeasuredKey, MeasuredRow>,
    /// When the cost was looked at last, and the probes by process and function until then.
    looked_ns: u64,
    spent: HashMap<(u32, u32), [u64; PROBE_KINDS]>,
}

impl Measuring {
    /// Attaches the probes of more functions.
    ///
    /// # Errors
    /// [`MeasureError`]; functions before the one that is refused are then measured.
    pub(super) fn start(&mut self, kernel: &mut Kernel, plan: Plan) -> Result<(), MeasureError> {
        Measured::supported()?;
        let now_ns = monotonic_ns();
        let Kernel {
            measured, targets, ..
        } = kernel;
        if self.costs.is_none() {
            self.costs = Some(measured.calibrate(targets)?);
        }
        measured.choose(INSTRUMENTATION, Some(&plan.pids), plan.children, targets)?;
        self.budget = plan.budget;
        self.looked_ns = now_ns;
        self.next_number = self.next_number.max(FIRST_NUMBER);
        for function in plan.functions {
            let number = self.next_number;
            self.next_number += 1;
            let mut function = Function {
                plan: Arc::new(function),
                attached_ns: now_ns,
                gave_up: None,
                ended: HashMap::new(),
                in_processes: HashSet::new(),
            };
            attach(measured, number, &mut function, &plan.pids)?;
            self.functions.insert(number, function);
        }
        Ok(())
    }

    /// A look in between: children that share a file with others get probes, and what costs too
    /// much loses them.
    pub(super) fn look(&mut self, kernel: &mut Kernel, now_ns: u64) {
        if self.functions.is_empty() {
            return;
        }
        self.follow_children(kernel);
        if self.budget > 0.0 && now_ns.saturating_sub(self.looked_ns) >= BUDGET_LOOK_NS {
            self.living = kernel.measured.rows().into_iter().collect();
            self.keep_budget(kernel, now_ns);
        }
    }

    /// Takes in what a pass has found.
    pub(super) fn pass(&mut self, kernel: &mut Kernel, pass: &Pass) {
        if self.functions.is_empty() {
            return;
        }
        let exited = pass.threads.iter();
        let exited: HashSet<(u32, u64)> = exited
            .filter(|thread| thread.phase == Phase::Exited)
            .map(|thread| (thread.tid, thread.start_boot_ns))
            .collect();
        // Read after the threads: those that have exited have no more calls.
        let rows: HashMap<MeasuredKey, MeasuredRow> = kernel.measured.rows().into_iter().collect();
        for (key, row) in self.living.extract_if(|key, _| !rows.contains_key(key)) {
            // Gone from the map without having been seen to exit: nothing does that.
            warn!(
                "calls of thread {} were lost: {:?}",
                key.thread.tid, row.calls
            );
        }
        self.living = rows;
        if exited.is_empty() {
            return;
        }
        let is_gone = |tid: u32, start: u64| exited.contains(&(tid, start));
        let gone = self
            .living
            .extract_if(|key, _| is_gone(key.thread.tid, key.thread.start_boot_ns));
        for (key, row) in gone {
            if let Some(function) = self.functions.get_mut(&key.function) {
                let ended = function.ended.entry(process_of(&key));
                ended.or_insert(MeasuredRow::EMPTY).merge(&row);
            }
        }
        kernel.measured.remove(
            |thread| is_gone(thread.tid, thread.start_boot_ns),
            |_| false,
        );
    }

    /// What was counted up to the last pass.
    pub(super) fn state(&self, kernel: &Kernel) -> MeasuredFunctions {
        let mut functions: BTreeMap<u32, MeasuredFunction> = self
            .functions
            .iter()
            .map(|(number, function)| {
                let calls = function.ended.iter().map(|(key, row)| (*key, *row));
                let function = MeasuredFunction {
                    plan: Arc::clone(&function.plan),
                    attached_ns: function.attached_ns,
                    gave_up: function.gave_up.clone(),
                    calls: calls.collect(),
                };
                (*number, function)
            })
            .collect();
        for (key, row) in &self.living {
            if let Some(function) = functions.get_mut(&key.function) {
                let calls = function.calls.entry(process_of(key));
                calls.or_insert(MeasuredRow::EMPTY).merge(row);
            }
        }
        MeasuredFunctions {
            functions: functions.into_values().collect(),
            costs: self.costs.unwrap_or_default(),
            points: kernel.measured.points(),
        }
    }

    /// Processes that have come, or gone, whose memory has probes of its own.
    fn follow_children(&mut self, kernel: &mut Kernel) {
        if !self.functions.values().any(|one| one.plan.shared) || !Measured::tells_processes() {
            return;
        }
        let pids: HashSet<u32> = kernel
            .measured
            .processes(INSTRUMENTATION)
            .into_iter()
            .collect();
        for (number, function) in &mut self.functions {
            if !function.plan.shared || function.gave_up.is_some() {
                continue;
            }
            let new: Vec<u32> = pids.difference(&function.in_processes).copied().collect();
            if let Err(error) = attach(&mut kernel.measured, *number, function, &new) {
                let why = format!("a process that was made could not be probed: {error}");
                warn!("{}: {why}", function.plan.name);
                function.gave_up = Some(why);
            }
            let gone = function.in_processes.extract_if(|pid| !pids.contains(pid));
            for pid in gone {
                kernel.measured.detach_process(pid);
            }
        }
    }

    /// Where probes take more of a process than they may, the costliest function loses its own.
    fn keep_budget(&mut self, kernel: &mut Kernel, now_ns: u64) {
        let took_ns = now_ns.saturating_sub(self.looked_ns) as f64;
        self.looked_ns = now_ns;
        let mut spent: HashMap<(u32, u32), [u64; PROBE_KINDS]> = HashMap::new();
        for (key, row) in &self.living {
            let probes = spent.entry((key.thread.pid, key.function)).or_default();
            for (sum, probes) in probes.iter_mut().zip(row.probes_own) {
                *sum += probes;
            }
        }
        let costs = self.costs.unwrap_or_default();
        let mut processes: HashMap<u32, Spent> = HashMap::new();
        for ((pid, function), probes) in &spent {
            let before = self
                .spent
                .get(&(*pid, *function))
                .copied()
                .unwrap_or_default();
            let (mut cost_ns, mut calls) = (0.0, 0);
            for kind in 0..PROBE_KINDS {
                let hits = probes[kind].saturating_sub(before[kind]);
                cost_ns += hits as f64 * (costs[kind].inside_ns + costs[kind].outside_ns);
                calls += hits;
            }
            let process = processes.entry(*pid).or_default();
            process.all_ns += cost_ns;
            if cost_ns > process.most_ns {
                process.most_ns = cost_ns;
                process.function = *function;
                process.calls = calls;
            }
        }
        self.spent = spent;
        for (pid, spent) in processes {
            let share = spent.all_ns / took_ns;
            if share <= self.budget {
                continue;
            }
            let number = spent.function;
            let Some(function) = self.functions.get_mut(&number) else {
                continue;
            };
            if function.gave_up.is_none() {
                kernel.measured.detach_function(number);
                function.gave_up = Some(format!(
                    "given up: {:.0} calls a second in process {pid} cost {:.1} % of a processor, and all probes there {:.1} % of {:.1} % that they may take",
                    spent.calls as f64 / took_ns * 1e9,
                    100.0 * spent.most_ns / took_ns,
                    100.0 * share,
                    100.0 * self.budget,
                ));
            }
        }
    }
}

/// What probes have taken of a process.
#[derive(Default)]
struct Spent {
    all_ns: f64,
    /// The costliest function: its number, what its probes took, and its calls.
    function: u32,
    most_ns: f64,
    calls: u64,
}

/// Attaches the probes of a function: in all memory that has the file, or in that of these
/// processes.
fn attach(
    measured: &mut Measured,
    number: u32,
    function: &mut Function,
    pids: &[u32],
) -> Result<(), MeasureError> {
    let plan = Arc::clone(&function.plan);
    let points = points_of(number, &plan);
    let one_by_one = plan.shared && Measured::tells_processes();
    let places: Vec<Option<u32>> = if one_by_one {
        pids.iter().copied().map(Some).collect()
    } else if pids.is_empty() {
        Vec::new()
    } else {
        vec![None]
    };
    for pid in places {
        let wanted = measured.points() + points.len();
        if wanted > MAX_POINTS {
            return Err(MeasureError::TooMany {
                wanted,
                most: MAX_POINTS,
            });
        }
        match measured.attach(&plan.file, &plan.module, &points, pid) {
            // It has exited meanwhile.
            Err(error) if error.is_no_process() && pid.is_some() => {}
            attached => attached?,
        }
        function.in_processes.extend(pid);
    }
    Ok(())
}

fn points_of(number: u32, plan: &PlannedFunction) -> Vec<ProbePoint> {
    let entry = Cookie {
        function: number,
        instrumentation: INSTRUMENTATION,
        exit: false,
        stepped: plan.entry.stepped,
        entry_stepped: plan.entry.stepped,
        counted_only: plan.exits.is_err(),
    };
    let exits = plan.exits.iter().flatten().map(|exit| ProbePoint {
        offset: exit.offset,
        cookie: Cookie {
            exit: true,
            stepped: exit.stepped,
            ..entry
        },
    });
    let entry = ProbePoint {
        offset: plan.entry.offset,
        cookie: entry,
    };
    std::iter::once(entry).chain(exits).collect()
}

fn process_of(key: &MeasuredKey) -> ProcessKey {
    ProcessKey {
        pid: key.thread.pid,
        start_ns: key.process_start_boot_ns,
    }
}
