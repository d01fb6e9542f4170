//! How exact totals are divided by marks, number by number: kinds, faults, untraced time, what has
//! no mark, kernel functions, strata, and processes that are one by image.

use std::{collections::BTreeMap, sync::Arc};

use profiler_common::{
    ClassNs, StackEnd,
    kinds::{Kind, KindNs, MARK_BLOCKED, MARK_CALL, Primary, Tick},
};
use profiler_daemon::{
    processes::ids::{Image, ProcessKey, ThreadKey},
    profile::{
        input::{LossCause, StackDelta, ThreadState, ThreadUpdate},
        limits::Limits,
        snapshot::Snapshot,
    },
    report::{
        self, FrameScope, ProcessSelector, Scope, TableQuery, ViewQuery,
        values::{ClassValues, RowValues},
    },
};

use crate::{
    golden::OF_PROCESS,
    machine::SECOND_NS,
    small::{self, ByName, PROCESS, Small, THREAD},
};

const MS: u64 = 1_000_000;

fn limits() -> Limits {
    Limits {
        tick_ns: 10 * MS,
        gap_ns: MS,
        exited_processes: 0,
        ..Limits::default()
    }
}

/// A stack of [`THREAD`] that holds this.
fn stack(
    small: &mut Small,
    user: &[&str],
    kernel: &[&str],
    hold: impl FnOnce(&mut Primary),
) -> StackDelta {
    let mut delta = small.delta(user, kernel, 0, ClassNs::default());
    delta.primary = Primary::default();
    hold(&mut delta.primary);
    delta
}

/// One process with time of every kind but kernel threads'.
fn every_kind() -> (Snapshot, ByName) {
    let mut small = Small::new(limits());
    let mut pass = small.pass(10);
    pass.processes.push(small::info(PROCESS));
    let ticks = |tick: Tick, count| move |held: &mut Primary| held.ticks[tick as usize] = count;
    let compute = stack(&mut small, &["main", "compute"], &[], |held| {
        held.ticks[Tick::User as usize] = 4;
        held.weighted[1] = 80 * MS;
    });
    let touch = stack(&mut small, &["main", "touch"], &["k:page_fault"], |held| {
        held.ticks[Tick::Fault as usize] = 2;
        held.weighted[1] = 20 * MS;
    });
    let job = stack(&mut small, &["main", "job"], &[], |held| {
        held.ticks[Tick::UntracedUser as usize] = 3;
        held.ticks[Tick::UntracedFault as usize] = 1;
    });
    let send = ticks(Tick::UntracedCall, 1);
    let send = stack(&mut small, &["main", "send"], &[], send);
    let read = stack(&mut small, &["main", "read"], &[], |held| {
        held.marks[MARK_CALL] = 2;
        held.marks[MARK_BLOCKED] = 1;
    });
    let in_read = ["k:do_syscall", "k:vfs_read"];
    let in_read = stack(&mut small, &["main", "read"], &in_read, |held| {
        held.ticks[Tick::Call as usize] = 3;
        held.exact[0] = 11 * MS;
    });
    let locked = ticks(Tick::Call, 1);
    let locked = stack(
        &mut small,
        &["main", "read"],
        &["k:do_syscall", "k:lock"],
        locked,
    );
    let write = stack(&mut small, &["main", "write"], &[], |held| {
        held.marks[MARK_CALL] = 1;
        held.marks[MARK_BLOCKED] = 2;
    });
    pass.stacks = vec![compute, touch, job, send, read, in_read, locked, write];
    let mut missed = stack(&mut small, &[], &[], |held| held.marks[MARK_CALL] = 1);
    missed.lost = Some(LossCause::NotSampled);
    pass.stacks.push(missed);
    let mut update = small::thread(
        PROCESS,
        THREAD,
        ThreadState::Blocked,
        [1100 * MS, 400 * MS, 184 * MS, 50 * MS, 0],
    );
    update.kinds = KindNs::default();
    for (kind, ms) in [
        (Kind::User, 600),
        (Kind::Untraced, 500),
        (Kind::Call, 400),
        (Kind::CallBlocked, 90),
        (Kind::OutsideBlocked, 70),
        (Kind::OutsideRunnable, 50),
    ] {
        update.kinds[kind as usize] = ms * MS;
    }
    (update.minor_faults, update.major_faults) = (12, 3);
    pass.threads.push(update);
    small.profile.apply(pass);
    (small.profile.snapshot(), small.names)
}

