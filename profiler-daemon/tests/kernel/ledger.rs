//! The ledger of `docs/semantics.md`, asserted for every process on the machine from what the
//! daemon answers.
//!
//! Reports that are compared must be of one moment, so they are read until they carry the same
//! `as_of`.

use std::collections::HashMap;
use std::thread;

use serde_json::Value;

use crate::daemon::{self, Daemon};
use crate::reads::{self, classes, number, rows, text};
use crate::workload::{self, Workload};

/// How often a set of reports is read again because a pass came between them.
const ATTEMPTS: usize = 50;
/// A percentage is a float that was printed: this much is rounding.
const PERCENT_ROUNDING: f64 = 0.01;

/// Reads several reports of one moment.
pub(crate) fn at_one_moment<const N: usize>(
    daemon: &Daemon,
    paths: [&str; N],
) -> Option<[Value; N]> {
    for _ in 0..ATTEMPTS {
        // Asked for at once: one after the other they may take longer than a pass is good for.
        let answers = std::thread::scope(|scope| {
            let asked = paths.map(|path| {
                let path = format!("/api/v1{path}");
                scope.spawn(move || daemon.try_get(&path))
            });
            asked.map(|answer| answer.join().expect("the daemon is asked"))
        });
        let mut reports = Vec::new();
        for (path, answer) in paths.into_iter().zip(answers) {
            if matches!(answer.status, 404 | 410) {
                return None; // Dropped by retention between the list and here.
            }
            assert_eq!(answer.status, 200, "GET {path}: {}", answer.text());
            reports.push(answer.json());
        }
        if reports
            .iter()
            .all(|report| report["as_of"] == reports[0]["as_of"])
        {
            return reports.try_into().ok();
        }
    }
    panic!("{ATTEMPTS} times a pass came between the reading of {paths:?}");
}

/// Processes that are checked at a time.
const ASKERS: usize = 4;
/// Processes that have ended and are checked: a daemon that has seen all other tests knows a
/// thousand, each of whose reports waits for a pass.
const MAX_ENDED: usize = 200;

