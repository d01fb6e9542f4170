//! Intervals: what widens them, what has none, and how often they hold the truth.

use super::{Column, Estimate, KernelTicks, MARK_PARTS};
use crate::clock::Class;
use crate::division::Stratum;
use crate::division::tests::{calls, kinds, sum_of, ticks};
use crate::kinds::{Kind, MARK_CALL, Primary, Tick, excess};

/// Check the interval against Wilson's own numbers: 10 of 100 are between 5.52 and 17.44 %.
#[test]
fn the_interval_is_that_of_wilson() {
    let stratum = Stratum::new(&kinds(&[(Kind::Call, 1_000_000)]), &calls(100), 0);
    let interval = stratum
        .estimate(&calls(10), Column::Elapsed)
        .interval(100_000);
    assert!(interval.low_ns.abs_diff(55_230) < 50, "{interval:?}");
    assert!(interval.high_ns.abs_diff(174_370) < 50, "{interval:?}");
}

fn of_parts(stratum: &Stratum, call_parts: u64) -> Estimate {
    let mut estimate = Estimate::default();
    stratum.add_estimate(
        &mut estimate,
        &Primary::default(),
        call_parts,
        Column::Elapsed,
    );
    estimate
}

/// Check that parts of marks count as these, and that a value that only some of a stack's ticks
/// give it is as unsure as they are few: also where the stack has its time exactly.
#[test]
fn kernel_functions_rest_on_ticks_too() {
    for marks in [100, 1_000_000] {
        let stratum = Stratum::new(&kinds(&[(Kind::Call, 1_000_000)]), &calls(marks), 0);
        let whole = stratum.estimate(&calls(marks / 10), Column::Elapsed);
        let parts = marks / 10 * MARK_PARTS;
        let divided = of_parts(&stratum, parts);
        assert_eq!(divided, whole);
        let ticks = KernelTicks {
            call_ns: 100_000,
            exact_ns: if marks == 100 { 0 } else { 100_000 },
            ticks: 1,
            in_step: 1.0,
        };
        let mut one = whole;
        one.tell_apart(&ticks, 1);
        // One of one: between 21 and 100 %.
        let interval = one.interval(100_000);
        assert!(interval.low_ns < 21_000, "{interval:?}");
        assert!(one.is_thin() && !whole.is_thin());
        let half = parts / 2;
        let mut half = of_parts(&stratum, half);
        let many = KernelTicks {
            ticks: 100,
            ..ticks
        };
        half.tell_apart(&many, 50);
        let interval = half.interval(50_000);
        assert!(interval.low_ns < 40_500, "{interval:?}");
        assert!(interval.high_ns >= 59_500, "{interval:?}");
        assert!(marks == 100 || interval.high_ns <= 100_000);
        assert!(!half.is_thin());
    }
}

/// Check that threads that run at once widen the intervals of ticks, that weights count as fewer,
/// and that marks at gaps are not touched by either.
#[test]
fn marks_that_are_no_news_do_not_count() {
    let width = |sum: &Primary, part: &Primary, kind: Kind, span_ns: u64| {
        let stratum = Stratum::new(&kinds(&[(kind, 1_000_000)]), sum, span_ns);
        let interval = stratum.estimate(part, Column::Elapsed).interval(500_000);
        interval.high_ns - interval.low_ns
    };
    let user = |count| ticks(&[(Tick::User, count)]);
    let alone = width(&user(100), &user(50), Kind::User, 2_000_000);
    assert_eq!(width(&user(100), &user(50), Kind::User, 0), alone);
    assert_eq!(
        width(&user(400), &user(200), Kind::User, 250_000),
        alone,
        "four threads at once have four ticks where one has one"
    );
    assert_eq!(width(&calls(100), &calls(50), Kind::Call, 250_000), alone);

    // 50 walks that each stand for two, with one mark.
    let (mut sum, mut half) = (calls(100), calls(50));
    sum.excess[MARK_CALL] = 50 * excess(1, 1);
    half.excess[MARK_CALL] = sum.excess[MARK_CALL] / 2;
    let few = width(&calls(50), &calls(25), Kind::Call, 0);
    assert_eq!(width(&sum, &half, Kind::Call, 0), few);
    // One walk that stands for all.
    sum.excess[MARK_CALL] = excess(1 << 20, 14);
    assert!(width(&sum, &half, Kind::Call, 0) > few * 3);

    // 100 equal weights of 100 ms.
    let mut waits = Primary::default();
    (waits.weighted[0], waits.squares_ms2[0]) = (10_000_000_000, 1_000_000);
    let mut half = waits;
    half.weighted[0] /= 2;
    assert!(width(&waits, &half, Kind::OutsideBlocked, 0).abs_diff(alone) < alone / 100);
    // One of them is as long as nine others together.
    waits.squares_ms2[0] += 800_000;
    assert!(width(&waits, &half, Kind::OutsideBlocked, 0) > alone * 5 / 4);
}

