//! Functions that are measured exactly: their probes, within a budget, and what was counted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::sync::Arc;

use profiler_common::Phase;
use profiler_common::measured::{Cookie, MeasuredKey, MeasuredRow, probe_kind};
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
}

/// See the module.
#[derive(Default)]
pub(super) struct Measuring {
    functions: BTreeMap<u32, Function>,
    next_number: u32,
    costs: Option<ProbeCosts>,
    budget: f64,
    /// Processes whose memory has probes of its own.
    in_processes: HashSet<u32>,
    /// Of threads that live, or of which nothing was read since they ended.
    living: HashMap<MeasuredKey, MeasuredRow>,
    /// When the cost was looked at last, and the probes hit since, by process and function.
    looked_ns: u64,
    spent: HashMap<(u32, u32), u64>,
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
        let mut numbers = Vec::new();
        for function in plan.functions {
            numbers.push(self.next_number);
            let function = Function {
                plan: Arc::new(function),
                attached_ns: now_ns,
                gave_up: None,
                ended: HashMap::new(),
            };
            self.functions.insert(self.next_number, function);
            self.next_number += 1;
        }
        let attached = self.attach(measured, &numbers, &plan.pids);
        if attached.is_err() {
            self.functions.retain(|number, _| !numbers.contains(number));
        }
        self.in_processes.extend(&plan.pids);
        attached
    }

    /// A look in between: children that share a file with others get probes, and what costs too
    /// much loses them.
    pub(super) fn look(&mut self, kernel: &mut Kernel, now_ns: u64) {
        if self.functions.is_empty() {
            return;
        }
        self.follow_children(kernel);
        if self.budget > 0.0 && now_ns.saturating_sub(self.looked_ns) >= BUDGET_LOOK_NS {
            self.read(kernel);
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
        self.read(kernel);
        if exited.is_empty() {
            return;
        }
        let is_gone = |tid: u32, start: u64| exited.contains(&(tid, start));
        let gone = self
            .living
            .extract_if(|key, _| is_gone(key.thread.tid, key.thread.start_boot_ns));
        for (key, mut row) in gone {
            // Nobody will see them end.
            row.left_exit += u64::from(std::mem::take(&mut row.open));
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
        let new: Vec<u32> = pids.difference(&self.in_processes).copied().collect();
        if !new.is_empty() {
            let shared = self.functions.iter();
            let shared = shared.filter(|(_, one)| one.plan.shared && one.gave_up.is_none());
            let numbers: Vec<u32> = shared.map(|(number, _)| *number).collect();
            if let Err(error) = self.attach(&mut kernel.measured, &numbers, &new) {
                warn!("functions are not measured in processes {new:?}: {error}");
            }
        }
        for pid in self.in_processes.difference(&pids) {
            kernel.measured.detach_process(*pid);
        }
        self.in_processes = pids;
    }

    /// Attaches the probes of these functions: in all memory that has their file, or in that of
    /// these processes.
    fn attach(
        &self,
        measured: &mut Measured,
        numbers: &[u32],
        pids: &[u32],
    ) -> Result<(), MeasureError> {
        if pids.is_empty() {
            return Ok(());
        }
        let functions = numbers.iter().filter_map(|number| {
            let function = self.functions.get(number)?;
            Some((*number, &*function.plan))
        });
        let functions: Vec<(u32, &PlannedFunction)> = functions.collect();
        for of_file in functions.chunk_by(|(_, a), (_, b)| Arc::ptr_eq(&a.file, &b.file)) {
            let points = of_file
                .iter()
                .flat_map(|(number, plan)| points_of(*number, plan));
            let points: Vec<ProbePoint> = points.collect();
            let plan = of_file[0].1;
            let places: Vec<Option<u32>> = if plan.shared && Measured::tells_processes() {
                pids.iter().copied().map(Some).collect()
            } else {
                vec![None]
            };
            let wanted = measured.points() + points.len() * places.len();
            if wanted > MAX_POINTS {
                return Err(MeasureError::TooMany {
                    wanted,
                    most: MAX_POINTS,
                });
            }
            for pid in places {
                match measured.attach(&plan.file, &plan.module, &points, pid) {
                    // It has exited meanwhile.
                    Err(error) if error.is_no_process() && pid.is_some() => {}
                    attached => attached?,
                }
            }
        }
        Ok(())
    }

    /// Reads what was counted, and adds to what the probes have cost since the budget was looked
    /// at: also those of calls that are only counted, or have no end, and of threads that are gone
    /// since.
    fn read(&mut self, kernel: &Kernel) {
        for (key, row) in kernel.measured.rows() {
            let hits = |row: &MeasuredRow| row.calls + row.exits_unmatched;
            let before = self.living.insert(key, row);
            let more = hits(&row).saturating_sub(before.as_ref().map_or(0, hits));
            if more > 0 {
                *self
                    .spent
                    .entry((key.thread.pid, key.function))
                    .or_default() += more;
            }
        }
    }

    /// Where probes take more of a process than they may, the costliest function loses its own.
    fn keep_budget(&mut self, kernel: &mut Kernel, now_ns: u64) {
        let took_ns = now_ns.saturating_sub(self.looked_ns) as f64;
        self.looked_ns = now_ns;
        let costs = self.costs.unwrap_or_default();
        let mut processes: HashMap<u32, Spent> = HashMap::new();
        for ((pid, number), hits) in self.spent.drain() {
            let Some(function) = self.functions.get(&number) else {
                continue;
            };
            let cost = costs[dearest_kind(&function.plan)];
            let cost_ns = hits as f64 * (cost.inside_ns + cost.outside_ns);
            let process = processes.entry(pid).or_default();
            process.all_ns += cost_ns;
            if cost_ns > process.most_ns {
                process.most_ns = cost_ns;
                process.function = number;
                process.calls = hits;
            }
        }
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
                let module = Arc::clone(&function.plan.module);
                if let Err(error) = kernel.measured.detach_function(&module, number) {
                    warn!(
                        "functions beside {} are not measured any more: {error}",
                        function.plan.name
                    );
                }
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

/// The kind of the function's calls that costs most.
fn dearest_kind(plan: &PlannedFunction) -> usize {
    let kinds = points_of(1, plan).into_iter();
    let kinds = kinds.filter(|point| point.cookie.exit || point.cookie.counted_only);
    // Without exits its calls never end, and cost what counting them does.
    kinds
        .map(|point| probe_kind(point.cookie))
        .max()
        .unwrap_or(usize::from(plan.entry.stepped))
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
