//! When system calls are traced one by one, so that what profiling costs stays within its budget.
//! Pure: time and costs are arguments.
//!
//! *All* are traced while that can be afforded. When it cannot, only *samples* are: at drawn
//! moments, as often as the budget allows, for a tenth of a second. What they show decides when all
//! can be traced again.
//!
//! What is spent beyond the budget is added up, and what is spent less than it is taken off again:
//! a moment's excess changes nothing, and over ten seconds no more than a tenth of the budget is
//! spent beyond it. Only what system calls cost counts: nothing is gained by not tracing them where
//! the rest alone is too much.

use fastrand::Rng;

use crate::processes::ids::ProcessKey;
use crate::units::MonoNs;

/// What may be spent beyond the budget before it is acted upon: so many nanoseconds of the budget
/// of one processor at work, and of a process as much less as it is at work for less.
const ALLOWANCE_NS: f64 = 1e9;
/// What system calls may always cost, as a share of one processor's time: less than a thousandth is
/// nobody's trouble.
const NEGLIGIBLE: f64 = 0.0005;
/// Of a process, no more of that than this part of its budget, which may be little more itself.
const NEGLIGIBLE_PART: f64 = 0.1;
/// And as a part of the budget: what the daemon takes to answer questions is not gained back by not
/// tracing them.
const CALLS_PART: f64 = 0.25;
/// A process that uses less of a processor has no budget of its own.
pub(super) const LEAST_USE: f64 = 0.05;
/// How long a sample of system calls takes: shorter where it is so dear that one alone would take
/// half of what ten seconds may.
const SAMPLE_NS: std::ops::RangeInclusive<f64> = 2e7..=1e8;
const SAMPLE_BUDGET_NS: f64 = 5e9;
/// The part of the budget that samples may take.
const SAMPLES_SHARE: f64 = 0.25;
/// The mean time between two samples.
const GAPS_NS: std::ops::RangeInclusive<f64> = 2e9..=60e9;
/// All are traced again if that would take no more than this part of the budget, at so many samples
/// in a row...
const CALM: f64 = 0.7;
const CALM_SAMPLES: u32 = 2;
/// ... twice as many each time that it did not last so long.
const LASTING_NS: u64 = 60_000_000_000;
const MAX_CALM_SAMPLES: u32 = 16;
/// Another load is met with a sample soon: when the processors are at work for less than this part
/// of what they were at the last.
const OTHER_LOAD: f64 = 0.5;
/// No sample begins while samples have taken so much more than their part of the budget: half as
/// much as one of them may take. A load that comes and goes would be met by a sample soon each time
/// that it has gone.
const SAMPLES_DEBT_NS: f64 = 1.5 * SAMPLE_BUDGET_NS;
/// What a process has spent beyond its budget is kept for so long while it is hardly at work.
pub(super) const PROCESS_KEPT_NS: u64 = 60_000_000_000;

/// What profiling may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// As a share of the time in which processors are at work.
    pub machine: f64,
    /// As a share of the running time of any process.
    pub process: f64,
}

/// What was spent in a while.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BudgetSpent {
    /// How long the while was, nanoseconds.
    pub(super) past_ns: f64,
    /// How long processors were at work in it, all together.
    pub(super) busy_ns: f64,
    /// What profiling cost, of system calls and in all.
    pub(super) calls_ns: f64,
    pub(super) all_ns: f64,
}

/// What profiling one process cost in a while, and how long it ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProcessSpent {
    pub(super) process: ProcessKey,
    pub(super) running_ns: f64,
    pub(super) calls_ns: f64,
    pub(super) all_ns: f64,
}