/// Of each function with time of its own, in milliseconds: elapsed and application exclusive, and
/// of the inclusive time faults and what is estimated.
fn functions(
    snapshot: &Snapshot,
    names: &ByName,
    scope: &Scope,
    frames: FrameScope,
) -> BTreeMap<String, [u64; 4]> {
    let query = TableQuery {
        frames,
        ..TableQuery::default()
    };
    let list = report::functions(snapshot, scope, &query, names).unwrap();
    let rows = list.rows.into_iter().map(|row| {
        let values = row.values;
        let ns = [
            values.elapsed.exclusive_ns,
            values.application.exclusive_ns,
            values.fault_ns,
            values.estimated_ns,
        ];
        (row.function, ns.map(|ns| ns / MS))
    });
    rows.filter(|(_, values)| values[0] > 0).collect()
}

fn rows<const N: usize>(rows: [(&str, [u64; 4]); N]) -> BTreeMap<String, [u64; 4]> {
    rows.map(|(name, values)| (name.to_owned(), values)).into()
}

// Check that each kind's total goes by its own marks, that faults are no application time, and that
// what has no mark, or one whose look never came, is not sampled.
#[test]
fn kinds() {
    let (snapshot, names) = every_kind();
    assert_eq!(
        functions(&snapshot, &names, &OF_PROCESS, FrameScope::User),
        rows([
            ("compute", [440, 400, 0, 0]),
            ("touch", [210, 0, 200, 0]),
            ("job", [400, 300, 100, 400]),
            ("send", [100, 0, 0, 100]),
            ("read", [241, 0, 0, 0]),
            ("write", [160, 0, 0, 0]),
            ("[not sampled]", [170, 0, 0, 0]),
        ])
    );
    let answer = report::process(&snapshot, &OF_PROCESS, &ViewQuery::default(), &names).unwrap();
    assert_eq!(answer.completeness.elapsed_unattributed_ns, 13 * MS);
    let totals = answer.process.totals;
    let classes = |[user, syscall, blocked, runnable]: [u64; 4]| ClassValues {
        user_ns: user * MS,
        syscall_ns: syscall * MS,
        blocked_ns: blocked * MS,
        runnable_ns: runnable * MS,
        kernel_ns: 0,
    };
    assert_eq!(totals.classes, classes([1000, 500, 184, 50]));
    assert_eq!(totals.not_sampled, Some(classes([0, 100, 70, 0])));
    assert_eq!(
        [totals.application_ns, totals.fault_ns, totals.estimated_ns],
        [700, 300, 500].map(|ms| ms * MS)
    );
    assert_eq!((totals.minor_faults, totals.major_faults), (12, 3));
    let known = totals.application_low_ns.unwrap()..=totals.application_high_ns.unwrap();
    assert!(known.contains(&(700 * MS)) && known.end() - known.start() > 100 * MS);
}

// Check that running time in calls goes to kernel functions by the ticks that found calls at its
// stack, that walked waits are where they were walked, and that of the rest it is said that the
// kernel function is not known.
#[test]
fn kernel_functions() {
    let (snapshot, names) = every_kind();
    assert_eq!(
        functions(&snapshot, &names, &OF_PROCESS, FrameScope::All),
        rows([
            ("compute", [440, 400, 0, 0]),
            ("page_fault", [210, 0, 200, 0]),
            ("job", [300, 300, 100, 400]),
            ("vfs_read", [150 + 11, 0, 0, 0]),
            ("lock", [50, 0, 0, 0]),
            // Faults and the call of untraced time, unwalked waits of both calls, and the call
            // without a tick.
            (
                "[kernel, not sampled]",
                [100 + 100 + 30 + 60 + 100, 0, 100, 200]
            ),
            ("[not sampled]", [170, 0, 0, 0]),
        ])
    );
}

