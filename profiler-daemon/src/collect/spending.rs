//! Adds up what profiling costs, by thread and in all, and keeps it within the budget: has system
//! calls traced, or not.

use std::collections::{BTreeMap, HashMap, VecDeque};

use fastrand::Rng;
use profiler_common::Phase;
use profiler_common::limits::UNTRACED_CALL;
use tracing::{debug, info, warn};

use crate::kernel::{
    CallTracing, Costs, Counts, Kernel, Pass, ProgramStats, ThreadSnapshot, TracedSystemCalls, Work,
};
use crate::processes::ids::{ProcessKey, ThreadKey};
use crate::processes::live::Processes;
use crate::profile::input::ThreadUpdate;
use crate::sys::clock::{process_ns, thread_ns};
use crate::units::MonoNs;

use super::budget::{Budget, BudgetSpent, Controller, ProcessSpent, Tracing};
use super::cost::{CostEstimate, CostStep, EstimatedCost};
use super::prices::Prices;
use super::process_walks::ProcessWalkPolicy;
use super::walk_parts::{WalkPolicy, WalkTimes};

/// The time that is told as what profiling costs of late.
const LATE_NS: u64 = 10_000_000_000;

/// How what profiling costs is kept within its budget.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpendingState {
    /// What it may cost; `None`: anything.
    pub budget: Option<Budget>,
    /// Which system calls are traced; `None`: the settings alone say it.
    pub tracing: Option<Tracing>,
    /// Times that tracing of all gave way to samples, and came back.
    pub gave_way: u64,
    /// See there.
    pub came_back: u64,
    /// Samples of system calls so far.
    pub looks: u64,
    /// How long calls were not traced so far, nanoseconds.
    pub untraced_ns: u64,
    /// What each kind of event costs.
    pub prices: Prices,
    /// What kernel programs and hooks have cost so far, nanoseconds.
    pub programs_ns: u64,
    /// Of what programs cost, walks.
    pub walks_ns: u64,
    /// What walks may cost now, those of ticks too, as a share of the time in which processors are
    /// at work; `None`: anything.
    pub walks_budget: Option<f64>,
    /// What profiling has cost over the last ten seconds, this process too, as a share of the time
    /// in which processors were at work; `None` in the first second.
    pub late_share: Option<f64>,
}

impl SpendingState {
    /// Are only samples of system calls traced?
    #[must_use]
    pub const fn only_samples(&self) -> bool {
        matches!(self.tracing, Some(Tracing::Sampled { .. }))
    }

    /// What profiling may cost of the time in which processors are at work, where that is bounded.
    #[must_use]
    pub fn machine_budget(&self) -> Option<f64> {
        let share = self.budget.map(|budget| budget.machine);
        share.filter(|share| *share <= 1.0)
    }

    /// The same of the running time of a process.
    #[must_use]
    pub fn process_budget(&self) -> Option<f64> {
        let share = self.budget.map(|budget| budget.process);
        share.filter(|share| *share <= 1.0)
    }
}

/// A moment, and what had been done and spent by then.
#[derive(Clone, Copy, Debug, Default)]
struct SpendingMoment {
    at_ns: MonoNs,
    work: Work,
    own_ns: u64,
    spent_ns: f64,
    busy_ns: f64,
}

/// What is known of the thread in a slot.
#[derive(Clone, Copy, Debug)]
struct SlotThread {
    thread: ThreadKey,
    walks_ns: u64,
    switches: u32,
    calls: u64,
    cost_ns: f64,
    running_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct SpendingControl {
    budget: Option<Budget>,
    controller: Option<Controller>,
    walks: Option<WalkPolicy>,
    process_walks: Option<ProcessWalkPolicy>,
    prices: Prices,
    estimate: CostEstimate,
    last: SpendingMoment,
    /// Where statistics were switched on.
    measured_from: Work,
    statistics: Vec<ProgramStats>,
    threads: HashMap<u32, SlotThread>,
    past: VecDeque<SpendingMoment>,
    programs_ns: f64,
    untraced_ns: u64,
    traced_since_pass_ns: u64,
    pass_ns: MonoNs,
    pass_work: Work,
    gave_way: u64,
    came_back: u64,
    looks: u64,
}

impl SpendingControl {
    /// Walks are bounded from here on. `may_sample`: system calls need not all be traced.
    pub(super) fn start(
        kernel: &mut Kernel,
        budget: Option<Budget>,
        may_sample: bool,
        now_ns: MonoNs,
    ) -> Self {
        let walks = budget.map(|budget| WalkPolicy::new(budget.machine));
        bound_walks(kernel, walks.as_ref());
        let traces = kernel.settings().system_calls != TracedSystemCalls::Off;
        let controller = budget
            .filter(|_| may_sample && traces)
            .map(|budget| Controller::new(budget, Rng::new(), now_ns));
        let last = SpendingMoment {
            at_ns: now_ns,
            work: kernel.counts.work(now_ns),
            own_ns: process_ns(),
            ..SpendingMoment::default()
        };
        Self {
            budget,
            controller,
            walks,
            process_walks: budget
                .filter(|budget| budget.process <= 1.0)
                .map(|budget| ProcessWalkPolicy::new(budget.process)),
            prices: Prices::new(kernel.calls.price_ns(), kernel.calls.idle_run_ns()),
            estimate: CostEstimate::new(now_ns),
            last,
            measured_from: Work::default(),
            statistics: Vec::new(),
            threads: HashMap::new(),
            past: VecDeque::from([last]),
            programs_ns: 0.0,
            untraced_ns: 0,
            traced_since_pass_ns: 0,
            pass_ns: now_ns,
            pass_work: last.work,
            gave_way: 0,
            came_back: 0,
            looks: 0,
        }
    }

