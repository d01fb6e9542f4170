//! Tests of the decision which system calls are traced: loads on a machine of numbers.

use super::*;
use crate::units::BootNs;

const STEP_NS: u64 = 20_000_000;
const STEPS: u64 = SECOND_NS / STEP_NS;
const SECOND_NS: u64 = 1_000_000_000;
const BUDGET: Budget = Budget {
    machine: 0.01,
    process: 0.03,
};

/// A machine of some processors with one busy process.
struct Load {
    processors: f64,
    /// Processors that are at work, and of them the process.
    busy: f64,
    process: f64,
    /// What tracing all of the process's calls costs, as a share of its time, and what else
    /// profiling costs, of all.
    calls: f64,
    others: f64,
}

/// What came of it.
struct Run {
    controller: Controller,
    now_ns: u64,
    /// By step: what was spent, by the machine and in the process, and what was at work.
    steps: Vec<[f64; 4]>,
    gave_way: u32,
    samples: u32,
    passed: [f64; 3],
    /// What it takes to begin to trace calls, or to end it.
    switching_ns: f64,
    switched: u32,
}

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            controller: Controller::new(BUDGET, Rng::with_seed(seed), MonoNs::ZERO),
            now_ns: 0,
            steps: Vec::new(),
            gave_way: 0,
            samples: 0,
            passed: [0.0; 3],
            switching_ns: 0.0,
            switched: 0,
        }
    }

    fn traces(&self) -> bool {
        self.controller.tracing() != Tracing::Sampled { now: false }
    }

    fn go(&mut self, load: &Load, seconds: u64) {
        for step in 1..=STEPS * seconds {
            let before = self.controller.tracing();
            let past_ns = STEP_NS as f64;
            let calls = if self.traces() { load.calls } else { 0.0 };
            let calls_ns = calls * load.process * past_ns;
            let busy_ns = load.busy.min(load.processors) * past_ns;
            let others_ns = load.others * busy_ns;
            self.now_ns += STEP_NS;
            if self.traces() {
                self.passed[0] += past_ns;
            }
            self.passed[1] += calls_ns;
            self.passed[2] += calls_ns + load.others * load.process * past_ns;
            let spent = BudgetSpent {
                past_ns,
                busy_ns,
                calls_ns,
                all_ns: calls_ns + others_ns,
            };
            self.steps.push([
                spent.all_ns,
                busy_ns,
                calls_ns + load.others * load.process * past_ns,
                load.process * past_ns,
            ]);
            self.controller.step(MonoNs::new(self.now_ns), &spent);
            if step % STEPS == 0 {
                let [traced_ns, calls_ns, all_ns] = std::mem::take(&mut self.passed);
                let second_ns = SECOND_NS as f64;
                let process = ProcessSpent {
                    process: ProcessKey {
                        pid: 7,
                        start_ns: BootNs::new(1),
                    },
                    running_ns: load.process * second_ns,
                    calls_ns,
                    all_ns,
                };
                let all = std::iter::once(process);
                self.controller
                    .pass(MonoNs::new(self.now_ns), second_ns, traced_ns, all);
            }
            let after = self.controller.tracing();
            let traces = |tracing| tracing != Tracing::Sampled { now: false };
            if traces(before) != traces(after) {
                self.controller.switched(self.switching_ns);
                self.switched += 1;
            }
            self.gave_way += u32::from(before == Tracing::All && after != Tracing::All);
            let is_sample = |tracing| tracing == Tracing::Sampled { now: true };
            self.samples += u32::from(!is_sample(before) && is_sample(after));
        }
    }

    /// The largest share that was spent over any ten seconds, those of the first five seconds left
    /// out: of the machine, of the process.
    fn worst(&self) -> [f64; 2] {
        let steps = STEPS as usize;
        let windows = self.steps[5 * steps..].windows(10 * steps);
        windows.fold([0.0; 2], |worst, window| {
            let sum = |at: usize| window.iter().map(|step| step[at]).sum::<f64>();
            [
                f64::max(worst[0], sum(0) / sum(1)),
                f64::max(worst[1], sum(2) / sum(3)),
            ]
        })
    }
}

