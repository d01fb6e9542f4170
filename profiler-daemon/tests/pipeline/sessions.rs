//! Named sessions: what passed between their borders, exactly, and for as long as there is room.

use profiler_common::{
    ClassNs,
    kinds::{Kind, KindNs, Tick},
};
use profiler_daemon::{
    processes::ids::{ProcessKey, ThreadKey},
    profile::{
        Profile,
        input::{DrainPass, ThreadState},
        limits::Limits,
        name::Name,
        sessions::{GivenUp, SessionChange, SessionChanged, SessionRefusal},
        snapshot::Snapshot,
    },
    report::{
        self, OverviewQuery, ReportError, Scope, SessionTotals, TableQuery, ViewQuery, Window,
        names::Names, sessions::SpanTotals, values::TotalValues,
    },
    units::MonoNs,
};

use crate::{
    machine::{SECOND_NS, START_NS},
    small::{self, ByName, PROCESS, Small, THREAD},
};

const MS: u64 = SECOND_NS / 1000;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn of(session: &str, span: Option<&str>) -> Window {
    Window::Named {
        session: name(session),
        span: span.map(name),
    }
}

fn start(profile: &mut Profile, session: &str) {
    let change = SessionChange::Start {
        name: Some(name(session)),
    };
    profile.change_session(change).unwrap();
}

fn mark(profile: &mut Profile, span: &str, session: Option<&str>) {
    let change = SessionChange::Mark {
        name: name(span),
        session: session.map(name),
    };
    profile.change_session(change).unwrap();
}

fn end(profile: &mut Profile, session: &str) -> SessionChanged {
    let change = SessionChange::End {
        name: name(session),
    };
    profile.change_session(change).unwrap()
}

/// The totals of a session, after those of its spans were held against them.
fn totals(snapshot: &Snapshot, session: Name, names: &dyn Names) -> SessionTotals {
    let totals = report::session_totals(snapshot, Some(session), names).unwrap();
    let sum = |of: fn(&TotalValues) -> u64| -> u64 {
        totals.spans.iter().map(|span| of(&span.totals)).sum()
    };
    let whole = &totals.totals;
    assert_eq!(
        sum(|part| part.samples),
        whole.samples,
        "spans of {session}"
    );
    assert_eq!(
        sum(|part| part.elapsed_ns),
        whole.elapsed_ns,
        "spans of {session}"
    );
    // What ticks say of it (faults, and calls of untraced threads) is said for each span by its
    // own.
    for class in [
        |part: &TotalValues| part.classes.user_ns + part.classes.syscall_ns,
        |part: &TotalValues| part.minor_faults,
        |part: &TotalValues| part.major_faults,
        |part: &TotalValues| part.classes.blocked_ns,
        |part: &TotalValues| part.classes.runnable_ns,
        |part: &TotalValues| part.classes.kernel_ns,
    ] {
        assert_eq!(sum(class), class(whole));
    }
    assert!(whole.not_sampled.is_some());
    let unsaid = |span: &SpanTotals| span.totals.not_sampled.is_none();
    assert!(totals.spans.iter().all(unsaid), "places are not asked for");
    let durations: u64 = totals.spans.iter().map(|span| span.duration_ns).sum();
    assert_eq!(durations, totals.duration_ns);
    totals
}

// Check that calls are under way in a session and in its last span while it runs, and in neither
// once it is stopped, as of the pass that stopped it too; and that the first screen covers the time
// until now alike.
#[test]
fn nothing_is_under_way_in_what_was_stopped() {
    let mut small = Small::new(Limits::default());
    let run = |small: &mut Small, now: u64| {
        let mut pass = small.pass(now);
        let mut thread = small::thread(
            PROCESS,
            THREAD,
            ThreadState::Blocked,
            [0, 0, now * SECOND_NS, 0, 0],
        );
        thread.call = Some(small::asleep_in(35, START_NS, now * SECOND_NS));
        pass.threads.push(thread);
        small.profile.apply(pass);
    };
    let found = |small: &Small, window: Window| {
        let snapshot = small.profile.snapshot();
        let view = ViewQuery {
            window,
            ..ViewQuery::default()
        };
        let events = report::os_events(&snapshot, &Scope::Session, &view, &small.names).unwrap();
        let [row] = events.syscalls.as_slice() else {
            panic!("one call: {:?}", events.syscalls);
        };
        assert_eq!(row.total_ns, events.window.duration_ns, "{window:?}");
        let query = OverviewQuery {
            window,
            ..OverviewQuery::default()
        };
        let screen = report::overview(&snapshot, &query, &small.names).unwrap();
        (row.in_progress, row.in_progress_ns > 0, screen.until_now)
    };
    run(&mut small, 1);
    start(&mut small.profile, "s");
    run(&mut small, 2);
    mark(&mut small.profile, "last", None);
    assert_eq!(found(&small, of("s", Some("start"))), (0, false, false));
    run(&mut small, 3);
    for part in [None, Some("last")] {
        assert_eq!(found(&small, of("s", part)), (1, true, true), "{part:?}");
    }
    end(&mut small.profile, "s");
    for part in [None, Some("start"), Some("last")] {
        assert_eq!(found(&small, of("s", part)), (0, false, false), "{part:?}");
    }
    assert_eq!(found(&small, Window::Session), (1, true, true));
}

