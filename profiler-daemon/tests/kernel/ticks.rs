//! Timer ticks: as many as was asked for, never an even comb, and started again where they died.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::daemon::{self, Daemon, Settings, say};
use crate::reads::{number, text, unix_now_ns, unix_ns, until};
use crate::workload;

/// `PERF_EVENT_IOC_DISABLE`.
const DISABLE: libc::Ioctl = 0x2401;

/// All ticks so far, whatever became of them. Keeps every processor at work until it is dropped: an
/// idle one may have no ticks on a virtual machine.
struct Busy {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    fn new() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let spin = |_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..2 * processors()).map(spin).collect();
        Self { stop, threads }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("it only spins");
        }
    }
}

fn ticks(session: &Value) -> u64 {
    let discarded = session["discarded"].as_object().expect("reasons");
    let discarded: u64 = discarded.values().filter_map(Value::as_u64).sum();
    number(session, "/samples") + discarded + number(session, "/completeness/samples_lost")
}

/// How often something happened that is counted as this cause.
fn cause(session: &Value, name: &str) -> u64 {
    session["completeness"]["causes"][name]
        .as_u64()
        .unwrap_or(0)
}

fn processors() -> u64 {
    std::thread::available_parallelism()
        .expect("a number of processors")
        .get() as u64
}

/// A report of the session as of now.
fn session(daemon: &Daemon) -> Value {
    until(daemon, "/session", unix_now_ns(), |_| true)
}

/// Seconds from one report to another.
fn seconds(before: &Value, after: &Value) -> f64 {
    let ns = |session: &Value| unix_ns(text(session, "/as_of"));
    (ns(after) - ns(before)) as f64 / 1e9
}

#[test]
fn ticks_have_their_mean_and_are_no_even_comb() {
    // Check that over 20 s there are as many ticks per second and processor as was asked for,
    // within 1 %, those among them that are counted as skipped, and that seconds differ as drawn
    // rates do; at 99 Hz and, beside it, at 997.
    let _busy = Busy::new();
    let daemons = ["frequency_hz = 99", "frequency_hz = 997"].map(|top| {
        daemon::own(&Settings {
            top,
            ..Settings::default()
        })
    });
    let [Some(slow), Some(fast)] = daemons else {
        return;
    };
    let asked = [(&slow, 99.0), (&fast, 997.0)];
    let mut reports = [Vec::new(), Vec::new()];
    for _ in 0..=20 {
        for ((daemon, _), reports) in asked.iter().zip(&mut reports) {
            reports.push(session(daemon));
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    for ((_, frequency_hz), reports) in asked.iter().zip(&reports) {
        let wanted = frequency_hz * processors() as f64;
        let rate = |before: &Value, after: &Value| {
            (ticks(after) - ticks(before)) as f64 / seconds(before, after) / wanted
        };
        let (first, last) = (&reports[0], &reports[20]);
        let skipped = cause(last, "ticks_skipped") - cause(first, "ticks_skipped");
        let due = rate(first, last) + skipped as f64 / seconds(first, last) / wanted;
        let each: Vec<f64> = reports
            .windows(2)
            .map(|pair| rate(&pair[0], &pair[1]))
            .collect();
        let mean = each.iter().sum::<f64>() / each.len() as f64;
        let squares: f64 = each.iter().map(|rate| (rate - mean).powi(2)).sum();
        let spread = (squares / each.len() as f64).sqrt();
        say(&format!(
            "{frequency_hz} Hz: {:.4} of the ticks, {skipped} skipped, seconds differ by {spread:.4}",
            rate(first, last)
        ));
        assert!((due - 1.0).abs() < 0.01, "{frequency_hz}: {due} {each:?}");
        // Of drawn numbers, some ten a second; an even comb has one tick more or less.
        let even = 1.0 / frequency_hz;
        assert!(
            spread * (processors() as f64).sqrt() > 0.004_f64.max(even / 2.0),
            "{frequency_hz}: {spread} {each:?}"
        );
        assert_eq!(cause(last, "ticks_restarted"), 0);
    }
}

/// Stops every event of the kernel's counters that a process has open, as a processor that goes
/// offline does. Returns how many.
fn stop_events(pid: u32) -> u64 {
    let fail = |what: &str| -> ! { panic!("{what}: {}", io::Error::last_os_error()) };
    let owned = |descriptor: libc::c_long, what: &str| {
        let descriptor = libc::c_int::try_from(descriptor).unwrap_or(-1);
        if descriptor < 0 {
            fail(what);
        }
        // SAFETY: the call just made it, and it belongs to nobody else.
        unsafe { OwnedFd::from_raw_fd(descriptor) }
    };
    // SAFETY: plain numbers.
    let process = owned(
        unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) },
        "pidfd_open",
    );
    let mut stopped = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("the daemon runs")
        .flatten()
    {
        if fs::read_link(entry.path())
            .is_ok_and(|link| link.as_os_str() == "anon_inode:[perf_event]")
        {
            let number: libc::c_int = entry
                .file_name()
                .to_string_lossy()
                .parse()
                .expect("a number");
            // SAFETY: plain numbers.
            let copy =
                unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
            let copy = owned(copy, "pidfd_getfd");
            // SAFETY: this request takes a number of flags.
            if unsafe { libc::ioctl(copy.as_raw_fd(), DISABLE, 0) } < 0 {
                fail("PERF_EVENT_IOC_DISABLE");
            }
            stopped += 1;
        }
    }
    stopped
}