// Check that what system calls cost stays within both budgets over any ten seconds after the first
// five, whatever the load is like, that samples of them go on, and that nothing gives way that is
// no trouble.
#[test]
fn the_budget_holds() {
    let loads = [
        // Redis on two processors; a loop of calls on one; on all; on one of 64.
        (2.0, 1.6, 0.9, 0.23, 0.002),
        (2.0, 1.1, 1.0, 1.3, 0.001),
        (2.0, 2.0, 2.0, 1.3, 0.001),
        (64.0, 20.0, 1.0, 0.23, 0.001),
        (2.0, 1.6, 0.9, 0.06, 0.003),
        // A process that is hardly at work for long enough to have a budget of its own.
        (2.0, 2.0, 0.06, 0.038, 0.002),
    ];
    for (processors, busy, process, calls, others) in loads {
        for seed in 0..20 {
            let load = Load {
                processors,
                busy,
                process,
                calls,
                others,
            };
            let mut run = Run::new(seed);
            run.go(&load, 300);
            let [machine, of_process] = run.worst();
            assert!(machine <= 1.2 * BUDGET.machine, "{calls}: {machine}");
            assert!(of_process <= 1.2 * BUDGET.process, "{calls}: {of_process}");
            assert_eq!(run.gave_way, 1, "{calls} of {process}");
            assert!(run.samples >= 3, "{calls}: {}", run.samples);
        }
    }
    let cheap = [
        (2.0, 1.6, 0.9, 0.005, 0.002),
        // The rest alone breaks the budget, and calls are nothing beside it.
        (2.0, 0.01, 0.005, 0.02, 0.5),
        (64.0, 60.0, 1.0, 0.02, 0.001),
        // The daemon answers questions all the time.
        (2.0, 1.6, 0.9, 0.003, 0.2),
    ];
    for (processors, busy, process, calls, others) in cheap {
        let mut run = Run::new(1);
        run.go(
            &Load {
                processors,
                busy,
                process,
                calls,
                others,
            },
            300,
        );
        assert_eq!(run.gave_way, 0, "{calls} of {process}");
    }
}

// Check that tracing of all comes back soon once the load is over, also where samples had been
// rare, and that a load that comes and goes does not have it come and go with it.
#[test]
fn it_comes_back_and_does_not_flap() {
    let storm = Load {
        processors: 2.0,
        busy: 1.1,
        process: 1.0,
        calls: 1.3,
        others: 0.001,
    };
    let calm = Load {
        busy: 0.3,
        process: 0.2,
        calls: 0.002,
        ..storm
    };
    for seed in 0..20 {
        let mut run = Run::new(seed);
        run.go(&storm, 60);
        assert_ne!(run.controller.tracing(), Tracing::All);
        run.go(&calm, 40);
        assert_eq!(run.controller.tracing(), Tracing::All, "seed {seed}");
        for _ in 0..20 {
            run.go(&storm, 15);
            run.go(&calm, 15);
        }
        assert!(run.gave_way <= 8, "seed {seed}: {}", run.gave_way);
    }
}

// Check that samples of a load that comes and goes take no more than their part for long, though
// each time that it goes another load is met.
#[test]
fn samples_of_a_load_that_comes_and_goes_are_bounded() {
    let storm = Load {
        processors: 2.0,
        busy: 1.1,
        process: 1.0,
        calls: 1.5,
        others: 0.0,
    };
    let pause = Load {
        busy: 0.1,
        process: 0.0,
        calls: 0.0,
        ..storm
    };
    for (storm_s, pause_s) in [(1, 1), (2, 2), (3, 3), (1, 4)] {
        for seed in 0..4 {
            let mut run = Run::new(seed);
            // It gives way in the first seconds.
            run.go(&storm, 10);
            run.steps.clear();
            for _ in 0..600 / (storm_s + pause_s) {
                run.go(&storm, storm_s);
                run.go(&pause, pause_s);
            }
            let sum = |at: usize| run.steps.iter().map(|step| step[at]).sum::<f64>();
            let share = sum(0) / sum(1);
            assert!(
                share <= BUDGET.machine,
                "{storm_s} {pause_s} {seed}: {share}"
            );
        }
    }
}

// Check that what it takes to begin and end samples, which is dear where there are many threads,
// takes no more than samples may, also of a load that comes and goes, and that samples go on.
#[test]
fn samples_that_are_dear_to_begin_are_rare() {
    let hums = Load {
        processors: 2.0,
        busy: 0.03,
        process: 0.02,
        calls: 0.2,
        others: 0.3,
    };
    let rests = Load {
        busy: 0.01,
        process: 0.01,
        ..hums
    };
    for seed in 0..10 {
        let mut run = Run::new(seed);
        run.switching_ns = 3e6;
        run.go(&hums, 60);
        assert_eq!(run.gave_way, 1);
        (run.switched, run.samples) = (0, 0);
        for _ in 0..300 {
            run.go(&hums, 1);
            run.go(&rests, 1);
        }
        let took_ns = f64::from(run.switched) * run.switching_ns;
        let allowed_ns = 600.0 * SECOND_NS as f64 * (0.0005 + 0.01 * 0.02) * 0.25;
        assert!(took_ns < 2.0 * allowed_ns, "{seed}: {}", run.switched);
        assert!(run.samples >= 5, "{seed}: {}", run.samples);
    }
}

// Check that what a process has cost beyond its budget is not forgotten while it rests.
#[test]
fn a_process_that_works_every_other_second_keeps_its_excess() {
    let works = Load {
        processors: 64.0,
        busy: 20.0,
        process: 1.0,
        calls: 0.055,
        others: 0.0,
    };
    let rests = Load {
        process: 0.0,
        ..works
    };
    let mut run = Run::new(1);
    for _ in 0..5 {
        run.go(&works, 1);
        run.go(&rests, 1);
    }
    assert_eq!(run.gave_way, 1);
}