/// Which system calls are traced now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracing {
    /// All.
    All,
    /// Those of a sample, which is under way or not.
    Sampled {
        /// A sample is under way.
        now: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum BudgetState {
    All {
        since_ns: MonoNs,
    },
    /// The next sample begins then.
    Between {
        until_ns: MonoNs,
    },
    /// A sample, and what was spent in it.
    Sample {
        until_ns: MonoNs,
        spent: BudgetSpent,
    },
}

/// What profiling a process has cost beyond its budget.
#[derive(Clone, Copy, Debug)]
struct ProcessExcess {
    process: ProcessKey,
    excess_ns: f64,
    /// How much of that changes nothing: as much as its budget gained in a second of late.
    allowance_ns: f64,
    /// When it was last at work.
    busy_ns: MonoNs,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Controller {
    budget: Budget,
    random: Rng,
    state: BudgetState,
    /// What was spent beyond the budget of the machine, nanoseconds.
    excess_ns: f64,
    /// The same of each process that did.
    processes: Vec<ProcessExcess>,
    /// What samples have taken beyond their part of the budget, nanoseconds.
    samples_ns: f64,
    /// What it took to attach the hooks for the last sample and to detach them, nanoseconds: more
    /// the more threads there are.
    switching_ns: f64,
    /// What tracing all would take, as a share: of the machine's work, of the process for which it
    /// is most. As of the last that is known.
    wanted: [f64; 2],
    /// How much of a processor was at work at the last sample.
    load: f64,
    /// Samples in a row at which all could have been traced, and how many are asked for.
    calm: u32,
    calm_wanted: u32,
    /// A sample is over, and what each process spent in it is not known yet.
    awaits_processes: bool,
}

impl Controller {
    /// All are traced at `now_ns`.
    pub(super) const fn new(budget: Budget, random: Rng, now_ns: MonoNs) -> Self {
        Self {
            budget,
            random,
            state: BudgetState::All { since_ns: now_ns },
            excess_ns: 0.0,
            processes: Vec::new(),
            samples_ns: 0.0,
            switching_ns: 0.0,
            wanted: [0.0; 2],
            load: 0.0,
            calm: 0,
            calm_wanted: CALM_SAMPLES,
            awaits_processes: false,
        }
    }

    pub(super) const fn tracing(&self) -> Tracing {
        match self.state {
            BudgetState::All { .. } => Tracing::All,
            BudgetState::Between { .. } => Tracing::Sampled { now: false },
            BudgetState::Sample { .. } => Tracing::Sampled { now: true },
        }
    }

    /// What has been spent since the last step.
    pub(super) fn step(&mut self, now_ns: MonoNs, spent: &BudgetSpent) {
        let sampled_ns = match self.state {
            BudgetState::Sample { .. } => spent.calls_ns,
            BudgetState::All { .. } | BudgetState::Between { .. } => 0.0,
        };
        let allowed_ns = self.allowed(spent.busy_ns, spent.past_ns);
        let part_ns = SAMPLES_SHARE * allowed_ns;
        self.samples_ns = (self.samples_ns + sampled_ns - part_ns).max(0.0);
        match &mut self.state {
            BudgetState::All { .. } => {
                let over_ns = spent.all_ns - self.budget.machine * spent.busy_ns;
                let calls_ns = spent.calls_ns - CALLS_PART * self.budget.machine * spent.busy_ns;
                let over_ns = over_ns.min(calls_ns) - NEGLIGIBLE * spent.past_ns;
                self.excess_ns = (self.excess_ns + over_ns).max(0.0);
                if spent.busy_ns > 0.0 {
                    let share = spent.calls_ns / spent.busy_ns;
                    self.wanted[0] = self.wanted[0].mul_add(0.8, share * 0.2);
                    self.load = spent.busy_ns / spent.past_ns.max(1.0);
                }
                if self.excess_ns > self.budget.machine * ALLOWANCE_NS {
                    self.wanted[0] = self.wanted[0].max(spent.calls_ns / spent.busy_ns.max(1.0));
                    self.stop(now_ns);
                }
            }
            BudgetState::Between { until_ns } => {
                let load = spent.busy_ns / spent.past_ns.max(1.0);
                let is_in_debt = self.samples_ns > self.budget.machine * SAMPLES_DEBT_NS;
                if load < OTHER_LOAD * self.load && !is_in_debt {
                    // At once would not be a drawn moment.
                    self.load = load;
                    let soon_ns = now_ns + self.random.u64(0..*GAPS_NS.start() as u64);
                    *until_ns = (*until_ns).min(soon_ns);
                }
                if now_ns >= *until_ns && is_in_debt {
                    *until_ns = now_ns + self.random.u64(0..*GAPS_NS.start() as u64);
                } else if now_ns >= *until_ns && !self.awaits_processes {
                    let sample_ns = SAMPLE_BUDGET_NS / self.dearness().max(1e-9);
                    let sample_ns = sample_ns.clamp(*SAMPLE_NS.start(), *SAMPLE_NS.end());
                    self.state = BudgetState::Sample {
                        until_ns: now_ns + sample_ns as u64,
                        spent: BudgetSpent::default(),
                    };
                }
            }
            BudgetState::Sample {
                until_ns,
                spent: sampled,
            } => {
                sampled.past_ns += spent.past_ns;
                sampled.busy_ns += spent.busy_ns;
                sampled.calls_ns += spent.calls_ns;
                sampled.all_ns += spent.all_ns;
                if now_ns >= *until_ns {
                    let sampled = *sampled;
                    self.end_sample(now_ns, &sampled);
                }
            }
        }
    }

    /// What system calls may cost while processors are at work for so long in so long a time.
    fn allowed(&self, busy_ns: f64, past_ns: f64) -> f64 {
        NEGLIGIBLE.mul_add(past_ns, self.budget.machine * busy_ns)
    }

    /// Calls have begun to be traced as [`Self::tracing`] says, or ended to be, which took so long.
    pub(super) fn switched(&mut self, took_ns: f64) {
        self.samples_ns += took_ns;
        self.switching_ns = match self.state {
            BudgetState::Sample { .. } => took_ns,
            BudgetState::All { .. } | BudgetState::Between { .. } => self.switching_ns + took_ns,
        };
    }

    /// What profiling each process has cost since the last pass, which was `past_ns` ago; calls
    /// were traced for `traced_ns` of it.
    pub(super) fn pass(
        &mut self,
        now_ns: MonoNs,
        past_ns: f64,
        traced_ns: f64,
        spent: impl Iterator<Item = ProcessSpent>,
    ) {
        let busy = spent.filter(|of| of.running_ns >= LEAST_USE * past_ns);
        let traced = (traced_ns / past_ns.max(1.0)).clamp(0.0, 1.0);
        let mut before = std::mem::take(&mut self.processes);
        let mut worst: f64 = 0.0;
        let mut is_calm = true;
        for of in busy {
            let allowed_ns = self.budget.process * of.running_ns;
            let over_ns = (of.all_ns - allowed_ns).min(of.calls_ns - CALLS_PART * allowed_ns)
                - (NEGLIGIBLE * past_ns).min(NEGLIGIBLE_PART * allowed_ns);
            let had = before.iter().position(|had| had.process == of.process);
            let had_ns = had.map_or(0.0, |had| before.swap_remove(had).excess_ns);
            let excess_ns = (had_ns + over_ns).max(0.0);
            if excess_ns > 0.0 {
                let use_now = of.running_ns / past_ns.max(1.0);
                self.processes.push(ProcessExcess {
                    process: of.process,
                    excess_ns,
                    allowance_ns: self.budget.process * ALLOWANCE_NS * use_now.min(1.0),
                    busy_ns: now_ns,
                });
            }
            if traced > 0.0 {
                let calls = of.calls_ns / (of.running_ns * traced);
                let others = (of.all_ns - of.calls_ns) / of.running_ns;
                worst = worst.max(calls);
                // What others take is not gained by tracing none.
                is_calm &= calls + others <= CALM * self.budget.process
                    || calls <= CALM * CALLS_PART * self.budget.process
                    || calls * of.running_ns <= NEGLIGIBLE * past_ns;
            }
        }
        before.retain(|had| now_ns.saturating_since(had.busy_ns) <= PROCESS_KEPT_NS);
        self.processes.append(&mut before);
        if traced > 0.0 {
            self.wanted[1] = worst;
        }
        if self.awaits_processes {
            self.awaits_processes = false;
            if !is_calm {
                self.calm = 0;
            }
            self.after_sample(now_ns);
            return;
        }
        let mut processes = self.processes.iter();
        if matches!(self.state, BudgetState::All { .. })
            && processes.any(|of| of.excess_ns > of.allowance_ns)
        {
            self.stop(now_ns);
        }
    }

    /// Only samples are traced from now on.
    fn stop(&mut self, now_ns: MonoNs) {
        if let BudgetState::All { since_ns } = self.state {
            let lasted = now_ns.saturating_since(since_ns) >= LASTING_NS;
            self.calm_wanted = if lasted {
                CALM_SAMPLES
            } else {
                (2 * self.calm_wanted).min(MAX_CALM_SAMPLES)
            };
        }
        self.calm = 0;
        self.excess_ns = 0.0;
        self.switching_ns = 0.0;
        self.processes.clear();
        self.wait(now_ns);
    }

    fn end_sample(&mut self, now_ns: MonoNs, sampled: &BudgetSpent) {
        let busy_ns = sampled.busy_ns.max(1.0);
        let calls = sampled.calls_ns / busy_ns;
        self.wanted[0] = calls;
        self.load = sampled.busy_ns / sampled.past_ns.max(1.0);
        let is_calm = sampled.all_ns / busy_ns <= CALM * self.budget.machine
            || calls <= CALM * CALLS_PART * self.budget.machine
            || sampled.calls_ns <= NEGLIGIBLE * sampled.past_ns;
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        self.awaits_processes = true;
        self.wait(now_ns);
    }

    /// The sample is judged: all are traced again, or others follow.
    fn after_sample(&mut self, now_ns: MonoNs) {
        if self.calm >= self.calm_wanted {
            self.state = BudgetState::All { since_ns: now_ns };
            self.excess_ns = 0.0;
            self.processes.clear();
        } else {
            self.wait(now_ns);
        }
    }

    /// How many times the budget tracing all would take.
    fn dearness(&self) -> f64 {
        let [machine, process] = self.wanted;
        (machine / self.budget.machine).max(process / self.budget.process)
    }

    /// When the sample that is under way is to end.
    pub(super) const fn sample_ends_ns(&self) -> Option<MonoNs> {
        match self.state {
            BudgetState::Sample { until_ns, .. } => Some(until_ns),
            _ => None,
        }
    }

    /// Draws when the next sample is: where one is dear they are rare.
    fn wait(&mut self, now_ns: MonoNs) {
        let sample_ns = SAMPLE_NS.end() * self.dearness();
        // So long it takes until as much may be spent.
        let switching_ns = self.switching_ns / self.allowed(self.load, 1.0);
        let mean_ns =
            ((sample_ns + switching_ns) / SAMPLES_SHARE).clamp(*GAPS_NS.start(), *GAPS_NS.end());
        // Few are asked for, and all of them cheap: they need not take minutes.
        let mean_ns = if self.calm > 0 {
            *GAPS_NS.start()
        } else {
            mean_ns
        };
        let gap_ns = mean_ns * (0.5 + self.random.f64());
        self.state = BudgetState::Between {
            until_ns: now_ns + gap_ns as u64,
        };
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