    /// Counts from now on, when the programs begin to work: what this process took before is the
    /// price of the start, which no tracing of calls could save.
    pub(super) fn begin(&mut self, kernel: &Kernel, now_ns: MonoNs) {
        self.last = SpendingMoment {
            at_ns: now_ns,
            work: kernel.counts.work(now_ns),
            own_ns: process_ns(),
            ..SpendingMoment::default()
        };
        self.past = VecDeque::from([self.last]);
        self.pass_ns = now_ns;
        self.pass_work = self.last.work;
    }

    /// Keeps the estimate of what the programs cost going: switches statistics on and off.
    pub(super) fn measure(&mut self, kernel: &mut Kernel, now_ns: MonoNs) {
        match self.estimate.step(now_ns) {
            CostStep::Nothing => {}
            CostStep::SwitchOn => {
                self.measured_from = kernel.counts.work(now_ns);
                self.statistics = kernel.programs.costs();
                switch_statistics(&mut kernel.costs, true);
            }
            CostStep::ReadAndSwitchOff => {
                let costs = kernel.programs.costs();
                self.learn(&kernel.counts, now_ns, &costs);
                self.estimate.add(now_ns, &costs);
                switch_statistics(&mut kernel.costs, false);
            }
        }
    }

    /// The estimate by program.
    pub(super) const fn programs(&self) -> &BTreeMap<String, EstimatedCost> {
        self.estimate.costs()
    }

    /// These are the statistics as they are switched off.
    fn learn(&mut self, counts: &Counts, now_ns: MonoNs, costs: &[ProgramStats]) {
        let work = counts.work(now_ns).since(&self.measured_from);
        let gained: Vec<ProgramStats> = costs
            .iter()
            .map(|cost| {
                let before = self.statistics.iter().find(|old| old.name == cost.name);
                ProgramStats {
                    name: cost.name.clone(),
                    runs: cost.runs - before.map_or(0, |old| old.runs.min(cost.runs)),
                    run_ns: cost.run_ns - before.map_or(0, |old| old.run_ns.min(cost.run_ns)),
                }
            })
            .collect();
        self.prices.learn(&gained, &work);
        debug!("prices: {:?}", self.prices);
    }

