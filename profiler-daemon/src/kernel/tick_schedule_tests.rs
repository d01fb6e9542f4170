//! Whole hours of the schedule, without a kernel: ticks come as the kernel's timer gives them, a
//! whole period after each change.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::{Epoch, SLOT_PERIODS, SPREAD, Schedule};
use crate::units::MonoNs;

const SECOND: u64 = 1_000_000_000;

/// What happened in so many seconds.
struct ScheduleRun {
    /// The moments at which somebody was served.
    moments: Vec<MonoNs>,
    /// The epochs of each processor, and when each ended.
    epochs: BTreeMap<u32, Vec<(Epoch, MonoNs)>>,
}

/// Serves `cpus` processors for so long, `late_ns` after each moment.
fn run(frequency_hz: u32, cpus: u32, seconds: u64, late_ns: u64, seed: u64) -> ScheduleRun {
    run_after((frequency_hz, cpus, seconds), (late_ns, seed), 0)
}

/// The same of processors that were idle at so many turns in a row.
fn run_after(
    (frequency_hz, cpus, seconds): (u32, u32, u64),
    (late_ns, seed): (u64, u64),
    idle_turns: u32,
) -> ScheduleRun {
    let mut schedule = Schedule::new(frequency_hz, Rng::with_seed(seed));
    let mut under_way: BTreeMap<u32, Epoch> = (0..cpus)
        .map(|cpu| {
            (
                cpu,
                schedule.change(cpu, MonoNs::new(SECOND), None, idle_turns),
            )
        })
        .collect();
    let mut run = ScheduleRun {
        moments: Vec::new(),
        epochs: (0..cpus).map(|cpu| (cpu, Vec::new())).collect(),
    };
    while let Some(moment_ns) = schedule.next_moment_ns()
        && moment_ns < MonoNs::new((1 + seconds) * SECOND)
    {
        run.moments.push(moment_ns);
        let now_ns = moment_ns + late_ns;
        for cpu in schedule.due(now_ns) {
            let past = under_way[&cpu];
            run.epochs.entry(cpu).or_default().push((past, now_ns));
            under_way.insert(cpu, schedule.change(cpu, now_ns, Some(past), idle_turns));
        }
    }
    run
}

/// The times of the ticks of an epoch.
fn ticks(epoch: &Epoch, end_ns: MonoNs) -> impl Iterator<Item = MonoNs> {
    let ticks = epoch.ticks_until(end_ns);
    (1..=ticks).map(|tick| epoch.since_ns + tick * epoch.period_ns)
}

/// Mean, and the standard error of it.
fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt())
}

#[test]
fn who_was_refused_has_one_turn_a_second_later() {
    // Check that a processor that the kernel refused has no other turn than one in about a second.
    let mut schedule = Schedule::new(997, Rng::with_seed(7));
    for _ in 0..20 {
        schedule.change(3, MonoNs::new(SECOND), None, 0);
        schedule.later(3, MonoNs::new(SECOND));
        let moment_ns = schedule.next_moment_ns().unwrap();
        assert!(moment_ns.abs_diff(MonoNs::new(2 * SECOND)) < SECOND / 10);
        assert_eq!(schedule.due(moment_ns), [3]);
        assert_eq!(schedule.next_moment_ns(), None);
    }
}

