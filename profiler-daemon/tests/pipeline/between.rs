//! Differences between two snapshots: of which aggregate what was there earlier is taken.

use std::{ops::RangeInclusive, sync::Arc};

use profiler_daemon::{
    processes::ids::{Image, ProcessKey, ThreadKey},
    profile::{input::ThreadState, limits::Limits, snapshot::Snapshot},
    report::{self, Scope, StackQuery, TableQuery, product::Values},
};

use crate::{
    machine::SECOND_NS,
    small::{self, PROCESS, Small},
};

/// What happens in a pass to a process.
#[derive(Clone, Copy)]
struct Act {
    pid: u32,
    /// Of the file that it executed last.
    inode: u64,
    user_s: u64,
    /// A function, with so many seconds and ticks.
    stack: Option<(&'static str, u64)>,
    ended: bool,
}

/// Takes processes through a pass.
fn step(small: &mut Small, second: u64, acts: &[Act]) -> Snapshot {
    let mut pass = small.pass(second);
    for act in acts {
        let key = ProcessKey {
            pid: act.pid,
            start_ns: PROCESS.start_ns,
        };
        let thread = ThreadKey {
            tid: act.pid,
            start_ns: key.start_ns,
        };
        let mut info = small::info(key);
        info.exited_at_unix_ns = act.ended.then_some(pass.now_unix_ns);
        info.image = Some(Arc::new(Image {
            device: 1,
            inode: act.inode,
            path: "/usr/bin/tool".into(),
        }));
        pass.processes.push(info);
        let state = if act.ended {
            ThreadState::Exited
        } else {
            ThreadState::Running
        };
        let classes = [act.user_s * SECOND_NS, 0, 0, 0, 0];
        pass.threads
            .push(small::thread(key, thread, state, classes));
        if let Some((name, seconds)) = act.stack {
            let classes = [seconds * SECOND_NS, 0, 0, 0, 0];
            let mut delta = small.delta(&[name], &[], seconds, classes);
            (delta.process, delta.thread) = (key, thread);
            pass.stacks.push(delta);
        }
    }
    small.profile.apply(pass);
    small.profile.snapshot()
}

/// Some passes in which nothing happens: ended processes are dropped.
fn rest(small: &mut Small, seconds: RangeInclusive<u64>) -> Snapshot {
    for second in seconds {
        step(small, second, &[]);
    }
    small.profile.snapshot()
}

// Check that of a process which executed another file between two moments, and ended, what it had
// done before is taken from the file that it is one of now, and not from that which it had been.
#[test]
fn a_process_that_became_another() {
    let mut small = Small::new(Limits {
        exited_processes: 0,
        ..Limits::default()
    });
    let first = Act {
        pid: 1,
        inode: 5,
        user_s: 1,
        stack: Some(("first", 1)),
        ended: false,
    };
    let other = Act {
        pid: 2,
        stack: Some(("other", 1)),
        ended: true,
        ..first
    };
    let second = Act {
        inode: 6,
        user_s: 3,
        stack: Some(("second", 2)),
        ..first
    };
    let end = Act {
        stack: None,
        ended: true,
        ..second
    };
    step(&mut small, 2, &[first, other]);
    let before = rest(&mut small, 3..=6);
    assert_eq!((before.ended(), before.processes().len()), (1, 1));
    step(&mut small, 7, &[second]);
    step(&mut small, 8, &[end]);
    let after = rest(&mut small, 9..=12);
    assert_eq!((after.ended(), after.processes().len()), (2, 0));

    let query = StackQuery::default();
    let stacks = report::stacks_between(&before, &after, &Scope::Session, &query, &small.names);
    let stacks = stacks.unwrap();
    let nodes = stacks.nodes.iter().skip(1);
    let rows: Vec<_> = nodes
        .filter(|node| node.own != Values::default())
        .map(|node| {
            let name = stacks.functions[node.function as usize].name.as_str();
            (name, node.own.elapsed_ns() / SECOND_NS)
        })
        .collect();
    assert_eq!(rows, [("second", 2)]);

    // The files have the same name, and are told apart all the same.
    let query = TableQuery::default();
    let threads = report::threads(&after, &Scope::Session, &query, &small.names).unwrap();
    let images: Vec<_> = threads.rows.iter().filter(|row| row.pid == 0).collect();
    assert!(images.iter().all(|row| row.comm == "tool (1 ended)"));
    assert!(images.len() == 2 && images[0].image_id != images[1].image_id);
}