// Check that what ticks say of a span is said by its own: faults of one are none of the other's,
// and of untraced time calls are.
#[test]
fn spans_by_their_own_ticks() {
    let mut small = Small::new(Limits::default());
    let run = |small: &mut Small, now: u64, ticks: &[(Tick, u64)]| {
        let mut pass = small.pass(now);
        update(&mut pass, now, 0);
        let of_thread = &mut pass.threads[0];
        of_thread.kinds = KindNs::default();
        of_thread.kinds[Kind::User as usize] = now.min(2) * SECOND_NS;
        of_thread.kinds[Kind::Untraced as usize] = now.saturating_sub(2) * SECOND_NS;
        (of_thread.minor_faults, of_thread.major_faults) = (now * 10, now);
        let mut delta = small.delta(&["main"], &[], 0, ClassNs::default());
        for (tick, count) in ticks {
            delta.primary.ticks[*tick as usize] = *count;
        }
        pass.stacks.push(delta);
        small.profile.apply(pass);
    };
    start(&mut small.profile, "s");
    run(&mut small, 1, &[(Tick::User, 100)]);
    mark(&mut small.profile, "faulty", None);
    run(&mut small, 2, &[(Tick::User, 50), (Tick::Fault, 50)]);
    mark(&mut small.profile, "untraced", None);
    let calls = [
        (Tick::UntracedUser, 50),
        (Tick::UntracedFault, 25),
        (Tick::UntracedCall, 25),
    ];
    run(&mut small, 3, &calls);
    end(&mut small.profile, "s");
    let totals = totals(&small.profile.snapshot(), name("s"), &small.names);
    let spans: Vec<_> = totals
        .spans
        .iter()
        .map(|span| {
            let of = &span.totals;
            let ns = [
                of.application_ns,
                of.fault_ns,
                of.classes.syscall_ns,
                of.estimated_ns,
            ];
            (ns.map(|ns| ns / MS), [of.minor_faults, of.major_faults])
        })
        .collect();
    assert_eq!(
        spans,
        [
            ([1000, 0, 0, 0], [10, 1]),
            ([500, 500, 0, 0], [10, 1]),
            ([500, 250, 250, 1000], [10, 1]),
        ]
    );
    let faulty = &totals.spans[1].totals;
    assert!(
        faulty.application_low_ns < Some(450 * MS) && faulty.application_high_ns > Some(550 * MS)
    );
}

/// What was observed at the beginning of a session, and what it held when it was stopped: elapsed
/// time, samples.
struct Known {
    name: Name,
    before: [u64; 2],
    stopped: Option<[u64; 2]>,
}

/// The sessions that a random run has, and what it knows of them.
#[derive(Default)]
pub(crate) struct Expected {
    known: Vec<Known>,
    now: [u64; 2],
    turn: usize,
}

