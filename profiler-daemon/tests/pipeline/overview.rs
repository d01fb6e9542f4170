//! The first screen: who is on it, with what, and how it looks.

use std::collections::BTreeSet;

use profiler_common::ClassNs;
use profiler_daemon::{
    export::overview::write,
    processes::ids::{ProcessKey, ThreadKey},
    profile::{
        frames::FrameId,
        input::{CommName, DrainPass, ThreadState},
        limits::Limits,
        snapshot::Snapshot,
    },
    report::{self, Overview, OverviewQuery, OverviewRow, TableQuery, Window, names::Names},
    symbols::names::FunctionName,
};

use crate::{
    golden::compare,
    machine::SECOND_NS,
    primary::primary,
    small::{self, ByName, PROCESS, Small, THREAD},
};

const MS: u64 = 1_000_000;
/// The profiler's own process in these tests.
const OWN: u32 = 45;

/// Names of what was asked for, and of nothing else.
struct Asked<'a>(&'a ByName, BTreeSet<FrameId>);

impl Names for Asked<'_> {
    fn function(&self, frame: FrameId) -> &FunctionName {
        assert!(self.1.contains(&frame), "{frame:?} was not asked for");
        self.0.function(frame)
    }
}

fn overview(snapshot: &Snapshot, names: &ByName, query: &OverviewQuery) -> Overview {
    let frames = report::overview_frames(snapshot, query).unwrap();
    let asked = Asked(names, frames.into_iter().collect());
    report::overview(snapshot, query, &asked).unwrap()
}

