//! Every answer about one small profile, as JSON and as text, byte for byte. `UPDATE_GOLDEN=1`
//! writes them anew.

use std::{fs, path::Path};

use profiler_common::StackEnd;
use profiler_daemon::{
    export::{
        csv::{self, CsvReport},
        text::{self, TextReport},
    },
    processes::ids::ThreadKey,
    profile::{
        input::{LossCause, ThreadState},
        limits::Limits,
        snapshot::Snapshot,
    },
    report::{
        self, FrameScope, NeighbourQuery, ProcessSelector, Scope, TableQuery, TreeQuery, ViewQuery,
    },
    units::BootNs,
};
use serde::Serialize;

use crate::{
    machine::SECOND_NS,
    small::{self, ByName, PROCESS, Small, THREAD},
};

const MS: u64 = 1_000_000;

/// A service that computes, reads, sleeps, recurses, and of which a few stacks were lost; and a
/// thread of the kernel.
pub(crate) fn service() -> (Snapshot, ByName) {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(10);
    let mut info = small::info(PROCESS);
    info.container_id = Some("\u{1b}[31mred".into());
    pass.processes.push(info);
    let main = ["_start", "main"];
    let with = |more: &[&'static str]| -> Vec<&str> { main.iter().chain(more).copied().collect() };
    pass.stacks = vec![
        small.delta(
            &with(&["compute", "inner"]),
            &[],
            30,
            [3000 * MS, 0, 0, 0, 0],
        ),
        small.delta(&with(&["compute"]), &[], 10, [1000 * MS, 0, 0, 200 * MS, 0]),
        small.delta(
            &with(&["walk", "walk", "walk"]),
            &[],
            5,
            [500 * MS, 0, 0, 0, 0],
        ),
        small.delta(
            &with(&["load"]),
            &["k:do_syscall", "k:vfs_read"],
            3,
            [0, 300 * MS, 700 * MS, 0, 0],
        ),
        small.delta(&[], &["k:page_fault"], 1, [0, 100 * MS, 0, 0, 0]),
        small.delta(&["app+0x99?", "callback"], &[], 1, [100 * MS, 0, 0, 0, 0]),
    ];
    pass.stacks[5].end = StackEnd::Incomplete(profiler_common::unwind::UnwindFailure::ReadFrame);
    let mut lost = small.delta(&[], &[], 2, [200 * MS, 0, 0, 0, 0]);
    lost.lost = Some(LossCause::MapFull);
    pass.stacks.push(lost);
    pass.open.push(small.open(
        &with(&["wait"]),
        &["k:do_syscall", "k:futex_wait"],
        [0, 0, 3500 * MS, 0, 0],
    ));
    // A tick and a mark are 100 ms each, so the totals give each stack what its delta says.
    let classes = [4800 * MS, 400 * MS, 4530 * MS, 270 * MS, 0];
    let mut update = small::thread(PROCESS, THREAD, ThreadState::Blocked, classes);
    update.call = Some(small::asleep_in(202, pass.now_ns - 3500 * MS, 3500 * MS));
    pass.threads.push(update);
    let worker = ThreadKey {
        tid: 43,
        start_ns: BootNs::new(995 * SECOND_NS),
    };
    pass.threads.push(small::thread(
        PROCESS,
        worker,
        ThreadState::Exited,
        [0, 0, 2000 * MS, 0, 0],
    ));
    pass.syscalls = vec![
        small::calls(0, 1000, 900 * MS, 700 * MS, 20 * MS),
        small::calls(9999, 1, 10, 0, 10),
    ];

    let key = profiler_daemon::processes::ids::ProcessKey {
        pid: 7,
        start_ns: BootNs::new(1),
    };
    let mut kthread = small::info(key);
    kthread.kernel_thread = true;
    (kthread.exe, kthread.unit, kthread.uid) = (None, None, Some(0));
    kthread.comm = profiler_daemon::profile::input::CommName::new("kworker/0:1");
    pass.processes.push(kthread);
    let of_kernel = ThreadKey {
        tid: 7,
        start_ns: BootNs::new(1),
    };
    let mut work = small.delta(
        &[],
        &["k:kthread", "k:worker_thread"],
        4,
        [0, 0, 0, 0, 400 * MS],
    );
    (work.process, work.thread, work.end) = (key, of_kernel, StackEnd::None);
    pass.stacks.push(work);
    pass.threads.push(small::thread(
        key,
        of_kernel,
        ThreadState::Running,
        [0, 0, 9600 * MS, 0, 400 * MS],
    ));

    pass.losses = vec![("stacks_map_full".into(), 3), ("ring_full".into(), 0)];
    pass.samples_lost = 1;
    pass.discarded = vec![("idle".into(), 900), ("not_target".into(), 5)];
    small.profile.apply(pass);
    (small.profile.snapshot(), small.names)
}

pub(crate) fn compare(file: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/pipeline/golden")
        .join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    assert!(
        expected == found,
        "{file} differs; expected:\n{expected}\nfound:\n{found}"
    );
}

fn check(name: &str, answer: &(impl Serialize + TextReport)) {
    let mut json = serde_json::to_string_pretty(answer).unwrap();
    json.push('\n');
    compare(&format!("{name}.json"), &json);
    let mut shown = Vec::new();
    text::write(answer, &mut shown).unwrap();
    compare(&format!("{name}.txt"), &String::from_utf8(shown).unwrap());
}

pub(crate) fn check_table(name: &str, answer: &(impl Serialize + TextReport + CsvReport)) {
    check(name, answer);
    let mut table = Vec::new();
    csv::write(answer, &mut table).unwrap();
    compare(&format!("{name}.csv"), &String::from_utf8(table).unwrap());
}

pub(crate) const OF_PROCESS: Scope = Scope::Process(SELECTOR);
const SELECTOR: ProcessSelector = ProcessSelector {
    pid: 42,
    start_ticks: None,
};

// Check the tables of functions and modules, with kernel time given to user functions and with
// kernel functions shown.
#[test]
fn functions_and_modules() {
    let (snapshot, names) = service();
    for (suffix, frames) in [("", FrameScope::User), ("-all", FrameScope::All)] {
        let query = TableQuery {
            frames,
            ..TableQuery::default()
        };
        check_table(
            &format!("functions{suffix}"),
            &report::functions(&snapshot, &OF_PROCESS, &query, &names).unwrap(),
        );
        check_table(
            &format!("modules{suffix}"),
            &report::modules(&snapshot, &OF_PROCESS, &query, &names).unwrap(),
        );
    }
    let query = TableQuery {
        limit: 2,
        ..TableQuery::default()
    };
    check_table(
        "session-functions",
        &report::functions(&snapshot, &Scope::Session, &query, &names).unwrap(),
    );
}

// Check the callers and callees of a function that calls itself, and of one in the middle.
#[test]
fn callers_and_callees() {
    let (snapshot, names) = service();
    for function in ["walk", "compute"] {
        let query = NeighbourQuery {
            function: function.to_owned(),
            ..NeighbourQuery::default()
        };
        check_table(
            &format!("callers-{function}"),
            &report::callers(&snapshot, &OF_PROCESS, &query, &names).unwrap(),
        );
        check_table(
            &format!("callees-{function}"),
            &report::callees(&snapshot, &OF_PROCESS, &query, &names).unwrap(),
        );
    }
}

// Check the totals of the session and of a process, and the tables of processes and threads.
#[test]
fn totals() {
    let (snapshot, names) = service();
    let query = TableQuery::default();
    check(
        "session",
        &report::session(&snapshot, &ViewQuery::default(), &names).unwrap(),
    );
    check_table(
        "processes",
        &report::processes(&snapshot, &query, &names).unwrap(),
    );
    check(
        "process",
        &report::process(
            &snapshot,
            &Scope::Process(SELECTOR),
            &ViewQuery::default(),
            &names,
        )
        .unwrap(),
    );
    check_table(
        "threads",
        &report::threads(&snapshot, &OF_PROCESS, &query, &names).unwrap(),
    );
    check_table(
        "os-events",
        &report::os_events(&snapshot, &OF_PROCESS, &ViewQuery::default(), &names).unwrap(),
    );
}

// Check the call tree, whole and with its small nodes cut.
#[test]
fn call_tree() {
    let (snapshot, names) = service();
    let whole = TreeQuery {
        frames: FrameScope::All,
        ..TreeQuery::default()
    };
    check(
        "calltree-all",
        &report::calltree(&snapshot, &OF_PROCESS, &whole, &names).unwrap(),
    );
    let cut = TreeQuery {
        min_percent: 20.0,
        ..TreeQuery::default()
    };
    check(
        "calltree-cut",
        &report::calltree(&snapshot, &OF_PROCESS, &cut, &names).unwrap(),
    );
    check(
        "session-calltree",
        &report::calltree(&snapshot, &Scope::Session, &TreeQuery::default(), &names).unwrap(),
    );
}