impl Expected {
    /// Changes the sessions in one of all ways, or not at all. `now`: elapsed time and samples that
    /// were observed so far.
    pub(crate) fn step(&mut self, profile: &mut Profile, dice: u64, now: [u64; 2]) {
        self.now = now;
        let any = |known: &[Known]| {
            known
                .get(dice as usize / 8 % known.len().max(1))
                .map(|k| k.name)
        };
        let change = match dice % 8 {
            0 | 1 => SessionChange::Start { name: None },
            2 => SessionChange::Mark {
                name: name("mark"),
                session: None,
            },
            3 | 4 => match any(&self.known) {
                Some(session) if dice % 8 == 3 => SessionChange::Mark {
                    name: name("mark"),
                    session: Some(session),
                },
                Some(name) => SessionChange::End { name },
                None => return,
            },
            _ => return,
        };
        // Some changes are refused, which is not what is checked here.
        match profile.change_session(change) {
            Ok(SessionChanged::Started(name)) => self.known.push(Known {
                name,
                before: now,
                stopped: None,
            }),
            Ok(SessionChanged::Stopped(name)) => {
                for known in self.known.iter_mut().filter(|known| known.name == name) {
                    known.stopped = Some([0, 1].map(|of| now[of] - known.before[of]));
                }
            }
            Ok(SessionChanged::Removed) => {
                let SessionChange::End { name } = change else {
                    panic!("{change:?} removed a session");
                };
                self.known.retain(|known| known.name != name);
            }
            Ok(SessionChanged::Marked(_)) | Err(_) => {}
        }
    }

    /// Holds every session against what is known of it. Answers one of them, another one each time.
    pub(crate) fn check(&mut self, snapshot: &Snapshot, names: &dyn Names) -> Option<Window> {
        self.known.retain(|known| {
            let found = snapshot.sessions().find(known.name);
            !matches!(found, Err(SessionRefusal::GivenUp { .. }))
        });
        for known in &self.known {
            let totals = totals(snapshot, known.name, names).totals;
            let grown = [0, 1].map(|of| self.now[of] - known.before[of]);
            let expected = known.stopped.unwrap_or(grown);
            assert_eq!(
                [totals.elapsed_ns, totals.samples],
                expected,
                "{}",
                known.name
            );
        }
        self.turn += 1;
        let known = self.known.get(self.turn % self.known.len().max(1))?;
        let session = snapshot.sessions().find(known.name).unwrap();
        let spans = &session.spans;
        let span = spans
            .get(self.turn % (spans.len() + 1))
            .map(|span| span.name);
        Some(Window::Named {
            session: known.name,
            span,
        })
    }
}

fn seconds(user: u64, blocked: u64) -> ClassNs {
    [user * SECOND_NS, 0, blocked * SECOND_NS, 0, 0]
}

fn update(pass: &mut DrainPass, user: u64, blocked: u64) {
    let classes = seconds(user, blocked);
    let update = small::thread(PROCESS, THREAD, ThreadState::Blocked, classes);
    pass.threads.push(update);
}

/// One second of the thread in a function.
fn work(small: &mut Small, now: u64, function: &str) {
    let mut pass = small.pass(now);
    update(&mut pass, now, 0);
    let delta = small.delta(&["main", function], &[], 10, seconds(1, 0));
    pass.stacks.push(delta);
    small.profile.apply(pass);
}

fn functions(small: &Small, window: Window) -> Vec<(String, u64, u64)> {
    let query = TableQuery {
        window,
        ..TableQuery::default()
    };
    let snapshot = small.profile.snapshot();
    let list = report::functions(&snapshot, &Scope::Session, &query, &small.names).unwrap();
    let rows = list.rows.into_iter();
    let rows = rows.filter(|row| row.values.elapsed.exclusive_ns > 0);
    rows.map(|row| {
        let ns = row.values.elapsed.exclusive_ns;
        (row.function, ns / SECOND_NS, row.values.samples.exclusive)
    })
    .collect()
}

