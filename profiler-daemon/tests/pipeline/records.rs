//! Records that arrive early, twice, late, or not as promised.

use profiler_common::ClassNs;
use profiler_daemon::{
    processes::ids::ThreadKey,
    profile::{
        frames::FrameId,
        input::{DrainPass, LossCause, ThreadState},
        limits::Limits,
    },
    report::{
        self, FunctionRow, Scope, SessionReport, TableQuery, ThreadRow, ViewQuery, names::Names,
    },
    symbols::names::{FunctionName, Unnamed},
};

use crate::{
    machine::SECOND_NS,
    small::{self, ByName, PROCESS, Small, THREAD},
};

fn seconds(user: u64, blocked: u64) -> ClassNs {
    [user * SECOND_NS, 0, blocked * SECOND_NS, 0, 0]
}

fn update(pass: &mut DrainPass, thread: ThreadKey, state: ThreadState, classes: ClassNs) {
    pass.threads
        .push(small::thread(PROCESS, thread, state, classes));
}

fn session(small: &Small) -> SessionReport {
    report::session(
        &small.profile.snapshot(),
        &ViewQuery::default(),
        &small.names,
    )
    .unwrap()
}

/// Functions with time of their own, in seconds.
fn functions(small: &Small) -> Vec<(String, u64)> {
    let query = TableQuery::default();
    let list = report::functions(
        &small.profile.snapshot(),
        &Scope::Session,
        &query,
        &small.names,
    )
    .unwrap();
    let pair = |row: FunctionRow| (row.function, row.values.elapsed.exclusive_ns / SECOND_NS);
    list.rows
        .into_iter()
        .map(pair)
        .filter(|(_, seconds)| *seconds > 0)
        .collect()
}

fn threads(small: &Small) -> Vec<ThreadRow> {
    report::threads(
        &small.profile.snapshot(),
        &Scope::Session,
        &TableQuery::default(),
        &small.names,
    )
    .unwrap()
    .rows
}

// Check that a wait in a stack record which the thread's total does not have yet waits for it, and
// none of it is lost.
#[test]
fn early_stack_waits_for_its_total() {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(1);
    update(&mut pass, THREAD, ThreadState::Running, seconds(0, 1));
    pass.stacks
        .push(small.delta(&["main"], &[], 5, seconds(0, 3)));
    small.profile.apply(pass);
    assert_eq!(functions(&small), [("main".to_owned(), 1)]);
    let mut pass = small.pass(2);
    update(&mut pass, THREAD, ThreadState::Running, seconds(0, 2));
    small.profile.apply(pass);
    assert_eq!(functions(&small), [("main".to_owned(), 2)]);
    let mut pass = small.pass(3);
    update(&mut pass, THREAD, ThreadState::Running, seconds(0, 5));
    small.profile.apply(pass);
    assert_eq!(functions(&small), [("main".to_owned(), 3)]);
    assert_eq!(
        session(&small).completeness.elapsed_unattributed_ns,
        2 * SECOND_NS
    );
}

// Check that waits in stack records beyond any total is given up and counted once too many records
// wait.
#[test]
fn excess_is_counted() {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(1);
    update(&mut pass, THREAD, ThreadState::Running, seconds(0, 1));
    let excess = small.delta(&["main"], &[], 0, [0, 0, 7, 0, 0]);
    pass.stacks = vec![small.delta(&["main"], &[], 0, seconds(0, 1))];
    pass.stacks.extend(vec![excess; 1030]);
    small.profile.apply(pass);
    assert_eq!(functions(&small), [("main".to_owned(), 1)]);
    assert_eq!(
        session(&small).completeness.causes.get("excess_stack_ns"),
        Some(&(6 * 7))
    );
}

