//! What a window shows: the time that passed in it, wherever and whenever its stack became known.

use profiler_common::ClassNs;
use profiler_daemon::{
    processes::ids::{ProcessKey, ThreadKey},
    profile::{
        calls::CallTime,
        input::{DrainPass, OpenCall, SyscallUpdate, ThreadState},
        limits::Limits,
        snapshot::Snapshot,
    },
    report::{
        self, Moment, ProcessSelector, ReportError, Scope, TableQuery, TimelineQuery, ViewQuery,
        Window, functions::FunctionRow,
    },
};

use crate::{
    machine::{SECOND_NS, START_NS, START_UNIX_NS},
    small::{self, ByName, PROCESS, Small, THREAD},
};

fn last(seconds: u64) -> Window {
    Window::Last {
        duration_ns: seconds * SECOND_NS,
    }
}

fn rows(snapshot: &Snapshot, names: &ByName, window: Window) -> Vec<(String, u64)> {
    let query = TableQuery {
        window,
        ..TableQuery::default()
    };
    let list = report::functions(snapshot, &Scope::Session, &query, names).unwrap();
    let shown = |row: &FunctionRow| row.values.elapsed.exclusive_ns > 0;
    let pair = |row: FunctionRow| (row.function, row.values.elapsed.exclusive_ns / SECOND_NS);
    list.rows.into_iter().filter(shown).map(pair).collect()
}

fn seconds(user: u64, blocked: u64) -> ClassNs {
    [user * SECOND_NS, 0, blocked * SECOND_NS, 0, 0]
}

fn update(pass: &mut DrainPass, user: u64, blocked: u64) {
    pass.threads.push(small::thread(
        PROCESS,
        THREAD,
        ThreadState::Blocked,
        seconds(user, blocked),
    ));
}

// Check that of a thread asleep for a minute a window shows only the sleep inside it, while it
// sleeps and after.
#[test]
fn long_sleep_is_cut_to_the_window() {
    let mut small = Small::new(Limits::default());
    for now in 1..=60 {
        let mut pass = small.pass(now);
        update(&mut pass, 0, now);
        pass.open
            .push(small.open(&["main", "sleep"], &[], seconds(0, now)));
        small.profile.apply(pass);
    }
    let snapshot = small.profile.snapshot();
    assert_eq!(
        rows(&snapshot, &small.names, Window::Session),
        [("sleep".to_owned(), 60)]
    );
    assert_eq!(
        rows(&snapshot, &small.names, last(20)),
        [("sleep".to_owned(), 20)]
    );
    let mut pass = small.pass(61);
    update(&mut pass, 1, 60);
    pass.stacks
        .push(small.delta(&["main", "sleep"], &[], 0, seconds(0, 60)));
    pass.stacks
        .push(small.delta(&["main", "work"], &[], 100, seconds(1, 0)));
    small.profile.apply(pass);
    let snapshot = small.profile.snapshot();
    let found = rows(&snapshot, &small.names, last(11));
    assert_eq!(found, [("sleep".to_owned(), 10), ("work".to_owned(), 1)]);
}