// Check that sessions that overlap each hold what passed in them, that their spans part it, and
// that names that come again get numbers.
#[test]
fn sessions_overlap() {
    let mut small = Small::new(Limits::default());
    work(&mut small, 1, "before");
    start(&mut small.profile, "a");
    work(&mut small, 2, "first");
    start(&mut small.profile, "b");
    mark(&mut small.profile, "phase", Some("a"));
    work(&mut small, 3, "both");
    work(&mut small, 4, "both");
    mark(&mut small.profile, "phase", None);
    work(&mut small, 5, "late");
    assert_eq!(
        end(&mut small.profile, "a"),
        SessionChanged::Stopped(name("a"))
    );
    work(&mut small, 6, "after");
    let row = |name: &str, s: u64| (name.to_owned(), s, 10 * s);
    let names = |session: &str| -> Vec<String> {
        let totals = totals(&small.profile.snapshot(), name(session), &small.names);
        totals.spans.into_iter().map(|span| span.name).collect()
    };
    assert_eq!(
        functions(&small, of("a", None)),
        [row("both", 2), row("first", 1), row("late", 1)]
    );
    assert_eq!(
        functions(&small, of("b", None)),
        [row("both", 2), row("after", 1), row("late", 1)]
    );
    assert_eq!(names("a"), ["start", "phase", "phase.2"]);
    assert_eq!(names("b"), ["start", "phase"]);
    assert_eq!(functions(&small, of("a", Some("start"))), [row("first", 1)]);
    assert_eq!(functions(&small, of("a", Some("phase"))), [row("both", 2)]);
    assert_eq!(
        functions(&small, of("b", Some("phase"))),
        [row("after", 1), row("late", 1)]
    );
    let snapshot = small.profile.snapshot();
    let query = TableQuery {
        window: of("a", Some("last")),
        ..TableQuery::default()
    };
    let error = report::functions(&snapshot, &Scope::Session, &query, &small.names).err();
    let Some(ReportError::Session(SessionRefusal::UnknownSpan { spans, .. })) = error else {
        panic!("{error:?}");
    };
    assert_eq!(spans, ["start", "phase", "phase.2"].map(name));
    assert_eq!(end(&mut small.profile, "a"), SessionChanged::Removed);
    let gone = small.profile.snapshot().sessions().find(name("a")).err();
    assert_eq!(gone, Some(SessionRefusal::Unknown { name: name("a") }));
}

// Check that time counts for the session in which it passed although its stack comes after the
// stop, or turns out after it to have been of another class, and that a sleep across the borders is
// cut at them, while it lasts and afterwards.
#[test]
fn what_comes_after_the_stop() {
    let mut small = Small::new(Limits::default());
    let sleep = |small: &mut Small, now: u64| {
        let mut pass = small.pass(now);
        update(&mut pass, 0, now);
        let open = small.open(&["main", "sleep"], &[], seconds(0, now));
        pass.open.push(open);
        small.profile.apply(pass);
    };
    (1..=5).for_each(|now| sleep(&mut small, now));
    start(&mut small.profile, "s");
    (6..=9).for_each(|now| sleep(&mut small, now));
    end(&mut small.profile, "s");
    (10..=12).for_each(|now| sleep(&mut small, now));
    assert_eq!(
        functions(&small, of("s", None)),
        [("sleep".to_owned(), 4, 0)]
    );
    // It had been woken at 8 and waited for a processor since.
    let mut pass = small.pass(13);
    let mut late = small::thread(PROCESS, THREAD, ThreadState::Running, seconds(0, 8));
    late.classes[3] = 5 * SECOND_NS;
    late.last_event_ns += 5 * SECOND_NS;
    pass.threads.push(late);
    let delta = small.delta(
        &["main", "sleep"],
        &[],
        0,
        [0, 0, 8 * SECOND_NS, 5 * SECOND_NS, 0],
    );
    pass.stacks.push(delta);
    small.profile.apply(pass);
    let totals = totals(&small.profile.snapshot(), name("s"), &small.names).totals;
    assert_eq!(totals.elapsed_ns, 4 * SECOND_NS);
    assert_eq!(totals.classes.blocked_ns, 3 * SECOND_NS);
    assert_eq!(totals.classes.runnable_ns, SECOND_NS);
    assert_eq!(
        functions(&small, of("s", None)),
        [("sleep".to_owned(), 4, 0)]
    );
}

