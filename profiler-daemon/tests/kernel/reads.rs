//! How the tests read answers: values by path, rows by name, times, tolerances, and waiting until a
//! report is new enough.

use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::class_names::CLASSES;
use crate::daemon::Daemon;
use crate::workload::Finished;

const FRESH_WITHIN: Duration = Duration::from_secs(10);

/// An integer in an answer, by JSON pointer. Missing, negative or fractional fails the test.
pub(crate) fn number(value: &Value, pointer: &str) -> u64 {
    value
        .pointer(pointer)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no integer at {pointer} in {value}"))
}

/// A text in an answer, by JSON pointer.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("no text at {pointer} in {value}"))
}

/// The rows of a list that was not cut.
pub(crate) fn rows(list: &Value) -> &[Value] {
    assert_eq!(
        list["truncated"], false,
        "the list was cut although limit=0"
    );
    let rows = list["rows"]
        .as_array()
        .unwrap_or_else(|| panic!("no rows in {list}"));
    assert_eq!(rows.len() as u64, number(list, "/total_rows"));
    rows
}

/// The five classes of a row.
pub(crate) fn classes(row: &Value) -> [u64; 5] {
    CLASSES.map(|class| number(row, &format!("/classes/{class}")))
}

/// Time on a processor: user and system call.
pub(crate) fn running_ns(row: &Value) -> u64 {
    let [user, syscall, ..] = classes(row);
    user + syscall
}

/// The rows whose function is this one, in whatever module path.
pub(crate) fn function_rows<'a>(list: &'a Value, name: &str) -> Vec<&'a Value> {
    let is_it = |row: &&Value| is_function(text(row, "/function"), name);
    rows(list).iter().filter(is_it).collect()
}

/// Whether a demangled name is `name` in some module path, with or without the compiler's hash at
/// the end.
pub(crate) fn is_function(demangled: &str, name: &str) -> bool {
    let plain = match demangled.rsplit_once("::h") {
        Some((plain, hash))
            if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            plain
        }
        _ => demangled,
    };
    plain.rsplit("::").next() == Some(name)
}

/// The one row of a function; none or several fail the test and show what there is.
pub(crate) fn function<'a>(list: &'a Value, name: &str) -> &'a Value {
    match function_rows(list, name).as_slice() {
        [row] => row,
        found => {
            let names: Vec<_> = rows(list)
                .iter()
                .map(|row| (text(row, "/function"), number(row, "/elapsed/exclusive_ns")))
                .collect();
            panic!("{} rows for {name}; there are {names:?}", found.len());
        }
    }
}

/// The row of a thread.
pub(crate) fn thread(list: &Value, tid: u64) -> &Value {
    rows(list)
        .iter()
        .find(|row| row["tid"] == tid)
        .unwrap_or_else(|| panic!("no thread {tid} in {list}"))
}

/// The row of a system call by name, if there is one.
pub(crate) fn system_call<'a>(events: &'a Value, name: &str) -> Option<&'a Value> {
    events["syscalls"]
        .as_array()
        .expect("os-events list system calls")
        .iter()
        .find(|row| row["name"] == name)
}

/// Nanoseconds since 1970.
pub(crate) fn unix_now_ns() -> u64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("the clock is past 1970");
    u64::try_from(now.as_nanos()).expect("the year is before 2500")
}

/// Nanoseconds since 1970 of an RFC 3339 time in UTC.
pub(crate) fn unix_ns(time: &str) -> u64 {
    parse_time(time).unwrap_or_else(|| panic!("`{time}` is not an RFC 3339 time in UTC"))
}

fn parse_time(time: &str) -> Option<u64> {
    let time = time
        .strip_suffix('Z')
        .or_else(|| time.strip_suffix("+00:00"))?;
    let (date, clock) = time.split_once('T')?;
    let date: Vec<i64> = date
        .split('-')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let clock: Vec<u64> = clock
        .split(':')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let ([year, month, day], [hour, minute, second]) =
        (date[..].try_into().ok()?, clock[..].try_into().ok()?);
    // Days since 1970 of the proleptic Gregorian calendar, years starting in March.
    let (year, month): (i64, i64) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let seconds = u64::try_from(days).ok()? * 86_400 + hour * 3_600 + minute * 60 + second;
    let fraction_ns: u64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some(seconds * 1_000_000_000 + fraction_ns)
}

/// Field 22 of a process's stat file: its start in ticks since boot. 0 when it is gone.
pub(crate) fn start_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .and_then(|(_, rest)| rest.split(' ').nth(19)?.parse().ok())
        .unwrap_or_default()
}

