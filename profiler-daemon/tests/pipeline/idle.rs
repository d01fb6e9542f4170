//! Threads that idle are one group of a call tree, with nothing gained or lost; the session's tree
//! tells processes apart by name.

use std::collections::BTreeMap;

use profiler_common::ClassNs;
use profiler_daemon::{
    export::folded,
    processes::ids::{ProcessKey, ThreadKey},
    profile::{
        input::{DrainPass, ThreadState},
        limits::Limits,
        snapshot::Snapshot,
    },
    report::{
        self, FrameScope, Moment, Scope, SectionMode, StackQuery, StackValue, TreeNode, TreeQuery,
        Window,
    },
};

use crate::{
    golden::OF_PROCESS,
    machine::{SECOND_NS, START_UNIX_NS},
    small::{self, ByName, PROCESS, Small, THREAD},
};

const MS: u64 = 1_000_000;
const POOL: [&str; 3] = ["start", "pool", "wait"];

fn thread(tid: u32) -> ThreadKey {
    ThreadKey { tid, ..THREAD }
}

/// A thread that began with the session, with its stack: time that it ran there, was blocked there
/// before, and is.
fn add(
    small: &mut Small,
    pass: &mut DrainPass,
    (process, tid): (ProcessKey, u32),
    user: &[&str],
    (ran_ns, blocked_ns, open_ns): (u64, u64, u64),
) {
    let classes: ClassNs = [ran_ns, 0, blocked_ns + open_ns, 0, 0];
    let state = ThreadState::Blocked;
    pass.threads
        .push(small::thread(process, thread(tid), state, classes));
    let mut stack = small.delta(
        user,
        &[],
        ran_ns.div_ceil(10 * MS),
        [ran_ns, 0, blocked_ns, 0, 0],
    );
    (stack.process, stack.thread) = (process, thread(tid));
    pass.stacks.push(stack);
    let mut open = small.open(user, &[], [0, 0, open_ns, 0, 0]);
    (open.process, open.thread) = (process, thread(tid));
    if open_ns > 0 {
        pass.open.push(open);
    }
}

/// Ten seconds of a service: a thread that works and waits where its pool waits too, of which one
/// thread woke now and then and one never; of a second process of its name, which idles altogether;
/// and of a process that ended.
fn machine() -> (Snapshot, ByName) {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(10);
    let other = ProcessKey { pid: 43, ..PROCESS };
    pass.processes = vec![small::info(PROCESS), small::info(other)];
    let s = SECOND_NS;
    add(
        &mut small,
        &mut pass,
        (PROCESS, 42),
        &POOL,
        (2 * s, 7 * s, s),
    );
    add(
        &mut small,
        &mut pass,
        (PROCESS, 50),
        &POOL,
        (4 * MS, 8 * s - 4 * MS, 2 * s),
    );
    add(&mut small, &mut pass, (PROCESS, 51), &POOL, (0, 0, 10 * s));
    add(
        &mut small,
        &mut pass,
        (other, 43),
        &["main", "pause"],
        (0, 0, 10 * s),
    );
    small.profile.apply(pass);
    (small.profile.snapshot(), small.names)
}

fn tree(snapshot: &Snapshot, names: &ByName, scope: &Scope, idle_apart: bool) -> TreeNode {
    let query = TreeQuery {
        idle_apart,
        ..TreeQuery::default()
    };
    report::calltree(snapshot, scope, &query, names)
        .unwrap()
        .root
}

fn blocked_s(node: &TreeNode) -> f64 {
    node.values.classes.blocked_ns as f64 / SECOND_NS as f64
}

