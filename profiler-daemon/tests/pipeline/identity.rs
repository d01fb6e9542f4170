//! Who a thread is after an exec has changed its number.

use profiler_common::ClassNs;
use profiler_daemon::{
    processes::ids::ThreadKey,
    profile::{
        input::{DrainPass, ThreadState},
        limits::Limits,
    },
    report::{self, FrameScope, Scope, TableQuery, ThreadRow, ViewQuery, Window},
    units::BootNs,
};

use crate::{
    machine::{SECOND_NS, START_NS},
    small::{self, PROCESS, Small, THREAD},
};

const WORKER: ThreadKey = ThreadKey {
    tid: 43,
    start_ns: BootNs::new(995 * SECOND_NS),
};
/// The worker after its exec.
const EXECUTED: ThreadKey = ThreadKey {
    tid: PROCESS.pid,
    ..WORKER
};

fn seconds(user: u64, blocked: u64) -> ClassNs {
    [user * SECOND_NS, 0, blocked * SECOND_NS, 0, 0]
}

fn update(pass: &mut DrainPass, key: ThreadKey, state: ThreadState, classes: ClassNs) {
    let mut thread = small::thread(PROCESS, key, state, classes);
    thread.slot = if key == THREAD { 1 } else { 2 };
    pass.threads.push(thread);
}

fn threads(small: &Small, window: Window) -> Vec<ThreadRow> {
    let query = TableQuery {
        window,
        ..TableQuery::default()
    };
    report::threads(
        &small.profile.snapshot(),
        &Scope::Session,
        &query,
        &small.names,
    )
    .unwrap()
    .rows
}

fn elapsed_s(rows: &[ThreadRow]) -> Vec<(u32, u64)> {
    let mut found: Vec<(u32, u64)> = rows
        .iter()
        .map(|row| (row.tid, row.values.elapsed.inclusive_ns.div_ceil(SECOND_NS)))
        .collect();
    found.sort_unstable();
    found
}

/// Two threads of one second each; the second has run 1 s under `main` and sleeps since.
fn before_the_exec() -> Small {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(4);
    update(&mut pass, THREAD, ThreadState::Blocked, seconds(0, 4));
    update(&mut pass, WORKER, ThreadState::Blocked, seconds(1, 3));
    let mut stack = small.delta(&["main"], &[], 3, seconds(2, 0));
    stack.thread = WORKER;
    pass.stacks.push(stack);
    let mut call = small::calls(7, 5, 50, 10, 20);
    call.thread = WORKER;
    pass.syscalls.push(call);
    small.profile.apply(pass);
    small
}

// Check that a thread that executes a program and so takes the first one's number keeps its one row
// with its totals, in the session and in windows, while the first one keeps its own.
#[test]
fn an_exec_from_another_thread_goes_on_in_its_row() {
    let mut small = before_the_exec();
    let mut pass = small.pass(14);
    update(&mut pass, THREAD, ThreadState::Exited, seconds(0, 5));
    update(&mut pass, EXECUTED, ThreadState::Running, seconds(6, 8));
    let mut stack = small.delta(&["other"], &[], 1, seconds(4, 0));
    stack.thread = EXECUTED;
    pass.stacks.push(stack);
    let mut call = small::calls(7, 8, 80, 10, 20);
    call.thread = EXECUTED;
    pass.syscalls.push(call);
    small.profile.apply(pass);
    let snapshot = small.profile.snapshot();
    let rows = threads(&small, Window::Session);
    assert_eq!(elapsed_s(&rows), [(42, 5), (42, 14)]);
    assert!(rows.iter().any(|row| row.state == "exited"));
    let session = report::session(&snapshot, &ViewQuery::default(), &small.names).unwrap();
    assert_eq!(session.totals.elapsed_ns, 19 * SECOND_NS);
    assert_eq!(session.totals.classes.user_ns, 6 * SECOND_NS);
    assert_eq!(session.threads, 2);
    // What had waited for its total under the old number found it under the new one.
    assert_eq!(session.completeness.elapsed_unattributed_ns, 13 * SECOND_NS);
    let events = report::os_events(
        &snapshot,
        &Scope::Session,
        &ViewQuery::default(),
        &small.names,
    )
    .unwrap();
    assert_eq!((events.syscalls.len(), events.syscalls[0].count), (1, 8));
    // A third pass, in a new segment: the window holds only what passed in it.
    let mut pass = small.pass(26);
    update(&mut pass, EXECUTED, ThreadState::Running, seconds(18, 8));
    small.profile.apply(pass);
    let window = Window::Last {
        duration_ns: SECOND_NS,
    };
    assert_eq!(elapsed_s(&threads(&small, window)), [(42, 12)]);
}

// Check that a second exec from yet another thread leaves the rows of both earlier ones alone.
#[test]
fn one_exec_after_another() {
    let mut small = before_the_exec();
    let second = ThreadKey {
        tid: 44,
        start_ns: BootNs::new(996 * SECOND_NS),
    };
    let mut pass = small.pass(5);
    update(&mut pass, THREAD, ThreadState::Exited, seconds(0, 5));
    update(&mut pass, EXECUTED, ThreadState::Running, seconds(1, 4));
    let mut other = small::thread(PROCESS, second, ThreadState::Running, seconds(1, 0));
    (other.slot, other.first_event_ns) = (3, START_NS + 4 * SECOND_NS);
    other.last_event_ns += 4 * SECOND_NS;
    pass.threads.push(other.clone());
    small.profile.apply(pass);
    let mut pass = small.pass(6);
    update(&mut pass, EXECUTED, ThreadState::Exited, seconds(1, 5));
    other.thread.tid = PROCESS.pid;
    other.classes = seconds(2, 0);
    other.last_event_ns += SECOND_NS;
    pass.threads.push(other);
    small.profile.apply(pass);
    let rows = threads(&small, Window::Session);
    assert_eq!(elapsed_s(&rows), [(42, 2), (42, 5), (42, 6)]);
}

// Check that a thread first seen after its exec, under the very number and start of the one that
// died in it, has a row of its own, and that nothing of the dead one is lost.
#[test]
fn first_seen_after_the_exec() {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(4);
    update(&mut pass, THREAD, ThreadState::Exited, seconds(1, 3));
    pass.stacks
        .push(small.delta(&["main"], &[], 1, seconds(1, 0)));
    small.profile.apply(pass);
    let mut pass = small.pass(6);
    let mut thread = small::thread(PROCESS, THREAD, ThreadState::Running, seconds(0, 1));
    thread.first_event_ns += 5 * SECOND_NS;
    thread.last_event_ns += 5 * SECOND_NS;
    thread.slot = 9;
    pass.threads.push(thread);
    small.profile.apply(pass);
    let query = ViewQuery {
        frames: FrameScope::User,
        window: Window::Session,
    };
    let session = report::session(&small.profile.snapshot(), &query, &small.names).unwrap();
    assert_eq!(session.totals.elapsed_ns, 5 * SECOND_NS);
    assert_eq!(session.threads, 2);
    let rows = threads(&small, Window::Session);
    assert!(
        rows.iter()
            .any(|row| row.state == "running" && row.values.elapsed.inclusive_ns == SECOND_NS)
    );
}
