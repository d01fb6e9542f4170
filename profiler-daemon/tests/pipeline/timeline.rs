//! Timelines: the spans of a row are its total, the rows are the window's, and time lies in the
//! span in which it passed.

use profiler_common::ClassNs;
use profiler_daemon::{
    processes::ids::ThreadKey,
    profile::{
        input::{DrainPass, ThreadState},
        limits::Limits,
        snapshot::Snapshot,
        values::{add_classes, sum},
    },
    report::{
        self, Moment, ProcessSelector, ReportError, Scope, TableQuery, TimelineQuery, ViewQuery,
        Window,
        names::Names,
        timeline::{Line, ThreadWho, Timeline, Who},
        values::ClassValues,
    },
};

use crate::{
    machine::{SECOND_NS, START_NS, START_UNIX_NS},
    small::{self, PROCESS, Small, THREAD},
};

fn query(window: Window, max_spans: usize) -> TimelineQuery {
    TimelineQuery {
        table: TableQuery {
            window,
            ..TableQuery::default()
        },
        max_spans,
    }
}

fn classes(values: &ClassValues) -> ClassNs {
    [
        values.user_ns,
        values.syscall_ns,
        values.blocked_ns,
        values.runnable_ns,
        values.kernel_ns,
    ]
}

/// The rows of a timeline together, after each was held against its spans.
fn total<W: Who>(timeline: &Timeline<W>) -> (u64, ClassNs) {
    let mut total = (0, [0; 5]);
    for row in &timeline.rows {
        assert_eq!(row.spans.len(), timeline.spans.len());
        let mut of_spans = [0; 5];
        for time in row.spans.iter().flatten() {
            add_classes(&mut of_spans, time);
        }
        assert_eq!(
            of_spans,
            classes(&row.classes),
            "spans of {}",
            row.who.comm()
        );
        assert_eq!(sum(&of_spans), row.elapsed_ns);
        total.0 += row.samples;
        add_classes(&mut total.1, &of_spans);
    }
    for pair in timeline.spans.windows(2) {
        assert_eq!(pair[0].to_at, pair[1].from_at, "no gaps");
    }
    if let (Some(first), Some(last)) = (timeline.spans.first(), timeline.spans.last()) {
        assert_eq!(first.from_at, timeline.window.from);
        assert_eq!(last.to_at, timeline.window.to);
    }
    total
}

/// Every rule of timelines over one window: of the session, and of each process.
pub(crate) fn check(snapshot: &Snapshot, window: Window, names: &dyn Names) {
    let query_view = ViewQuery {
        window,
        ..ViewQuery::default()
    };
    let session = report::session(snapshot, &query_view, names).unwrap();
    for most in [600, 3] {
        let timeline = report::process_timeline(snapshot, &query(window, most), names).unwrap();
        assert!(timeline.spans.len() <= most);
        let shown = classes(&session.totals.classes);
        let (samples, measured) = total(&timeline);
        assert_eq!(samples, session.totals.samples);
        // Untraced time is user time here; in totals, ticks say how much of it was in calls.
        let calls_ns = measured[0].checked_sub(shown[0]).unwrap();
        assert!(calls_ns <= session.totals.estimated_ns);
        let expected = [
            shown[0] + calls_ns,
            shown[1] - calls_ns,
            shown[2],
            shown[3],
            shown[4],
        ];
        assert_eq!(measured, expected, "rows of the session");
        for row in timeline.rows.iter().filter(|row| row.who.pid != 0) {
            let selector = ProcessSelector {
                pid: row.who.pid,
                start_ticks: Some(row.who.start_ticks),
            };
            let threads = report::thread_timeline(
                snapshot,
                &profiler_daemon::report::Scope::Process(selector),
                &query(window, most),
                names,
            )
            .unwrap();
            let expected = (row.samples, classes(&row.classes));
            assert_eq!(total(&threads), expected, "rows of process {}", row.who.pid);
        }
    }
}

fn user_and_blocked(user: u64, blocked: u64) -> ClassNs {
    [user * SECOND_NS, 0, blocked * SECOND_NS, 0, 0]
}

fn update(pass: &mut DrainPass, thread: ThreadKey, classes: ClassNs) {
    let update = small::thread(PROCESS, thread, ThreadState::Blocked, classes);
    pass.threads.push(update);
}

