//! The same program under another profiler: both must find the same shares.

use std::collections::HashMap;
use std::process::{Command, Stdio};

use crate::daemon;
use crate::reads::{self, function, number};
use crate::workload::Workload;

const SPLIT: [(&str, f64); 3] = [
    ("split_sixty", 0.6),
    ("split_thirty", 0.3),
    ("split_ten", 0.1),
];

/// Samples per leaf function that perf takes of one process, or why there are none.
fn perf_leaves(pid: u32) -> Result<HashMap<String, u64>, String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let data = directory.path().join("perf.data");
    let status = Command::new("perf")
        .args([
            "record",
            "-q",
            "-e",
            "cpu-clock",
            "-F",
            "499",
            "-g",
            "-p",
            &pid.to_string(),
            "-o",
        ])
        .arg(&data)
        .args(["--", "sleep", "3"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("perf record ended with {status}"));
    }
    let output = Command::new("perf")
        .args(["script", "--no-inline", "-F", "ip,sym", "-i"])
        .arg(&data)
        .output()
        .map_err(|error| error.to_string())?;
    let mut leaves = HashMap::new();
    // One block of frames per sample, leaf first, blocks separated by an empty line.
    for block in String::from_utf8_lossy(&output.stdout).split("\n\n") {
        if let Some(name) = block
            .trim()
            .lines()
            .next()
            .and_then(|line| line.trim().split_once(' '))
        {
            *leaves.entry(name.1.trim().to_owned()).or_insert(0) += 1;
        }
    }
    Ok(leaves)
}

#[test]
fn perf_finds_the_same_shares() {
    // Check that perf and the daemon, watching one run at the same time, agree on its shares within
    // the error of both.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let workload = Workload::start("split --seconds 4");
    let leaves = match perf_leaves(workload.pid()) {
        Ok(leaves) => leaves,
        Err(reason) => {
            daemon::say(&format!(
                "skipped: no answer from perf to compare with: {reason}"
            ));
            return;
        }
    };
    let finished = workload.finish();
    let functions = reads::table(daemon, &finished, "functions");
    let of_perf = SPLIT.map(|(name, _)| {
        leaves
            .iter()
            .filter(|(leaf, _)| leaf.contains(name))
            .map(|(_, count)| *count)
            .sum::<u64>()
    });
    let of_daemon = SPLIT.map(|(name, _)| number(function(&functions, name), "/samples/exclusive"));
    let [perf_walks, daemon_walks] = [of_perf, of_daemon].map(|counts| counts.iter().sum::<u64>());
    assert!(
        perf_walks > 100 && daemon_walks > 100,
        "perf took {perf_walks} samples, the daemon {daemon_walks}: {leaves:?}"
    );
    for (index, (name, share)) in SPLIT.into_iter().enumerate() {
        let [perf, own] = [
            (of_perf[index], perf_walks),
            (of_daemon[index], daemon_walks),
        ]
        .map(|(count, walks)| count as f64 / walks as f64);
        let deviation =
            (share * (1.0 - share) * (1.0 / perf_walks as f64 + 1.0 / daemon_walks as f64)).sqrt();
        assert!(
            (perf - own).abs() <= 4.0 * deviation + 0.005,
            "{name}: perf {perf:.4}, daemon {own:.4}"
        );
    }
}
