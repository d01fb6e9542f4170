//! Quotas of processor time: a process that is thrown off by one is runnable, and the answers say
//! by which.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{self, Settings};
use crate::reads::{number, rows, text};
use crate::workload::Workload;

/// Within which the quota is found: it takes three passes.
const WITHIN: Duration = Duration::from_secs(20);

/// A control group with a fifth of a processor, which is removed in the end.
struct Limited {
    name: String,
    folder: PathBuf,
}

impl Limited {
    /// Makes one where this machine has the controller: in version 2, or in the hierarchy of
    /// version 1. `None`: in neither.
    fn new() -> Option<Self> {
        let name = format!("/profiler-test-{}-quota", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        let controllers = std::fs::read_to_string(root.join("cgroup.subtree_control"));
        let is_version_2 =
            controllers.is_ok_and(|all| all.split_whitespace().any(|of| of == "cpu"));
        let hierarchies = ["cpu", "cpu,cpuacct"].map(|of| root.join(of));
        let version_1 = hierarchies
            .into_iter()
            .find(|of| of.join("cpu.cfs_quota_us").exists() || of.join("cpu.stat").exists());
        let (hierarchy, file, quota) = match (is_version_2, version_1) {
            (true, _) => (root.to_path_buf(), "cpu.max", "20000 100000"),
            (false, Some(hierarchy)) => (hierarchy, "cpu.cfs_quota_us", "20000"),
            (false, None) => return None,
        };
        let folder = hierarchy.join(&name[1..]);
        std::fs::create_dir(&folder).ok()?;
        let limited = Self { name, folder };
        std::fs::write(limited.folder.join(file), quota).ok()?;
        Some(limited)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // A process that has just ended leaves its group a moment later.
        let deadline = Instant::now() + WITHIN;
        while let Err(error) = std::fs::remove_dir(&self.folder) {
            if Instant::now() > deadline {
                daemon::say(&format!("{} stays: {error}", self.folder.display()));
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_quota_that_is_used_up_is_named() {
    // Check that the answers about a process that computes all the time with a fifth of a processor
    // say which control group threw it off, and for about as long as it was runnable.
    if !daemon::privileged() {
        return;
    }
    let Some(group) = Limited::new() else {
        daemon::say("skipped: no control group with a quota can be made here");
        return;
    };
    let workload = Workload::start("split --seconds 300");
    std::fs::write(
        group.folder.join("cgroup.procs"),
        workload.pid().to_string(),
    )
    .expect("the process can be put into the group");
    let Some(daemon) = daemon::own(&Settings::default()) else {
        return;
    };
    let began = Instant::now();
    let process: Value = loop {
        let process = daemon.get(&format!("/processes/{}", workload.pid()));
        if process["throttled_ns"].as_u64() > Some(3_000_000_000) {
            break process;
        }
        assert!(began.elapsed() < WITHIN, "{process}");
        std::thread::sleep(Duration::from_millis(200));
    };
    assert_eq!(text(&process, "/throttled_group"), group.name);
    let (throttled_ns, runnable_ns) = (
        number(&process, "/throttled_ns"),
        number(&process, "/classes/runnable_ns"),
    );
    // The first two passes find that it waits and what had been counted before; others may have had
    // the processor too.
    assert!(
        throttled_ns < runnable_ns + 500_000_000 && runnable_ns < 2 * throttled_ns,
        "throttled for {throttled_ns} ns, runnable for {runnable_ns} ns"
    );
    let list = daemon.get("/processes?limit=0");
    let others = rows(&list)
        .iter()
        .filter(|row| row["pid"] != workload.pid() && row["throttled_ns"].is_u64());
    assert_eq!(others.count(), 0, "nobody else is in it");
    drop(workload);
}
