//! Runs against their truth, with the error that the number of marks lets expect.

use std::fmt;
use std::format;
use std::string::String;
use std::vec::Vec;

use super::draw::TICK_NS;
use super::programs::{ALL, ProgramKind, run, run_in};
use super::rules::DivisionRule;
use super::world::{GAP_NS, ROWS, Truth, World, sum_of};
use crate::clock::Class;
use crate::division::Product;
use crate::kinds::{Primary, Tick};

/// Runs of each program.
const RUNS: u64 = 12;

/// The columns that are compared.
const COLUMNS: [&str; 6] = ["user", "fault", "syscall", "blocked", "runnable", "kernel"];
type CheckedColumns = [f64; COLUMNS.len()];

fn columns(product: &Product) -> CheckedColumns {
    let of = |class: Class| product.classes[class as usize];
    [
        product.application_ns(),
        product.fault_ns,
        of(Class::Syscall),
        of(Class::Blocked),
        of(Class::Runnable),
        of(Class::Kernel),
    ]
    .map(|ns| ns as f64)
}

/// The variance of what a report says of each row, from the truth and the number of marks that its
/// kinds let expect. A row may have one mark too many or too few besides, since few marks are not
/// distributed evenly around their mean.
fn variances(truth: &[Truth; ROWS]) -> [CheckedColumns; ROWS] {
    let divided: Vec<Primary> = truth.iter().map(|row| row.divided).collect();
    let sum = sum_of(&divided);
    let drawn: [f64; 2] = [0, 1].map(|class| truth.iter().map(|row| row.drawn[class]).sum());
    let of_outside = |class: Class| -> f64 {
        let all = truth.iter().map(|row| row.outside[class as usize - 2]);
        all.sum::<u64>().max(1) as f64
    };
    let outside = [of_outside(Class::Blocked), of_outside(Class::Runnable)];
    truth.each_ref().map(|row| {
        let binomial = |part: u64, whole: u64, period_ns: u64| {
            let share = part as f64 / (whole as f64).max(1.0);
            let marks = (whole as f64 / period_ns as f64).max(1.0);
            let one_ns = whole as f64 / marks;
            share * (1.0 - share) * one_ns * whole as f64 + one_ns * one_ns / 4.0
        };
        let ticks = |tick: Tick, of: &[Tick]| {
            let whole = of.iter().map(|tick| sum.ticks[*tick as usize]).sum();
            binomial(row.divided.ticks[tick as usize], whole, TICK_NS)
        };
        let gaps = |index: usize| {
            let (part, whole) = (row.divided.marks[index], sum.marks[index]);
            let share = part as f64 / (whole as f64).max(1.0);
            let all: f64 = truth.iter().map(|row| row.drawn_exits[index]).sum();
            binomial(part, whole, GAP_NS)
                + (1.0 - share).powi(2) * row.drawn_exits[index]
                + share.powi(2) * (all - row.drawn_exits[index])
                + row.largest_exits[index].powi(2)
        };
        let waits = |class: usize| {
            let share = row.outside[class] as f64 / outside[class];
            (1.0 - share).powi(2) * row.drawn[class]
                + share.powi(2) * (drawn[class] - row.drawn[class])
                + row.largest[class].powi(2)
        };
        let traced = [Tick::User, Tick::Fault];
        let untraced = [Tick::UntracedUser, Tick::UntracedFault, Tick::UntracedCall];
        [
            ticks(Tick::User, &traced) + ticks(Tick::UntracedUser, &untraced),
            ticks(Tick::Fault, &traced) + ticks(Tick::UntracedFault, &untraced),
            gaps(0) + ticks(Tick::UntracedCall, &untraced),
            gaps(1) + waits(0),
            gaps(2) + waits(1),
            ticks(Tick::Kernel, &[Tick::Kernel]),
        ]
    })
}

