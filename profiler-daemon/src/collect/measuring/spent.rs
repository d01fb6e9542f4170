//! What probes take of processes, and whether that is more than they may.

use std::collections::HashMap;

use super::Measuring;
use crate::kernel::{Interrupted, Kernel};
use crate::units::MonoNs;

/// What costs something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ProbedItem {
    /// A function, by its number.
    Function(u32),
    /// A USDT point or a span, by its number.
    Item(u32),
}

/// The cost of the probes of one of them in one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hits {
    pub(super) pid: u32,
    /// What is probed.
    pub(super) what: ProbedItem,
    /// Probes that were hit, or calls that were counted.
    pub(super) count: u64,
    /// What they cost together, nanoseconds.
    pub(super) cost_ns: f64,
}

/// What costs too much.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TooDear {
    pub(super) what: ProbedItem,
    /// A sentence.
    pub(super) why: String,
}

/// What has to go so that no process spends more than `budget` (of one processor) on
/// those that are left; of each process the costliest first.
pub(super) fn too_dear(hits: &[Hits], took_ns: f64, budget: f64) -> Vec<TooDear> {
    let mut found: Vec<TooDear> = Vec::new();
    let mut processes: HashMap<u32, Vec<Hits>> = HashMap::new();
    for one in hits {
        processes.entry(one.pid).or_default().push(*one);
    }
    for (pid, mut hits) in processes {
        hits.retain(|one| found.iter().all(|gone| gone.what != one.what));
        hits.sort_by(|a, b| b.cost_ns.total_cmp(&a.cost_ns));
        let mut all_ns: f64 = hits.iter().map(|one| one.cost_ns).sum();
        for one in &hits {
            let share = all_ns / took_ns;
            if share <= budget {
                break;
            }
            all_ns -= one.cost_ns;
            let hits = match one.what {
                ProbedItem::Function(_) => "calls",
                ProbedItem::Item(_) => "hits",
            };
            found.push(TooDear {
                what: one.what,
                why: format!(
                    "given up: {:.0} {hits} a second in process {pid} cost {:.1} % of a processor, and all probes there {:.1} % of {:.1} % that they may take",
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

/// What is told of something that was not followed for so long, nanoseconds, because it shares
/// links with others; `None`: it was all the time.
pub(in crate::collect) fn unseen(unseen_ns: u64) -> Option<String> {
    (unseen_ns > 0).then(|| {
        format!(
            "not seen for {} ms, while others that share its probes were given up",
            unseen_ns.div_ceil(1_000_000)
        )
    })
}

impl Measuring {
    /// Where probes take more of a process than they may, what costs most loses its own, until the
    /// rest fits.
    pub(super) fn keep_budgets(&mut self, kernel: &mut Kernel, now_ns: MonoNs) {
        let took_ns = now_ns.saturating_since(self.looked_ns) as f64;
        self.looked_ns = now_ns;
        let costs = self.costs();
        let mut hits: HashMap<u32, Vec<Hits>> = HashMap::new();
        for ((pid, number), count) in self.spent.drain() {
            let function = self.functions.get(&number);
            if let Some(function) = function.filter(|function| function.gave_up.is_none()) {
                let cost_ns = count as f64 * function.plan.cost_ns(&costs);
                hits.entry(function.of).or_default().push(Hits {
                    pid,
                    what: ProbedItem::Function(number),
                    count,
                    cost_ns,
                });
            }
        }
        let mut interrupted = Vec::new();
        for (id, one) in &mut self.instrumentations {
            let of_items = one.spanning.spent(&costs);
            let mut hits = hits.remove(id).unwrap_or_default();
            hits.extend(of_items.into_iter().map(|of| Hits {
                pid: of.pid,
                what: ProbedItem::Item(of.item),
                count: of.count,
                cost_ns: of.cost_ns,
            }));
            if one.budget <= 0.0 || !one.runs() {
                continue;
            }
            let (mut functions, mut items) = (HashMap::new(), HashMap::new());
            for TooDear { what, why } in too_dear(&hits, took_ns, one.budget) {
                match what {
                    ProbedItem::Function(number) => functions.insert(number, why),
                    ProbedItem::Item(number) => items.insert(number, why),
                };
            }
            self.given_up += (functions.len() + items.len()) as u64;
            if !items.is_empty() {
                self.given_up += one.spanning.give_up(kernel, items);
            }
            if !functions.is_empty() {
                let is_over = |function: u32| functions.contains_key(&function);
                let of_them = kernel.measured.detach_functions(is_over);
                interrupted.push(of_them);
            }
            for (number, why) in functions {
                if let Some(function) = self.functions.get_mut(&number) {
                    function.gave_up = Some(why);
                    function.detached_ns = Some(now_ns);
                }
            }
        }
        for one in interrupted {
            self.interrupted(&one, now_ns);
        }
    }

    /// Functions shared links with others that were detached.
    pub(super) fn interrupted(&mut self, interrupted: &Interrupted, now_ns: MonoNs) {
        for number in &interrupted.owners {
            if let Some(function) = self.functions.get_mut(number) {
                function.unseen_ns += interrupted.unseen_ns;
            }
        }
        for (number, why) in &interrupted.failed {
            if let Some(function) = self.functions.get_mut(number) {
                self.given_up += 1;
                function.gave_up = Some(why.clone());
                function.detached_ns = Some(now_ns);
            }
        }
    }

    /// Whether an instrumentation has functions, USDT points or spans, and nothing of them is
    /// measured any more.
    pub(super) fn is_given_up(&self, id: u32) -> bool {
        let Some(one) = self.instrumentations.get(&id) else {
            return false;
        };
        let mut of = self
            .functions
            .values()
            .filter(|one| one.of == id)
            .peekable();
        (of.peek().is_some() || !one.spanning.is_empty())
            && of.all(|function| function.gave_up.is_some())
            && self.trials.values().all(|tried| tried.of != id)
            && one.spanning.is_given_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that of a process over its budget the costliest functions go until the rest fits, all
    // at once, and that a process within its budget loses nothing.
    #[test]
    fn the_costliest_go_first() {
        let hits = |pid, function, cost_ns| Hits {
            pid,
            what: ProbedItem::Function(function),
            count: 100,
            cost_ns,
        };
        let all = [
            hits(1, 20, 55.0),
            hits(1, 21, 60.0),
            hits(1, 22, 4.0),
            hits(2, 23, 4.0),
        ];
        let gone = too_dear(&all, 1000.0, 0.05);
        let what: Vec<ProbedItem> = gone.iter().map(|one| one.what).collect();
        assert_eq!(what, [21, 20].map(ProbedItem::Function));
        let why = &gone[0].why;
        assert!(
            why.contains(
                "process 1 cost 6.0 % of a processor, and all probes there 11.9 % of 5.0 %"
            ),
            "{why}"
        );
    }

    // Check that USDT points and spans share the budget of a process with its functions, and that
    // the sentence says what was hit.
    #[test]
    fn points_share_the_budget() {
        let hits = |what, cost_ns| Hits {
            pid: 1,
            what,
            count: 100,
            cost_ns,
        };
        let (function, point) = (ProbedItem::Function(20), ProbedItem::Item(20));
        let fits = [hits(function, 45.0)];
        assert_eq!(too_dear(&fits, 1000.0, 0.05), []);
        let both = [hits(function, 20.0), hits(point, 45.0)];
        let gone = too_dear(&both, 1000.0, 0.05);
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].what, point);
        assert!(gone[0].why.contains("hits a second"), "{}", gone[0].why);
    }
}
