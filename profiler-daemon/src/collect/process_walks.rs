//! What walks of each busy process may take, so that what profiling costs it stays within its
//! budget. The kernel programs keep to it, since a storm would not wait for a pass; here is what
//! they may spend: a share of the time that passes, as much as it was in the last pass. Pure, but
//! for the table that they read.
//!
//! As of the machine (`walk_parts`), walks at switches and at exits of calls may take what switches
//! and walks of ticks leave, within bounds. Of a process, threads come and go: so it is the process
//! that has a bucket, and it earns by what all of them have run.

use std::collections::{HashMap, HashSet};

use profiler_common::walk_budget::{ProcessWalks, WHOLE_SHARE};
use tracing::{debug, warn};

use super::budget::{LEAST_USE, PROCESS_KEPT_NS, ProcessSpent};
use super::walk_parts::{LEAST, MOST};
use crate::kernel::WalkTable;
use crate::processes::ids::ProcessKey;
use crate::units::MonoNs;

/// A process whose walks are bounded.
#[derive(Clone, Copy, Debug)]
struct BoundedProcess {
    /// When it was last at work for so much that it has a budget.
    busy_ns: MonoNs,
    /// What its walks at switches and at calls had cost by the last pass, nanoseconds, since they
    /// are bounded.
    walked_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct ProcessWalkPolicy {
    /// As a share of the running time.
    budget: f64,
    bounded: HashMap<ProcessKey, BoundedProcess>,
    is_refused: bool,
}

impl ProcessWalkPolicy {
    /// None is bounded yet.
    pub(super) fn new(budget: f64) -> Self {
        Self {
            budget,
            bounded: HashMap::new(),
            is_refused: false,
        }
    }

    /// What profiling each process has cost since the last pass, which was `past_ns` ago.
    pub(super) fn pass<'a>(
        &mut self,
        now_ns: MonoNs,
        past_ns: f64,
        spent: impl Iterator<Item = &'a ProcessSpent>,
        table: &mut impl WalkTable,
    ) {
        let least_ns = LEAST_USE * past_ns;
        for of in spent {
            let pid = of.process.pid;
            let is_busy = of.running_ns >= least_ns;
            let had = self.bounded.get(&of.process).copied();
            let busy_ns = if is_busy {
                now_ns
            } else if let Some(had) = had {
                had.busy_ns
            } else {
                continue;
            };
            // Who hardly runs any more may spend what one may that has just a budget.
            let whole_ns = self.budget * of.running_ns.max(least_ns);
            let (mut walks, mut earned_ns) = (ProcessWalks::default(), MOST * whole_ns);
            if let Some(had) = had
                && let Some(left) = table.get(pid)
            {
                walks = left;
                let walked_ns = left.budget.spent_ns.saturating_sub(had.walked_ns);
                let fixed_ns = of.all_ns - of.calls_ns - walked_ns as f64;
                earned_ns = (whole_ns - fixed_ns).clamp(LEAST * whole_ns, earned_ns);
            }
            let share = earned_ns / past_ns.max(1.0) * WHOLE_SHARE as f64;
            walks.shares.others = (share as u32).max(1);
            match table.set(pid, walks) {
                Ok(()) => {
                    let walked_ns = walks.budget.spent_ns;
                    let bounded = BoundedProcess { busy_ns, walked_ns };
                    self.bounded.insert(of.process, bounded);
                }
                Err(error) if !self.is_refused => {
                    self.is_refused = true;
                    warn!("what walks of process {pid} may cost cannot be bounded: {error}");
                }
                Err(error) => debug!("walks of process {pid} are not bounded: {error}"),
            }
        }
    }