/// How far off a report is, in standard deviations, and where.
pub(super) struct Off {
    pub(super) sigmas: f64,
    place: String,
}

impl fmt::Display for Off {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sigmas, place } = self;
        write!(formatter, "{sigmas:.1} sigmas off in {place}")
    }
}

/// What reports said, the truth, and the variance between them; of one run or several.
#[derive(Clone, Default)]
pub(super) struct Comparison {
    cells: [[[f64; 3]; COLUMNS.len()]; ROWS],
}

impl Comparison {
    /// Of a run under some rule, with the error that the right one has.
    pub(super) fn of(world: &World, right: &World) -> Self {
        let variances = variances(&right.truth);
        let (report, _) = world.report();
        // Kinds of so little time that they have no mark are `[not sampled]`.
        let rest = columns(&right.report().1);
        let mut cells = [[[0.0; 3]; COLUMNS.len()]; ROWS];
        for (row, cells) in cells.iter_mut().enumerate() {
            let said = columns(&report[row]);
            let truth = columns(&world.truth[row].product);
            for (column, cell) in cells.iter_mut().enumerate() {
                let variance = variances[row][column] + rest[column].powi(2);
                *cell = [said[column], truth[column], variance];
            }
        }
        Self { cells }
    }

    fn add(&mut self, other: &Self) {
        let to = self.cells.iter_mut().flatten().flatten();
        to.zip(other.cells.iter().flatten().flatten())
            .for_each(|(to, from)| *to += from);
    }

    pub(super) fn worst(&self) -> Off {
        let mut worst = Off {
            sigmas: 0.0,
            place: String::new(),
        };
        for (row, cells) in self.cells.iter().enumerate() {
            for (column, [said, truth, variance]) in cells.iter().enumerate() {
                // A microsecond for what rounding does.
                let sigmas = (said - truth).abs() / (variance + 1e6).sqrt();
                if sigmas > worst.sigmas {
                    let (said, truth) = (said / 1e6, truth / 1e6);
                    let what = COLUMNS[column];
                    worst = Off {
                        sigmas,
                        place: format!("row {row}, {what}: {said:.3} ms for {truth:.3} ms"),
                    };
                }
            }
        }
        worst
    }
}

/// The worst of several runs, and the worst of their sum.
fn compare(program: ProgramKind, rule: DivisionRule, runs: u64) -> (Off, Off) {
    let mut sum = Comparison::default();
    let mut worst = sum.worst();
    for seed in 1..=runs {
        let right = run(program, seed, DivisionRule::Marks);
        let one = if rule == DivisionRule::Marks {
            Comparison::of(&right, &right)
        } else {
            Comparison::of(&run(program, seed, rule), &right)
        };
        let off = one.worst();
        if off.sigmas > worst.sigmas {
            worst = off;
        }
        sum.add(&one);
    }
    (worst, sum.worst())
}

/// Each run within so many standard deviations: there are some thousand numbers in all.
pub(super) const ONE_RUN: f64 = 5.0;
/// And the sum of all runs of a program.
const ALL_RUNS: f64 = 4.0;

pub(super) fn program(name: &str) -> ProgramKind {
    let found = ALL.iter().find(|(known, _)| *known == name);
    found.expect("a program of that name").1
}

