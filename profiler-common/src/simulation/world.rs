//! What a simulated program does and has done: one timeline, its processes, and the truth about
//! them.

use std::vec::Vec;

use super::draw::{Draw, DrawnTicks, MS, TICK_NS};
use super::rules::DivisionRule;
use crate::clock::Class;
use crate::division::strata::{MarkPeriods, others, own_kinds, part_of, totals_of};
use crate::division::{Product, Stratum};
use crate::kinds::{BLOCKED, KINDS, KindNs, MARKS, Primary, RUNNABLE, Tick, WaitNs};

/// `min_interval`.
pub(super) const GAP_NS: u64 = MS;

/// Functions that a program may have, by index.
pub(super) const PLACES: usize = 8;
/// The row of marks that no walk took.
pub(super) const NOT_SAMPLED: usize = PLACES;
/// With that row.
pub(super) const ROWS: usize = PLACES + 1;

/// What a program can do. Durations are nanoseconds; a place is the function in whose stack it
/// happens.
pub(super) trait Actions {
    /// Runs in user mode.
    fn user(&mut self, place: usize, ns: u64);
    /// Runs in kernel mode outside calls.
    fn fault(&mut self, place: usize, ns: u64);
    /// Waits outside any call.
    fn off_cpu(&mut self, place: usize, waited: WaitNs);
    /// Enters a call.
    fn enter(&mut self, place: usize);
    /// Runs in it.
    fn run(&mut self, ns: u64);
    /// Waits in it.
    fn wait(&mut self, waited: WaitNs);
    /// Leaves it, seen or not.
    fn leave(&mut self, seen: bool);
    /// The time.
    fn now_ns(&self) -> u64;

    /// A call that only runs.
    fn call(&mut self, place: usize, ns: u64) {
        self.enter(place);
        self.run(ns);
        self.leave(true);
    }

    /// A call that only waits until it is woken.
    fn sleep(&mut self, place: usize, ns: u64) {
        self.enter(place);
        self.wait([ns, 0]);
        self.leave(true);
    }
}

/// Primary data of one process.
#[derive(Clone, Default)]
pub(super) struct SimulatedProcess {
    pub(super) kinds: KindNs,
    pub(super) rows: [Primary; ROWS],
}

/// Time of one row, as the program spent it.
#[derive(Clone, Copy, Default)]
pub(super) struct Truth {
    pub(super) product: Product,
    /// Nanoseconds that are divided by ticks and marks at gaps, in the place of those.
    pub(super) divided: Primary,
    /// Of waits outside calls by class: the sum of `length^2 * (k - 1)`, the variance that drawing
    /// them brings.
    pub(super) drawn: [f64; 2],
    /// The largest that one of them can stand for: `k` times its length.
    pub(super) largest: [f64; 2],
    /// The same that drawing the exits of calls brings, by what their marks are of.
    pub(super) drawn_exits: [f64; MARKS],
    pub(super) largest_exits: [f64; MARKS],
    /// Waits outside calls that are divided, by class.
    pub(super) outside: WaitNs,
}

/// One timeline.
pub(super) struct World {
    pub(super) rule: DivisionRule,
    /// `min_interval`.
    pub(super) gap_ns: u64,
    /// At which time one of `1 << shift` walks is afforded.
    pub(super) affords: fn(u64) -> u32,
    /// Calls are traced in samples: their waits are drawn.
    pub(super) draws_waits: bool,
    /// The chance that a wait in this place, which lasts so long, is found from outside.
    pub(super) finds: fn(usize, u64) -> f64,
    pub(super) now_ns: u64,
    pub(super) ticks: DrawnTicks,
    /// Of the marks.
    pub(super) random: Draw,
    /// Of the program: the same for every rule.
    pub(super) draw: Draw,
    pub(super) processes: Vec<SimulatedProcess>,
    pub(super) truth: [Truth; ROWS],
    /// What the old rule gives out itself.
    pub(super) given: [Product; ROWS],
}