/// By path, its kind, and the seconds blocked in and below it.
fn paths(node: &TreeNode) -> BTreeMap<String, (&'static str, f64)> {
    fn walk(node: &TreeNode, path: &str, found: &mut BTreeMap<String, (&'static str, f64)>) {
        for child in &node.children {
            let path = format!("{path}/{}", child.function);
            let before = found.insert(path.clone(), (child.kind, blocked_s(child)));
            assert_eq!(before, None, "{path} stands there twice");
            walk(child, &path, found);
        }
    }
    let mut found = BTreeMap::new();
    walk(node, "", &mut found);
    found
}

// Check that the waits of threads that idle, and no others, are below one node of the call tree,
// those of one place divided by whose they are, and that nothing else changes.
#[test]
fn idle_threads_are_apart() {
    let (snapshot, names) = machine();
    let among = tree(&snapshot, &names, &OF_PROCESS, false);
    let apart = tree(&snapshot, &names, &OF_PROCESS, true);
    assert_eq!(
        serde_json::to_value(among.values).unwrap(),
        serde_json::to_value(apart.values).unwrap()
    );
    assert_eq!(paths(&among)["/start/pool/wait"], ("user", 27.996));
    let apart = paths(&apart);
    assert_eq!(apart["/[idle threads]"], ("idle", 19.996));
    assert_eq!(apart["/[idle threads]/start/pool/wait"], ("user", 19.996));
    assert_eq!(apart["/start/pool/wait"], ("user", 8.0));
}

// Check that the session's tree has a node for all processes of a name, with and without those
// threads, whose names are never taken for functions', and that the sums of nodes are exact.
#[test]
fn the_session_has_processes() {
    let (snapshot, names) = machine();
    let root = tree(&snapshot, &names, &Scope::Session, true);
    assert_eq!((root.kind, blocked_s(&root)), ("session", 37.996));
    let found = paths(&root);
    assert_eq!(found["/[idle threads]"], ("idle", 29.996));
    assert_eq!(found["/[idle threads]/app"], ("process", 29.996));
    assert_eq!(found["/[idle threads]/app/main/pause"], ("user", 10.0));
    assert_eq!(found["/app"], ("process", 8.0));
    assert_eq!(found["/app/start/pool/wait"], ("user", 8.0));
    assert!(root.children.iter().all(|node| node.module.is_none()));
    let found = paths(&tree(&snapshot, &names, &Scope::Session, false));
    assert_eq!(found["/app"], ("process", 37.996));
    assert_eq!(found.len(), 6);
}

// Check that a process that is called like the group of threads that idle is not taken for it.
#[test]
fn a_process_cannot_be_the_group() {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(10);
    let mut info = small::info(PROCESS);
    info.comm = profiler_daemon::profile::input::CommName::new("[idle threads]");
    pass.processes.push(info);
    let s = SECOND_NS;
    add(
        &mut small,
        &mut pass,
        (PROCESS, 42),
        &["main", "work"],
        (6 * s, 0, 4 * s),
    );
    add(&mut small, &mut pass, (PROCESS, 50), &POOL, (0, 0, 10 * s));
    small.profile.apply(pass);
    let root = tree(
        &small.profile.snapshot(),
        &small.names,
        &Scope::Session,
        true,
    );
    let shown: Vec<_> = root
        .children
        .iter()
        .map(|node| (node.kind, &*node.function, blocked_s(node)))
        .collect();
    let name = "[idle threads]";
    // Both have 10 s in all; the process has samples.
    assert_eq!(shown, [("process", name, 4.0), ("idle", name, 10.0)]);
}

// Check that in a window, too, a thread's waits are where it slept in it, and that stacks for other
// tools have the same group.
#[test]
fn windows_and_formats() {
    let mut small = Small::new(Limits::default());
    for second in 1..=10 {
        let mut pass = small.pass(second);
        pass.processes.push(small::info(PROCESS));
        let s = second * SECOND_NS;
        // The worker runs from the sixth second on.
        let ran_ns = second.saturating_sub(5) * SECOND_NS;
        let blocked_ns = s - ran_ns;
        let user = ["main", "work"];
        let classes = [ran_ns, 0, blocked_ns, 0, 0];
        let state = ThreadState::Blocked;
        pass.threads
            .push(small::thread(PROCESS, THREAD, state, classes));
        let gained = if second > 5 {
            [SECOND_NS, 0, 0, 0, 0]
        } else {
            [0, 0, SECOND_NS, 0, 0]
        };
        let stack = small.delta(&user, &[], gained[0] / (10 * MS), gained);
        pass.stacks.push(stack);
        add(&mut small, &mut pass, (PROCESS, 50), &POOL, (0, 0, s));
        // Only what is open is its: it never woke.
        pass.stacks.retain(|stack| stack.thread == THREAD);
        small.profile.apply(pass);
    }
    let (snapshot, names) = (small.profile.snapshot(), small.names);
    let at = |second: u64| Moment::At {
        unix_ns: START_UNIX_NS + second * SECOND_NS,
    };
    for (from, to, expected) in [(0, 5, [10.0, 0.0]), (5, 10, [5.0, 5.0]), (2, 8, [6.0, 6.0])] {
        let query = TreeQuery {
            window: Window::Between {
                from: at(from),
                to: Some(at(to)),
            },
            idle_apart: true,
            ..TreeQuery::default()
        };
        let root = report::calltree(&snapshot, &OF_PROCESS, &query, &names)
            .unwrap()
            .root;
        let idle = paths(&root)["/[idle threads]"].1;
        let rest = root.values.elapsed.inclusive_ns as f64 / SECOND_NS as f64 - idle;
        assert_eq!([idle, rest], expected, "from {from} to {to}");
    }
    let query = StackQuery {
        tree: TreeQuery {
            idle_apart: true,
            frames: FrameScope::All,
            ..TreeQuery::default()
        },
        places: false,
        sections: SectionMode::Process,
    };
    let stacks = report::stacks(&snapshot, &Scope::Session, &query, &names).unwrap();
    let mut text = Vec::new();
    folded::write(&stacks, StackValue::Blocked, &mut text).unwrap();
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "[idle threads];app (42);start;pool;wait 10000000000\napp (42);main;work 5000000000\n"
    );
}