// Check that a long wait which has ended has the time in which it passed, whether its stack was
// known while it went on or not, and whatever waits of the same pass came after it, which have
// theirs: in the order in which the kernel's maps tell of them, and the other way round.
#[test]
fn a_wait_that_has_ended_is_where_it_passed() {
    for (is_known, is_first) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut small = Small::new(Limits::default());
        for now in 1..=12 {
            let mut pass = small.pass(now);
            update(&mut pass, 0, now);
            if is_known {
                pass.open
                    .push(small.open(&["main", "idle"], &[], seconds(0, now)));
            }
            small.profile.apply(pass);
        }
        let mut pass = small.pass(15);
        update(&mut pass, 1, 14);
        let idle = small.delta(&["main", "idle"], &[], 0, seconds(0, 13));
        let query = small.delta(&["main", "query"], &[], 100, seconds(1, 1));
        pass.stacks = vec![query, idle];
        if is_first {
            pass.stacks.reverse();
        }
        small.profile.apply(pass);
        let snapshot = small.profile.snapshot();
        let span = |from: u64, to: u64| {
            let of = |second: u64| Moment::Ago {
                ns: (15 - second) * SECOND_NS,
            };
            let window = Window::Between {
                from: of(from),
                to: Some(of(to)),
            };
            rows(&snapshot, &small.names, window)
        };
        let what = format!("known {is_known}, first {is_first}");
        let named = |name: &str, s| (name.to_owned(), s);
        assert_eq!(span(0, 6), [named("idle", 6)], "{what}");
        assert_eq!(span(6, 12), [named("idle", 6)], "{what}");
        assert_eq!(
            span(12, 15),
            [named("query", 2), named("idle", 1)],
            "{what}"
        );
    }
}

// Check that of a call of 30 s, and of one that a thread was found in and one that is under way,
// each window has what passed in it: the time, blocked and waiting for a processor, once; and the
// count where it returned.
#[test]
fn a_call_is_cut_to_the_window() {
    const SLEEP: u32 = 35;
    let mut small = Small::new(Limits::default());
    for now in 1..=60 {
        let mut pass = small.pass(now);
        let mut thread = small::thread(PROCESS, THREAD, ThreadState::Blocked, seconds(0, now));
        let (since, entry_seen) = [(0, false), (10, true), (40, true)]
            .into_iter()
            .rfind(|(since, _)| now > *since)
            .expect("the first begins at 0");
        let passed_ns = (now - since) * SECOND_NS;
        thread.call = Some(OpenCall {
            number: SLEEP,
            since_ns: START_NS + since * SECOND_NS,
            entry_seen,
            time: CallTime {
                total_ns: passed_ns,
                running_ns: 0,
                blocked_ns: passed_ns - passed_ns / 10,
            },
        });
        pass.threads.push(thread);
        // The count of the call that returned at 40 s comes a pass late.
        if now > 41 {
            pass.syscalls.push(SyscallUpdate {
                running_ns: 0,
                ..small::calls(SLEEP, 1, 30 * SECOND_NS, 27 * SECOND_NS, 30 * SECOND_NS)
            });
        }
        small.profile.apply(pass);
    }
    let snapshot = small.profile.snapshot();
    let calls = |window| {
        let query = ViewQuery {
            window,
            ..ViewQuery::default()
        };
        let events = report::os_events(&snapshot, &Scope::Session, &query, &small.names).unwrap();
        let row = &events.syscalls[0];
        assert_eq!(row.runnable_ns, row.total_ns - row.blocked_ns);
        assert!(row.blocked_ns * 10 == row.total_ns * 9, "{row:?}");
        (
            row.total_ns / SECOND_NS,
            row.count,
            row.average_ns.map(|ns| ns / SECOND_NS),
            row.max_ns.map(|ns| ns / SECOND_NS),
        )
    };
    // Of no call there is no mean and no longest one.
    assert_eq!(calls(last(5)), (5, 0, None, None));
    assert_eq!(calls(last(30)), (30, 1, Some(30), Some(30)));
    assert_eq!(calls(last(55)), (55, 1, Some(30), Some(30)));
    assert_eq!(calls(Window::Session), (60, 1, Some(30), Some(30)));
}