/// Check that every program's time is found where it was spent.
#[test]
fn time_is_where_it_was_spent() {
    let mut failed = Vec::new();
    for (name, program) in ALL {
        let (one, all) = compare(*program, DivisionRule::Marks, RUNS);
        if one.sigmas > ONE_RUN || all.sigmas > ALL_RUNS {
            failed.push(format!("{name}: {one}, all runs {all}"));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Check that the rule of the first design and each near miss fail on a program that was made for
/// it.
#[test]
fn near_misses_are_noticed() {
    for (rule, name) in [
        (DivisionRule::NextWalk, "calls of nothing"),
        (DivisionRule::NextWalk, "cheap and dear calls"),
        (DivisionRule::NextWalk, "short and long sleeps"),
        (DivisionRule::NextWalk, "period of exactly 1 ms"),
        (DivisionRule::NextWalk, "a server"),
        (DivisionRule::NextWalk, "page faults that wait"),
        (DivisionRule::NextWalk, "a burst, then a long wait"),
        (DivisionRule::NextWalk, "calls of 4 s and of 50 us"),
        (DivisionRule::NextWalk, "60 frames a second"),
        (DivisionRule::NextWalk, "90 frames a second"),
        (DivisionRule::NextWalk, "threads of 1 ms"),
        (DivisionRule::NextWalk, "processes of 3 and 12 ms"),
        (DivisionRule::FixedComb, "60 frames a second"),
        (DivisionRule::FixedComb, "90 frames a second"),
        (DivisionRule::FirstGapWhole, "threads of 1 ms"),
        (DivisionRule::PerProcess, "processes of 3 and 12 ms"),
        (DivisionRule::StrataByTicks, "processes of 3 and 12 ms"),
        (DivisionRule::DropUntaken, "calls that do not return"),
        (DivisionRule::DropUntaken, "a call killed in its middle"),
        (DivisionRule::NextCallsExit, "cheap and dear calls"),
        (DivisionRule::OneMarkPerWalk, "calls of 5 ms and of 30 us"),
        (DivisionRule::GapFromWalk, "calls of 5 ms and of 30 us"),
        (
            DivisionRule::WeightAfterWait,
            "fast faults, then a long one",
        ),
        (DivisionRule::FirstWaits, "the first faults of each 100 ms"),
        (DivisionRule::OutsideAtExit, "page faults that wait"),
        (DivisionRule::WalksAreWaited, "quick faults and late ones"),
        (DivisionRule::WalkedStandForAll, "short and long sleeps"),
        (DivisionRule::FoundIfUnwalked, "waits found from outside"),
        (DivisionRule::AgeNotWeighted, "few walks of faults"),
        (DivisionRule::AgeNotWeighted, "few walks of calls"),
        (
            DivisionRule::WaitsAreBlocked,
            "preempted in calls and outside",
        ),
    ] {
        let (one, all) = compare(program(name), rule, RUNS);
        assert!(
            one.sigmas > ONE_RUN || all.sigmas > ALL_RUNS,
            "{rule:?} passes on {name}: {one}, all runs {all}"
        );
    }
}

/// Check that stretches that are given their share of marks at once have no hundredth too much, nor
/// what comes after them: a walk that finds nothing begins a stretch, too, else calls that are
/// walked often, and then not for long, have it.
#[test]
fn long_stretches_have_their_share() {
    let of = |name, rule| compare(program(name), rule, 200).1;
    let walked = "calls that wait, then run for 9 ms";
    for name in [walked, "calls of 12.5 ms and of 0.1 ms"] {
        let off = of(name, DivisionRule::Marks);
        assert!(off.sigmas < ALL_RUNS, "{name}: {off}");
    }
    let off = of(walked, DivisionRule::TakeOnlyWhenDue);
    assert!(off.sigmas > ALL_RUNS, "{off}");
}

/// Check that without a `min_interval` all time in calls and all waits are exactly where they were.
#[test]
fn without_an_interval_calls_and_waits_are_exact() {
    for (name, program) in ALL {
        let mut world = World::new(1, DivisionRule::Marks);
        world.gap_ns = 0;
        run_in(&mut world, *program);
        let (report, _) = world.report();
        for (said, row) in report.iter().zip(&world.truth) {
            let traced = row.divided.ticks[Tick::UntracedCall as usize] == 0;
            let first = if traced {
                Class::Syscall
            } else {
                Class::Blocked
            };
            let columns = first as usize..Class::Kernel as usize;
            assert_eq!(
                said.classes[columns.clone()],
                row.product.classes[columns],
                "{name}"
            );
        }
    }
}
