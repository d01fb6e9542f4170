//! The division of exact time among stacks, on random and on hostile numbers.

use std::{format, vec::Vec};

use proptest::prelude::*;

use super::strata::{MarkPeriods, others, own_kinds, part_of, totals_of};
use super::{
    ALL_PARTS, Column, PARTS, Product, Stratum, equal_weights, kernel_parts, parts_of, shares,
};
use crate::clock::{CLASS_COUNT, Class};
use crate::kinds::{
    BLOCKED, KINDS, Kind, KindNs, MARK_CALL, NUMBERS, Primary, RUNNABLE, Tick, WAITS,
};

/// Stacks whose numbers are as a profile has them: small, often zero.
fn stacks() -> impl Strategy<Value = Vec<Primary>> {
    proptest::collection::vec(stack(0..40), 0..12)
}

fn stack(numbers: std::ops::Range<u64>) -> impl Strategy<Value = Primary> {
    let numbers = prop_oneof![2 => Just(0), 1 => numbers];
    proptest::collection::vec(numbers, NUMBERS).prop_map(|numbers| {
        let mut primary = Primary::default();
        for (to, from) in primary.numbers_mut().into_iter().zip(numbers) {
            *to = from;
        }
        primary
    })
}

fn totals() -> impl Strategy<Value = KindNs> {
    let total = prop_oneof![1 => Just(0), 1 => 0..100_u64, 2 => 0..1_u64 << 50];
    proptest::collection::vec(total, KINDS).prop_map(|kinds| kinds.try_into().unwrap())
}

pub(super) fn sum_of(stacks: &[Primary]) -> Primary {
    let mut sum = Primary::default();
    stacks.iter().for_each(|stack| sum.add(stack));
    sum
}

fn sum_of_products(products: &[Product], rest: Product) -> Product {
    let mut sum = rest;
    products.iter().for_each(|product| sum.add(product));
    sum
}

/// What a stratum has of each class, with untraced time under class user.
fn classes_of(kinds: &KindNs, exact: [u64; WAITS]) -> [u64; CLASS_COUNT] {
    let of = |kind: Kind| kinds[kind as usize];
    [
        of(Kind::User) + of(Kind::Untraced),
        of(Kind::Call),
        of(Kind::CallBlocked) + of(Kind::OutsideBlocked) + exact[0],
        of(Kind::CallRunnable) + of(Kind::OutsideRunnable) + exact[1],
        of(Kind::Kernel),
    ]
}

fn marks_of(kind: Kind, stack: &Primary) -> u64 {
    parts_of(kind).iter().map(|part| part.of(stack)).sum()
}

/// Check that each sort of marks is found with its kind.
#[test]
fn parts_are_those_of_their_kind() {
    let found = Kind::ALL.map(|kind| {
        parts_of(kind)
            .iter()
            .filter(|part| part.kind == kind)
            .count()
    });
    assert_eq!(found.iter().sum::<usize>(), PARTS);
    let all = Kind::ALL.map(|kind| ALL_PARTS.iter().filter(|part| part.kind == kind).count());
    assert_eq!(found, all);
}

/// What of a kind its marks can stand for: nothing without any; and drawn waits for no more than
/// what they weigh, where the kind is more than that and three standard deviations.
fn told_ns(kind: Kind, kinds: &KindNs, sum: &Primary) -> u64 {
    let (kind_ns, marks) = (kinds[kind as usize], marks_of(kind, sum));
    let class = match kind {
        _ if marks == 0 => return 0,
        Kind::OutsideBlocked => BLOCKED,
        Kind::OutsideRunnable => RUNNABLE,
        _ => return kind_ns,
    };
    let draws = equal_weights(marks, sum.squares_ms2[class]);
    let chance = 1.0 + 3.0 / draws.sqrt();
    if marks < kind_ns && kind_ns as f64 > marks as f64 * chance {
        marks
    } else {
        kind_ns
    }
}

