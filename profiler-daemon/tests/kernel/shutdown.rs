//! Stopping: at once, cleanly, also in the middle of work, and the machine is left as it was.

use crate::daemon::{self, Settings};
use crate::workload::Workload;

#[test]
fn it_stops_cleanly_under_load() {
    // Check that SIGTERM, SIGINT and SIGHUP in the middle of a storm end the daemon within five
    // seconds with success, and that the workloads do not notice.
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let Some(mut daemon) = daemon::own(&Settings::default()) else {
            return;
        };
        let load = [
            "storm --count 4000000",
            "churn --count 300",
            "children --count 40",
            "race --count 20000",
        ]
        .map(Workload::start);
        daemon.get("/functions?limit=0");
        let status = daemon.stop(signal);
        assert!(
            status.success(),
            "after signal {signal} it ended with {status}:\n{}",
            daemon.log()
        );
        assert!(daemon.log().contains("stopping"), "{}", daemon.log());
        assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
        for workload in load {
            workload.finish();
        }
    }
}

#[test]
fn it_can_start_again_at_once() {
    // Check that nothing of a stopped daemon, neither port nor program nor pinned file, is in the
    // way of the next.
    for _ in 0..3 {
        let Some(mut daemon) = daemon::own(&Settings::default()) else {
            return;
        };
        assert!(daemon.get("/session")["elapsed_ns"].is_u64());
        assert!(daemon.stop(libc::SIGTERM).success(), "{}", daemon.log());
    }
}
