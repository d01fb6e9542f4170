//! Whom an answer speaks of: how many processes and threads, and which stand in one row together.

use profiler_common::ClassNs;
use profiler_daemon::{
    processes::ids::{ProcessKey, ThreadKey},
    profile::{
        input::{CommName, DrainPass, ThreadState},
        limits::Limits,
        snapshot::Snapshot,
    },
    report::{self, Moment, Scope, TableQuery, ThreadRow, ViewQuery, Window},
    units::BootNs,
};

use crate::machine::{SECOND_NS, START_UNIX_NS};
use crate::small::{self, ByName, PROCESS, Small, THREAD};

/// Ends early, and is dropped.
const DROPPED: u32 = 50;
/// The same, of the kernel.
const KERNEL: u32 = 60;
/// Ends early, and is kept.
const EXITED: u32 = 70;

fn key(pid: u32) -> ProcessKey {
    ProcessKey {
        pid,
        start_ns: BootNs::new(991 * SECOND_NS),
    }
}

fn info(pid: u32, exited: bool, pass: &mut DrainPass) {
    let mut info = small::info(key(pid));
    info.comm = CommName::new("short");
    info.kernel_thread = pid == KERNEL;
    info.exited_at_unix_ns = exited.then_some(START_UNIX_NS + u64::from(pid) * SECOND_NS / 10);
    pass.processes.push(info);
}

fn thread(pid: u32, tid: u32, state: ThreadState, classes: ClassNs, pass: &mut DrainPass) {
    let thread = ThreadKey {
        tid,
        start_ns: BootNs::new(991 * SECOND_NS),
    };
    let mut update = small::thread(key(pid), thread, state, classes);
    update.slot = tid;
    pass.threads.push(update);
}

/// Forty seconds of a process whose first thread lives on, and whose second and third end in the
/// second second, as do all of three other processes, two of which are dropped.
fn forty_seconds() -> (Snapshot, ByName) {
    let mut small = Small::new(Limits {
        segment_ns: SECOND_NS,
        exited_processes: 1,
        exited_threads: 1,
        ..Limits::default()
    });
    for second in 1..=40 {
        let mut pass = small.pass(second);
        let lived = [second * SECOND_NS, 0, 0, 0, 0];
        if second == 1 {
            pass.processes.push(small::info(PROCESS));
        }
        pass.threads
            .push(small::thread(PROCESS, THREAD, ThreadState::Running, lived));
        if second <= 2 {
            let state = if second == 2 {
                ThreadState::Exited
            } else {
                ThreadState::Running
            };
            for tid in [43, 44] {
                let other = ThreadKey { tid, ..THREAD };
                let mut update = small::thread(PROCESS, other, state, lived);
                update.slot = tid;
                pass.threads.push(update);
            }
            for pid in [DROPPED, KERNEL, EXITED] {
                info(pid, second == 2, &mut pass);
                let classes = if pid == KERNEL {
                    [0, 0, 0, 0, second * SECOND_NS]
                } else {
                    lived
                };
                thread(pid, pid, state, classes, &mut pass);
            }
        }
        small.profile.apply(pass);
    }
    (small.profile.snapshot(), small.names)
}

fn threads((snapshot, names): &(Snapshot, ByName), window: Window) -> Vec<ThreadRow> {
    let query = TableQuery {
        window,
        sort: Some("comm".to_owned()),
        ..TableQuery::default()
    };
    report::threads(snapshot, &Scope::Session, &query, names)
        .unwrap()
        .rows
}

// Check that what was dropped has a row by image and one for threads of the kernel, and that these
// say which they are.
#[test]
fn rows_of_what_was_dropped() {
    let rows = threads(&forty_seconds(), Window::Session);
    let together = rows.iter().filter(|row| row.pid == 0);
    let found: Vec<(&str, Option<&str>, u64)> = together
        .map(|row| {
            let seconds = row.values.classes.kernel_ns / SECOND_NS;
            (&*row.comm, row.image_id.as_deref(), seconds)
        })
        .collect();
    assert_eq!(
        found,
        [
            ("[other images] (1 ended)", Some("other"), 0),
            ("[kernel threads] (1 ended)", Some("kernel"), 2)
        ]
    );
}

fn counted((snapshot, names): &(Snapshot, ByName), window: Window) -> [Option<u64>; 4] {
    let view = ViewQuery {
        window,
        ..ViewQuery::default()
    };
    let session = report::session(snapshot, &view, names).unwrap();
    let retired = session.retired;
    let (processes, threads) = (session.processes, session.threads);
    [
        Some(processes),
        retired.processes,
        Some(threads),
        retired.threads,
    ]
}

// Check that a part of the session counts the processes and threads that were there, and says that
// it does not know how many others were; and that the session counts all.
#[test]
fn those_of_a_window() {
    let world = forty_seconds();
    assert_eq!(
        counted(&world, Window::Session),
        [Some(4), Some(2), Some(6), Some(2)]
    );
    let late = Window::Last {
        duration_ns: 30 * SECOND_NS,
    };
    assert_eq!(counted(&world, late), [Some(1), None, Some(1), None]);
    let (snapshot, names) = &world;
    let query = TableQuery {
        window: late,
        ..TableQuery::default()
    };
    let list = report::processes(snapshot, &query, names).unwrap();
    let rows: Vec<(u32, u64)> = list
        .rows
        .iter()
        .filter_map(|row| Some((row.pid?, row.threads)))
        .collect();
    assert_eq!(rows, [(PROCESS.pid, 1)]);
    let early = Window::Between {
        from: Moment::Ago { ns: 40 * SECOND_NS },
        to: Some(Moment::Ago { ns: 38 * SECOND_NS }),
    };
    // One of the three threads has no row any more.
    assert_eq!(counted(&world, early), [Some(2), None, Some(3), None]);
    let rows = threads(&world, early);
    assert_eq!(rows.len(), 6);
    for row in rows {
        assert_eq!(row.threads, (row.tid > 0).then_some(1), "{}", row.comm);
    }
}