// Check that an open interval counts in its own pass only, that the last record of a thread counts,
// and that it never claims more than the thread has waiting.
#[test]
fn open_interval_is_of_one_pass() {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(5);
    update(&mut pass, THREAD, ThreadState::Blocked, seconds(1, 4));
    pass.open
        .push(small.open(&["main", "wrong"], &[], seconds(0, 4)));
    pass.open
        .push(small.open(&["main", "sleep"], &[], seconds(9, 9)));
    small.profile.apply(pass);
    // Time on a processor is no open interval's: no mark fell in it.
    let not_sampled = |seconds| ("[not sampled]".to_owned(), seconds);
    assert_eq!(functions(&small), [("sleep".to_owned(), 4), not_sampled(1)]);
    let mut pass = small.pass(6);
    update(&mut pass, THREAD, ThreadState::Running, seconds(2, 4));
    small.profile.apply(pass);
    assert_eq!(functions(&small), [not_sampled(2)]);
    assert_eq!(
        session(&small).completeness.elapsed_unattributed_ns,
        4 * SECOND_NS
    );
}

// Check that an update which would take time back from a stack is refused and counted, and that one
// whose classes do not sum to the life is counted.
#[test]
fn broken_updates_are_counted() {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(2);
    update(&mut pass, THREAD, ThreadState::Running, seconds(0, 2));
    pass.stacks
        .push(small.delta(&["main"], &[], 0, seconds(0, 2)));
    small.profile.apply(pass);
    let mut pass = small.pass(3);
    update(&mut pass, THREAD, ThreadState::Exited, seconds(2, 1));
    pass.threads[0].last_event_ns += 1;
    small.profile.apply(pass);
    let causes = session(&small).completeness.causes;
    assert_eq!(
        (
            causes.get("thread_regressed"),
            causes.get("thread_unbalanced")
        ),
        (Some(&1), Some(&1))
    );
    let rows = threads(&small);
    assert_eq!(
        (rows[0].state, rows[0].values.classes.blocked_ns),
        ("exited", 2 * SECOND_NS)
    );
}

// Check that running time is taken back where it turns out that the thread had left its processor
// unseen: totals and windows are those of the last update, and nothing is refused.
#[test]
fn time_of_an_unseen_switch_is_taken_back() {
    let mut small = Small::new(Limits::default());
    for (at, user, blocked) in [(2, 2, 0), (4, 4, 0), (5, 1, 4), (9, 1, 8)] {
        let mut pass = small.pass(at);
        update(
            &mut pass,
            THREAD,
            ThreadState::Blocked,
            seconds(user, blocked),
        );
        small.profile.apply(pass);
        let rows = threads(&small);
        assert_eq!(
            (
                rows[0].values.classes.user_ns,
                rows[0].values.classes.blocked_ns
            ),
            (user * SECOND_NS, blocked * SECOND_NS)
        );
        assert_eq!(
            session(&small).completeness.causes.get("thread_regressed"),
            None
        );
    }
    assert_eq!(functions(&small), [("[not sampled]".to_owned(), 1)]);
}

