//! How often intervals hold the truth.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};

use super::draw::{Draw, MS, SECOND, US};
use super::programs::{ALL, ProgramKind, run, run_in};
use super::random_programs::{deterministic, plan};
use super::rules::DivisionRule;
use super::world::{Actions, PLACES, World, sum_of};
use crate::division::{Column, Product, Stratum};

/// How many intervals there were, and how many of them hold the truth.
#[derive(Clone, Copy, Debug, Default)]
struct HeldIntervals {
    intervals: f64,
    holds: f64,
}

impl HeldIntervals {
    /// Adds the rows of a run of one process.
    fn add(&mut self, world: &World, column: Column, value: fn(&Product) -> u64) {
        let process = world.whole();
        let sum = sum_of(&process.rows);
        let stratum = Stratum::new(&process.kinds, &sum, SECOND * 20);
        let (products, _) = stratum.divide(&process.rows);
        for (place, product) in products.iter().enumerate().take(PLACES) {
            let value_ns = value(product);
            if value_ns == 0 {
                continue;
            }
            let estimate = stratum.estimate(&process.rows[place], column);
            let interval = estimate.interval(value_ns);
            let truth_ns = value(&world.truth[place].product);
            // Two nanoseconds for what rounding does.
            let holds = interval.low_ns <= truth_ns + 2 && truth_ns <= interval.high_ns + 2;
            self.intervals += 1.0;
            self.holds += f64::from(u8::from(holds));
        }
    }

    fn share(self) -> f64 {
        self.holds / self.intervals
    }
}

fn both(world: &World, elapsed: &mut HeldIntervals, application: &mut HeldIntervals) {
    elapsed.add(world, Column::Elapsed, Product::elapsed_ns);
    application.add(world, Column::Application, Product::application_ns);
}

/// Check that intervals hold the truth in 93 % of all functions or more, over the programs that
/// have a name and over drawn ones.
#[test]
fn intervals_hold_the_truth() {
    let [mut elapsed, mut application] = [HeldIntervals::default(); 2];
    for (_, program) in ALL {
        for seed in 100..112 {
            let world = run(*program, seed, DivisionRule::Marks);
            if world.processes.len() == 1 {
                both(&world, &mut elapsed, &mut application);
            }
        }
    }
    assert!(elapsed.share() > 0.93, "{elapsed:?}");
    assert!(application.share() > 0.93, "{application:?}");

    let [mut elapsed, mut application] = [HeldIntervals::default(); 2];
    let mut runner = TestRunner::new_with_rng(Config::default(), deterministic());
    for _ in 0..400 {
        let plan = plan().new_tree(&mut runner).expect("no plan is refused");
        let world = plan.current().run(DivisionRule::Marks);
        if world.processes.len() == 1 {
            both(&world, &mut elapsed, &mut application);
        }
    }
    assert!(elapsed.share() > 0.93, "{elapsed:?}");
    assert!(application.share() > 0.93, "{application:?}");
}

/// Calls of two functions in turn, so long together.
fn in_turn(does: &mut dyn Actions, draw: &mut Draw, ns: u64, even: bool) {
    for place in [0, 1] {
        does.call(
            place,
            if even {
                ns / 2
            } else {
                draw.exponential(ns / 2)
            },
        );
    }
}

/// All walks are afforded.
fn all(_: u64) -> u32 {
    0
}

/// Up to one of eight, by nothing that a program does.
fn some(now_ns: u64) -> u32 {
    let moment = now_ns / (20 * MS);
    (moment.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 62) as u32
}

const HEAVY_EVERY_NS: u64 = 400 * MS;
const HEAVY_NS: u64 = 40 * MS;

/// One of eight for a tenth of the time, as long as something dear runs.
fn few_of_the_dear(now_ns: u64) -> u32 {
    if now_ns % HEAVY_EVERY_NS < HEAVY_NS {
        3
    } else {
        0
    }
}

fn held(round: fn(&mut dyn Actions, &mut Draw), affords: fn(u64) -> u32) -> f64 {
    held_for(SECOND, round, affords)
}

fn held_for(ns: u64, round: fn(&mut dyn Actions, &mut Draw), affords: fn(u64) -> u32) -> f64 {
    let mut held = HeldIntervals::default();
    for seed in 0..300 {
        let mut world = World::new(seed, DivisionRule::Marks);
        world.affords = affords;
        run_in(&mut world, ProgramKind::Loop(round, 0, ns));
        held.add(&world, Column::Elapsed, Product::elapsed_ns);
    }
    held.share()
}

/// Check what the regular gaps between marks make of intervals that take them for chance: right
/// where functions change within a gap, too wide where they stay for longer, and too narrow only
/// for a program that goes round in two thirds of the mean gap exactly, the worst there is.
#[test]
fn marks_at_gaps_are_no_less_sure_than_their_intervals() {
    let fine = held(|does, draw| in_turn(does, draw, 20 * US, false), all);
    let coarse = held(|does, draw| in_turn(does, draw, 6000 * US, false), all);
    let worst = held(
        |does, draw| in_turn(does, draw, 1000 * US * 2 / 3, true),
        all,
    );
    assert!(
        fine > 0.92 && coarse > 0.99 && worst > 0.83,
        "{fine} {coarse} {worst}"
    );
}

/// Calls that run and wait, of one function four times as long as of another.
fn calls_that_wait(does: &mut dyn Actions, draw: &mut Draw) {
    for (place, mean_ns) in [(0, 800 * US), (1, 200 * US)] {
        does.enter(place);
        does.run(draw.exponential(mean_ns / 4));
        does.wait([draw.exponential(mean_ns), 0]);
        does.leave(true);
    }
}

/// Two functions outside calls, one of them with page faults.
fn user_and_fault(does: &mut dyn Actions, draw: &mut Draw) {
    does.user(0, draw.exponential(300 * US));
    does.user(1, draw.exponential(60 * US));
    does.fault(1, draw.exponential(40 * US));
}

/// Check that where walks give way to a budget, and some stand for others, intervals hold the truth
/// as often: of calls that run, that wait, of waits outside calls, and of what ticks divide.
#[test]
fn intervals_hold_where_walks_give_way() {
    let outside = |does: &mut dyn Actions, draw: &mut Draw| {
        for (place, mean_ns) in [(0, 300 * US), (1, 100 * US)] {
            does.off_cpu(place, [0, draw.exponential(mean_ns)]);
        }
    };
    let fine = held(|does, draw| in_turn(does, draw, 20 * US, false), some);
    let coarse = held(|does, draw| in_turn(does, draw, 6000 * US, false), some);
    let waits = held(calls_that_wait, some);
    let outside = held(outside, some);
    let user = held(user_and_fault, some);
    assert!(
        fine > 0.9 && coarse > 0.9 && waits > 0.9 && outside > 0.9 && user > 0.9,
        "{fine} {coarse} {waits} {outside} {user}"
    );
}

/// Check that a function that is rare and dear to walk, so that its ticks alone stand for others,
/// has an interval as wide as that makes it.
#[test]
fn intervals_know_whose_marks_are_heavy() {
    // The world begins at a whole number of these turns.
    let round = |does: &mut dyn Actions, _: &mut Draw| {
        does.user(1, HEAVY_NS);
        does.user(0, HEAVY_EVERY_NS - HEAVY_NS);
    };
    let held = held_for(20 * SECOND, round, few_of_the_dear);
    assert!(held > 0.9, "{held}");
}