/// A process with a second of user mode and one of calls: `read` has all user time, half of the
/// marks of calls and one tick in a kernel function, `write` the other half and no tick.
fn two_calls() -> (Snapshot, ByName) {
    let mut small = Small::new(limits());
    let mut pass = small.pass(2);
    pass.processes.push(small::info(PROCESS));
    let read = stack(&mut small, &["main", "read"], &[], |held| {
        held.ticks[Tick::User as usize] = 400;
        held.marks[MARK_CALL] = 50;
    });
    let in_read = stack(&mut small, &["main", "read"], &["k:vfs_read"], |held| {
        held.ticks[Tick::Call as usize] = 1;
    });
    let write = stack(&mut small, &["main", "write"], &[], |held| {
        held.marks[MARK_CALL] = 50;
    });
    pass.stacks = vec![read, in_read, write];
    let classes = [SECOND_NS, SECOND_NS, 0, 0, 0];
    pass.threads.push(small::thread(
        PROCESS,
        THREAD,
        ThreadState::Running,
        classes,
    ));
    small.profile.apply(pass);
    (small.profile.snapshot(), small.names)
}

// Check that kernel functions are as unsure as the marks of their callers and their own ticks, that
// what has no kernel function keeps the interval of its marks, and that user functions have none
// for time that is not theirs any more.
#[test]
fn intervals_of_kernel_functions() {
    let (snapshot, names) = two_calls();
    let table = |frames| {
        let query = TableQuery {
            frames,
            ..TableQuery::default()
        };
        let list = report::functions(&snapshot, &OF_PROCESS, &query, &names).unwrap();
        let rows = list.rows.into_iter();
        rows.map(|row| (row.function, row.values))
            .collect::<BTreeMap<_, _>>()
    };
    let (user, all) = (table(FrameScope::User), table(FrameScope::All));
    let own = |name: &str| {
        let time = all[name].elapsed;
        let ends = [time.exclusive_low_ns, time.exclusive_high_ns];
        let [low, high] = ends.map(|ns| ns.unwrap() / MS);
        (low, time.exclusive_ns / MS, high)
    };
    let (low, value, high) = own("vfs_read");
    assert!(low < 150 && value == 500 && high > 550, "{low} to {high}");
    assert!(all["vfs_read"].few_marks && !user["read"].few_marks);
    let (low, value, high) = own("[kernel, not sampled]");
    assert!((390..420).contains(&low), "{low}");
    assert!(value == 500 && (580..610).contains(&high), "{high}");
    assert!(!all["[kernel, not sampled]"].few_marks);
    let (low, value, _) = own("read");
    assert!(low > 980 && value == 1000, "{low}");
    for name in ["main", "read", "write"] {
        let time = |rows: &BTreeMap<String, RowValues>| {
            let time = rows[name].elapsed;
            [time.inclusive_low_ns, time.inclusive_high_ns]
        };
        assert_eq!(time(&user), time(&all));
    }
}

// Check that waits that are exactly a row's are in its interval, and that it does not rest on few
// marks for the little else it has.
#[test]
fn exact_waits_are_in_intervals() {
    let mut small = Small::new(limits());
    let mut pass = small.pass(12);
    pass.processes.push(small::info(PROCESS));
    let wait = stack(&mut small, &["main", "wait"], &[], |held| {
        held.ticks[Tick::User as usize] = 2;
        held.exact[0] = 10 * SECOND_NS;
    });
    let work = stack(&mut small, &["main", "work"], &[], |held| {
        held.ticks[Tick::User as usize] = 2;
    });
    pass.stacks = vec![wait, work];
    let classes = [SECOND_NS, 0, 10 * SECOND_NS, 0, 0];
    let mut update = small::thread(PROCESS, THREAD, ThreadState::Blocked, classes);
    update.kinds = KindNs::default();
    update.kinds[Kind::User as usize] = SECOND_NS;
    pass.threads.push(update);
    small.profile.apply(pass);
    let query = TableQuery::default();
    let list =
        report::functions(&small.profile.snapshot(), &OF_PROCESS, &query, &small.names).unwrap();
    let row = list.rows.iter().find(|row| row.function == "wait").unwrap();
    let elapsed = row.values.elapsed;
    assert_eq!(elapsed.exclusive_ns, 10 * SECOND_NS + SECOND_NS / 2);
    let (low_ns, high_ns) = (elapsed.exclusive_low_ns, elapsed.exclusive_high_ns);
    assert!(low_ns.unwrap() >= 10 * SECOND_NS && low_ns.unwrap() < elapsed.exclusive_ns);
    assert!(high_ns.unwrap() <= 11 * SECOND_NS && high_ns.unwrap() > elapsed.exclusive_ns);
    assert!(!row.values.few_marks);
}