// Check that a wait whose stack comes late is shown where it passed, and as missing until then.
#[test]
fn late_stack() {
    let mut small = Small::new(Limits::default());
    for now in [10, 20] {
        let mut pass = small.pass(now);
        update(&mut pass, 0, now);
        small.profile.apply(pass);
    }
    let query = ViewQuery {
        window: last(10),
        ..ViewQuery::default()
    };
    let missing = |snapshot: &Snapshot| {
        report::session(snapshot, &query, &ByName::default())
            .unwrap()
            .completeness
            .elapsed_unattributed_ns
            / SECOND_NS
    };
    assert_eq!(missing(&small.profile.snapshot()), 10);
    let mut pass = small.pass(20);
    pass.stacks
        .push(small.delta(&["main"], &[], 0, seconds(0, 14)));
    small.profile.apply(pass);
    let snapshot = small.profile.snapshot();
    assert_eq!(missing(&snapshot), 0);
    assert_eq!(
        rows(&snapshot, &small.names, last(10)),
        [("main".to_owned(), 10)]
    );
    assert_eq!(
        rows(&snapshot, &small.names, Window::Session),
        [("main".to_owned(), 14)]
    );
}

// Check that a window is rounded outward to segments, tells what it covers, begins with the session
// where it would begin before that, and is refused when it begins before what is kept.
#[test]
fn bounds() {
    let mut small = Small::new(Limits {
        segment_ns: 10 * SECOND_NS,
        recent_past_ns: 40 * SECOND_NS,
        ..Limits::default()
    });
    let answered = |snapshot: &Snapshot, window: Window| {
        let query = ViewQuery {
            window,
            ..ViewQuery::default()
        };
        let answer = report::session(snapshot, &query, &ByName::default())?;
        Ok((answer.window.from, answer.totals.elapsed_ns / SECOND_NS))
    };
    let covered = |snapshot: &Snapshot, seconds| answered(snapshot, last(seconds));
    // From an hour before the session until a time to come.
    let long = Window::Between {
        from: Moment::At {
            unix_ns: START_UNIX_NS.saturating_sub(3_600 * SECOND_NS),
        },
        to: Some(Moment::At {
            unix_ns: START_UNIX_NS + 3_600 * SECOND_NS,
        }),
    };
    for now in 1..=25 {
        let mut pass = small.pass(now);
        update(&mut pass, now, 0);
        small.profile.apply(pass);
    }
    let snapshot = small.profile.snapshot();
    assert_eq!(
        covered(&snapshot, 7),
        Ok(("2023-11-14T22:13:30.000000000Z".to_owned(), 15))
    );
    assert_eq!(
        covered(&snapshot, 5),
        Ok(("2023-11-14T22:13:40.000000000Z".to_owned(), 5))
    );
    assert_eq!(
        covered(&snapshot, 300),
        Ok(("2023-11-14T22:13:20.000000000Z".to_owned(), 25))
    );
    assert_eq!(answered(&snapshot, long), covered(&snapshot, 300));
    for now in 26..=100 {
        let mut pass = small.pass(now);
        update(&mut pass, now, 0);
        small.profile.apply(pass);
    }
    let snapshot = small.profile.snapshot();
    let longest_ns = 50 * SECOND_NS;
    assert_eq!(
        covered(&snapshot, 51),
        Err(ReportError::WindowTooLong { longest_ns })
    );
    assert_eq!(covered(&snapshot, 50).map(|(_, elapsed)| elapsed), Ok(50));
    assert_eq!(
        covered(&snapshot, 300),
        Err(ReportError::WindowTooLong { longest_ns }),
        "longer than the session, whose beginning is forgotten"
    );
    let since_unix_ns = START_UNIX_NS + 50 * SECOND_NS;
    assert_eq!(
        answered(&snapshot, long),
        Err(ReportError::WindowTooOld { since_unix_ns })
    );
}

// Check that segments beyond their byte budget are forgotten, oldest first, and never the growing
// one.
#[test]
fn byte_budget() {
    let mut small = Small::new(Limits {
        segment_ns: 10 * SECOND_NS,
        segment_bytes: 0,
        ..Limits::default()
    });
    for now in 1..=30 {
        let mut pass = small.pass(now);
        update(&mut pass, now, 0);
        small.profile.apply(pass);
    }
    let snapshot = small.profile.snapshot();
    let query = ViewQuery {
        window: last(10),
        ..ViewQuery::default()
    };
    assert!(report::session(&snapshot, &query, &small.names).is_ok());
    let query = ViewQuery {
        window: last(11),
        ..ViewQuery::default()
    };
    let longest_ns = 10 * SECOND_NS;
    assert_eq!(
        report::session(&snapshot, &query, &small.names).err(),
        Some(ReportError::WindowTooLong { longest_ns })
    );
}

