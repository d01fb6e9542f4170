//! What is profiled can change while the daemon runs: what is no target does not grow, and what was
//! missed is not invented.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::{self, Daemon, Settings};
use crate::ledger;
use crate::reads::{self, number, text, unix_now_ns, unix_ns};
use crate::workload::Workload;

/// Sets the targets; returns when they were in force, nanoseconds since 1970.
pub(crate) fn put(daemon: &Daemon, targets: &Value) -> u64 {
    let answer = daemon.request("PUT", "/api/v1/targets", Some(&targets.to_string()));
    assert!(
        (200..300).contains(&answer.status),
        "PUT {targets}: {} {}",
        answer.status,
        answer.text()
    );
    unix_now_ns()
}

fn elapsed_at(daemon: &Daemon, workload: &Workload, since_unix_ns: u64) -> (u64, u64) {
    let row = reads::until(
        daemon,
        &format!("/processes/{}", workload.selector()),
        since_unix_ns,
        |_| true,
    );
    (number(&row, "/elapsed_ns"), unix_ns(text(&row, "/as_of")))
}

fn not_target(daemon: &Daemon) -> u64 {
    daemon.get("/session")["discarded"]["not_target"]
        .as_u64()
        .unwrap_or(0)
}

#[test]
fn targets_change_while_it_runs() {
    // Check that after a PUT a process that is no target stops growing while a target grows, that
    // its samples are counted as discarded, and that it grows again, without the time between, once
    // it is a target again.
    let settings = Settings {
        top: "frequency_hz = 499",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let kept = Workload::start("split --seconds 8");
    let left = Workload::start("split --seconds 8");
    assert_eq!(daemon.get("/targets")["all"], true);
    elapsed_at(&daemon, &left, unix_now_ns());

    let changed_ns = put(&daemon, &json!({"pids": [kept.pid()]}));
    assert_eq!(daemon.get("/targets")["pids"], json!([kept.pid()]));
    let discarded = not_target(&daemon);
    let (kept_before, kept_before_at) = elapsed_at(&daemon, &kept, changed_ns + 300_000_000);
    let (left_before, _) = elapsed_at(&daemon, &left, changed_ns + 300_000_000);
    let (kept_after, kept_after_at) = elapsed_at(&daemon, &kept, changed_ns + 1_800_000_000);
    let (left_after, _) = elapsed_at(&daemon, &left, changed_ns + 1_800_000_000);
    assert_eq!(
        left_after, left_before,
        "a process that is no target does not grow"
    );
    reads::assert_near(
        "growth of the target",
        kept_after - kept_before,
        kept_after_at - kept_before_at,
        0.01,
        20_000_000,
    );
    assert!(
        not_target(&daemon) > discarded + 100,
        "samples of the other process are counted as discarded"
    );
    ledger::check_process(&daemon, &left.selector());

    let changed_ns = put(&daemon, &json!({"all": true}));
    let (left_again, again_at) = elapsed_at(&daemon, &left, changed_ns + 500_000_000);
    assert!(left_again > left_after, "it grows again");
    assert!(
        left_again - left_after <= again_at - changed_ns + 1_200_000_000,
        "the time between is in no report"
    );
    let threads = daemon.get(&format!("/processes/{}/threads?limit=0", left.selector()));
    assert!(
        number(&threads, "/rows/0/unobserved_ns") > 1_000_000_000,
        "the time between is told: {threads}"
    );
    ledger::check(&daemon);
}

#[test]
fn page_faults_are_those_of_a_target() {
    // Check that page faults of a process that is no target any more are not counted when it ends.
    let Some(daemon) = daemon::own(&Settings::default()) else {
        return;
    };
    let mut left = Workload::start("minor-faults --seconds 1 --wait");
    left.ready();
    let before = reads::until(
        &daemon,
        &format!("/processes/{}", left.selector()),
        unix_now_ns(),
        |_| true,
    );
    put(&daemon, &json!({"pids": [std::process::id()]}));
    left.go();
    let ended = left.finish();
    let faults = number(&ended.truth, "/minor_faults");
    let after = reads::until(
        &daemon,
        &format!("/processes/{}", ended.selector),
        ended.unix_ns,
        |row| row["state"] == "exited",
    );
    let counted = number(&after, "/minor_faults") - number(&before, "/minor_faults");
    assert!(
        faults > 100_000 && counted < 1_000,
        "{counted} of {faults} faults"
    );
}

#[test]
fn children_of_a_target_are_targets() {
    // Check that with children:true what a target forks is profiled, and without it is not.
    let Some(daemon) = daemon::own(&Settings::default()) else {
        return;
    };
    for children in [true, false] {
        let mut parent = Workload::start("fork --millis 300 --wait");
        parent.ready();
        put(
            &daemon,
            &json!({"pids": [parent.pid()], "children": children}),
        );
        parent.go();
        let finished = parent.finish();
        reads::until(
            &daemon,
            &format!("/processes/{}", finished.selector),
            finished.unix_ns,
            |_| true,
        );
        let child = daemon.try_get(&format!(
            "/api/v1/processes/{}",
            finished.truth["child_pid"]
        ));
        let grew = child.status == 200 && number(&child.json(), "/elapsed_ns") > 200_000_000;
        assert_eq!(grew, children, "children: {children}: {}", child.text());
    }
}

#[test]
fn children_forked_meanwhile_are_targets() {
    // Check that of a process that forks while it is made a target with its children, not one child
    // is missing.
    const CHILDREN: usize = 400;
    let settings = Settings {
        targets: "pids = [1]",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let parent = Workload::start(&format!("many --kind processes --threads {CHILDREN}"));
    put(&daemon, &json!({"pids": [parent.pid()], "children": true}));
    parent.ready();
    let list = reads::until(&daemon, "/processes?limit=0", unix_now_ns(), |list| {
        !reads::rows(list).is_empty()
    });
    let found = reads::rows(&list)
        .iter()
        .filter(|row| row["ppid"] == parent.pid() && row["state"] != "exited")
        .count();
    assert_eq!(found, CHILDREN);
    let status = parent.stop();
    assert!(!status.success(), "it was still there: {status}");
}

#[test]
fn a_group_that_is_removed_takes_no_other_with_it() {
    // Check that of two control groups that are targets, one goes on when the other is removed:
    // groups that are made below it, and processes that are moved there, become targets.
    let settings = Settings {
        targets: "pids = [1]",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let (removed, kept) = (Group::new("removed"), Group::new("kept"));
    put(&daemon, &json!({"cgroups": [removed.name, kept.name]}));
    drop(removed);
    // The groups are looked at again once a second: at least once without the one that is gone.
    let removed_ns = unix_now_ns();
    reads::until(&daemon, "/session", removed_ns + 1_500_000_000, |_| true);
    let below = Group::new(&format!("{}/below", kept.name.trim_start_matches('/')));
    let workload = Workload::start("split --seconds 30");
    std::fs::write(below.path.join("cgroup.procs"), workload.pid().to_string())
        .expect("a process can be moved");
    reads::until(
        &daemon,
        &format!("/processes/{}", workload.selector()),
        removed_ns,
        |row| number(row, "/elapsed_ns") > 500_000_000,
    );
    let status = workload.stop();
    assert!(!status.success(), "it was still at work: {status}");
}

/// A control group (version 2) that is removed in the end.
struct Group {
    name: String,
    path: PathBuf,
}

impl Group {
    /// Makes one; `name` may lie in one that there is.
    fn new(name: &str) -> Self {
        let unified = Path::new("/sys/fs/cgroup/unified");
        let root = if unified.join("cgroup.procs").exists() {
            unified
        } else {
            Path::new("/sys/fs/cgroup")
        };
        let name = if name.contains('/') {
            format!("/{name}")
        } else {
            format!("/profiler-test-{}-{name}", std::process::id())
        };
        let path = root.join(&name[1..]);
        std::fs::create_dir(&path)
            .unwrap_or_else(|error| panic!("making {}: {error}", path.display()));
        Self { name, path }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has just ended leaves its group a moment later.
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Err(error) = std::fs::remove_dir(&self.path) {
            if Instant::now() > deadline {
                daemon::say(&format!("{} stays: {error}", self.path.display()));
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn threads_are_followed_through_many_changes() {
    // Check that threads that switch and call all the time, on all processors, while targets change
    // again and again, are all there in the end, once each, and that their time grows as fast as
    // the clock.
    let Some(daemon) = daemon::own(&Settings::default()) else {
        return;
    };
    let race = Workload::start("race --threads 3 --count 2000000000");
    let other = Workload::start("pingpong --kind threads --count 2000000000");
    for _ in 0..25 {
        put(&daemon, &json!({"pids": [other.pid()]}));
        put(&daemon, &json!({"all": true}));
    }
    let changed_ns = unix_now_ns();
    for workload in [&race, &other] {
        let path = format!("/processes/{}/threads?limit=0", workload.selector());
        let before = reads::until(&daemon, &path, changed_ns, |_| true);
        let after = reads::until(&daemon, &path, changed_ns + 1_000_000_000, |_| true);
        let at = |list: &Value| unix_ns(text(list, "/as_of"));
        let tids =
            || std::fs::read_dir(format!("/proc/{}/task", workload.pid())).expect("it lives");
        let rows = reads::rows(&after);
        assert_eq!(rows.len(), tids().count(), "{after}");
        for tid in tids() {
            let tid = tid.expect("the list of threads can be read").file_name();
            let tid: u64 = tid.to_string_lossy().parse().expect("a thread's number");
            let elapsed_ns = |list| reads::classes(reads::thread(list, tid)).iter().sum::<u64>();
            reads::assert_near(
                &format!("growth of thread {tid}"),
                elapsed_ns(&after) - elapsed_ns(&before),
                at(&after) - at(&before),
                0.001,
                1_000_000,
            );
        }
    }
    ledger::check(&daemon);
}

#[test]
fn a_comm_can_be_a_target() {
    // Check that a process is a target by its name, from the configuration on, and that nothing
    // else is.
    let settings = Settings {
        targets: "comms = [\"workload\"]",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let finished = crate::workload::run("split --seconds 1");
    let row = reads::until(
        &daemon,
        &format!("/processes/{}", finished.selector),
        finished.unix_ns,
        |_| true,
    );
    assert!(number(&row, "/elapsed_ns") > 900_000_000, "{row}");
    let list = daemon.get("/processes?limit=0");
    for row in reads::rows(&list) {
        assert!(
            row["comm"] == "workload" || number(row, "/elapsed_ns") == 0,
            "no target, yet it has time: {row}"
        );
    }
}

#[test]
fn a_process_that_renames_itself_is_judged_with_all_its_threads() {
    // Check that threads that sleep all the time become targets when the first thread of their
    // process, this one, takes a name that is a target's, and are none any more when it takes its
    // own name again.
    const NAME: &str = "renamed-target";
    let settings = Settings {
        targets: "comms = [\"renamed-target\"]",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let (tell, told) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let sleeper = std::thread::spawn(move || {
        // SAFETY: takes nothing.
        tell.send(unsafe { libc::gettid() })
            .expect("the test waits");
        ended.recv().unwrap_or_default();
    });
    let tid = told
        .recv()
        .expect("the thread tells its number")
        .unsigned_abs();
    let own = std::fs::read_to_string("/proc/self/comm").expect("a name");
    let rename = |name: &str| std::fs::write("/proc/self/comm", name).expect("its own name");
    let path = format!("/processes/{}/threads?limit=0", std::process::id());
    let elapsed_ns = |list: &Value| {
        let mut rows = reads::rows(list).iter();
        let row = rows.find(|row| number(row, "/tid") == u64::from(tid));
        row.map_or(0, |row| reads::classes(row).iter().sum::<u64>())
    };
    rename(NAME);
    reads::until(&daemon, &path, unix_now_ns(), |list| {
        elapsed_ns(list) > 500_000_000
    });
    rename(own.trim_end());
    let after = reads::until(&daemon, &path, unix_now_ns() + 2_500_000_000, |_| true);
    let later = reads::until(&daemon, &path, unix_now_ns() + 1_000_000_000, |_| true);
    assert_eq!(elapsed_ns(&later), elapsed_ns(&after), "{later}");
    drop(end);
    sleeper.join().expect("it ends");
}

#[test]
fn wrong_targets_are_refused() {
    // Check that targets that name nothing, unknown fields and bad JSON are refused with a problem,
    // and change nothing.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    for body in [
        "{}",
        "{\"pid\":[1]}",
        "{\"pids\":[0]}",
        "not json",
        "{\"all\":false}",
    ] {
        let answer = daemon.request("PUT", "/api/v1/targets", Some(body));
        assert!(
            (400..500).contains(&answer.status),
            "PUT {body}: {}",
            answer.status
        );
        assert!(
            answer.has_header("content-type", "application/problem+json"),
            "PUT {body}: {}",
            answer.headers
        );
    }
    assert_eq!(daemon.get("/targets")["all"], true);
}