/// Check that exact waits have no interval, that an interval never falls below them, and that waits
/// that were all walked are exact.
#[test]
fn what_is_exact_has_no_interval() {
    let mut cell = calls(1);
    cell.exact = [700, 0];
    let mut other = calls(9);
    other.weighted = [600, 0];
    other.squares_ms2 = [300, 0];
    let sum = sum_of(&[cell, other]);
    let stratum = Stratum::new(
        &kinds(&[(Kind::Call, 1000), (Kind::OutsideBlocked, 600)]),
        &sum,
        0,
    );
    let blocked = stratum
        .estimate(&cell, Column::Of(Class::Blocked))
        .interval(700);
    assert_eq!((blocked.low_ns, blocked.high_ns), (700, 700));
    let elapsed = stratum.estimate(&cell, Column::Elapsed).interval(800);
    assert!(elapsed.low_ns >= 700 && elapsed.low_ns < 800 && elapsed.high_ns > 800);
    let walked = stratum
        .estimate(&other, Column::Of(Class::Blocked))
        .interval(600);
    assert_eq!((walked.low_ns, walked.high_ns), (600, 600));
}

/// Check that a row without a mark of a kind may still have some of it, but not where no row has
/// any.
#[test]
fn what_has_no_mark_may_be_there() {
    let kinds = kinds(&[(Kind::Call, 1_000_000), (Kind::CallBlocked, 1_000_000)]);
    let stratum = Stratum::new(&kinds, &calls(100), 0);
    let none = stratum.estimate(&calls(0), Column::Elapsed).interval(0);
    assert_eq!(none.low_ns, 0);
    assert!(none.high_ns.abs_diff(37_000) < 100, "{none:?}");
}

/// Check that totals are measured, but for what rests on ticks: faults, and the classes of untraced
/// time.
#[test]
fn totals_have_an_interval_only_where_they_are_estimated() {
    let sum = ticks(&[(Tick::User, 60), (Tick::Fault, 40)]);
    let stratum = Stratum::new(&kinds(&[(Kind::User, 1000), (Kind::Call, 50)]), &sum, 0);
    let width = |column, value_ns| {
        let interval = stratum.total_estimate(column).interval(value_ns);
        (interval.low_ns, interval.high_ns)
    };
    assert_eq!(width(Column::Elapsed, 1050), (1050, 1050));
    assert_eq!(width(Column::Of(Class::User), 1000), (1000, 1000));
    assert_eq!(width(Column::Of(Class::Syscall), 50), (50, 50));
    let (low_ns, high_ns) = width(Column::Fault, 400);
    assert!((300..320).contains(&low_ns) && (490..510).contains(&high_ns));

    // No tick found any of it: it may all be calls.
    let blind = Stratum::new(&kinds(&[(Kind::Untraced, 1000)]), &Primary::default(), 0);
    let user = blind.total_estimate(Column::Of(Class::User)).interval(1000);
    assert_eq!((user.low_ns, user.high_ns), (0, 1000));
    let calls = blind.total_estimate(Column::Of(Class::Syscall)).interval(0);
    assert_eq!((calls.low_ns, calls.high_ns), (0, 1000));
    let all = blind.total_estimate(Column::Elapsed).interval(1000);
    assert_eq!((all.low_ns, all.high_ns), (1000, 1000));
}

/// Check that a row is thin if more than half of it rests on fewer than three marks, over all
/// strata.
#[test]
fn thin_rows_are_told() {
    let kinds = kinds(&[(Kind::User, 1000), (Kind::Call, 1000)]);
    let mut sum = ticks(&[(Tick::User, 10)]);
    sum.add(&calls(100));
    let stratum = Stratum::new(&kinds, &sum, 0);
    let row = |user, call| {
        let mut row = ticks(&[(Tick::User, user)]);
        row.add(&calls(call));
        stratum.estimate(&row, Column::Elapsed)
    };
    assert!(row(2, 0).is_thin());
    assert!(!row(3, 0).is_thin());
    assert!(row(2, 19).is_thin());
    assert!(!row(2, 20).is_thin(), "half is not more than half");
    assert!(!row(0, 0).is_thin());
    let mut both = row(2, 0);
    both.add(&row(1, 0));
    assert!(!both.is_thin());
}
