//! Differences between two snapshots: of which account what was there earlier is taken.

use std::sync::Arc;

use profiler_daemon::{
    processes::ids::{Image, ProcessKey, ThreadKey},
    profile::{input::ThreadState, limits::Limits},
    report::{self, Scope, StackQuery, product::Values},
};

use crate::{
    machine::SECOND_NS,
    small::{self, PROCESS, Small},
};

// Check that of a process which executed another file between two moments, and ended, what it had done before is taken from the
// file that it is one of now, and not from that which it had been.
#[test]
fn a_process_that_became_another() {
    let mut small = Small::new(Limits {
        exited_processes: 0,
        ..Limits::default()
    });
    /// What happens in a pass to a process that executed the file of this inode.
    struct Act {
        pid: u32,
        inode: u64,
        user_s: u64,
        stack: Option<(&'static str, u64)>,
        ended: bool,
    }
    let act = |pid, inode, user_s, stack, ended| Act {
        pid,
        inode,
        user_s,
        stack,
        ended,
    };
    let step = |small: &mut Small, second: u64, acts: &[Act]| {
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
            let state = match act.ended {
                true => ThreadState::Exited,
                false => ThreadState::Running,
            };
            let classes = [act.user_s * SECOND_NS, 0, 0, 0, 0];
            pass.threads
                .push(small::thread(key, thread, state, classes));
            for (name, ticks) in act.stack {
                let classes = [ticks * SECOND_NS, 0, 0, 0, 0];
                let mut delta = small.delta(&[name], &[], ticks, classes);
                (delta.process, delta.thread) = (key, thread);
                pass.stacks.push(delta);
            }
        }
        small.profile.apply(pass);
        small.profile.snapshot()
    };
    let first = act(1, 5, 1, Some(("first", 1)), false);
    step(
        &mut small,
        2,
        &[first, act(2, 5, 1, Some(("other", 1)), true)],
    );
    let before = (3..=6).map(|second| step(&mut small, second, &[])).last();
    let before = before.unwrap();
    assert_eq!((before.ended(), before.processes().len()), (1, 1));
    step(&mut small, 7, &[act(1, 6, 3, Some(("second", 2)), false)]);
    step(&mut small, 8, &[act(1, 6, 3, None, true)]);
    let after = (9..=12).map(|second| step(&mut small, second, &[])).last();
    let after = after.unwrap();
    assert_eq!((after.ended(), after.processes().len()), (2, 0));
    let query = StackQuery::default();
    let stacks = report::stacks_between(&before, &after, &Scope::Session, &query, &small.names);
    let stacks = stacks.unwrap();
    let nodes = (1..stacks.nodes.len()).filter(|node| stacks.nodes[*node].own != Values::default());
    let rows: Vec<_> = nodes
        .map(|node| {
            let function = stacks.nodes[node].function as usize;
            let name = stacks.functions[function].name.as_str();
            (name, stacks.nodes[node].own.elapsed_ns() / SECOND_NS)
        })
        .collect();
    assert_eq!(rows, [("second", 2)]);
}