/// Asks until the answer is as of `since_unix_ns` or later and `enough` holds.
pub(crate) fn until(
    daemon: &Daemon,
    path: &str,
    since_unix_ns: u64,
    enough: impl Fn(&Value) -> bool,
) -> Value {
    let deadline = Instant::now() + FRESH_WITHIN;
    loop {
        let answer = daemon.try_get(&format!("/api/v1{path}"));
        if answer.status == 200 {
            let report = answer.json();
            if unix_ns(text(&report, "/as_of")) >= since_unix_ns && enough(&report) {
                return report;
            }
            assert!(
                Instant::now() < deadline,
                "GET {path} did not become as expected; last: {report}"
            );
        } else {
            assert!(
                Instant::now() < deadline,
                "GET {path}: {} {}",
                answer.status,
                answer.text()
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The totals of a workload that has ended, once the daemon has seen the end.
pub(crate) fn ended(daemon: &Daemon, finished: &Finished) -> Value {
    until(
        daemon,
        &format!("/processes/{}", finished.selector),
        finished.unix_ns,
        |row| row["state"] == "exited",
    )
}

/// One table of a process, all rows, as of its truth or later.
pub(crate) fn table(daemon: &Daemon, finished: &Finished, table: &str) -> Value {
    until(
        daemon,
        &format!("/processes/{}/{table}?limit=0", finished.selector),
        finished.unix_ns,
        |_| true,
    )
}

/// The system calls of a process, as of its truth or later.
pub(crate) fn events(daemon: &Daemon, finished: &Finished) -> Value {
    until(
        daemon,
        &format!("/processes/{}/os-events", finished.selector),
        finished.unix_ns,
        |_| true,
    )
}

/// Fails unless `found` is within `relative` of `expected`, plus `slack_ns`.
pub(crate) fn assert_near(what: &str, found: u64, expected: u64, relative: f64, slack_ns: u64) {
    let allowed = expected as f64 * relative + slack_ns as f64;
    let off = found.abs_diff(expected) as f64;
    assert!(
        off <= allowed,
        "{what}: found {found}, expected {expected}, off by {off:.0}, allowed {allowed:.0}"
    );
}

/// Fails unless a share found in `walks` walks is within four standard deviations, plus half a
/// point, of the true one.
pub(crate) fn assert_share(what: &str, found: f64, expected: f64, walks: u64) {
    let deviation = (expected * (1.0 - expected) / walks.max(1) as f64).sqrt();
    let allowed = 4.0 * deviation + 0.005;
    assert!(
        (found - expected).abs() <= allowed,
        "{what}: found {found:.4}, expected {expected:.4} +- {allowed:.4} ({walks} walks)"
    );
}

/// How far `getrusage` may be from the truth over a stretch of time.
pub(crate) struct Yardstick {
    taken_ns: u64,
}

impl Yardstick {
    /// The stretch begins.
    pub(crate) fn start() -> Self {
        Self {
            taken_ns: taken_ns(),
        }
    }

    /// 10 ms, what interrupts and the host took, and for each switch of a thread the way from the
    /// wake-up to the switch: the kernel books that to the thread that comes, or to the one that
    /// goes, and not to the idle time or thread before. (`__schedule` does not read its clock again
    /// after a wake-up has: `rq_clock_skip_update`. Where the wake-up came from another processor,
    /// some microseconds pass until the interrupt that announces it, on a virtual machine up to
    /// 20.)
    pub(crate) fn slack_ns(&self, truth: &Value) -> u64 {
        10_000_000
            + (taken_ns() - self.taken_ns)
            + number(truth, "/voluntary_switches") * 5_000
            + number(truth, "/involuntary_switches") * 20_000
    }
}

/// Processor time that interrupts and the host took from running threads, all processors together,
/// so far. The kernel leaves it out of `getrusage`; a wall clock cannot.
fn taken_ns() -> u64 {
    const TICK_NS: u64 = 10_000_000;
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    // irq, softirq, steal
    fields
        .get(5..8)
        .map_or(0, |taken| taken.iter().sum::<u64>() * TICK_NS)
}

#[test]
fn times_and_names_are_read() {
    // Check that RFC 3339 times are read to the nanosecond across leap days, and functions found in
    // any module path.
    assert_eq!(unix_ns("1970-01-01T00:00:00Z"), 0);
    assert_eq!(
        unix_ns("2000-02-29T12:34:56.000000007Z"),
        951_827_696_000_000_007
    );
    assert_eq!(
        unix_ns("2026-03-01T00:00:00.5+00:00"),
        1_772_323_200_500_000_000
    );
    assert_eq!(parse_time("2026-03-01 00:00:00"), None);
    assert!(is_function("workload::split::split_ten", "split_ten"));
    assert!(is_function(
        "workload::split::split_ten::h0123456789abcdef",
        "split_ten"
    ));
    assert!(!is_function("workload::split::not_split_ten", "split_ten"));
}