fn of_threads(small: &Small, window: Window, most: usize) -> Timeline<ThreadWho> {
    let selector: ProcessSelector = "42".parse().unwrap();
    let snapshot = small.profile.snapshot();
    report::thread_timeline(
        &snapshot,
        &profiler_daemon::report::Scope::Process(selector),
        &query(window, most),
        &small.names,
    )
    .unwrap()
}

/// Seconds of user and blocked time in each span.
fn shown<W>(line: &Line<W>) -> Vec<Option<(u64, u64)>> {
    let spans = line.spans.iter();
    spans
        .map(|time| time.map(|time| (time[0] / SECOND_NS, time[2] / SECOND_NS)))
        .collect()
}

// Check that each second of the last minutes is a span of its own with what a thread did in it,
// also where it slept on and on, where it turned out later to have done something else, and where
// it was not there yet.
#[test]
fn a_second_is_a_span() {
    let mut small = Small::new(Limits::default());
    let late = ThreadKey { tid: 43, ..THREAD };
    for (now, user, blocked) in [(1, 1, 0), (2, 1, 1), (3, 1, 2), (4, 1, 3), (5, 2, 3)] {
        let mut pass = small.pass(now);
        update(&mut pass, THREAD, user_and_blocked(user, blocked));
        if now >= 4 {
            let mut other = small::thread(
                PROCESS,
                late,
                ThreadState::Running,
                user_and_blocked(now - 3, 0),
            );
            other.first_event_ns += 3 * SECOND_NS;
            other.last_event_ns += 3 * SECOND_NS;
            pass.threads.push(other);
        }
        small.profile.apply(pass);
    }
    let timeline = of_threads(&small, Window::Kept, 600);
    assert!(
        timeline
            .spans
            .iter()
            .all(|span| span.duration_ns == SECOND_NS)
    );
    assert_eq!(
        shown(&timeline.rows[0]),
        [(1, 0), (0, 1), (0, 1), (0, 1), (1, 0)].map(Some)
    );
    assert_eq!(
        shown(&timeline.rows[1]),
        [None, None, None, Some((1, 0)), Some((1, 0))]
    );
    // Two of its three seconds of sleep were none.
    let mut pass = small.pass(6);
    update(&mut pass, THREAD, user_and_blocked(4, 2));
    small.profile.apply(pass);
    let timeline = of_threads(&small, Window::Kept, 600);
    assert_eq!(
        shown(&timeline.rows[0]),
        [(1, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 0)].map(Some)
    );
    let timeline = of_threads(&small, Window::Kept, 2);
    assert_eq!(shown(&timeline.rows[0]), [(1, 2), (3, 0)].map(Some));
}

// Check that threads that only sleep cost the recent past one entry each, however long they do, and
// are in every second of it.
#[test]
fn sleep_costs_nothing() {
    const THREADS: u32 = 100;
    let mut small = Small::new(Limits::default());
    let run = |small: &mut Small, seconds: std::ops::RangeInclusive<u64>| {
        for now in seconds {
            let mut pass = small.pass(now);
            for tid in 1_000..1_000 + THREADS {
                let thread = ThreadKey { tid, ..THREAD };
                update(&mut pass, thread, user_and_blocked(0, now));
                // Every other one within a system call.
                let asleep = pass.threads.last_mut().expect("it was just added");
                asleep.call =
                    (tid % 2 == 0).then_some(small::asleep_in(230, START_NS, now * SECOND_NS));
            }
            small.profile.apply(pass);
        }
        small.profile.recent_past_bytes()
    };
    let bytes = run(&mut small, 1..=60);
    assert!(bytes <= u64::from(THREADS) * 160, "{bytes} bytes");
    let later = run(&mut small, 61..=300);
    assert!(later <= bytes, "{later} bytes");
    let timeline = of_threads(&small, Window::Kept, 600);
    assert_eq!(timeline.rows.len(), THREADS as usize);
    for last_s in [7, 100, 250] {
        let query = ViewQuery {
            window: Window::Last {
                duration_ns: last_s * SECOND_NS,
            },
            ..ViewQuery::default()
        };
        let snapshot = small.profile.snapshot();
        let events = report::os_events(&snapshot, &Scope::Session, &query, &small.names).unwrap();
        let all_ns = u64::from(THREADS / 2) * last_s * SECOND_NS;
        let row = &events.syscalls[0];
        assert_eq!((row.blocked_ns, row.total_ns), (all_ns, all_ns));
    }
    for row in &timeline.rows {
        for (time, span) in row.spans.iter().zip(&timeline.spans) {
            assert_eq!(*time, Some([0, 0, span.duration_ns, 0, 0]));
        }
    }
}

