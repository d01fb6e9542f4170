//! Programs that nobody thought of: drawn steps in a loop, of threads and processes of a drawn
//! length.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::vec::Vec;

use super::check::{Comparison, ONE_RUN};
use super::draw::{Draw, MS, SECOND, US};
use super::programs::thread;
use super::rules::DivisionRule;
use super::world::{Actions, SimulatedProcess, World};
use crate::clock::UNTRACED;

/// What a step does, `ns` long on average.
#[derive(Clone, Copy, Debug)]
enum Act {
    User,
    Fault,
    OffCpu,
    Preempted,
    Call,
    Sleep,
    /// A call that runs, waits, and runs again.
    Mixed,
    /// The same, left unseen.
    Unseen,
}

#[derive(Clone, Debug)]
struct PlannedStep {
    act: Act,
    place: usize,
    ns: u64,
    times: u32,
    /// Of a drawn length, else nearly the same each time.
    drawn: bool,
}

/// A program.
#[derive(Clone, Debug)]
pub(super) struct ProgramPlan {
    steps: Vec<PlannedStep>,
    flags: u32,
    /// How long each thread lives.
    life_ns: u64,
    /// Is each thread a process of its own?
    forks: bool,
    seed: u64,
}

/// As long a program runs, unless it has taken [`MOST_STEPS`] before.
const RUN_NS: u64 = 20 * SECOND;
const MOST_STEPS: u32 = 40_000;

/// Lengths of every magnitude.
fn nanoseconds(from: u64, to: u64) -> impl Strategy<Value = u64> {
    ((from as f64).ln()..(to as f64).ln()).prop_map(|log| log.exp() as u64)
}

fn step() -> impl Strategy<Value = PlannedStep> {
    let act = proptest::sample::select(std::vec![
        Act::User,
        Act::Fault,
        Act::OffCpu,
        Act::Preempted,
        Act::Call,
        Act::Sleep,
        Act::Mixed,
        Act::Unseen,
    ]);
    let times = prop_oneof![Just(1), 1..60_u32];
    let ns = nanoseconds(300, 30 * MS);
    (act, 0..6_usize, ns, times, any::<bool>()).prop_map(|(act, place, ns, times, drawn)| {
        PlannedStep {
            act,
            place,
            ns,
            times,
            drawn,
        }
    })
}

/// Any program.
pub(super) fn plan() -> impl Strategy<Value = ProgramPlan> {
    let flags = prop_oneof![7 => Just(0), 1 => Just(UNTRACED)];
    let life_ns = prop_oneof![Just(RUN_NS), nanoseconds(MS, RUN_NS)];
    let steps = proptest::collection::vec(step(), 2..8);
    (steps, flags, life_ns, any::<bool>(), any::<u64>()).prop_map(
        |(steps, flags, life_ns, forks, seed)| ProgramPlan {
            steps,
            flags,
            life_ns,
            forks,
            seed,
        },
    )
}

impl ProgramPlan {
    /// Runs it in a new world.
    pub(super) fn run(&self, rule: DivisionRule) -> World {
        let mut world = World::new(self.seed, rule);
        let end_ns = world.now_ns + RUN_NS;
        let mut left = MOST_STEPS;
        while world.now_ns < end_ns && left > 0 {
            if self.forks && left < MOST_STEPS {
                world.processes.push(SimulatedProcess::default());
            }
            let dies_ns = end_ns.min(world.now_ns + self.life_ns);
            thread(&mut world, self.flags, |does, draw| {
                let steps = self.steps.iter().cycle();
                let all = steps.flat_map(|step| std::iter::repeat_n(step, step.times as usize));
                for step in all {
                    step.take(does, draw);
                    left = left.saturating_sub(1);
                    if does.now_ns() >= dies_ns || left == 0 {
                        return;
                    }
                }
            });
        }
        world
    }
}

impl PlannedStep {
    fn take(&self, does: &mut dyn Actions, draw: &mut Draw) {
        let ns = if self.drawn {
            1 + draw.exponential(self.ns)
        } else {
            1 + draw.wiggle(self.ns)
        };
        match self.act {
            Act::User => does.user(self.place, ns),
            Act::Fault => does.fault(self.place, ns),
            Act::OffCpu => does.off_cpu(self.place, [ns, draw.exponential(5 * US)]),
            Act::Preempted => does.off_cpu(self.place, [0, ns]),
            Act::Call => does.call(self.place, ns),
            Act::Sleep => does.sleep(self.place, ns),
            Act::Mixed | Act::Unseen => {
                does.enter(self.place);
                does.run(ns / 4);
                does.wait([ns / 2, draw.exponential(ns / 8)]);
                does.run(ns / 4);
                does.leave(matches!(self.act, Act::Mixed));
            }
        }
    }
}

/// Check that drawn programs have their time where they spent it. (The programs are the same each
/// time.)
#[test]
fn time_of_drawn_programs_is_where_it_was_spent() {
    let config = Config {
        cases: 400,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, deterministic());
    let result = runner.run(&plan(), |plan| {
        let world = plan.run(DivisionRule::Marks);
        let off = Comparison::of(&world, &world).worst();
        prop_assert!(off.sigmas <= ONE_RUN, "{off}");
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// The same numbers each time.
pub(super) fn deterministic() -> proptest::test_runner::TestRng {
    let algorithm = proptest::test_runner::RngAlgorithm::ChaCha;
    proptest::test_runner::TestRng::deterministic_rng(algorithm)
}