// Check that a dropped process is told from one never seen, that a bare number means the newest,
// and that the dropped one's functions stay in the session's table, also within a window.
#[test]
fn dropped_processes() {
    let mut small = Small::new(Limits {
        exited_processes: 0,
        ..Limits::default()
    });
    let newer = ProcessKey {
        pid: PROCESS.pid,
        start_ns: PROCESS.start_ns + 50_000_000,
    };
    let mut pass = small.pass(1);
    pass.processes.push(small::info(PROCESS));
    update(&mut pass, 1, 0);
    pass.stacks
        .push(small.delta(&["main", "gone"], &[], 1, seconds(1, 0)));
    small.profile.apply(pass);
    let mut pass = small.pass(2);
    let mut exited = small::info(PROCESS);
    exited.exited_at_unix_ns = Some(pass.now_unix_ns);
    pass.processes.push(exited);
    pass.threads.push(small::thread(
        PROCESS,
        THREAD,
        ThreadState::Exited,
        seconds(1, 0),
    ));
    small.profile.apply(pass);
    let find = |small: &Small, text: &str| {
        let selector: ProcessSelector = text.parse().unwrap();
        report::process(
            &small.profile.snapshot(),
            &Scope::Process(selector),
            &ViewQuery::default(),
            &small.names,
        )
        .map(|r| r.process.start_ticks)
    };
    assert_eq!(
        find(&small, "42"),
        Ok(Some(99_000)),
        "kept for the pass in which it exits"
    );
    small.profile.apply(small.pass(3));
    assert_eq!(find(&small, "42"), Ok(Some(99_000)), "and for one more");
    let mut pass = small.pass(4);
    let thread = ThreadKey {
        tid: 42,
        start_ns: newer.start_ns,
    };
    pass.threads.push(small::thread(
        newer,
        thread,
        ThreadState::Running,
        seconds(2, 0),
    ));
    small.profile.apply(pass);
    assert_eq!(find(&small, "42"), Ok(Some(99_005)));
    assert!(matches!(
        find(&small, "42.99000"),
        Err(ReportError::DroppedProcess { .. })
    ));
    assert!(matches!(
        find(&small, "42.1"),
        Err(ReportError::UnknownProcess { .. })
    ));
    assert!(matches!(
        find(&small, "41"),
        Err(ReportError::UnknownProcess { .. })
    ));
    let snapshot = small.profile.snapshot();
    for window in [Window::Session, last(10)] {
        assert_eq!(
            rows(&snapshot, &small.names, window),
            [("[not sampled]".to_owned(), 2), ("gone".to_owned(), 1)]
        );
    }
    // What still comes of it joins the dropped ones; a late absolute value of its thread counts
    // nothing twice.
    let mut pass = small.pass(5);
    update(&mut pass, 1, 0);
    pass.stacks
        .push(small.delta(&["main", "gone"], &[], 1, [0; 5]));
    small.profile.apply(pass);
    let answer = report::session(
        &small.profile.snapshot(),
        &ViewQuery::default(),
        &small.names,
    )
    .unwrap();
    assert_eq!(
        (answer.retired.processes, answer.retired.totals.samples),
        (Some(1), 2)
    );
    assert_eq!(answer.totals.elapsed_ns, 3 * SECOND_NS);
    assert_eq!(answer.completeness.causes.get("late_updates"), Some(&1));
}