fn text(overview: &Overview) -> String {
    let mut text = Vec::new();
    write(overview, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn key(pid: u32) -> ProcessKey {
    ProcessKey { pid, ..PROCESS }
}

/// A process of one thread, with one stack that has all of its running time and samples.
fn add(
    small: &mut Small,
    pass: &mut DrainPass,
    pid: u32,
    comm: &str,
    user: &[&str],
    classes: ClassNs,
) {
    let thread = ThreadKey { tid: pid, ..THREAD };
    let mut info = small::info(key(pid));
    info.comm = CommName::new(comm);
    pass.processes.push(info);
    pass.threads.push(small::thread(
        key(pid),
        thread,
        ThreadState::Blocked,
        classes,
    ));
    let [user_ns, syscall_ns, ..] = classes;
    let samples = (user_ns + syscall_ns) / (100 * MS);
    let mut stack = small.delta(user, &[], samples, [user_ns, 0, 0, 0, 0]);
    (stack.process, stack.thread) = (key(pid), thread);
    pass.stacks.push(stack);
}

/// Ten seconds of a service that computes and waits, of a pool that idles, of one that waits, of
/// the profiler, and of a thread of the kernel. On a machine with so many processors.
fn machine(processors: u32) -> (Snapshot, ByName) {
    let mut small = Small::new(Limits::default());
    let mut pass = DrainPass {
        processors,
        ..small.pass(10)
    };
    let service = [6_000 * MS, 1_000 * MS, 2_000 * MS, 1_000 * MS, 0];
    add(
        &mut small,
        &mut pass,
        PROCESS.pid,
        "service",
        &["main", "lib:write"],
        service,
    );
    // It ran in two places of one function, neither of them the one with most time.
    pass.stacks[0].primary.ticks = [24, 0, 0, 0, 0, 0, 0];
    for number in [1, 2] {
        let (place, _) = small.place("compute", number);
        let mut stack = small.delta(&["main"], &[], 18, [1_800 * MS, 0, 0, 0, 0]);
        stack.user.push(place);
        pass.stacks.push(stack);
    }
    pass.syscalls = vec![
        small::calls(202, 10, 1_500 * MS, 1_500 * MS, 300 * MS),
        small::calls(0, 10, 900 * MS, 400 * MS, 100 * MS),
    ];
    add(
        &mut small,
        &mut pass,
        43,
        "pool",
        &["idles"],
        [MS, 0, 9_999 * MS, 0, 0],
    );
    let hostile = "k\u{1b}[31m\u{202e}漢字漢字漢字";
    add(
        &mut small,
        &mut pass,
        44,
        hostile,
        &[
            "main",
            "evil\u{1b}]0;x\u{7}\n漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字",
        ],
        [500 * MS, 0, 9_500 * MS, 0, 0],
    );
    add(
        &mut small,
        &mut pass,
        OWN,
        "profiler",
        &["walk"],
        [900 * MS, 0, 9_100 * MS, 0, 0],
    );
    let kernel = [0, 0, 9_600 * MS, 0, 400 * MS];
    add(&mut small, &mut pass, 7, "kworker/0:1", &[], kernel);
    pass.processes.last_mut().unwrap().kernel_thread = true;
    let mut work = small.delta(
        &[],
        &["k:kthread", "k:worker_thread"],
        4,
        [0, 0, 0, 0, 400 * MS],
    );
    (work.process, work.thread) = (key(7), ThreadKey { tid: 7, ..THREAD });
    *pass.stacks.last_mut().unwrap() = work;
    small.profile.apply(pass);
    (small.profile.snapshot(), small.names)
}

fn query() -> OverviewQuery {
    OverviewQuery {
        window: Window::Recent,
        own_pid: Some(OWN),
    }
}

fn pids(rows: &[OverviewRow]) -> Vec<u32> {
    rows.iter().map(|row| row.pid.unwrap()).collect()
}

// Check that the busiest are in order of their running time, that who idles, the profiler and a
// thread of the kernel are not among those that wait, and what is said of each.
#[test]
fn who_is_on_it() {
    let (snapshot, names) = machine(2);
    let found = overview(&snapshot, &names, &query());
    assert_eq!(pids(&found.busiest), [42, OWN, 44, 7, 43]);
    assert_eq!(pids(&found.waiting), [44, 42]);
    assert_eq!((found.processes, found.threads), (5, 5));
    assert_eq!((found.whole_session, found.until_now), (true, true));
    // 7 + 0.9 + 0.5 + 0.4 + 0.001 s of 20.
    assert!((found.busy_percent.unwrap() - 44.005).abs() < 0.001);
    let service = &found.busiest[0];
    let shares = [
        service.processor_percent,
        service.runnable_percent,
        service.blocked_percent,
    ];
    assert_eq!(shares, [70.0, 10.0, 20.0]);
    assert_eq!(service.capacity_percent, Some(35.0));
    let call = service.blocks_in.as_ref().unwrap();
    assert_eq!((call.call.as_ref(), call.percent), ("futex", 75.0));
    let hottest = service.hottest.as_ref().unwrap();
    assert_eq!(
        (hottest.function.as_str(), hottest.module.as_str()),
        ("compute", "/usr/bin/app")
    );
    assert!((50.0..53.0).contains(&hottest.percent), "{hottest:?}");
    let kernel = found.busiest[3].hottest.as_ref().unwrap();
    assert_eq!(kernel.function, "worker_thread");
    assert_eq!(found.busiest[1].blocks_in, None);
    // Without their number, processors are counted.
    let (snapshot, names) = machine(0);
    let found = overview(&snapshot, &names, &query());
    assert_eq!(
        (found.busy_percent, found.busiest[0].capacity_percent),
        (None, None)
    );
    assert!(
        text(&found).starts_with(
            "0.88 processors busy, 5 processes with 5 threads, whole session (10 s)\n"
        )
    );
}

// Check that who may have been asleep, since switches of its threads were missed, is not among
// those that wait, and is marked; that with none missed, or with processor time, it is believed;
// and that the count is of the window.
#[test]
fn waits_in_doubt() {
    let shown = |missed: u64, ran_ms: u64| {
        let mut small = Small::new(Limits::default());
        let mut pass = small.pass(10);
        let classes = [ran_ms * MS, 0, 0, (10_000 - ran_ms) * MS, 0];
        add(
            &mut small,
            &mut pass,
            PROCESS.pid,
            "app",
            &["main"],
            classes,
        );
        pass.threads[0].switches_missed = missed;
        let mut later = pass.clone();
        later.now_ns += 60 * SECOND_NS;
        later.now_unix_ns += 60 * SECOND_NS;
        later.stacks.clear();
        later.threads[0].classes[3] += 60_000 * MS;
        later.threads[0].last_event_ns += 60 * SECOND_NS;
        small.profile.apply(pass);
        let first = small.profile.snapshot();
        small.profile.apply(later);
        let of = |snapshot: &Snapshot, window| {
            let query = OverviewQuery { window, ..query() };
            overview(snapshot, &small.names, &query)
        };
        let last = Window::Last {
            duration_ns: 30 * SECOND_NS,
        };
        (
            of(&first, Window::Session),
            of(&small.profile.snapshot(), last),
        )
    };
    let (found, later) = shown(3, 50);
    let row = &found.busiest[0];
    assert_eq!((row.switches_missed, row.waits_in_doubt), (3, true));
    assert!(found.waiting.is_empty());
    assert!(text(&found).contains(" 99.5? "), "{}", text(&found));
    let row = &later.waiting[0];
    assert_eq!((row.switches_missed, row.waits_in_doubt), (0, false));
    for (missed, ran_ms) in [(0, 50), (3, 100)] {
        let (found, _) = shown(missed, ran_ms);
        assert_eq!(found.waiting[0].switches_missed, missed);
        assert!(!text(&found).contains("? "), "{}", text(&found));
    }
}

// Check that the screen is what it was, in no line wider than 80 columns, and that no name can do
// anything to a terminal.
#[test]
fn how_it_looks() {
    let (snapshot, names) = machine(2);
    let found = overview(&snapshot, &names, &query());
    let text = text(&found);
    for line in text.lines() {
        let is_wide = |c: char| "漢字".contains(c);
        let columns: usize = line.chars().map(|c| 1 + usize::from(is_wide(c))).sum();
        assert!(columns <= 80, "{columns} columns: {line}");
    }
    assert!(text.lines().count() <= 24, "{text}");
    let odd = text
        .chars()
        .find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
    assert_eq!(odd, None, "{text}");
    compare("overview.txt", &text);
    compare(
        "overview.json",
        &(serde_json::to_string_pretty(&found).unwrap() + "\n"),
    );
}

// Check that a screen full of the largest numbers and longest names is not wider.
#[test]
fn the_widest() {
    let (snapshot, names) = machine(2);
    let mut found = overview(&snapshot, &names, &query());
    let mut row = found.busiest[0].clone();
    (row.pid, row.ended, row.comm) = (Some(4_194_304), Some(u64::MAX), "W".repeat(15));
    row.processor_percent = 1e9;
    (row.runnable_percent, row.blocked_percent) = (1e9, 1e9);
    row.blocks_in.as_mut().unwrap().call = "syscall_4294967295 (32-bit)".into();
    row.hottest.as_mut().unwrap().function = "f".repeat(5_000);
    (found.busiest, found.waiting) = (vec![row.clone(); 10], vec![row; 5]);
    (found.processes, found.threads, found.window.duration_ns) =
        (u64::MAX, u64::MAX, u64::MAX - SECOND_NS);
    let text = text(&found);
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert_eq!(widest, Some(80), "{text}");
    assert_eq!(text.lines().count(), 24, "{text}");
}

// Check that without a word a session of 5 minutes is shown whole, and of an older one the last 30
// s, which is told.
#[test]
fn the_recent_time() {
    let mut small = Small::new(Limits::default());
    for now in 1..=400 {
        let mut pass = small.pass(now);
        let classes = [now * SECOND_NS, 0, 0, 0, 0];
        pass.threads.push(small::thread(
            PROCESS,
            THREAD,
            ThreadState::Running,
            classes,
        ));
        small.profile.apply(pass);
        let found = match now {
            300 | 301 | 400 => overview(&small.profile.snapshot(), &small.names, &query()),
            _ => continue,
        };
        let first = text(&found).lines().next().unwrap().to_owned();
        if now == 300 {
            assert!(
                found.whole_session && first.ends_with("whole session (5 min 0 s)"),
                "{first}"
            );
        } else {
            assert!(
                !found.whole_session && first.ends_with("last 30 s"),
                "{first}"
            );
            assert_eq!(found.window.duration_ns, 30 * SECOND_NS);
        }
        assert!((found.busy_processors - 1.0).abs() < 0.001, "{found:?}");
    }
    let past = OverviewQuery {
        window: Window::Between {
            from: report::Moment::Ago { ns: 60 * SECOND_NS },
            to: Some(report::Moment::Ago { ns: 20 * SECOND_NS }),
        },
        ..query()
    };
    let found = overview(&small.profile.snapshot(), &small.names, &past);
    assert!(
        text(&found).contains(" 1 threads, 40 s until 20"),
        "{}",
        text(&found)
    );
}

// Check that names are asked for of no more frames than are needed: none of a process that is not
// shown, and of one with many those with most time.
#[test]
fn few_names_are_asked_for() {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(10);
    for of in 0..20 {
        let ns = u64::from(40 - of) * 100 * MS;
        let name = format!("function_{of}");
        add(
            &mut small,
            &mut pass,
            100 + of,
            "many",
            &[&name],
            [ns, 0, 0, 10_000 * MS - ns, 0],
        );
    }
    let shown = small.frames(&["function_0", "function_9", "function_10", "function_15"]);
    let many: Vec<String> = (0..300).map(|of| format!("place_{of}")).collect();
    for (of, name) in many.iter().enumerate() {
        let samples = if of < 10 { 5 } else { 1 };
        let mut stack = small.delta(&[name], &[], samples, [samples * 100 * MS, 0, 0, 0, 0]);
        (stack.process, stack.thread) = (key(100), ThreadKey { tid: 100, ..THREAD });
        pass.stacks.push(stack);
    }
    small.profile.apply(pass);
    let snapshot = small.profile.snapshot();
    let asked = report::overview_frames(&snapshot, &query()).unwrap();
    let is_asked: Vec<bool> = shown.iter().map(|frame| asked.contains(frame)).collect();
    // The last five wait longest for a processor.
    assert_eq!(is_asked, [true, true, false, true]);
    assert_eq!(asked.len(), 200 + 9 + 5);
    let of_many = small.frames(&many.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(of_many[..10].iter().all(|frame| asked.contains(frame)));
}

// Check that a process whose waits for a processor are those for more of a quota says whose quota
// and how much of it was in the time covered, and that another one, and a time in which nobody was
// throttled, say nothing of it; in a table, in the totals of one, and in text that fits.
#[test]
fn quotas() {
    let mut small = Small::new(Limits::default());
    let group = "/machine.slice/a-name-of-a-container-that-is-long.scope";
    for second in 1..=60u64 {
        let mut pass = small.pass(second);
        let half = second * 500 * MS;
        let waits = [half, 0, 0, half, 0];
        for (pid, comm) in [(43, "limited"), (44, "free")] {
            add(&mut small, &mut pass, pid, comm, &["main"], waits);
            let stack = pass.stacks.last_mut().unwrap();
            stack.primary = primary(5, &[500 * MS, 0, 0, 0, 0]);
        }
        let throttled_ns = second.min(40) * 600 * MS;
        pass.throttled = vec![
            (group.into(), throttled_ns),
            ("/of/nobody".into(), second * MS),
        ];
        pass.quota_groups = vec![(key(43), group.into())];
        small.profile.apply(pass);
    }
    let snapshot = small.profile.snapshot();
    let last = |seconds: u64| Window::Last {
        duration_ns: seconds * SECOND_NS,
    };
    for (window, expected_ns) in [
        (Window::Session, Some(24_000 * MS)),
        (last(30), Some(6_000 * MS)),
        (last(10), None),
    ] {
        let query = OverviewQuery {
            window,
            ..OverviewQuery::default()
        };
        let found = overview(&snapshot, &small.names, &query);
        let table = TableQuery {
            window,
            ..TableQuery::default()
        };
        let rows = report::processes(&snapshot, &table, &small.names)
            .unwrap()
            .rows;
        for pid in [43, 44] {
            let expected = expected_ns.filter(|_| pid == 43);
            let group = expected.map(|_| group.to_owned());
            let row = found.waiting.iter().find(|row| row.pid == Some(pid));
            let row = row.unwrap();
            assert_eq!((&row.throttled_group, row.throttled_ns), (&group, expected));
            let row = rows.iter().find(|row| row.pid == Some(pid)).unwrap();
            assert_eq!((&row.throttled_group, row.throttled_ns), (&group, expected));
        }
        let text = text(&found);
        let said = text.lines().find(|line| line.starts_with("WAIT of"));
        let seconds = expected_ns.map(|ns| ns / SECOND_NS);
        let expected = seconds.map(|seconds| {
            format!(
                "WAIT of limited 43: quota of ainer-that-is-long.scope used up for {seconds}.0 s"
            )
        });
        assert_eq!(said.map(str::to_owned), expected, "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