// Check that rows are in order of all their time, and as texts show them of their time on
// processors, so that a limit leaves out who slept and not who ran.
#[test]
fn order_of_rows() {
    let mut small = Small::new(Limits::default());
    let busy = ThreadKey { tid: 43, ..THREAD };
    let mut pass = small.pass(10);
    update(&mut pass, THREAD, user_and_blocked(1, 9));
    update(&mut pass, busy, user_and_blocked(4, 0));
    small.profile.apply(pass);
    let snapshot = small.profile.snapshot();
    let rows = |busiest_first, limit| {
        let mut query = query(Window::Session, 60);
        (query.table.busiest_first, query.table.limit) = (busiest_first, limit);
        let one = Scope::Process("42".parse().unwrap());
        let found = report::thread_timeline(&snapshot, &one, &query, &small.names).unwrap();
        found
            .rows
            .iter()
            .map(|line| line.who.tid)
            .collect::<Vec<_>>()
    };
    assert_eq!(rows(false, 0), [THREAD.tid, busy.tid]);
    assert_eq!(rows(true, 0), [busy.tid, THREAD.tid]);
    assert_eq!(rows(true, 1), [busy.tid]);
}

// Check that older spans are longer, that all of them together are the window to the nanosecond,
// that a window by moments is rounded outward, and that what is too old is refused with what is
// kept.
#[test]
fn age_and_moments() {
    let mut small = Small::new(Limits {
        recent_past_ns: 1_800 * SECOND_NS,
        ..Limits::default()
    });
    for now in 1..=2_500 {
        let mut pass = small.pass(now);
        update(&mut pass, THREAD, user_and_blocked(now / 2, now - now / 2));
        small.profile.apply(pass);
    }
    let snapshot = small.profile.snapshot();
    check(&snapshot, Window::Kept, &small.names);
    let timeline = of_threads(&small, Window::Kept, 600);
    let lengths: Vec<u64> = timeline
        .spans
        .iter()
        .map(|span| span.duration_ns / SECOND_NS)
        .collect();
    assert!(
        lengths.is_sorted_by(|older, newer| older >= newer),
        "{lengths:?}"
    );
    let count = |length| lengths.iter().filter(|known| **known == length).count();
    assert!((120..=132).contains(&count(1)), "{lengths:?}");
    assert!((47..=54).contains(&count(10)), "{lengths:?}");
    assert!((19..=21).contains(&count(60)), "{lengths:?}");
    let between = |from_s: u64, to_s: u64| Window::Between {
        from: Moment::At {
            unix_ns: START_UNIX_NS + from_s * SECOND_NS + SECOND_NS / 2,
        },
        to: Some(Moment::At {
            unix_ns: START_UNIX_NS + to_s * SECOND_NS + SECOND_NS / 2,
        }),
    };
    let covered = |window| {
        let query = ViewQuery {
            window,
            ..ViewQuery::default()
        };
        let answer = report::session(&snapshot, &query, &small.names)?;
        Ok((
            answer.window.from,
            answer.window.to,
            answer.totals.elapsed_ns / SECOND_NS,
        ))
    };
    let at = |s: u64| report::times::rfc3339(START_UNIX_NS + s * SECOND_NS);
    assert_eq!(
        covered(between(2_480, 2_489)),
        Ok((at(2_480), at(2_490), 10))
    );
    assert_eq!(
        covered(between(2_101, 2_102)),
        Ok((at(2_100), at(2_110), 10))
    );
    let ago = Window::Between {
        from: Moment::Ago { ns: 20 * SECOND_NS },
        to: Some(Moment::Ago { ns: 10 * SECOND_NS }),
    };
    assert_eq!(covered(ago), Ok((at(2_480), at(2_490), 10)));
    let Err(ReportError::WindowTooOld { since_unix_ns }) = covered(between(100, 2_490)) else {
        panic!("what is forgotten was answered");
    };
    assert_eq!(report::times::rfc3339(since_unix_ns), timeline.window.from);
    for empty in [between(2_490, 2_480), between(2_600, 2_700)] {
        let error = covered(empty);
        assert!(
            matches!(error, Err(ReportError::WindowEmpty { .. })),
            "{error:?}"
        );
    }
    let error =
        report::process_timeline(&snapshot, &query(Window::Session, 600), &small.names).err();
    assert!(matches!(error, Some(ReportError::SessionTooOld { .. })));
}