impl World {
    pub(super) fn new(seed: u64, rule: DivisionRule) -> Self {
        let start_ns = 1_000_000_000_000;
        Self {
            rule,
            gap_ns: GAP_NS,
            affords: |_| 0,
            draws_waits: false,
            finds: |_, _| 0.0,
            now_ns: start_ns,
            ticks: DrawnTicks::new(seed.wrapping_mul(3), rule, start_ns),
            random: Draw::new(seed.wrapping_mul(3).wrapping_add(1)),
            draw: Draw::new(seed.wrapping_mul(3).wrapping_add(2)),
            processes: std::vec![SimulatedProcess::default()],
            truth: [Truth::default(); ROWS],
            given: [Product::default(); ROWS],
        }
    }

    /// One of `1 << walk_shift` walks is afforded.
    pub(super) fn walk_shift(&self) -> u32 {
        (self.affords)(self.now_ns)
    }

    /// Is this wait found from outside?
    pub(super) fn is_found(&mut self, place: usize, waited: WaitNs) -> bool {
        let chance = (self.finds)(place, length(waited));
        chance > 0.0 && self.random.even(1_000_000, 0.0, 1.0) < (chance * 1e6) as u64
    }

    /// The process that runs.
    pub(super) fn process(&mut self) -> &mut SimulatedProcess {
        self.processes.last_mut().expect("there is always one")
    }

    /// `ns` were spent in `place`.
    pub(super) fn spent(&mut self, place: usize, class: Class, ns: u64) {
        self.truth[place].product.classes[class as usize] += ns;
    }

    /// Time by row, as a report over all processes shows it, and what of it belongs to kinds
    /// without a mark.
    pub(super) fn report(&self) -> ([Product; ROWS], Product) {
        let mut report = [Product::default(); ROWS];
        let mut rest = Product::default();
        if self.rule == DivisionRule::NextWalk {
            return (self.given, rest);
        }
        let mut image = SimulatedProcess::default();
        for process in &self.processes {
            let sum = sum_of(&process.rows);
            let is_own = match self.rule {
                _ if self.processes.len() == 1 => [true; KINDS],
                DivisionRule::PerProcess => [true; KINDS],
                DivisionRule::StrataByTicks => [sum.ticks[Tick::User as usize] > 0; KINDS],
                _ => own_kinds(&process.kinds, PERIODS),
            };
            let own = SimulatedProcess {
                kinds: totals_of(&is_own, &process.kinds),
                rows: process.rows.map(|row| part_of(&is_own, true, &row)),
            };
            rest.add(&own.add_to(&mut report));
            let small = others(&is_own);
            for (to, from) in image.rows.iter_mut().zip(&process.rows) {
                to.add(&part_of(&small, false, from));
            }
            for (to, from) in image
                .kinds
                .iter_mut()
                .zip(totals_of(&small, &process.kinds))
            {
                *to += from;
            }
        }
        rest.add(&image.add_to(&mut report));
        (report, rest)
    }

    /// All totals and rows, in one.
    pub(super) fn whole(&self) -> SimulatedProcess {
        let mut whole = SimulatedProcess::default();
        for process in &self.processes {
            for (to, from) in whole.rows.iter_mut().zip(&process.rows) {
                to.add(from);
            }
            for (to, from) in whole.kinds.iter_mut().zip(process.kinds) {
                *to += from;
            }
        }
        whole
    }
}

const PERIODS: MarkPeriods = MarkPeriods {
    tick_ns: TICK_NS,
    gap_ns: GAP_NS,
};

impl SimulatedProcess {
    fn add_to(&self, report: &mut [Product; ROWS]) -> Product {
        let stratum = Stratum::new(&self.kinds, &sum_of(&self.rows), 0);
        let (products, rest) = stratum.divide(&self.rows);
        for (to, from) in report.iter_mut().zip(products) {
            to.add(&from);
        }
        report[NOT_SAMPLED].add(&rest);
        rest
    }
}

pub(super) fn sum_of(rows: &[Primary]) -> Primary {
    let mut sum = Primary::default();
    rows.iter().for_each(|row| sum.add(row));
    sum
}

/// The whole length of a wait.
pub(super) fn length(waited: WaitNs) -> u64 {
    waited[BLOCKED] + waited[RUNNABLE]
}