#[test]
fn the_mean_rate_is_what_a_sample_stands_for() {
    // Check that there are `frequency_hz` ticks a second and processor, within 4 standard errors
    // and those within a thousandth, that no rate is farther off than it may be, and that 20
    // seconds are never off by 1.5 %, and seldom by 1 %.
    for (frequency_hz, seconds) in [
        (1, 20_000),
        (10, 4000),
        (99, 2000),
        (997, 600),
        (10_000, 300),
    ] {
        let run = run(frequency_hz, 64, seconds, 0, 7);
        let wanted = f64::from(frequency_hz);
        let mut rates = Vec::new();
        let (mut windows, mut off) = (0, 0);
        for epochs in run.epochs.values() {
            let (mut count, mut window, mut window_ns) = (0, 0, 0);
            for (epoch, end_ns) in epochs {
                // Each number of ticks is drawn, and so are the parts of one that it is rounded to
                // and that follow the last.
                let until_s = (*end_ns - epoch.since_ns) as f64 / 1e9;
                let over = until_s * (1e9 / epoch.period_ns as f64 - wanted);
                assert!(
                    over.abs() <= 2.0 * SPREAD * wanted * until_s + 4.0,
                    "{frequency_hz}: {over}"
                );
                count += epoch.ticks_until(*end_ns);
                window += epoch.ticks_until(*end_ns);
                window_ns += *end_ns - epoch.since_ns;
                if window_ns > 20 * SECOND {
                    let share = window as f64 * 1e9 / window_ns as f64 / wanted;
                    windows += 1;
                    off += usize::from(frequency_hz >= 99 && (share - 1.0).abs() > 0.01);
                    assert!(frequency_hz < 99 || (share - 1.0).abs() < 0.015, "{share}");
                    (window, window_ns) = (0, 0);
                }
            }
            let past_ns = epochs.last().expect("epochs").1.ns() - SECOND;
            rates.push(count as f64 * 1e9 / past_ns as f64 / wanted);
        }
        let (mean, error) = mean(&rates);
        assert!(error < 0.001, "{frequency_hz}: {error}");
        assert!(
            (mean - 1.0).abs() < 4.0 * error,
            "{frequency_hz}: {mean} {error}"
        );
        assert!(off * 20 <= windows, "{frequency_hz}: {off} of {windows}");
    }
}

#[test]
fn nobody_is_forgotten_and_the_daemon_seldom_woken() {
    // Check that 256 processors cost at most 35 wake-ups in any second, and that each gets another
    // rate at least every 0.15 s.
    let run = run(99, 256, 500, 0, 3);
    assert!(
        run.moments
            .windows(36)
            .all(|moments| moments[35] - moments[0] > SECOND)
    );
    assert_eq!(run.epochs.len(), 256);
    for epochs in run.epochs.values() {
        assert!(epochs.len() > 4000, "{}", epochs.len());
        assert!(
            epochs
                .iter()
                .all(|(epoch, end_ns)| *end_ns - epoch.since_ns < 5 * SLOT_PERIODS * SECOND / 99)
        );
    }
}

#[test]
fn few_or_idle_processors_cost_few_wake_ups() {
    // Check that two processors at work have most of their turns together, and that one that stays
    // idle has at most two a second.
    let run = run(99, 2, 500, 0, 3);
    let turns: usize = run.epochs.values().map(Vec::len).sum();
    assert!(
        run.moments.len() * 10 < turns * 6,
        "{} of {turns}",
        run.moments.len()
    );
    let mut schedule = Schedule::new(99, Rng::with_seed(7));
    schedule.soon(0, MonoNs::new(SECOND));
    let mut times = 0;
    while let Some(moment_ns) = schedule.next_moment_ns()
        && moment_ns < MonoNs::new(100 * SECOND)
    {
        assert_eq!(schedule.due(moment_ns), [0]);
        schedule.keep(0, moment_ns, times);
        times += 1;
    }
    assert!((99..200).contains(&times), "{times}");
    // Of two that are idle most turns are together, and their ticks are as many as they should be.
    let idle = run_after((99, 2, 1000), (0, 11), 3);
    let turns: usize = idle.epochs.values().map(Vec::len).sum();
    assert!(turns < 2600, "{turns}");
    let moments = idle.moments.len();
    assert!(moments * 10 < turns * 6, "{moments} of {turns}");
    let counted = |(epoch, end_ns): &(Epoch, MonoNs)| epoch.ticks_until(*end_ns);
    let ticks: u64 = idle.epochs.values().flatten().map(counted).sum();
    let mean_hz = ticks as f64 / 2000.0;
    assert!((98.5..99.5).contains(&mean_hz), "{mean_hz}");
}

