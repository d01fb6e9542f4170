//! Rows of functions say from where in the program a library waits.

use profiler_common::ClassNs;
use profiler_daemon::{
    export::text,
    profile::{input::ThreadState, limits::Limits, snapshot::Snapshot},
    report::{self, CalledFrom, FrameScope, FunctionRow, List, Scope, TableQuery},
};

use crate::{
    golden::OF_PROCESS,
    small::{self, ByName, PROCESS, Small, THREAD},
};

const MS: u64 = 1_000_000;

/// A process with these stacks, each with the time of its innermost function.
fn process(stacks: &[(&[&str], &[&str], ClassNs)]) -> (Snapshot, ByName) {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(10);
    pass.processes.push(small::info(PROCESS));
    let mut total = ClassNs::default();
    for (user, kernel, classes) in stacks {
        for (sum, ns) in total.iter_mut().zip(classes) {
            *sum += ns;
        }
        let ran_ns = classes[0] + classes[1];
        let stack = small.delta(user, kernel, ran_ns / (10 * MS), *classes);
        pass.stacks.push(stack);
    }
    let state = ThreadState::Blocked;
    pass.threads
        .push(small::thread(PROCESS, THREAD, state, total));
    small.profile.apply(pass);
    (small.profile.snapshot(), small.names)
}

fn functions(of: &(Snapshot, ByName), scope: &Scope, frames: FrameScope) -> List<FunctionRow> {
    let query = TableQuery {
        frames,
        ..TableQuery::default()
    };
    report::functions(&of.0, scope, &query, &of.1).unwrap()
}

fn caller<'l>(list: &'l List<FunctionRow>, function: &str) -> Option<&'l CalledFrom> {
    let mut rows = list.rows.iter();
    let row = rows.find(|row| row.function == function);
    row.unwrap_or_else(|| panic!("{function} has no row"))
        .called_from
        .as_ref()
}

// Check that what waits in a library names the innermost function of the program that called it,
// that with most of its time, and its share; and that the program's own functions, what computes,
// and what waits in functions that it calls name none.
#[test]
fn a_wait_names_the_program() {
    let blocked = |ms: u64| [0, 0, ms * MS, 0, 0];
    let of = process(&[
        (
            &[
                "_start",
                "main",
                "ProcSleep",
                "WaitLatch",
                "libc:epoll_wait",
            ],
            &[],
            blocked(300),
        ),
        (
            &[
                "_start",
                "main",
                "ProcSleep",
                "lib:helper",
                "libc:wrapper",
                "libc:epoll_wait",
            ],
            &[],
            blocked(400),
        ),
        (&["main", "idle_loop", "libc:epoll_wait"], &[], blocked(300)),
        (
            &["main", "idle_loop", "lib:compute"],
            &[],
            [100 * MS, 0, 0, 0, 0],
        ),
        (
            &["main", "flush", "libc:write"],
            &[],
            [10 * MS, 60 * MS, 0, 0, 0],
        ),
        (&["main", "own_wait"], &[], blocked(50)),
        // A call of the program from a library.
        (
            &["main", "lib:sort", "compare", "lib:sort", "libc:pause"],
            &[],
            blocked(20),
        ),
    ]);
    for scope in [OF_PROCESS, Scope::Session] {
        let list = functions(&of, &scope, FrameScope::User);
        let expected = CalledFrom {
            function: "ProcSleep".into(),
            module: "/usr/bin/app".into(),
            percent: 40.0,
        };
        assert_eq!(caller(&list, "epoll_wait"), Some(&expected));
        let named = |function| caller(&list, function).map(|of| (&*of.function, of.percent));
        assert_eq!(named("write"), Some(("flush", 100.0)));
        assert_eq!(named("pause"), Some(("compare", 100.0)));
        for function in [
            "compute",
            "own_wait",
            "ProcSleep",
            "helper",
            "wrapper",
            "sort",
            "main",
        ] {
            assert_eq!(named(function), None, "{function}");
        }
    }
}

// Check that where no function of the program is on the stack but its first ones, the nearest
// function outside the C library stands for it, and that of the kernel's functions the nearest in
// the program is named.
#[test]
fn libraries_stand_for_programs() {
    let blocked = |ms: u64| [0, 0, ms * MS, 0, 0];
    let of = process(&[
        (
            &[
                "libc:start_thread",
                "lib:worker",
                "lib:take_job",
                "libc:wait",
                "libc:futex",
            ],
            &["k:do_syscall", "k:schedule"],
            blocked(500),
        ),
        (&["_start", "main", "libc:sleep"], &[], blocked(30)),
        (&["libc:start_thread", "libc:own"], &[], blocked(20)),
    ]);
    let list = functions(&of, &OF_PROCESS, FrameScope::User);
    let named = |function| caller(&list, function).map(|of| &*of.function);
    assert_eq!(named("futex"), Some("take_job"));
    assert_eq!(named("sleep"), Some("main"));
    assert_eq!(named("own"), None);
    let list = functions(&of, &OF_PROCESS, FrameScope::All);
    assert_eq!(
        caller(&list, "schedule").map(|of| &*of.function),
        Some("take_job")
    );
}

// Check that the table for people has both names in a column, no line wider than a terminal however
// long they are, and that rows can be sorted by the caller.
#[test]
fn as_text() {
    let long = "namespace::of::a_program::with_a_function::of_a_very_long_name::indeed".repeat(3);
    let blocked = |ms: u64| [0, 0, ms * MS, 0, 0];
    let library = format!("libc:{}", "wait_for_something_".repeat(9));
    let of = process(&[
        (&["main", "ProcSleep", "libc:epoll_wait"], &[], blocked(500)),
        (&["main", &long, &library], &[], blocked(100)),
    ]);
    let list = functions(&of, &OF_PROCESS, FrameScope::User);
    let mut out = Vec::new();
    text::write(&list, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("epoll_wait < ProcSleep "), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    let query = TableQuery {
        sort: Some("called_from.function".into()),
        ..TableQuery::default()
    };
    let sorted = report::functions(&of.0, &OF_PROCESS, &query, &of.1).unwrap();
    let first = sorted.rows[0].called_from.as_ref().unwrap();
    assert_eq!(first.function, long);
}