/// Check that drawn waits stand for all of their kind where it is as much as they weigh, more or
/// less by chance, and for no more than they weigh where there is far more: a few long waits, of
/// which none was drawn.
#[test]
fn drawn_waits_stand_for_waits_like_them() {
    let mut kinds = [0; KINDS];
    kinds[Kind::OutsideBlocked as usize] = 155_000_000_000;
    for (weighted_s, draws, told_s) in [
        (155, 50, 155),
        (300, 50, 155),
        (110, 50, 155),
        (105, 50, 105),
        (20, 50, 20),
        (20, 1_000_000, 20),
        (40, 1, 155),
        (38, 1, 38),
    ] {
        let mut drawn = Primary::default();
        drawn.weighted[BLOCKED] = weighted_s * 1_000_000_000;
        drawn.squares_ms2[BLOCKED] = (weighted_s * 1000).pow(2) / draws;
        let stratum = Stratum::new(&kinds, &drawn, 0);
        let (products, rest) = stratum.divide([&drawn]);
        let told_ns = told_s * 1_000_000_000;
        let what = format!("{weighted_s} s of {draws}");
        assert_eq!(products[0].elapsed_ns(), told_ns, "{what}");
        assert_eq!(rest.elapsed_ns(), 155_000_000_000 - told_ns, "{what}");
        let interval = stratum.estimate(&drawn, Column::Elapsed).interval(told_ns);
        assert_eq!(interval.high_ns, told_ns, "{what}");
    }
}