    /// Forgets processes that have no budget any more, or have ended.
    pub(super) fn forget(
        &mut self,
        now_ns: MonoNs,
        has_ended: impl Fn(ProcessKey) -> bool,
        table: &mut impl WalkTable,
    ) {
        let is_kept = |process: &ProcessKey, had: &BoundedProcess| {
            now_ns.saturating_since(had.busy_ns) <= PROCESS_KEPT_NS && !has_ended(*process)
        };
        let gone = self
            .bounded
            .extract_if(|process, had| !is_kept(process, had));
        let gone: HashSet<u32> = gone.map(|(process, _)| process.pid).collect();
        if gone.is_empty() {
            return;
        }
        // Another process may have the number by now.
        let kept: HashSet<u32> = self.bounded.keys().map(|process| process.pid).collect();
        gone.difference(&kept).for_each(|pid| table.remove(*pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::StartError;
    use crate::units::BootNs;

    const SECOND_NS: u64 = 1_000_000_000;
    const WALK_NS: u64 = 5_000;
    const SWITCH_NS: f64 = 500.0;

    impl WalkTable for HashMap<u32, ProcessWalks> {
        fn get(&self, pid: u32) -> Option<ProcessWalks> {
            Self::get(self, &pid).copied()
        }

        fn set(&mut self, pid: u32, walks: ProcessWalks) -> Result<(), StartError> {
            self.insert(pid, walks);
            Ok(())
        }

        fn remove(&mut self, pid: u32) {
            Self::remove(self, &pid);
        }
    }

    struct Run {
        policy: ProcessWalkPolicy,
        table: HashMap<u32, ProcessWalks>,
        random: fastrand::Rng,
        now_ns: u64,
    }

    impl Run {
        fn new() -> Self {
            Self {
                policy: ProcessWalkPolicy::new(0.03),
                table: HashMap::new(),
                random: fastrand::Rng::with_seed(7),
                now_ns: 0,
            }
        }

        /// A pass a second later, in which these processes ran (number, start), and those of these
        /// starts had ended.
        fn pass_of(&mut self, processes: &[(u32, u64)], ended: &[u64]) {
            let ended: Vec<_> = ended.iter().map(|start| BootNs::new(*start)).collect();
            self.now_ns += SECOND_NS;
            let spent: Vec<_> = processes
                .iter()
                .map(|(pid, start_ns)| ProcessSpent {
                    process: ProcessKey {
                        pid: *pid,
                        start_ns: BootNs::new(*start_ns),
                    },
                    running_ns: 5e8,
                    calls_ns: 0.0,
                    all_ns: 0.0,
                })
                .collect();
            let now_ns = MonoNs::new(self.now_ns);
            let (policy, table) = (&mut self.policy, &mut self.table);
            policy.pass(now_ns, SECOND_NS as f64, spent.iter(), table);
            policy.forget(now_ns, |process| ended.contains(&process.start_ns), table);
        }

        /// So many seconds of a process that runs for this part of a processor and is switched out
        /// so often a second: what walks cost and stood for, of the second half. Walks of its ticks
        /// take `ticks` of what it runs.
        fn go(&mut self, seconds: u64, use_part: f64, switches: u64, ticks: f64) -> (u64, f64) {
            let (mut walked_ns, mut stood_for, mut of_half) = (0, 0_u64, 0);
            let process = ProcessKey {
                pid: 7,
                start_ns: BootNs::new(1),
            };
            for second in 0..seconds {
                let mut of_second_ns = 0;
                for switch in 1..=switches {
                    let now_ns = self.now_ns + SECOND_NS * switch / switches;
                    let walks = self.table.get_mut(&7);
                    let shift = walks.map_or(0, |walks| walks.shift(now_ns));
                    if self.random.u64(0..1 << shift) != 0 {
                        continue;
                    }
                    of_second_ns += WALK_NS;
                    if let Some(walks) = self.table.get_mut(&7) {
                        walks.budget.spend(WALK_NS, false);
                    }
                    if second >= seconds / 2 {
                        (walked_ns, stood_for) = (walked_ns + WALK_NS, stood_for + (1 << shift));
                    }
                }
                of_half += if second >= seconds / 2 { switches } else { 0 };
                self.now_ns += SECOND_NS;
                let running_ns = use_part * SECOND_NS as f64;
                let fixed_ns = SWITCH_NS.mul_add(switches as f64, ticks * running_ns);
                let spent = ProcessSpent {
                    process,
                    running_ns,
                    calls_ns: 1e6,
                    all_ns: 1e6 + fixed_ns + of_second_ns as f64,
                };
                let all = std::iter::once(&spent);
                let now_ns = MonoNs::new(self.now_ns);
                let (policy, table) = (&mut self.policy, &mut self.table);
                policy.pass(now_ns, SECOND_NS as f64, all, table);
                policy.forget(now_ns, |_| false, table);
            }
            (walked_ns, stood_for as f64 / of_half as f64)
        }
    }

    fn near(found: f64, expected: f64, error: f64) {
        assert!((found / expected - 1.0).abs() < error, "{found} {expected}");
    }

    // Check that walks take four tenths of the budget where switches and ticks leave it, what these
    // leave where that is less, and a tenth where they leave nothing, and that what is walked
    // stands for all.
    #[test]
    fn walks_take_what_is_left() {
        // Of 2 s of running time in 10 s: 60 ms.
        let (walked_ns, stood_for) = Run::new().go(20, 0.2, 5_000, 0.0);
        near(walked_ns as f64, 24e6, 0.05);
        near(stood_for, 1.0, 0.1);
        let (walked_ns, _) = Run::new().go(20, 0.2, 9_200, 0.0);
        near(walked_ns as f64, 14e6, 0.05);
        let (walked_ns, _) = Run::new().go(20, 0.2, 5_000, 0.0105);
        near(walked_ns as f64, 14e6, 0.05);
        let (walked_ns, stood_for) = Run::new().go(60, 0.2, 20_000, 0.5);
        near(walked_ns as f64, 18e6, 0.05);
        near(stood_for, 1.0, 0.1);
    }

    // Check that a process that hardly runs is not bounded; that one that hardly runs any more may
    // spend as if it just had a budget, and is not bounded after a minute of that.
    #[test]
    fn who_hardly_runs_is_not_bounded() {
        let mut run = Run::new();
        assert_eq!(run.go(20, 0.04, 3_000, 0.0), (10 * 3_000 * WALK_NS, 1.0));
        assert!(run.table.is_empty());
        run.go(5, 0.1, 3_000, 0.0);
        assert_eq!(run.table.len(), 1);
        let (walked_ns, _) = run.go(40, 0.001, 1_000, 0.0);
        near(walked_ns as f64, 12e6, 0.05);
        run.go(25, 0.001, 1_000, 0.0);
        assert!(run.table.is_empty());
        let (walked_ns, _) = run.go(2, 0.001, 1_000, 0.0);
        assert_eq!(walked_ns, 1_000 * WALK_NS);
    }
    // Check that a process that has ended leaves the table, that the one that has its number by
    // then stays, and so does one that sleeps for a while.
    #[test]
    fn who_has_ended_leaves() {
        let mut run = Run::new();
        run.pass_of(&[(7, 1), (8, 2), (9, 3), (10, 5)], &[]);
        assert_eq!(run.table.len(), 4);
        for _ in 0..50 {
            run.pass_of(&[(7, 1), (8, 4)], &[2, 3]);
        }
        let mut left: Vec<u32> = run.table.keys().copied().collect();
        left.sort_unstable();
        assert_eq!(left, [7, 8, 10]);
        assert_eq!(run.policy.bounded.len(), 3);
    }
}