// Check that a session stays exact long after windows of its time are gone, in as few pieces as its
// spans need, also when its process was dropped meanwhile.
#[test]
fn a_session_outlives_windows() {
    let limits = Limits {
        recent_past_ns: 60 * SECOND_NS,
        exited_processes: 0,
        ..Limits::default()
    };
    let mut small = Small::new(limits);
    let worker = ProcessKey {
        pid: 77,
        start_ns: PROCESS.start_ns,
    };
    let run = |small: &mut Small, now: u64, state| {
        let thread = ThreadKey {
            tid: 77,
            start_ns: worker.start_ns,
        };
        let mut pass = small.pass(now);
        let mut info = small::info(worker);
        info.exited_at_unix_ns = (state == ThreadState::Exited).then_some(pass.now_unix_ns);
        pass.processes.push(info);
        pass.threads
            .push(small::thread(worker, thread, state, seconds(now, 0)));
        let mut delta = small.delta(&["main", "worker"], &[], 1, seconds(1, 0));
        (delta.process, delta.thread) = (worker, thread);
        pass.stacks.push(delta);
        update(&mut pass, 0, now);
        small.profile.apply(pass);
    };
    (1..=10).for_each(|now| run(&mut small, now, ThreadState::Running));
    start(&mut small.profile, "s");
    (11..=30).for_each(|now| run(&mut small, now, ThreadState::Running));
    mark(&mut small.profile, "second", None);
    (31..=49).for_each(|now| run(&mut small, now, ThreadState::Running));
    run(&mut small, 50, ThreadState::Exited);
    end(&mut small.profile, "s");
    for now in 51..=1_000 {
        let mut pass = small.pass(now);
        update(&mut pass, 0, now);
        small.profile.apply(pass);
    }
    let snapshot = small.profile.snapshot();
    assert_eq!(snapshot.ended(), 1);
    let totals = totals(&snapshot, name("s"), &small.names).totals;
    assert_eq!((totals.elapsed_ns, totals.samples), (80 * SECOND_NS, 40));
    assert_eq!(
        functions(&small, of("s", None)),
        [("worker".to_owned(), 40, 40)]
    );
    assert_eq!(
        functions(&small, of("s", Some("second"))),
        [("worker".to_owned(), 20, 20)]
    );
    let pieces: Vec<MonoNs> = snapshot
        .borders(MonoNs::ZERO, MonoNs::MAX)
        .map(|(from_ns, _)| from_ns)
        .collect();
    let borders = [0, 10, 30, 50].map(|s| crate::machine::START_NS + s * SECOND_NS);
    assert_eq!(pieces[..4], borders);
    assert!(pieces.len() <= 70, "{} pieces", pieces.len());
    // Without the session all of that is one gap.
    end(&mut small.profile, "s");
    (1_001..=1_002).for_each(|now| {
        let mut pass = small.pass(now);
        update(&mut pass, 0, now);
        small.profile.apply(pass);
    });
    let snapshot = small.profile.snapshot();
    let second = snapshot.borders(MonoNs::ZERO, MonoNs::MAX).nth(1).unwrap();
    assert!(second.0 >= borders[0] + 900 * SECOND_NS);
}

// Check that within a byte budget old windows give way before sessions, stopped sessions before
// running ones, and these before the last minutes; that a session that is given up says why, and is
// counted.
#[test]
fn bytes_give_way_in_order() {
    let run = |segment_bytes: usize| {
        let mut small = Small::new(Limits {
            segment_bytes,
            ..Limits::default()
        });
        for now in 1..=400 {
            work(&mut small, now, &format!("function_{now}"));
            match now {
                10 => start(&mut small.profile, "running"),
                20 => start(&mut small.profile, "stopped"),
                30 => drop(end(&mut small.profile, "stopped")),
                _ => {}
            }
        }
        let snapshot = small.profile.snapshot();
        let found = ["running", "stopped"].map(|of| snapshot.sessions().find(name(of)).is_ok());
        let kept_s = (snapshot.now_ns() - snapshot.kept_since_ns()) / SECOND_NS;
        let counted = report::session(&snapshot, &ViewQuery::default(), &small.names).unwrap();
        let counted = counted
            .completeness
            .causes
            .get("sessions_given_up")
            .copied();
        (found, kept_s, counted, snapshot)
    };
    let (found, kept_s, counted, _) = run(usize::MAX);
    assert_eq!((found, kept_s, counted), ([true, true], 400, None));
    let (found, .., snapshot) = run(90_000);
    assert_eq!(found, [true, true]);
    let old = Window::Last {
        duration_ns: 300 * SECOND_NS,
    };
    let query = ViewQuery {
        window: old,
        ..ViewQuery::default()
    };
    let answer = report::session(&snapshot, &query, &ByName::default()).unwrap();
    assert_eq!(
        answer.totals.elapsed_ns,
        370 * SECOND_NS,
        "rounded outward to the session's border"
    );
    let (found, kept_s, counted, snapshot) = run(75_000);
    assert_eq!(found, [false, false]);
    assert!(kept_s >= 100, "{kept_s} s are kept");
    assert_eq!(counted, Some(2));
    let why = snapshot.sessions().find(name("stopped")).err();
    assert_eq!(
        why,
        Some(SessionRefusal::GivenUp {
            name: name("stopped"),
            why: GivenUp::Room
        })
    );
}