proptest! {
    /// Check that all time is given out, class by class, to the nanosecond, and that the total
    /// needs no stacks.
    #[test]
    fn the_ledger_holds(kinds in totals(), stacks in stacks()) {
        let sum = sum_of(&stacks);
        let stratum = Stratum::new(&kinds, &sum, 1_000_000_000);
        let (products, rest) = stratum.divide(&stacks);
        let total = sum_of_products(&products, rest);
        prop_assert_eq!(total, stratum.total());

        let mut classes = total.classes;
        let expected = classes_of(&kinds, sum.exact);
        // Ticks say what of untraced time was inside calls.
        let calls_ns = classes[Class::Syscall as usize] - expected[Class::Syscall as usize];
        prop_assert!(calls_ns <= kinds[Kind::Untraced as usize]);
        classes[Class::Syscall as usize] -= calls_ns;
        classes[Class::User as usize] += calls_ns;
        prop_assert_eq!(classes, expected);
        prop_assert_eq!(total.estimated_ns, kinds[Kind::Untraced as usize]);
        prop_assert!(total.fault_ns <= total.classes[Class::User as usize]);

        let missing: u64 = Kind::ALL
            .into_iter()
            .map(|kind| kinds[kind as usize] - told_ns(kind, &kinds, &sum))
            .sum();
        prop_assert_eq!(rest.elapsed_ns(), missing);
    }

    /// Check that a stack has its share of each kind, less than two nanoseconds off per sort of
    /// mark, and nothing without.
    #[test]
    fn shares_are_those_of_the_marks(kinds in totals(), stacks in stacks()) {
        let sum = sum_of(&stacks);
        let (products, _) = Stratum::new(&kinds, &sum, 0).divide(&stacks);
        for (stack, product) in stacks.iter().zip(products) {
            let mut expected = f64::from(u32::try_from(stack.exact[0] + stack.exact[1]).unwrap());
            let mut parts = 0.0;
            for kind in Kind::ALL {
                let (marks, all) = (marks_of(kind, stack), marks_of(kind, &sum));
                if marks > 0 {
                    let told = told_ns(kind, &kinds, &sum) as f64;
                    expected += told * (marks as f64 / all as f64);
                    parts += 3.0;
                }
            }
            let off = (product.elapsed_ns() as f64 - expected).abs();
            prop_assert!(off <= 2.0 * parts + expected * 1e-12, "{} of {}", off, expected);
        }
    }

    /// Check that what a stack has does not depend on where it stands among the others, but for the
    /// odd nanosecond between equal marks.
    #[test]
    fn the_order_of_stacks_does_not_matter(
        kinds in totals(),
        stacks in stacks(),
    ) {
        let stratum = Stratum::new(&kinds, &sum_of(&stacks), 0);
        let sorted = |stacks: &[Primary]| {
            let products = stratum.divide(stacks).0;
            let mut all: Vec<_> = stacks
                .iter()
                .zip(products)
                .map(|(stack, product)| (stack.numbers(), product.elapsed_ns()))
                .collect();
            all.sort_unstable();
            all
        };
        let mut reversed = stacks.clone();
        reversed.reverse();
        let (one, other) = (sorted(&stacks), sorted(&reversed));
        for (one, other) in one.iter().zip(other) {
            prop_assert_eq!(one.0, other.0);
            prop_assert!(one.1.abs_diff(other.1) <= PARTS as u64);
        }
    }

    /// Check that shares add up, are the exact ones rounded up or down, and never favour the
    /// smaller of two weights.
    #[test]
    fn shares_are_rounded_by_largest_remainder(
        total in 0..1_u64 << 40,
        weights in proptest::collection::vec(prop_oneof![Just(0), 0..9_u64, any::<u64>()], 0..30),
    ) {
        let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
        let shares = shares(total, &weights);
        prop_assert_eq!(shares.is_none(), sum == 0 && total > 0);
        let Some(shares) = shares else { return Ok(()) };
        prop_assert_eq!(shares.iter().sum::<u64>(), total);
        for (share, weight) in shares.iter().zip(&weights) {
            let scaled = u128::from(total) * u128::from(*weight);
            // One below and one above the exact share bound it from outside.
            prop_assert!(u128::from(*share) * sum < scaled + sum.max(1));
            prop_assert!((u128::from(*share) + 1) * sum > scaled || sum == 0);
        }
        let mut ranked: Vec<_> = weights.iter().zip(&shares).collect();
        ranked.sort_unstable();
        prop_assert!(ranked.is_sorted_by_key(|(_, share)| **share));
    }

    /// Check that numbers as large and as contradictory as a saved file may hold make no panic,
    /// lose no total that fits, and give intervals that hold their value.
    #[test]
    fn hostile_numbers_do_no_harm(
        kinds in proptest::array::uniform8(prop_oneof![any::<u64>(), Just(u64::MAX), Just(0)]),
        stacks in proptest::collection::vec(stack(0..u64::MAX), 0..6),
        sum in stack(0..u64::MAX),
        span_ns in prop_oneof![Just(0), Just(1), any::<u64>()],
    ) {
        for sum in [sum, sum_of(&stacks)] {
            let stratum = Stratum::new(&kinds, &sum, span_ns);
            let (products, rest) = stratum.divide(&stacks);
            prop_assert_eq!(products.len(), stacks.len());
            let total = sum_of_products(&products, rest);
            prop_assert_eq!(total.classes[Class::Kernel as usize], kinds[Kind::Kernel as usize]);
            for column in COLUMNS {
                for (stack, product) in stacks.iter().zip(&products) {
                    let estimate = stratum.estimate(stack, column);
                    let interval = estimate.interval(product.elapsed_ns());
                    prop_assert!(interval.low_ns <= product.elapsed_ns());
                    prop_assert!(interval.high_ns >= product.elapsed_ns());
                    let _thin: bool = estimate.is_thin();
                }
                let interval = stratum.total_estimate(column).interval(total.elapsed_ns());
                prop_assert!(interval.low_ns <= interval.high_ns);
            }
        }
    }

    /// Check that a process's stacks fall apart into kinds that are its own and kinds of its image,
    /// with nothing twice.
    #[test]
    fn a_process_falls_apart_by_kind(kinds in totals(), stack in stack(0..100)) {
        let own = own_kinds(&kinds, PERIODS);
        let mut back = part_of(&own, true, &stack);
        back.add(&part_of(&others(&own), false, &stack));
        // What ticks add to a variance is parted in proportion to them, without what rounding cuts
        // off.
        let (told, of) = (back.tick_excess, stack.tick_excess);
        prop_assert!(told <= of && (stack.samples() == 0 || told + 1 >= of));
        back.tick_excess = of;
        prop_assert_eq!(back, stack);
        let (own, rest) = (totals_of(&own, &kinds), totals_of(&others(&own), &kinds));
        for kind in Kind::ALL {
            prop_assert_eq!(own[kind as usize] + rest[kind as usize], kinds[kind as usize]);
            prop_assert!(own[kind as usize] == 0 || rest[kind as usize] == 0);
        }
    }

    /// Check that the running time of a call is divided among its kernel stacks, or told as not
    /// sampled.
    #[test]
    fn kernel_functions_share_the_time_of_the_call(
        call_ns in any::<u64>(),
        ticks in proptest::collection::vec(0..3_u64, 0..5),
    ) {
        let (parts, rest) = kernel_parts(call_ns, &ticks);
        prop_assert_eq!(parts.iter().sum::<u64>() + rest, call_ns);
        if ticks.iter().any(|ticks| *ticks > 0) {
            prop_assert_eq!(rest, 0);
        }
        for (part, ticks) in parts.iter().zip(&ticks) {
            prop_assert!(*part == 0 || *ticks > 0);
        }
    }
}

