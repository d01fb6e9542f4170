//! What each kind of event costs the thread that it happens to, nanoseconds. Pure.
//!
//! The hooks' own price is measured before the programs work, what the programs take by the
//! kernel's run-time statistics, now and then. The time of walks the programs measure themselves.
//! So a sum of events times prices agrees with the statistics when it is made from the same time,
//! but for system calls: of these the statistics say more than they take, since to measure a run
//! takes as long as a short run. What they say of a run that does nothing is in the hooks' price
//! already, and is taken off.

use crate::kernel::{ProgramStats, Work};

/// Until the statistics were on for the first time: both programs of a system call, and a switch
/// with its wake.
const CALL_NS: f64 = 200.0;
const SWITCH_NS: f64 = 600.0;
/// Runs of a program below which its mean says little, and how much of the mean before is kept
/// otherwise. Of what was a guess nothing is.
const FEW_RUNS: u64 = 200;
const KEPT: f64 = 0.5;
/// How much of what was counted up to a pass is kept at the next.
const KEPT_OF_PASS: f64 = 0.8;
/// The least part of system calls that is taken to be traced: of so few, what the others take is
/// not little beside it.
const LEAST_TRACED: f64 = 0.05;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// Of a system call while the hooks are attached, whether it is traced or not.
    pub hooks_ns: f64,
    /// Of a system call beside that: the mean of those that are traced and those that are not,
    /// which take next to nothing.
    call_ns: f64,
    /// System calls that were counted, as those that are traced are, and those that the hooks ran
    /// for, in passes of late.
    counted: f64,
    hooked: f64,
    /// Of a switch, with all that is not a system call's and no walk: wakes, births, ends.
    pub switch_ns: f64,
    /// What the statistics say of a run at a system call that does nothing.
    pub idle_run_ns: f64,
    /// The price of a call, and of a switch, are no guesses.
    call_is_seen: bool,
    switch_is_seen: bool,
}

impl Prices {
    pub(super) const fn new(hooks_ns: f64, idle_run_ns: f64) -> Self {
        Self {
            hooks_ns,
            call_ns: CALL_NS,
            counted: 0.0,
            hooked: 0.0,
            switch_ns: SWITCH_NS,
            idle_run_ns,
            call_is_seen: false,
            switch_is_seen: false,
        }
    }

    /// Of a system call that is traced, beside the price of the hooks.
    #[must_use]
    pub fn of_tracing(&self) -> f64 {
        if self.hooked < FEW_RUNS as f64 {
            return self.call_ns;
        }
        self.call_ns / (self.counted / self.hooked).clamp(LEAST_TRACED, 1.0)
    }

    /// Of a traced system call in all.
    #[must_use]
    pub fn of_traced_call(&self) -> f64 {
        self.hooks_ns + self.of_tracing()
    }

    /// What system calls cost at which the programs did this work, without walks.
    #[must_use]
    pub fn of_calls(&self, work: &Work) -> f64 {
        (self.hooks_ns + self.call_ns) * pairs(work)
    }

    /// What the programs cost that did this work, without the hooks' price.
    #[must_use]
    pub fn of_programs(&self, work: &Work) -> f64 {
        self.call_ns * pairs(work) + self.switch_ns * work.switches as f64 + work.walks_ns as f64
    }

    /// What this work cost the threads it was done for.
    #[must_use]
    pub fn of_work(&self, work: &Work) -> f64 {
        self.of_programs(work) + self.hooks_ns * pairs(work)
    }

    /// Learns how many system calls were counted from one pass to the next, between which this work
    /// was done. (What a thread has done just before a pass may be counted at the next.)
    pub(super) fn learn_traced(&mut self, counted: u64, work: &Work) {
        self.counted = self.counted.mul_add(KEPT_OF_PASS, counted as f64);
        self.hooked = self.hooked.mul_add(KEPT_OF_PASS, pairs(work));
    }

    /// Learns from the statistics of a while in which this work was done.
    pub(super) fn learn(&mut self, programs: &[ProgramStats], work: &Work) {
        let of = |names: &[&str]| {
            let named = programs
                .iter()
                .filter(|cost| names.contains(&cost.name.as_str()));
            named.fold((0, 0), |(runs, ns), cost| {
                (runs + cost.runs, ns + cost.run_ns)
            })
        };
        let (runs, calls_ns) = of(&["sys_enter", "sys_exit"]);
        // Walks have their own price.
        let mut calls_ns = calls_ns.saturating_sub(work.call_walks_ns) as f64;
        if runs >= 2 * FEW_RUNS {
            let run_ns = calls_ns / runs as f64 - self.idle_run_ns;
            let pair_ns = 2.0 * run_ns.max(0.0);
            mix(&mut self.call_ns, pair_ns, &mut self.call_is_seen);
        } else {
            calls_ns = (self.call_ns + 2.0 * self.idle_run_ns) * pairs(work);
        }
        // Iterators run in this process, whose time counts by itself.
        let all = programs.iter();
        let all = all.filter(|cost| !["seed", "look", "queued"].contains(&cost.name.as_str()));
        let all_ns: u64 = all.map(|cost| cost.run_ns).sum();
        if work.switches >= FEW_RUNS {
            let rest_ns = all_ns as f64 - calls_ns - work.walks_ns as f64;
            let each_ns = (rest_ns / work.switches as f64).max(0.0);
            mix(&mut self.switch_ns, each_ns, &mut self.switch_is_seen);
        }
    }
}