/// Fails unless ticks come on all processors, and the beginning of short processes is heard.
fn assert_whole(daemon: &Daemon, frequency_hz: u64) {
    let before = session(daemon);
    std::thread::sleep(Duration::from_secs(3));
    let after = session(daemon);
    let share = (ticks(&after) - ticks(&before)) as f64
        / (seconds(&before, &after) * (frequency_hz * processors()) as f64);
    assert!(share > 0.85, "{share} of the ticks come");
    for _ in 0..3 * processors() {
        let finished = workload::run("vanish --count 1");
        let row = until(
            daemon,
            &format!("/processes/{}", finished.selector),
            finished.unix_ns,
            |row| row["state"] == "exited",
        );
        assert!(
            row["exe"].is_string(),
            "its program was not heard of: {row}"
        );
    }
}

#[test]
fn ticks_that_stand_still_are_started_again() {
    // Check that when all events of the daemon have died, as those of a processor do that goes
    // offline, ticks stand still no longer than a second, are counted as skipped and as started
    // again, and that processes that begin are heard of as before.
    let _busy = Busy::new();
    let Some(daemon) = daemon::own(&Settings {
        top: "frequency_hz = 199",
        ..Settings::default()
    }) else {
        return;
    };
    let before = session(&daemon);
    assert_eq!(cause(&before, "ticks_restarted"), 0);
    let stopped = stop_events(daemon.pid());
    assert_eq!(
        stopped,
        2 * processors(),
        "ticks and process events of each processor"
    );
    let stopped_ns = unix_now_ns();
    let after = until(&daemon, "/session", stopped_ns, |session| {
        cause(session, "ticks_restarted") >= processors()
    });
    let still_s = (unix_ns(text(&after, "/as_of")) - stopped_ns) as f64 / 1e9;
    // Half a second until it is noticed, then the next drawn moment, then the pass that tells.
    assert!(still_s < 1.5, "{still_s} s");
    assert_eq!(cause(&after, "ticks_restarted"), processors());
    let skipped = cause(&after, "ticks_skipped") - cause(&before, "ticks_skipped");
    assert!(skipped <= 199 * processors() * 2, "{skipped} skipped");
    assert_whole(&daemon, 199);
}

/// Puts a processor back online, also when the test fails.
struct Offline(&'static str);

impl Offline {
    fn begin(path: &'static str) -> io::Result<Self> {
        fs::write(path, "0")?;
        Ok(Self(path))
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        if let Err(error) = fs::write(self.0, "1") {
            say(&format!("{} could not be put back to 1: {error}", self.0));
        }
    }
}

#[test]
#[ignore = "takes a processor offline for two seconds"]
fn a_processor_that_comes_back_has_ticks_again() {
    // Check that a processor that goes offline for a moment, and then for longer than a pass, has
    // ticks again and is heard of again, both times.
    let _busy = Busy::new();
    const SWITCH: &str = "/sys/devices/system/cpu/cpu1/online";
    if !daemon::privileged() {
        return;
    }
    if !fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "1") {
        say("skipped: there is no second processor that can be taken offline");
        return;
    }
    let daemon = Daemon::start(&Settings {
        top: "frequency_hz = 199",
        ..Settings::default()
    });
    for (time, offline) in [(1, 50), (2, 1500)] {
        let begun = Offline::begin(SWITCH).expect("the processor can be taken offline");
        std::thread::sleep(Duration::from_millis(offline));
        drop(begun);
        let back_ns = unix_now_ns();
        let after = until(&daemon, "/session", back_ns, |session| {
            cause(session, "ticks_restarted") >= time
        });
        let still_s = (unix_ns(text(&after, "/as_of")) - back_ns) as f64 / 1e9;
        assert!(still_s < 2.5, "{still_s} s");
        assert_eq!(cause(&after, "ticks_restarted"), time);
        assert_whole(&daemon, 199);
    }
}