/// Rules 1 to 5 for the session and for every process in it; of those that have ended, one in so
/// many that there are not too many of them.
pub(crate) fn check(daemon: &Daemon) {
    let [session, processes, threads] = at_one_moment(
        daemon,
        ["/session", "/processes?limit=0", "/threads?limit=0"],
    )
    .expect("these always exist");
    check_session(&session, rows(&processes));
    check_threads(rows(&processes), rows(&threads));
    check_rows("session functions", &daemon.get("/functions?limit=0"), None);
    check_rows("session modules", &daemon.get("/modules?limit=0"), None);
    check_tree("session", &daemon.get("/calltree"));
    let rows = rows(&processes).iter().filter(|row| !row["pid"].is_null());
    let (ended, living): (Vec<&Value>, Vec<&Value>) =
        rows.partition(|row| text(row, "/state") == "exited");
    let one_in = ended.len().div_ceil(MAX_ENDED).max(1);
    let selectors: Vec<String> = living
        .into_iter()
        .chain(ended.into_iter().step_by(one_in))
        .map(|row| format!("{}.{}", row["pid"], row["start_ticks"]))
        .collect();
    // Each report waits for a pass: as many at a time as the daemon makes.
    let checked: usize = thread::scope(|scope| {
        let askers: Vec<_> = (0..ASKERS)
            .map(|asker| {
                let mine = selectors.iter().skip(asker).step_by(ASKERS);
                scope.spawn(move || mine.filter(|each| check_process(daemon, each)).count())
            })
            .collect();
        let counts = askers.into_iter().map(|asker| match asker.join() {
            Ok(count) => count,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        counts.sum()
    });
    assert!(checked > 0, "no process could be checked");
}

/// Rules 1 and 2 for all threads of the session at one moment.
fn check_threads(processes: &[Value], threads: &[Value]) {
    let identity = |row: &Value| (number(row, "/pid"), number(row, "/start_ticks"));
    let mut sums: HashMap<(u64, u64), [u64; 5]> = HashMap::new();
    for row in threads {
        check_thread("session", row);
        add(sums.entry(identity(row)).or_default(), classes(row));
    }
    // Threads of ended processes that are one by image are one row by image as well.
    for process in processes.iter().filter(|row| !row["pid"].is_null()) {
        let found = sums.get(&identity(process)).copied().unwrap_or_default();
        assert_eq!(
            found,
            classes(process),
            "process {}: the classes of its threads do not sum to its own",
            process["pid"]
        );
    }
}

/// Rules 1 to 5 for one process. False when retention dropped it meanwhile.
pub(crate) fn check_process(daemon: &Daemon, selector: &str) -> bool {
    let base = format!("/processes/{selector}");
    // By pairs: the fewer reports must be of one moment, the sooner they are, also on a busy
    // machine.
    let pair = |report: &str| at_one_moment(daemon, [&base, &format!("{base}/{report}")]);
    let Some([process, threads]) = pair("threads?limit=0") else {
        return false;
    };
    check_totals(selector, &process);
    let mut sums = [0; 5];
    for row in rows(&threads) {
        check_thread(selector, row);
        add(&mut sums, classes(row));
    }
    assert_eq!(
        sums,
        Totals::of(&process).classes,
        "{selector}: the classes of its threads do not sum to its own"
    );
    for report in [
        "functions?limit=0",
        "functions?limit=0&frames=all",
        "modules?limit=0",
    ] {
        let Some([process, list]) = pair(report) else {
            return false;
        };
        check_rows(
            &format!("{selector} {report}"),
            &list,
            Some(&Totals::of(&process)),
        );
    }
    for span in ["", "?window=5s"] {
        let answer = daemon.try_get(&format!("/api/v1{base}/os-events{span}"));
        if matches!(answer.status, 404 | 410) {
            return false;
        }
        assert_eq!(answer.status, 200, "{selector}: {}", answer.text());
        check_calls(selector, &answer.json());
    }
    let answer = daemon.try_get(&format!("/api/v1{base}/calltree"));
    if matches!(answer.status, 404 | 410) {
        return false;
    }
    assert_eq!(answer.status, 200, "{selector}: {}", answer.text());
    check_tree(selector, &answer.json());
    true
}

/// What an open interval was taken for at a pass may turn out to be another class. Which of two
/// gains it became is a guess where a thread has both.
const TAKEN_FOR_ANOTHER_NS: u64 = 10_000_000;

/// Rule 6: no more of a class is in calls than at all.
pub(crate) fn check_calls(what: &str, events: &Value) {
    let calls = events["syscalls"].as_array().expect("a list of calls");
    for (of_calls, of_all) in [
        ("/running_ns", "/classes/syscall_ns"),
        ("/blocked_ns", "/classes/blocked_ns"),
        ("/runnable_ns", "/classes/runnable_ns"),
    ] {
        let sum: u64 = calls.iter().map(|row| number(row, of_calls)).sum();
        let all = number(events, of_all);
        assert!(
            sum <= all + all / 1_000 + TAKEN_FOR_ANOTHER_NS,
            "{what}: {of_calls} of calls is {sum} ns, of {all} in all: {events}"
        );
    }
}

/// What a process or session says of itself.
struct Totals {
    samples: u64,
    elapsed_ns: u64,
    application_ns: u64,
    classes: [u64; 5],
}

impl Totals {
    fn of(report: &Value) -> Self {
        Self {
            samples: number(report, "/samples"),
            elapsed_ns: number(report, "/elapsed_ns"),
            application_ns: number(report, "/application_ns"),
            classes: classes(report),
        }
    }
}

fn add(sums: &mut [u64; 5], more: [u64; 5]) {
    for (sum, class_ns) in sums.iter_mut().zip(more) {
        *sum += class_ns;
    }
}

/// Rule 1: the classes of a thread are its observed life, to the nanosecond.
fn check_thread(selector: &str, row: &Value) {
    let of_thread = format!("{selector} thread {}", row["tid"]);
    let [first_ns, last_ns, unobserved_ns] =
        ["/first_event_ns", "/last_event_ns", "/unobserved_ns"].map(|pointer| number(row, pointer));
    let total_ns: u64 = classes(row).iter().sum();
    assert_eq!(
        total_ns,
        last_ns - first_ns - unobserved_ns,
        "{of_thread}: classes are not last - first event: {row}"
    );
    assert_eq!(
        number(row, "/elapsed/inclusive_ns"),
        total_ns,
        "{of_thread}: elapsed is not the sum of its classes"
    );
    check_values(&of_thread, row, None);
}

/// The classes of a process or session are its elapsed time; the one without an OS event, less page
/// faults and interrupts, is its application time.
fn check_totals(what: &str, report: &Value) {
    let totals = Totals::of(report);
    let [user_ns, ..] = totals.classes;
    assert_eq!(
        totals.classes.iter().sum::<u64>(),
        totals.elapsed_ns,
        "{what}: classes do not sum to elapsed"
    );
    assert_eq!(
        totals.application_ns + number(report, "/fault_ns"),
        user_ns,
        "{what}: application and faults are not the user class of {:?}",
        totals.classes
    );
}

/// Rule 2: the session is the sum of its rows; those of ended processes that are one by image are
/// what is told as retired.
fn check_session(session: &Value, processes: &[Value]) {
    check_totals("session", session);
    let (mut sums, mut retired) = ([0; 5], [0; 5]);
    let mut samples = 0;
    for row in processes {
        check_totals(&format!("process {}", row["pid"]), row);
        add(&mut sums, classes(row));
        samples += number(row, "/samples");
        if row["pid"].is_null() {
            add(&mut retired, classes(row));
        }
    }
    assert_eq!(retired, classes(&session["retired"]), "rows by image");
    assert_eq!(
        sums,
        classes(session),
        "the classes of the processes do not sum to those of the session"
    );
    assert_eq!(
        samples,
        number(session, "/samples"),
        "the samples of the processes do not sum to those of the session"
    );
}

/// Rules 3 and 5 for a table of functions or modules.
fn check_rows(what: &str, list: &Value, totals: Option<&Totals>) {
    let mut exclusive = [0u64; 3];
    for row in rows(list) {
        check_values(what, row, totals);
        exclusive[0] += number(row, "/samples/exclusive");
        exclusive[1] += number(row, "/elapsed/exclusive_ns");
        exclusive[2] += number(row, "/application/exclusive_ns");
    }
    if let Some(totals) = totals {
        let unattributed_ns = number(list, "/completeness/elapsed_unattributed_ns");
        assert_eq!(
            exclusive[1] + unattributed_ns,
            totals.elapsed_ns,
            "{what}: exclusive + unattributed is not elapsed"
        );
        // How much of what is not attributed is application time is not told; more than all of it
        // is wrong.
        let application_ns = exclusive[2]..=exclusive[2] + unattributed_ns;
        assert!(
            application_ns.contains(&totals.application_ns),
            "{what}: application {} is not in {application_ns:?}",
            totals.application_ns
        );
        assert_eq!(
            exclusive[0], totals.samples,
            "{what}: exclusive samples are not the samples"
        );
    }
}

/// Rule 5 for the values of a row, and the percentages where the totals are known.
fn check_values(what: &str, row: &Value, totals: Option<&Totals>) {
    let name = row
        .get("function")
        .or(row.get("module"))
        .or(row.get("tid"))
        .unwrap_or(&Value::Null);
    let pair = |group: &str, unit: &str| {
        ["inclusive", "exclusive"].map(|kind| number(row, &format!("/{group}/{kind}{unit}")))
    };
    let samples = pair("samples", "");
    let elapsed = pair("elapsed", "_ns");
    let application = pair("application", "_ns");
    for (group, [inclusive, exclusive]) in [
        ("samples", samples),
        ("elapsed", elapsed),
        ("application", application),
    ] {
        assert!(
            exclusive <= inclusive,
            "{what} {name}: {group} exclusive {exclusive} > inclusive {inclusive}"
        );
    }
    for (application_ns, elapsed_ns) in application.into_iter().zip(elapsed) {
        assert!(
            application_ns <= elapsed_ns,
            "{what} {name}: application {application_ns} > elapsed {elapsed_ns}"
        );
    }
    let Some(totals) = totals else { return };
    assert!(
        samples[0] <= totals.samples,
        "{what} {name}: samples {} > {} of the process",
        samples[0],
        totals.samples
    );
    assert!(
        elapsed[0] <= totals.elapsed_ns,
        "{what} {name}: elapsed {} > {} of the process",
        elapsed[0],
        totals.elapsed_ns
    );
    assert!(
        application[0] <= totals.application_ns,
        "{what} {name}: application {} > {} of the process",
        application[0],
        totals.application_ns
    );
    for (group, value, total) in [
        ("samples/inclusive", samples[0], totals.samples),
        ("samples/exclusive", samples[1], totals.samples),
        ("elapsed/inclusive", elapsed[0], totals.elapsed_ns),
        ("elapsed/exclusive", elapsed[1], totals.elapsed_ns),
        (
            "application/inclusive",
            application[0],
            totals.application_ns,
        ),
        (
            "application/exclusive",
            application[1],
            totals.application_ns,
        ),
    ] {
        let Some(percent) = row
            .pointer(&format!("/{group}_percent_of_process"))
            .and_then(Value::as_f64)
        else {
            continue;
        };
        let expected = if total == 0 {
            0.0
        } else {
            100.0 * value as f64 / total as f64
        };
        assert!(
            (percent - expected).abs() <= PERCENT_ROUNDING,
            "{what} {name}: {group} {percent} %, expected {expected} %"
        );
    }
}

/// Rule 4: each node of a call tree is its own part and its children.
fn check_tree(what: &str, report: &Value) {
    let root = &report["root"];
    let mut open = vec![(root, 0u32)];
    while let Some((node, depth)) = open.pop() {
        let children: &[Value] = node["children"].as_array().map_or(&[], Vec::as_slice);
        for (group, unit) in [("samples", ""), ("elapsed", "_ns"), ("application", "_ns")] {
            let value = |node: &Value, kind: &str| number(node, &format!("/{group}/{kind}{unit}"));
            let below: u64 = children.iter().map(|child| value(child, "inclusive")).sum();
            assert_eq!(
                value(node, "exclusive") + below,
                value(node, "inclusive"),
                "{what}: {group} of {} at depth {depth} is not its own and its {} children's",
                text(node, "/function"),
                children.len()
            );
        }
        open.extend(children.iter().map(|child| (child, depth + 1)));
    }
}

#[test]
fn the_ledger_holds_for_the_whole_machine_under_load() {
    // Check that while threads work, sleep, race, come and go, every report of every process adds
    // up exactly.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let mut sleeper = Workload::start("sleeper");
    sleeper.ready();
    let running = [
        "split --seconds 4",
        "race --count 20000",
        "churn --count 300",
        "children --count 50",
        "pingpong --count 20000",
    ]
    .map(Workload::start);
    check(daemon);
    for workload in running {
        workload.finish();
    }
    check(daemon);
    sleeper.go();
    let finished = sleeper.finish();
    reads::ended(daemon, &finished);
    assert!(
        check_process(daemon, &finished.selector),
        "a process that has just ended is still known"
    );
}

#[test]
fn the_ledger_holds_when_every_event_is_walked() {
    // Check that with min_interval 0, where each interval goes to its own stack, nothing is counted
    // twice or lost.
    let settings = daemon::Settings {
        top: "min_interval = 0",
        ..daemon::Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    for command_line in [
        "wait-split --seconds 1",
        "pingpong --count 5000",
        "storm --count 20000",
        "contention --count 10",
    ] {
        let finished = workload::run(command_line);
        // What lived shorter than the reports may be old is in none of them at first.
        reads::ended(&daemon, &finished);
        assert!(
            check_process(&daemon, &finished.selector),
            "a process that has just ended is still known"
        );
    }
}