// Check that a walk which broke off counts as complete where its outermost function is one that
// threads begin in, that only such frames are asked for, and that functions above a real break hang
// from a remark.
#[test]
fn completeness_of_stacks() {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(13);
    update(&mut pass, 6, 7);
    let end =
        profiler_common::StackEnd::Incomplete(profiler_common::unwind::UnwindFailure::ReadFrame);
    let mut whole = small.delta(&["start_thread", "work"], &[], 3, seconds(3, 0));
    let mut broken = small.delta(&["middle", "work"], &[], 2, seconds(2, 0));
    (whole.end, broken.end) = (end, end);
    pass.stacks = vec![whole, broken, small.delta(&["main"], &[], 1, seconds(1, 0))];
    small.profile.apply(pass);
    let snapshot = small.profile.snapshot();
    let asked = report::outermost_frames(&snapshot, &Scope::Session).unwrap();
    let mut expected = small.frames(&["start_thread", "middle"]);
    expected.sort_unstable();
    assert_eq!(asked, expected);
    let selector: ProcessSelector = "42".parse().unwrap();
    let answer = report::process(
        &snapshot,
        &Scope::Process(selector),
        &ViewQuery::default(),
        &small.names,
    )
    .unwrap();
    let stacks = answer.process.stacks;
    assert_eq!((stacks.walked, stacks.complete, stacks.failed), (6, 4, 2));
    assert_eq!(answer.completeness.elapsed_unattributed_ns, 7 * SECOND_NS);
    let list = report::functions(
        &snapshot,
        &Scope::Process(selector),
        &TableQuery::default(),
        &small.names,
    )
    .unwrap();
    let remark = list
        .rows
        .iter()
        .find(|row| row.function == "[incomplete: read_frame]")
        .unwrap();
    let values = remark.values.elapsed;
    assert_eq!(
        (values.inclusive_ns, values.exclusive_ns),
        (2 * SECOND_NS, 0)
    );
    assert_eq!(list.completeness.stacks_unwind_failed, 2);
    // Whoever is asked, the same walks are complete.
    let (scope, names) = (Scope::Session, &small.names);
    let (view, table) = (ViewQuery::default(), TableQuery::default());
    let session = report::session(&snapshot, &view, names).unwrap();
    let stacks = session.stacks;
    assert_eq!((stacks.walked, stacks.complete, stacks.failed), (6, 4, 2));
    let time = TimelineQuery {
        table: table.clone(),
        max_spans: 1,
    };
    let totals = report::session_totals(&snapshot, None, names).unwrap();
    let processes = report::process_timeline(&snapshot, &time, names).unwrap();
    let threads =
        report::thread_timeline(&snapshot, &Scope::Process(selector), &time, names).unwrap();
    let events = report::os_events(&snapshot, &scope, &view, names).unwrap();
    let threads_table = report::threads(&snapshot, &scope, &table, names).unwrap();
    let modules = report::modules(&snapshot, &scope, &table, names).unwrap();
    let receipts = [
        session.completeness,
        totals.completeness,
        processes.completeness,
        threads.completeness,
        events.completeness,
        threads_table.completeness,
        modules.completeness,
    ];
    let failed = receipts.map(|receipt| receipt.stacks_unwind_failed);
    assert_eq!(failed, [2; 7]);
}

// Check that time which turns out to be of another class leaves the class it was first shown under,
// in windows too.
#[test]
fn reclassified_time() {
    let mut small = Small::new(Limits::default());
    for (now, user, blocked) in [(1, 0, 1), (11, 1, 10), (12, 9, 3)] {
        let mut pass = small.pass(now);
        update(&mut pass, user, blocked);
        small.profile.apply(pass);
    }
    let query = ViewQuery {
        window: last(60),
        ..ViewQuery::default()
    };
    let classes = report::session(&small.profile.snapshot(), &query, &small.names)
        .unwrap()
        .totals
        .classes;
    assert_eq!(
        (classes.user_ns, classes.blocked_ns),
        (9 * SECOND_NS, 3 * SECOND_NS)
    );
}
