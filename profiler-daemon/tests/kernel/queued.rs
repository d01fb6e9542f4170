//! Threads that wait for a processor: as the scheduler counts it, and at any moment, not only when
//! they have got one.

use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon;
use crate::reads::{self, assert_near, classes, number, text, unix_now_ns, unix_ns};
use crate::workload::Workload;

/// How long the sleeper sleeps, and how long its processor is then kept from it.
const ASLEEP: Duration = Duration::from_millis(200);
const KEPT: Duration = Duration::from_millis(900);
const SLACK_NS: u64 = 30_000_000;
/// A pass a second falls into the wait within some rounds.
const ROUNDS: usize = 10;

/// Pins the calling thread to the first processor. The kernel allows that to every thread there is.
fn pin() {
    // SAFETY: plain numbers; a set of which one is filled.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

/// Lets the calling thread run before all ordinary ones. False: that is not permitted.
fn run_first() -> bool {
    let priority = libc::sched_param { sched_priority: 10 };
    // SAFETY: reads what it is given.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) == 0 }
}

/// A thread that sleeps while another takes their processor. Its id, and both.
fn round() -> Option<(u64, JoinHandle<()>, JoinHandle<()>)> {
    let (tell, told) = mpsc::channel();
    let sleeper = std::thread::spawn(move || {
        pin();
        // SAFETY: takes nothing.
        let tid = unsafe { libc::gettid() };
        tell.send(u64::try_from(tid).expect("an id is no negative number"))
            .expect("the test waits for it");
        std::thread::sleep(ASLEEP);
    });
    let tid = told.recv().expect("the sleeper tells its id");
    let (tell, told) = mpsc::channel();
    let keeper = std::thread::spawn(move || {
        pin();
        let may = run_first();
        tell.send(may).expect("the test waits for it");
        let start = Instant::now();
        while may && start.elapsed() < KEPT {
            std::hint::spin_loop();
        }
    });
    let may = told.recv().expect("the keeper tells whether it may");
    may.then_some((tid, sleeper, keeper))
}

fn row(list: &Value, tid: u64) -> Option<&Value> {
    reads::rows(list)
        .iter()
        .find(|row| number(row, "/tid") == tid)
}

#[test]
fn who_waits_for_a_processor_is_runnable_at_once() {
    // Check that a thread which was woken, and gets no processor, is told as runnable from its wake
    // on by a report that is made in the middle of that, and blocked up to there; and that the
    // whole wait is runnable in the end.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let processors = std::thread::available_parallelism();
    if processors.is_ok_and(|processors| processors.get() < 2) {
        daemon::say("skipped: with one processor, no report is made while it is taken");
        return;
    }
    let path = format!("/processes/{}/threads?limit=0", std::process::id());
    for _ in 0..ROUNDS {
        let since_ns = unix_now_ns();
        let Some((tid, sleeper, keeper)) = round() else {
            daemon::say("skipped: real-time scheduling is not permitted here");
            return;
        };
        let asleep_ns = ASLEEP.as_nanos() as u64;
        let (woken_ns, until_ns) = (
            since_ns + asleep_ns + SLACK_NS,
            since_ns + KEPT.as_nanos() as u64,
        );
        let mut caught = None;
        while !keeper.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
            let answer = daemon.try_get(&format!("/api/v1{path}"));
            if answer.status != 200 {
                continue;
            }
            let list = answer.json();
            let at_ns = unix_ns(text(&list, "/as_of"));
            if woken_ns + SLACK_NS < at_ns && at_ns < until_ns {
                caught = row(&list, tid).map(|row| (at_ns, row.clone()));
            }
        }
        keeper.join().expect("the keeper ends");
        sleeper.join().expect("the sleeper ends");
        let Some((at_ns, row)) = caught else {
            continue;
        };
        let [_, _, blocked_ns, runnable_ns, _] = classes(&row);
        assert_eq!(text(&row, "/state"), "runnable", "{row}");
        assert_near("blocked", blocked_ns, asleep_ns, 0.0, SLACK_NS);
        let waited_ns = at_ns - since_ns - asleep_ns;
        assert_near("runnable", runnable_ns, waited_ns, 0.0, SLACK_NS);
        let list = reads::until(daemon, &path, unix_now_ns(), |list| {
            self::row(list, tid).is_none_or(|row| row["state"] == "exited")
        });
        if let Some(row) = self::row(&list, tid) {
            let [_, _, blocked_ns, runnable_ns, _] = classes(row);
            let kept_ns = KEPT.as_nanos() as u64 - asleep_ns;
            assert_near("blocked in the end", blocked_ns, asleep_ns, 0.0, SLACK_NS);
            assert!(runnable_ns + SLACK_NS > kept_ns, "{row}");
        }
        return;
    }
    panic!("no pass fell into a wait in {ROUNDS} rounds");
}

#[test]
fn queues_are_counted_as_the_scheduler_does() {
    // Check that, of threads that wake each other on a processor that four others want as well,
    // the runnable time is what the scheduler counts for them (which leaves out the microseconds
    // from a wake that asks for a switch to that switch).
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let hogs: Vec<Workload> = (0..2)
        .map(|_| Workload::start("preempt --seconds 4 --threads 2 --cpu 0"))
        .collect();
    let (tell, told) = mpsc::channel();
    let napper = std::thread::spawn(move || {
        pin();
        // SAFETY: takes nothing.
        let tid = unsafe { libc::gettid() };
        let start = Instant::now();
        let mut naps = 0_u32;
        while start.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(Duration::from_micros(300));
            naps += 1;
        }
        let account = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat"));
        let account = account.ok().and_then(|text| {
            let queued = text.split_whitespace().nth(1)?;
            queued.parse::<u64>().ok()
        });
        let tid = u64::try_from(tid).expect("an id is no negative number");
        tell.send((tid, naps, account)).expect("the test waits");
        // It lives until it has been read.
        std::thread::sleep(Duration::from_secs(3));
    });
    let (tid, naps, account) = told.recv().expect("the napper tells");
    let now_ns = unix_now_ns();
    for hog in hogs {
        hog.finish();
    }
    let Some(queued_ns) = account.filter(|queued_ns| *queued_ns > 0) else {
        daemon::say("skipped: the scheduler keeps no account here");
        napper.join().expect("the napper ends");
        return;
    };
    let path = format!("/processes/{}/threads?limit=0", std::process::id());
    let list = reads::until(daemon, &path, now_ns + 100_000_000, |list| {
        row(list, tid).is_some()
    });
    let row = row(&list, tid).expect("the napper is listed");
    let [_, _, _, runnable_ns, _] = classes(row);
    napper.join().expect("the napper ends");
    // A wake that takes the processor over at once is in no queue for the scheduler: 20 us at most.
    let uncounted_ns = u64::from(naps) * 20_000;
    assert!(
        runnable_ns + queued_ns / 50 >= queued_ns
            && runnable_ns <= queued_ns + queued_ns / 50 + uncounted_ns,
        "{runnable_ns} ns runnable, {queued_ns} ns by the scheduler, {naps} naps"
    );
}