/// A process of this number that executed one file, and its thread with so much user time.
fn of_image(
    pid: u32,
    user_ns: u64,
) -> (profiler_daemon::profile::input::ProcessInfo, ThreadUpdate) {
    let key = ProcessKey {
        pid,
        start_ns: PROCESS.start_ns,
    };
    let mut info = small::info(key);
    info.image = Some(Arc::new(Image {
        device: 1,
        inode: 2,
        path: "/usr/bin/tool".into(),
    }));
    let thread = ThreadKey {
        tid: pid,
        start_ns: key.start_ns,
    };
    let classes = [user_ns, 0, 0, 0, 0];
    let update = small::thread(key, thread, ThreadState::Running, classes);
    (info, update)
}

// Check that a process with enough time is divided by its own marks, that the others of its image
// share theirs, also with those that ended, and that the report of one of them has only what is its
// own.
#[test]
fn strata() {
    let mut small = Small::new(limits());
    let processes = [(1, SECOND_NS), (2, 20 * MS), (3, 20 * MS), (4, 30 * MS)];
    let mut pass = small.pass(2);
    for (pid, user_ns) in processes {
        let (info, mut update) = of_image(pid, user_ns);
        if pid == 4 {
            update.state = ThreadState::Exited;
        }
        for (of, name, ticks) in [(1, "large", 3), (1, "rare", 1), (3, "seen", 1)] {
            if of == pid {
                let hold = |held: &mut Primary| held.ticks[Tick::User as usize] = ticks;
                let mut delta = stack(&mut small, &[name], &[], hold);
                (delta.process, delta.thread) = (update.process, update.thread);
                delta.end = StackEnd::Complete;
                pass.stacks.push(delta);
            }
        }
        pass.processes.push(info);
        pass.threads.push(update);
    }
    small.profile.apply(pass);
    let mut pass = small.pass(3);
    let (mut info, _) = of_image(4, 0);
    info.exited_at_unix_ns = Some(pass.now_unix_ns);
    pass.processes.push(info);
    small.profile.apply(pass);
    for second in [4, 5, 6] {
        small.profile.apply(small.pass(second));
    }
    let (snapshot, names) = (small.profile.snapshot(), small.names);
    let shown = |scope: &Scope| functions(&snapshot, &names, scope, FrameScope::User);
    let user = |ms| [ms, ms, 0, 0];
    assert_eq!(
        shown(&Scope::Session),
        rows([
            ("large", user(750)),
            ("rare", user(250)),
            ("seen", user(70))
        ])
    );
    let of_pid = |pid| {
        Scope::Process(ProcessSelector {
            pid,
            start_ticks: None,
        })
    };
    assert_eq!(shown(&of_pid(2)), rows([("[not sampled]", user(20))]));
    assert_eq!(shown(&of_pid(3)), rows([("seen", user(20))]));

    let list = report::processes(&snapshot, &TableQuery::default(), &names).unwrap();
    let mut times: Vec<_> = list
        .rows
        .iter()
        .map(|row| (row.pid, row.totals.application_ns / MS))
        .collect();
    times.sort_unstable();
    assert_eq!(
        times,
        [(None, 30), (Some(1), 1000), (Some(2), 20), (Some(3), 20)]
    );
    let row = list.rows.iter().find(|row| row.pid.is_none()).unwrap();
    assert_eq!((row.ended, row.comm.as_str()), (Some(1), "tool"));
    assert_eq!(row.image.as_deref(), Some("/usr/bin/tool"));
    let image = Scope::Image(row.image_id.as_deref().unwrap().parse().unwrap());
    assert_eq!(shown(&image), rows([("[not sampled]", user(30))]));
    let threads = report::threads(&snapshot, &Scope::Session, &TableQuery::default(), &names);
    let threads = threads.unwrap();
    let of_image = threads.rows.iter().find(|row| row.pid == 0).unwrap();
    assert_eq!(of_image.comm, "tool (1 ended)");
    assert_eq!(
        (&of_image.image, &of_image.image_id),
        (&row.image, &row.image_id)
    );
    let session = report::session(&snapshot, &ViewQuery::default(), &names).unwrap();
    assert_eq!(session.totals.elapsed_ns, 1070 * MS);
    assert_eq!(session.retired.totals.elapsed_ns, 30 * MS);
    // None of the image's together has a mark of another process alone in it.
    assert_eq!(session.totals.not_sampled.unwrap().user_ns, 0);
}
