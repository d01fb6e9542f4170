//! Threads that were there before the daemon: seeded in the right class, never with time from
//! before.

use std::time::{Duration, Instant};

use crate::daemon::{self, Settings};
use crate::ledger;
use crate::reads::{self, classes, number, text, thread, unix_now_ns};
use crate::workload::Workload;

#[test]
fn threads_that_already_exist_begin_in_their_class() {
    // Check that sleepers are blocked from the first moment, runners run, and the time before the
    // daemon is in no report; and that a sleeper that then wakes up is followed like any other.
    if !daemon::privileged() {
        return;
    }
    let mut sleeper = Workload::start("sleeper");
    let facts = sleeper.ready();
    let runner = Workload::start("split --seconds 6");
    let before_ns = unix_now_ns();
    let Some(daemon) = daemon::own(&Settings::default()) else {
        return;
    };
    let path = format!("/processes/{}/threads?limit=0", sleeper.selector());
    let threads = reads::until(&daemon, &path, unix_now_ns(), |list| {
        list["total_rows"].as_u64() >= Some(5)
    });
    let daemon_age_ns = unix_now_ns() - before_ns;
    for fact in facts["threads"]
        .as_array()
        .expect("the sleeper lists its threads")
    {
        let row = thread(&threads, number(fact, "/tid"));
        let [user_ns, syscall_ns, blocked_ns, runnable_ns, kernel_ns] = classes(row);
        assert_eq!(text(row, "/state"), "blocked", "{row}");
        assert_eq!(
            [user_ns, syscall_ns, runnable_ns, kernel_ns],
            [0; 4],
            "it has slept all the time: {row}"
        );
        assert!(
            blocked_ns > 0 && blocked_ns <= daemon_age_ns,
            "{blocked_ns} ns blocked in {daemon_age_ns} ns"
        );
    }
    let path = format!("/processes/{}", runner.selector());
    let row = reads::until(&daemon, &path, unix_now_ns() + 500_000_000, |_| true);
    let [user_ns, _, blocked_ns, runnable_ns, _] = classes(&row);
    assert!(
        user_ns > 0 && blocked_ns < 5_000_000,
        "a runner runs: {row}"
    );
    assert!(
        user_ns + runnable_ns <= unix_now_ns() - before_ns,
        "no time from before the daemon: {row}"
    );
    assert!(
        ledger::check_process(&daemon, &sleeper.selector()),
        "the process is alive"
    );
    sleeper.go();
    let finished = sleeper.finish();
    reads::ended(&daemon, &finished);
    assert!(
        ledger::check_process(&daemon, &finished.selector),
        "the process has just ended"
    );
    ledger::check(&daemon);
}

#[test]
fn a_thread_that_is_already_ending_is_no_thread() {
    // Check that a process that was past its last event when the daemon started, and not at its end
    // yet, does not stay in the reports as one that lives. (The first process of a namespace ends
    // only when all others of it are gone.)
    if !daemon::privileged() {
        return;
    }
    let outside = fork(|| {
        // SAFETY: no memory is passed.
        if unsafe { libc::unshare(libc::CLONE_NEWPID) } == 0 {
            fork(|| {
                fork(sleep);
                sleep();
            });
        }
        sleep();
    });
    let first = until_some("the first process of the namespace", || child_of(outside));
    let second = until_some("its child", || child_of(first));
    // SAFETY: no memory is passed.
    let traced = unsafe { libc::ptrace(libc::PTRACE_SEIZE, second, 0, 0) };
    assert_eq!(traced, 0, "{}", std::io::Error::last_os_error());
    kill(first);
    // It takes the other one with it, which stays as long as it is traced.
    until_some("the end of its child", || {
        (stat(second)?.0 == "Z").then_some(())
    });
    let (state, flags) = stat(first).expect("it waits for its child");
    assert!(state != "Z" && flags & 4 != 0, "{first}: {state} {flags:x}");

    let daemon = daemon::own(&Settings::default()).expect("there are the privileges");
    wait(second);
    until_some("its end", || {
        stat(first)
            .is_none_or(|(state, _)| state == "Z")
            .then_some(())
    });
    let ended_ns = unix_now_ns();
    let list = reads::until(&daemon, "/threads?limit=0", ended_ns, |_| true);
    let living = reads::rows(&list)
        .iter()
        .find(|row| row["tid"] == first && row["state"] != "exited");
    assert_eq!(living, None);
    kill(outside);
    wait(outside);
}

/// Forks; the child does `work`, which may do no more than make system calls, and ends.
fn fork(work: impl FnOnce()) -> i32 {
    // SAFETY: the child only makes system calls.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: plain numbers. It ends with its parent, also where a test fails.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            work();
            // SAFETY: takes nothing, does not return.
            unsafe { libc::_exit(0) }
        }
        pid => pid,
    }
}

/// Until it is killed, or for longer than any test takes.
fn sleep() {
    // SAFETY: takes nothing.
    unsafe { libc::sleep(600) };
}

fn kill(pid: i32) {
    // SAFETY: no memory is passed; a process of this test that was not waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
}

fn wait(pid: i32) {
    // SAFETY: no memory is passed.
    let waited = unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
    assert_eq!(waited, pid);
}

/// State and flags of a process; `None` if it is gone.
fn stat(pid: i32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.to_owned(), fields.nth(5)?.parse().ok()?))
}

/// A child of a process.
fn child_of(pid: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split(' ').next()?.parse().ok()
}

fn until_some<T>(what: &str, find: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < deadline, "waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