    /// To be called some times a second: has system calls traced, or not.
    pub(super) fn step(&mut self, kernel: &mut Kernel, now_ns: MonoNs) {
        let past_ns = now_ns.saturating_since(self.last.at_ns);
        if past_ns == 0 {
            return;
        }
        if kernel.targets.calls_are_traced() {
            self.traced_since_pass_ns += past_ns;
        } else {
            self.untraced_ns += past_ns;
        }
        let (work, own_ns) = (kernel.counts.work(now_ns), process_ns());
        let done = work.since(&self.last.work);
        let programs_ns = self.prices.of_work(&done);
        let took_ns = own_ns.saturating_sub(self.last.own_ns) as f64;
        let processors = f64::from(kernel.ticks.processor_count());
        let busy_ns = (processors * past_ns as f64 - done.idle_ns as f64).max(0.0);
        // Stacks at entries of calls that may not return are walked whatever walks may take: what
        // goes beyond that is saved by not tracing calls alone.
        let walks = self
            .walks
            .as_ref()
            .map_or(1.0, |policy| policy.parts().others);
        let call_walks_ns = (done.call_walks_ns as f64 - walks * busy_ns).max(0.0);
        let spent = BudgetSpent {
            past_ns: past_ns as f64,
            busy_ns,
            calls_ns: self.prices.of_calls(&done) + call_walks_ns,
            all_ns: programs_ns + took_ns,
        };
        self.programs_ns += programs_ns;
        self.last = SpendingMoment {
            at_ns: now_ns,
            work,
            own_ns,
            spent_ns: self.last.spent_ns + spent.all_ns,
            busy_ns: self.last.busy_ns + spent.busy_ns,
        };
        self.past.push_back(self.last);
        while self
            .past
            .get(1)
            .is_some_and(|moment| moment.at_ns + LATE_NS <= now_ns)
        {
            self.past.pop_front();
        }
        if let Some(controller) = &mut self.controller {
            controller.step(now_ns, &spent);
        }
        let times = WalkTimes {
            past_ns: spent.past_ns,
            busy_ns: spent.busy_ns,
            others_ns: self.prices.switch_ns.mul_add(done.switches as f64, took_ns),
            tick_walks_ns: done.tick_walks_ns as f64,
        };
        if let Some(policy) = &mut self.walks
            && policy.step(&times).is_some()
        {
            bound_walks(kernel, Some(policy));
        }
        self.follow(kernel);
    }

    /// Takes over what a pass found: sets what each thread has cost.
    pub(super) fn pass(
        &mut self,
        kernel: &mut Kernel,
        processes: &Processes,
        pass: &Pass,
        threads: &mut [ThreadUpdate],
    ) {
        let mut calls: HashMap<u32, u64> = HashMap::new();
        for row in &pass.calls {
            if row.number & UNTRACED_CALL == 0 {
                *calls.entry(row.slot).or_default() += row.count;
            }
        }
        let calls_of = |slot: u32| calls.get(&slot).copied().unwrap_or_default();
        let gained_calls = |slot: u32, had: Option<&SlotThread>| {
            calls_of(slot).saturating_sub(had.map_or(0, |had| had.calls))
        };
        let counted = pass.threads.iter().zip(threads.iter());
        let counted = counted
            .map(|(thread, update)| gained_calls(thread.slot, self.had(thread, update)))
            .sum();
        let work = kernel.counts.work(pass.at_ns);
        let done = work.since(&std::mem::replace(&mut self.pass_work, work));
        self.prices.learn_traced(counted, &done);
        let mut spent: HashMap<ProcessKey, ProcessSpent> = HashMap::new();
        for (thread, update) in pass.threads.iter().zip(threads) {
            let had = self.had(thread, update).copied();
            let had = had.as_ref();
            let known = self.known(thread, update.thread, calls_of(thread.slot), had);
            update.profiler_cost_ns = known.cost_ns as u64;
            let gained_ns = known.cost_ns - had.map_or(0.0, |had| had.cost_ns);
            let gained_calls = gained_calls(thread.slot, had);
            let ran_ns = known
                .running_ns
                .saturating_sub(had.map_or(0, |had| had.running_ns));
            let of = spent.entry(update.process).or_insert(ProcessSpent {
                process: update.process,
                running_ns: 0.0,
                calls_ns: 0.0,
                all_ns: 0.0,
            });
            of.running_ns += ran_ns as f64;
            of.calls_ns += self.prices.of_traced_call() * gained_calls as f64;
            of.all_ns += gained_ns;
            if thread.phase == Phase::Exited {
                self.threads.remove(&thread.slot);
            } else {
                self.threads.insert(thread.slot, known);
            }
        }
        let past_ns = pass.at_ns.saturating_since(self.pass_ns);
        self.pass_ns = pass.at_ns;
        let traced_ns = std::mem::take(&mut self.traced_since_pass_ns);
        if let Some(policy) = &mut self.process_walks
            && let Some(table) = kernel.targets.process_walks()
        {
            let living = spent.values();
            let living = living.filter(|of| !processes.has_ended(of.process));
            policy.pass(pass.at_ns, past_ns as f64, living, table);
            policy.forget(pass.at_ns, |process| processes.has_ended(process), table);
        }
        if let Some(controller) = &mut self.controller {
            let spent = spent.into_values();
            controller.pass(pass.at_ns, past_ns as f64, traced_ns as f64, spent);
        }
        self.follow(kernel);
    }

    /// What was known of the thread before this pass.
    fn had(&self, thread: &ThreadSnapshot, update: &ThreadUpdate) -> Option<&SlotThread> {
        let known = self.threads.get(&thread.slot)?;
        (known.thread == update.thread).then_some(known)
    }

