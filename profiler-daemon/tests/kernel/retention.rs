//! What has ended is kept for a while: after that it is gone from the lists, but not from the sums.

use serde_json::Value;

use crate::daemon::{self, Settings};
use crate::ledger;
use crate::reads;
use crate::workload;

/// The rows of processes that ended and are kept one by one.
fn kept(list: &Value) -> impl Iterator<Item = &Value> {
    let rows = reads::rows(list).iter();
    rows.filter(|row| row["state"] == "exited" && !row["pid"].is_null())
}

#[test]
fn what_retention_drops_is_gone_and_still_in_the_sums() {
    // Check that of 60 ended processes the latest few are kept, that an older one answers 410 and
    // an unknown one 404, and that the session still adds up.
    let settings = Settings {
        limits: "exited_processes = 10",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let finished = workload::run("vanish --count 60");
    let children = finished.truth["child_pids"]
        .as_array()
        .expect("the truth lists its children");
    let list = reads::until(
        &daemon,
        "/processes?limit=0",
        finished.unix_ns + 1_500_000_000,
        |list| (1..=10).contains(&kept(list).count()),
    );
    assert!(kept(&list).count() > 0, "some that ended are kept");
    // The others are one row of their program.
    let ended: u64 = reads::rows(&list)
        .iter()
        .filter(|row| row["image_id"].is_string())
        .filter_map(|row| row["ended"].as_u64())
        .sum();
    assert!(ended >= 50, "{ended} of 60 are told of together");
    let status = |pid: &Value| daemon.try_get(&format!("/api/v1/processes/{pid}")).status;
    assert_eq!(status(&children[0]), 410, "known but dropped");
    assert_eq!(status(&Value::from(4_194_303)), 404, "never known");
    ledger::check(&daemon);
}