const PERIODS: MarkPeriods = MarkPeriods {
    tick_ns: 10_000_000,
    gap_ns: 1_000_000,
};

const COLUMNS: [Column; 8] = [
    Column::Elapsed,
    Column::Application,
    Column::Fault,
    Column::Of(Class::User),
    Column::Of(Class::Syscall),
    Column::Of(Class::Blocked),
    Column::Of(Class::Runnable),
    Column::Of(Class::Kernel),
];

pub(super) fn kinds(of: &[(Kind, u64)]) -> KindNs {
    let mut kinds = [0; KINDS];
    of.iter().for_each(|(kind, ns)| kinds[*kind as usize] = *ns);
    kinds
}

pub(super) fn ticks(of: &[(Tick, u64)]) -> Primary {
    let mut primary = Primary::default();
    of.iter()
        .for_each(|(tick, count)| primary.ticks[*tick as usize] = *count);
    primary
}

pub(super) fn calls(marks: u64) -> Primary {
    let mut primary = Primary::default();
    primary.marks[MARK_CALL] = marks;
    primary
}

/// Check that ticks in calls carry no time where calls are traced, and divide it where they are
/// not.
#[test]
fn untraced_time_is_divided_by_ticks() {
    let cells = [
        ticks(&[
            (Tick::UntracedUser, 6),
            (Tick::UntracedCall, 2),
            (Tick::Call, 50),
        ]),
        ticks(&[(Tick::UntracedFault, 2)]),
        ticks(&[(Tick::Call, 50)]),
    ];
    let stratum = Stratum::new(&kinds(&[(Kind::Untraced, 1000)]), &sum_of(&cells), 0);
    let (products, rest) = stratum.divide(&cells);
    let times = |product: &Product| {
        let user_ns = product.classes[Class::User as usize];
        let syscall_ns = product.classes[Class::Syscall as usize];
        (
            user_ns,
            syscall_ns,
            product.fault_ns,
            product.application_ns(),
            product.estimated_ns,
        )
    };
    assert_eq!(times(&products[0]), (600, 200, 0, 600, 800));
    assert_eq!(times(&products[1]), (200, 0, 200, 0, 200));
    assert_eq!(products[2], Product::default());
    assert_eq!(rest, Product::default());
    assert_eq!(times(&stratum.total()), (800, 200, 200, 600, 1000));
}

/// Check that a kind without a mark is a row of its own, though other kinds have marks.
#[test]
fn a_kind_without_a_mark_is_not_sampled() {
    let cells = [calls(3), calls(0)];
    let kinds = kinds(&[
        (Kind::Call, 10),
        (Kind::User, 7),
        (Kind::OutsideRunnable, 5),
    ]);
    let (products, rest) = Stratum::new(&kinds, &sum_of(&cells), 0).divide(&cells);
    assert_eq!(products[0].classes, [0, 10, 0, 0, 0]);
    assert_eq!(products[1], Product::default());
    assert_eq!(rest.classes, [7, 0, 0, 5, 0]);
}

/// Check that a process is a stratum of the kinds of which it has ten mark periods, each judged by
/// its own period.
#[test]
fn strata_are_chosen_kind_by_kind() {
    let own = own_kinds(
        &kinds(&[
            (Kind::User, 99_999_999),
            (Kind::Kernel, 100_000_000),
            (Kind::Call, 10_000_000),
            (Kind::OutsideBlocked, 9_999_999),
        ]),
        PERIODS,
    );
    let names: Vec<_> = Kind::ALL
        .into_iter()
        .filter(|kind| own[*kind as usize])
        .collect();
    assert_eq!(names, [Kind::Kernel, Kind::Call]);
}