// Check that beyond the bound the threads that exited first share one row, and that a late update
// of one of them does not count it twice.
#[test]
fn exited_threads_share_a_row() {
    let mut small = Small::new(Limits {
        exited_threads: 1,
        ..Limits::default()
    });
    let other = |tid| ThreadKey { tid, ..THREAD };
    let mut pass = small.pass(3);
    for tid in 1..=3 {
        update(
            &mut pass,
            other(tid),
            ThreadState::Exited,
            seconds(tid.into(), 0),
        );
    }
    update(&mut pass, THREAD, ThreadState::Running, seconds(0, 3));
    small.profile.apply(pass);
    assert_eq!(
        threads(&small).len(),
        4,
        "more may come of them in the next pass"
    );
    for at in [4, 5] {
        let mut pass = small.pass(at);
        update(&mut pass, THREAD, ThreadState::Running, seconds(0, at));
        update(&mut pass, other(1), ThreadState::Exited, seconds(1, 0));
        small.profile.apply(pass);
    }
    let shown: Vec<_> = threads(&small)
        .iter()
        .map(|row| {
            (
                row.tid,
                row.threads.unwrap(),
                row.last_event_ns - row.first_event_ns,
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            (42, 1, 5 * SECOND_NS),
            (0, 2, 3 * SECOND_NS),
            (3, 1, 3 * SECOND_NS)
        ]
    );
    let answer = session(&small);
    assert_eq!(
        (answer.threads, answer.totals.elapsed_ns),
        (4, 11 * SECOND_NS)
    );
    assert_eq!(answer.completeness.causes.get("late_updates"), Some(&1));
}

// Check that time never goes with a lost stack: it is shown as unknown with the reason, and counted
// for the process.
#[test]
fn lost_stack_keeps_its_time() {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(2);
    update(&mut pass, THREAD, ThreadState::Running, seconds(2, 0));
    for (cause, user) in [(Some(LossCause::ProcessGone), &["main"][..]), (None, &[])] {
        let mut delta = small.delta(user, &[], 3, seconds(1, 0));
        delta.lost = cause;
        pass.stacks.push(delta);
    }
    small.profile.apply(pass);
    let unknown = |cause: &str| (format!("[unknown: {cause}]"), 1);
    assert_eq!(
        functions(&small),
        [unknown("no_frames"), unknown("process_gone")]
    );
    let scope = Scope::Process("42".parse().unwrap());
    let list = report::modules(
        &small.profile.snapshot(),
        &scope,
        &TableQuery::default(),
        &small.names,
    )
    .unwrap();
    let causes: Vec<_> = list.completeness.causes.into_iter().collect();
    assert_eq!(
        causes,
        [("no_frames".into(), 3), ("process_gone".into(), 3)]
    );
    assert_eq!(list.completeness.stacks_unwind_failed, 6);
    assert!((list.completeness.frames_unknown_percent - 100.0).abs() < 1e-9);
    assert_eq!(
        (list.rows.len(), list.rows[0].module.as_str()),
        (1, "[unknown]")
    );
}

/// The same functions without their names: those of `slow` were given up, all others are still
/// looked for.
struct Nameless<'a> {
    names: &'a ByName,
    slow: FunctionName,
    others: FunctionName,
}

impl Names for Nameless<'_> {
    fn function(&self, frame: FrameId) -> &FunctionName {
        match self.unnamed(frame) {
            Some(Unnamed::TooSlow) => &self.slow,
            _ => &self.others,
        }
    }

    fn unnamed(&self, frame: FrameId) -> Option<Unnamed> {
        Some(match &*self.names.function(frame).name {
            "slow" => Unnamed::TooSlow,
            _ => Unnamed::Pending,
        })
    }
}

// Check that an answer says how much of it has no name because that is still looked for, and
// because it was given up; and that one whose functions all have names says nothing of the kind.
#[test]
fn names_that_are_not_there() {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(2);
    update(&mut pass, THREAD, ThreadState::Running, seconds(4, 0));
    for (function, share) in [("slow", 1), ("later", 3)] {
        let delta = small.delta(&[function], &[], share, seconds(share, 0));
        pass.stacks.push(delta);
    }
    small.profile.apply(pass);
    let of = small.frames(&["slow"])[0];
    let stand_in = |name: &str| FunctionName {
        name: name.into(),
        known: false,
        ..small.names.function(of).clone()
    };
    let nameless = Nameless {
        names: &small.names,
        slow: stand_in("app+0x1"),
        others: stand_in("app+0x2"),
    };
    let completeness = |names: &dyn Names| {
        let (snapshot, query) = (small.profile.snapshot(), TableQuery::default());
        let scope = Scope::Process("42".parse().unwrap());
        let list = report::functions(&snapshot, &scope, &query, names).unwrap();
        list.completeness
    };
    let lacks = completeness(&nameless);
    assert!((lacks.frames_unknown_percent - 100.0).abs() < 1e-9);
    let shares: Vec<_> = lacks.frames_unknown.unwrap().into_iter().collect();
    assert_eq!(shares, [("pending", 75.0), ("too_slow", 25.0)]);
    assert!(completeness(&small.names).frames_unknown.is_none());
}