#[test]
fn no_program_walks_in_step_with_the_ticks() {
    // Check that programs of a fixed period, also one as long as that of the ticks or a multiple,
    // are met in the first quarter of it a quarter of the times, on each processor. (With ticks of
    // a fixed period some are met there always and others never.)
    let met = |period_ns: u64, ticks: &[u64]| {
        let met = ticks.iter().filter(|at| *at % period_ns < period_ns / 4);
        met.count() as f64 / ticks.len() as f64
    };
    for frequency_hz in [99, 997] {
        let run = run(frequency_hz, 64, 300, 0, 5);
        let own_ns = SECOND / u64::from(frequency_hz);
        for period_ns in [
            SECOND / 60,
            SECOND / 90,
            307_000,
            own_ns,
            3 * own_ns,
            own_ns / 2,
            SECOND,
        ] {
            let drawn: Vec<f64> = run
                .epochs
                .values()
                .map(|epochs| {
                    let ticks = epochs.iter().flat_map(|(epoch, end)| ticks(epoch, *end));
                    // Whole seconds, and none of those in which the run begins and ends.
                    let ticks: Vec<u64> = ticks
                        .map(MonoNs::ns)
                        .filter(|at| (10 * SECOND..290 * SECOND).contains(at))
                        .collect();
                    met(period_ns, &ticks)
                })
                .collect();
            let (share, error) = mean(&drawn);
            assert!(
                (share - 0.25).abs() < 4.0 * error,
                "{period_ns}: {share} {error}"
            );
            // Of one processor in 5 minutes: the spread over 64 is 8 times the error of their mean.
            assert!(8.0 * error < 0.012, "{period_ns}: {error}");
        }
        let even: Vec<u64> = (0..300 * u64::from(frequency_hz))
            .map(|tick| tick * own_ns)
            .collect();
        assert!((met(own_ns, &even) - 0.25).abs() > 0.5);
    }
}

#[test]
fn the_end_of_a_pass_is_no_drawn_moment() {
    // Check that who is served too late is put off to another moment, but only once, and that
    // whoever is served a little late is not; and that neither changes the mean by a thousandth.
    let mut schedule = Schedule::new(99, Rng::with_seed(1));
    schedule.soon(4, MonoNs::new(SECOND));
    let moment = schedule.next_moment_ns().expect("a turn");
    assert!(schedule.due(moment + 50_000_000).is_empty());
    let moment = schedule.next_moment_ns().expect("another turn");
    assert_eq!(schedule.due(moment + 50_000_000), [4]);
    schedule.soon(4, moment);
    let moment = schedule.next_moment_ns().expect("a turn");
    assert_eq!(schedule.due(moment + 1_000_000), [4]);
    assert_eq!(schedule.next_moment_ns(), None);
    for late_ns in [2_000_000, 30_000_000] {
        let run = run(99, 64, 1000, late_ns, 9);
        let rates: Vec<f64> = run
            .epochs
            .values()
            .map(|epochs| {
                let ticks: u64 = epochs
                    .iter()
                    .map(|(epoch, end)| epoch.ticks_until(*end))
                    .sum();
                ticks as f64 * 1e9 / (epochs.last().expect("epochs").1.ns() - SECOND) as f64
            })
            .collect();
        let (mean, _) = mean(&rates);
        assert!((mean / 99.0 - 1.0).abs() < 0.001, "{late_ns}: {mean}");
    }
}

#[test]
fn who_went_offline_has_no_turn() {
    // Check that a processor that is forgotten is not served, and wakes nobody, until it is back.
    let mut schedule = Schedule::new(99, Rng::with_seed(2));
    schedule.change(0, MonoNs::new(SECOND), None, 0);
    schedule.change(1, MonoNs::new(SECOND), None, 0);
    schedule.forget(0);
    assert!(schedule.due(MonoNs::new(3 * SECOND)).is_empty());
    assert_eq!(schedule.due(MonoNs::new(4 * SECOND)), [1]);
    assert_eq!(schedule.next_moment_ns(), None);
    schedule.soon(0, MonoNs::new(4 * SECOND));
    let moment = schedule.next_moment_ns().expect("a turn");
    assert!(moment < MonoNs::new(4 * SECOND + 2 * SLOT_PERIODS * SECOND / 99));
    assert_eq!(schedule.due(moment), [0]);
}