    fn known(
        &self,
        thread: &ThreadSnapshot,
        key: ThreadKey,
        calls: u64,
        had: Option<&SlotThread>,
    ) -> SlotThread {
        let [user, syscall, _, _, kernel] = thread.classes;
        let (walks_ns, switches, had_calls, had_ns) = had.map_or((0, 0, 0, 0.0), |had| {
            (had.walks_ns, had.switches, had.calls, had.cost_ns)
        });
        let walked_ns = thread.walk_cost_ns.saturating_sub(walks_ns) as f64;
        let switched = f64::from(thread.switches.wrapping_sub(switches));
        let called = calls.saturating_sub(had_calls) as f64;
        let cost_ns =
            walked_ns + switched * self.prices.switch_ns + called * self.prices.of_traced_call();
        SlotThread {
            thread: key,
            walks_ns: thread.walk_cost_ns,
            switches: thread.switches,
            calls,
            cost_ns: had_ns + cost_ns,
            running_ns: user + syscall + kernel,
        }
    }

    /// Does what the controller has decided.
    fn follow(&mut self, kernel: &mut Kernel) {
        let Some(tracing) = self.controller.as_ref().map(Controller::tracing) else {
            return;
        };
        let only_samples = tracing != Tracing::All;
        if only_samples && self.gave_way == self.came_back {
            self.gave_way += 1;
            info!("of system calls only samples are traced: all would cost more than the budget");
        } else if !only_samples && self.gave_way > self.came_back {
            self.came_back += 1;
            info!("system calls are all traced again: the budget affords it");
        }
        let wanted = tracing != Tracing::Sampled { now: false };
        if wanted == kernel.targets.calls_are_traced() {
            return;
        }
        let tracing = match tracing {
            Tracing::All => CallTracing::On,
            Tracing::Sampled { now: true } => CallTracing::Sample,
            Tracing::Sampled { now: false } => CallTracing::Off,
        };
        let (targets, programs) = (&mut kernel.targets, &mut kernel.programs);
        let began_ns = thread_ns();
        if let Err(error) = kernel.calls.trace(tracing, targets, programs) {
            warn!("what is traced of system calls cannot be changed: {error}");
        } else if wanted && only_samples {
            self.looks += 1;
        }
        if let Some(controller) = &mut self.controller {
            controller.switched(thread_ns().saturating_sub(began_ns) as f64);
        }
    }

    /// When [`Self::step`] is to be called at the latest, where that is soon.
    pub(super) fn due_ns(&self) -> MonoNs {
        let controller = self.controller.as_ref();
        controller
            .and_then(Controller::sample_ends_ns)
            .unwrap_or(MonoNs::MAX)
    }

    /// What looks from outside may take, as a share of one processor's time; `None`: anything.
    pub(super) fn outside(&self) -> Option<f64> {
        self.walks.as_ref().map(WalkPolicy::outside)
    }

    /// How long calls were not traced so far.
    pub(super) const fn untraced_ns(&self) -> u64 {
        self.untraced_ns
    }

    /// How it stands.
    pub(super) fn state(&self) -> SpendingState {
        let late = self.past.front().map(|first| {
            let busy_ns = self.last.busy_ns - first.busy_ns;
            (self.last.spent_ns - first.spent_ns) / busy_ns.max(1.0)
        });
        let walks = self.walks.as_ref().map(WalkPolicy::all);
        SpendingState {
            budget: self.budget,
            tracing: self.controller.as_ref().map(Controller::tracing),
            gave_way: self.gave_way,
            came_back: self.came_back,
            looks: self.looks,
            untraced_ns: self.untraced_ns,
            prices: self.prices,
            programs_ns: self.programs_ns as u64,
            walks_ns: self.last.work.walks_ns,
            walks_budget: walks.filter(|share| *share <= 1.0),
            late_share: late.filter(|_| self.past.len() > 10),
        }
    }
}

/// Tells the programs what walks may take.
fn bound_walks(kernel: &mut Kernel, policy: Option<&WalkPolicy>) {
    let parts = policy.map(WalkPolicy::parts);
    if let Err(error) = kernel.targets.bound_walks(parts) {
        warn!("what walks of stacks may cost cannot be bounded: {error}");
    }
}

fn switch_statistics(costs: &mut Costs, on: bool) {
    // Where this is refused, it was at the start too, and is in the list of what works less well
    // than it should.
    if let Err(error) = costs.measure(on) {
        debug!("no run-time statistics: {error}");
    }
}
