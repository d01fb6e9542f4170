//! What probes take of processes, and whether that is more than they may.

use std::collections::{HashMap, HashSet};

use profiler_common::measured::probe_kind;
use tracing::warn;

use super::Measuring;
use super::attaching::points_of;
use super::plan::PlannedFunction;
use crate::kernel::{Kernel, ProbeCosts};

/// The cost of one function's probes in one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hits {
    pub(super) pid: u32,
    /// The function's number.
    pub(super) function: u32,
    /// Probes that were hit, or calls that were counted.
    pub(super) count: u64,
    /// What they cost together, nanoseconds.
    pub(super) cost_ns: f64,
}

/// A function that costs too much.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TooDear {
    pub(super) function: u32,
    /// A sentence.
    pub(super) why: String,
}

/// What one call of a function costs at most.
pub(super) fn cost_ns(plan: &PlannedFunction, costs: &ProbeCosts) -> f64 {
    let points = points_of(1, 0, plan);
    let kinds = points.into_iter();
    let kinds = kinds.filter(|point| point.cookie.exit || point.cookie.counted_only);
    let kind = kinds
        .map(|point| probe_kind(point.cookie))
        .max()
        // Without exits its calls never end, and cost what counting them does.
        .unwrap_or(usize::from(plan.entry.stepped));
    costs[kind].inside_ns + costs[kind].outside_ns
}

/// The functions that have to go so that no process spends more than `budget` (of one processor) on
/// those that are left; of each process the costliest first, and at most `most`.
pub(super) fn too_dear(hits: &[Hits], took_ns: f64, budget: f64, most: usize) -> Vec<TooDear> {
    let mut found: Vec<TooDear> = Vec::new();
    let mut processes: HashMap<u32, Vec<Hits>> = HashMap::new();
    for one in hits {
        processes.entry(one.pid).or_default().push(*one);
    }
    for (pid, mut hits) in processes {
        hits.retain(|one| found.iter().all(|gone| gone.function != one.function));
        hits.sort_by(|a, b| b.cost_ns.total_cmp(&a.cost_ns));
        let mut all_ns: f64 = hits.iter().map(|one| one.cost_ns).sum();
        for one in hits.iter().take(most) {
            let share = all_ns / took_ns;
            if share <= budget {
                break;
            }
            all_ns -= one.cost_ns;
            found.push(TooDear {
                function: one.function,
                why: format!(
                    "given up: {:.0} calls a second in process {pid} cost {:.1} % of a processor, and all probes there {:.1} % of {:.1} % that they may take",
                    one.count as f64 / took_ns * 1e9,
                    100.0 * one.cost_ns / took_ns,
                    100.0 * share,
                    100.0 * budget,
                ),
            });
        }
    }
    found
}

impl Measuring {
    /// Where probes take more of a process than they may, the costliest function loses its own.
    pub(super) fn keep_budgets(&mut self, kernel: &mut Kernel, now_ns: u64) {
        let took_ns = now_ns.saturating_sub(self.looked_ns) as f64;
        self.looked_ns = now_ns;
        let costs = self.costs.unwrap_or_default();
        let mut hits: HashMap<u32, Vec<Hits>> = HashMap::new();
        for ((pid, number), count) in self.spent.drain() {
            let function = self.functions.get(&number);
            if let Some(function) = function.filter(|function| function.gave_up.is_none()) {
                let cost_ns = count as f64 * cost_ns(&function.plan, &costs);
                hits.entry(function.of).or_default().push(Hits {
                    pid,
                    function: number,
                    count,
                    cost_ns,
                });
            }
        }
        for (id, hits) in hits {
            let one = self.instrumentations.get(&id).filter(|one| one.runs());
            let Some(budget) = one.map(|one| one.budget).filter(|budget| *budget > 0.0) else {
                continue;
            };
            let gone = too_dear(&hits, took_ns, budget, 1);
            let numbers: HashSet<u32> = gone.iter().map(|one| one.function).collect();
            if numbers.is_empty() {
                continue;
            }
            let detached = kernel
                .measured
                .detach_functions(|function| numbers.contains(&function));
            if let Err(error) = detached {
                warn!("other functions are not measured any more either: {error}");
                if let Some(one) = self.instrumentations.get_mut(&id) {
                    one.trouble = Some(error.to_string());
                }
            }
            for TooDear { function, why } in gone {
                if let Some(function) = self.functions.get_mut(&function) {
                    self.given_up += 1;
                    function.gave_up = Some(why);
                }
            }
        }
    }

    /// Whether an instrumentation has functions, and none of them is measured any more.
    pub(super) fn is_given_up(&self, id: u32) -> bool {
        let mut of = self
            .functions
            .values()
            .filter(|one| one.of == id)
            .peekable();
        of.peek().is_some()
            && of.all(|function| function.gave_up.is_some())
            && self.trials.values().all(|tried| tried.of != id)
            && (self.instrumentations.get(&id)).is_none_or(|one| one.spanning.is_given_up())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that of a process over its budget the costliest functions go until the rest fits, that
    // no more go than may at a time, and that a process within its budget loses nothing.
    #[test]
    fn the_costliest_go_first() {
        let hits = |pid, function, cost_ns| Hits {
            pid,
            function,
            count: 100,
            cost_ns,
        };
        let all = [
            hits(1, 20, 55.0),
            hits(1, 21, 60.0),
            hits(1, 22, 4.0),
            hits(2, 23, 4.0),
        ];
        let gone = |most| {
            let gone = too_dear(&all, 1000.0, 0.05, most).into_iter();
            gone.map(|one| one.function).collect::<Vec<_>>()
        };
        assert_eq!(gone(usize::MAX), [21, 20]);
        assert_eq!(gone(1), [21]);
        let why = &too_dear(&all, 1000.0, 0.05, 1)[0].why;
        assert!(
            why.contains(
                "process 1 cost 6.0 % of a processor, and all probes there 11.9 % of 5.0 %"
            ),
            "{why}"
        );
    }
}
