//! Trials: before a function is measured its calls are counted for a while, and what they would
//! cost with all of its probes is compared with what they may.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tracing::warn;

use super::plan::PlannedFunction;
use super::spent::{Hits, ProbedItem, too_dear};
use super::{AttachedFunction, EntryPlace, Measuring};
use crate::kernel::Kernel;
use crate::units::MonoNs;

/// How long a function is tried, nanoseconds.
const TRIAL_NS: u64 = 200_000_000;

/// A function that is tried. Its number is not the one that it is measured under.
pub(super) struct Trial {
    /// The number of its instrumentation.
    pub(super) of: u32,
    pub(super) plan: Arc<PlannedFunction>,
    pub(super) entry: Option<EntryPlace>,
    since_ns: MonoNs,
}

impl Trial {
    pub(super) fn new(
        of: u32,
        plan: Arc<PlannedFunction>,
        entry: Option<EntryPlace>,
        now_ns: MonoNs,
    ) -> Self {
        Self {
            of,
            plan,
            entry,
            since_ns: now_ns,
        }
    }

    /// What is attached of it: its entry.
    pub(super) fn probed(&self) -> Arc<PlannedFunction> {
        Arc::new(PlannedFunction {
            exits: Err("it is tried".to_owned()),
            ..(*self.plan).clone()
        })
    }
}

impl Measuring {
    /// Has functions measured that were tried for long enough, but for those that would cost too
    /// much.
    pub(super) fn end_trials(&mut self, kernel: &mut Kernel, now_ns: MonoNs) {
        let tried = self.trials.values();
        let due = tried.filter(|tried| now_ns.saturating_since(tried.since_ns) >= TRIAL_NS);
        let due: HashSet<u32> = due.map(|tried| tried.of).collect();
        if due.is_empty() {
            return;
        }
        self.read(kernel);
        for id in due {
            self.end_trials_of(kernel, id, now_ns);
        }
    }

    fn end_trials_of(&mut self, kernel: &mut Kernel, id: u32, now_ns: MonoNs) {
        let over = self.trials.extract_if(.., |_, tried| {
            tried.of == id && now_ns.saturating_since(tried.since_ns) >= TRIAL_NS
        });
        let over: Vec<(u32, Trial)> = over.collect();
        let Some(since_ns) = over.iter().map(|(_, tried)| tried.since_ns).min() else {
            return;
        };
        let budget = self.instrumentations.get(&id).map_or(0.0, |one| one.budget);
        let took_ns = now_ns.saturating_since(since_ns).max(1) as f64;
        let hits = self.hits(&over);
        let gone = match budget {
            0.0 => Vec::new(),
            budget => too_dear(&hits, took_ns, budget),
        };
        let gone: HashMap<ProbedItem, String> =
            gone.into_iter().map(|one| (one.what, one.why)).collect();
        let numbers = over.iter().map(|(number, _)| *number).collect();
        self.drop_probes(kernel, &numbers);
        let mut measured = Vec::new();
        for (tried, trial) in over {
            let number = self.next_number;
            self.next_number += 1;
            let mut function = AttachedFunction::new(id, trial.plan, trial.entry, now_ns);
            match gone.get(&ProbedItem::Function(tried)) {
                Some(why) => {
                    self.given_up += 1;
                    function.gave_up = Some(format!("{why} (in a trial of its entries)"));
                    function.detached_ns = Some(now_ns);
                }
                None => measured.push(number),
            }
            self.functions.insert(number, function);
        }
        if let Err(error) = self.attach_all(kernel, id, &measured) {
            warn!("functions that were tried cannot be measured: {error}");
            self.drop_probes(kernel, &measured.iter().copied().collect());
            for number in measured {
                if let Some(function) = self.functions.get_mut(&number) {
                    function.gave_up = Some(format!("not measured: {error}"));
                    function.detached_ns = Some(now_ns);
                }
            }
        }
    }

    /// What these functions would cost where they are called.
    fn hits(&self, tried: &[(u32, Trial)]) -> Vec<Hits> {
        let costs = self.costs();
        let mut counts: HashMap<(u32, u32), u64> = HashMap::new();
        for (key, row) in &self.living {
            *counts.entry((key.thread.pid, key.function)).or_default() += row.calls;
        }
        let by_function = |(number, trial): &(u32, Trial)| {
            let each_ns = trial.plan.cost_ns(&costs);
            let of = counts
                .iter()
                .filter(move |((_, function), _)| function == number);
            of.map(move |((pid, function), count)| Hits {
                pid: *pid,
                what: ProbedItem::Function(*function),
                count: *count,
                cost_ns: *count as f64 * each_ns,
            })
            .collect::<Vec<_>>()
        };
        tried.iter().flat_map(by_function).collect()
    }
}
