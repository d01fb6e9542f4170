//! Running time that is divided into user code and system calls by ticks, held against the same
//! time as it was measured.

use serde_json::Value;

use crate::daemon::{self, Settings};
use crate::reads::{self, assert_near, classes, number, running_ns};
use crate::workload::{Finished, Workload};

const RUNS: usize = 20;
/// Of as many intervals of 95 %, fewer hold the truth once in three thousand runs of the test.
const AT_LEAST: usize = 15;
/// At a time: so many processors there are at least.
const TOGETHER: usize = 2;

#[test]
fn an_estimated_split_agrees_with_the_exact_one() {
    // Check that of twenty processes that work and make calls by turns, the time in user code that
    // a daemon without hooks on system calls estimates is, for all that can be expected, within its
    // interval around what another one has measured at the same time; and that both have the same
    // total.
    let measures = Settings {
        top: "system_calls = \"all\"",
        ..Settings::default()
    };
    let estimates = Settings {
        top: "system_calls = \"off\"",
        ..Settings::default()
    };
    let (Some(exact), Some(estimated)) = (daemon::own(&measures), daemon::own(&estimates)) else {
        return;
    };
    let mut within = Vec::new();
    for _ in 0..RUNS / TOGETHER {
        let started: Vec<Workload> = (0..TOGETHER)
            .map(|_| Workload::start("cheap-and-dear --seconds 1"))
            .collect();
        let finished: Vec<Finished> = started.into_iter().map(Workload::finish).collect();
        for one in &finished {
            let measured = reads::ended(&exact, one);
            let found = reads::ended(&estimated, one);
            assert_near(
                "running",
                running_ns(&found),
                running_ns(&measured),
                0.01,
                1_000_000,
            );
            within.push(is_within(&found, &measured));
        }
    }
    let held = within.iter().filter(|(held, _)| *held).count();
    let told: Vec<&str> = within.iter().map(|(_, told)| told.as_str()).collect();
    assert!(held >= AT_LEAST, "{held} of {RUNS}: {told:#?}");
}

/// Whether the measured time in user code is in the interval of the estimated one; and both in
/// words.
fn is_within(found: &Value, measured: &Value) -> (bool, String) {
    let [low_ns, high_ns] =
        ["/application_low_ns", "/application_high_ns"].map(|edge| number(found, edge));
    let [user_ns, syscall_ns, ..] = classes(measured);
    assert_eq!(number(measured, "/estimated_ns"), 0, "{measured}");
    assert!(number(found, "/estimated_ns") > 0, "{found}");
    assert!(
        user_ns > syscall_ns / 10 && syscall_ns > user_ns / 10,
        "{measured}"
    );
    let true_ns = number(measured, "/application_ns");
    (
        (low_ns..=high_ns).contains(&true_ns),
        format!("{true_ns} measured, {low_ns} to {high_ns} estimated"),
    )
}