fn pairs(work: &Work) -> f64 {
    work.call_hooks as f64 / 2.0
}

/// Takes a price that was seen into the mean of those before.
fn mix(price_ns: &mut f64, seen_ns: f64, is_seen: &mut bool) {
    let kept = if std::mem::replace(is_seen, true) {
        KEPT
    } else {
        0.0
    };
    *price_ns = *price_ns * kept + seen_ns * (1.0 - kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, runs: u64, run_ns: u64) -> ProgramStats {
        ProgramStats {
            name: name.to_owned(),
            runs,
            run_ns,
        }
    }

    // Check that, learnt from enough statistics (the first time too), prices times events are what
    // the statistics say (less what they say of runs at system calls that do nothing, 20 ns each),
    // walks at system calls too, which are counted once; that few runs change nothing, and that the
    // hooks' price is never learnt from programs.
    #[test]
    fn prices_times_events_are_the_statistics() {
        let mut prices = Prices::new(90.0, 20.0);
        let work = Work {
            call_hooks: 20_000,
            call_walks_ns: 400_000,
            switches: 5_000,
            walks_ns: 3_000_000,
            tick_walks_ns: 400_000,
            idle_ns: 0,
        };
        let programs = [
            program("sys_enter", 10_000, 700_000),
            program("sys_exit", 10_000, 1_500_000),
            program("sched_switch", 5_000, 5_000_000),
            program("sched_waking", 4_000, 300_000),
            program("tick", 100, 500_000),
            // In the daemon's own time, which is not shared out to switches.
            program("look", 2, 9_000_000),
            program("seed", 1, 1_000_000),
        ];
        let few = [program("sys_enter", 3, 1_000_000)];
        prices.learn(&few, &Work::default());
        assert_eq!(prices, Prices::new(90.0, 20.0));
        prices.learn(&programs, &work);
        assert!((prices.call_ns - 140.0).abs() < 0.1);
        assert!((prices.of_programs(&work) - 7_600_000.0).abs() < 1_000.0);
        assert!((prices.of_work(&work) - 8_500_000.0).abs() < 1_000.0);
        assert_eq!(prices.hooks_ns, 90.0);
    }

    // Check that where only some system calls are traced, these have the cost of tracing, so that
    // it is the same in all; that a pass that counts what the one before has missed changes little;
    // that a few say nothing; and that none is taken for a twentieth.
    #[test]
    fn those_that_are_traced_have_its_cost() {
        let hooked = |calls: u64| Work {
            call_hooks: 2 * calls,
            ..Work::default()
        };
        let mut prices = Prices::new(90.0, 20.0);
        prices.learn_traced(10, &hooked(100));
        assert_eq!(prices.of_traced_call(), 90.0 + CALL_NS);
        let mut prices = Prices::new(90.0, 20.0);
        for _ in 0..5 {
            prices.learn_traced(2_500, &hooked(10_000));
        }
        let near = |found: f64, expected: f64, error: f64| {
            assert!((found / expected - 1.0).abs() < error, "{found} {expected}");
        };
        near(prices.of_traced_call(), 90.0 + 4.0 * CALL_NS, 0.001);
        let all = prices.of_tracing() * 2_500.0 + 90.0 * 10_000.0;
        near(all, prices.of_calls(&hooked(10_000)), 0.001);
        prices.learn_traced(100, &hooked(2_000));
        near(prices.of_tracing(), 4.0 * CALL_NS, 0.1);
        prices.learn_traced(400, &hooked(0));
        near(prices.of_tracing(), 4.0 * CALL_NS, 0.02);
        for _ in 0..100 {
            prices.learn_traced(0, &hooked(10_000));
        }
        near(prices.of_tracing(), 20.0 * CALL_NS, 0.001);
        for _ in 0..100 {
            prices.learn_traced(12_000, &hooked(10_000));
        }
        near(prices.of_tracing(), CALL_NS, 0.001);
    }
}
