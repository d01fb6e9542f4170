//! What is said of the running kernel: which feature it lacks, and what that costs.

use std::process::Command;

use serde_json::Value;

use crate::daemon;
use crate::reads::text;

/// The entry of a list whose `key` is `name`.
fn entry<'a>(list: &'a Value, key: &str, name: &str) -> Option<&'a Value> {
    list.as_array()
        .expect("a list")
        .iter()
        .find(|entry| entry[key] == name)
}

#[test]
fn what_this_kernel_lacks_is_said() {
    // Check that status, metrics and doctor agree on whether stacks are followed by tables here,
    // that where they are not each names the missing feature, and that a kernel that has it is told
    // of no lack.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let status = daemon.get("/status");
    let has_tables = !status["unwinding"]["tables"].is_null();
    let doctor = Command::new(daemon::daemon_exe())
        .args(["doctor", "--json"])
        .output()
        .expect("the daemon's file can be executed");
    let doctor: Value = serde_json::from_slice(&doctor.stdout).expect("doctor answers in JSON");
    let stacks = entry(&doctor["checks"], "name", "user-stacks").expect("doctor looks at stacks");
    let degraded = status["degraded"].as_array().expect("a list");
    let count = daemon.metric("profiler_degraded_features");
    assert!(count == degraded.len() as f64, "{count} features, {status}");
    for what in ["user stacks", "known tasks"] {
        let lack = entry(&status["degraded"], "what", what);
        assert_eq!(lack.is_none(), has_tables, "{what}: {status}");
        if let Some(lack) = lack {
            let why = text(lack, "/why");
            assert!(why.contains("Linux 5.1"), "{why}");
        }
    }
    let late = entry(
        &status["degraded"],
        "what",
        "threads of the kernel's making",
    );
    let mut numbers = text(&status, "/kernel_release").split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    let version = (number(), number());
    if (Some(5), Some(17)) <= version && version < (Some(6), Some(4)) {
        assert!(
            late.is_some(),
            "nothing is made known at switches: {status}"
        );
    } else if version >= (Some(6), Some(4)) {
        assert!(late.is_none(), "{status}");
    }
    let unheard = entry(
        &status["degraded"],
        "what",
        "stacks of a program's first milliseconds",
    );
    let is_unheard = (Some(5), Some(17)) <= version && version < (Some(6), Some(1));
    assert_eq!(unheard.is_some(), is_unheard, "{status}");
    let outcome = if has_tables { "ok" } else { "limited" };
    assert_eq!(stacks["outcome"], outcome, "{doctor}");
    assert_eq!(
        text(stacks, "/found").contains("Linux 5.17"),
        !has_tables,
        "{doctor}"
    );
}
