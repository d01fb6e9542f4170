//! A call-tree budget that is used up: what gives way first, and that what is new has room again.

use profiler_common::{ClassNs, StackEnd};
use profiler_daemon::{
    export::text,
    processes::ids::{ProcessKey, ThreadKey},
    profile::{
        budget::{CELL_BYTES, NODE_BYTES},
        input::{DrainPass, StackDelta, ThreadState},
        limits::Limits,
    },
    report::{self, FrameScope, ProcessSelector, Scope, TableQuery, ViewQuery},
    units::BootNs,
};

use crate::{
    machine::SECOND_NS,
    primary::primary,
    small::{self, Small},
};

/// Nine hundred nodes, of which each second one has a number.
const BUDGET_BYTES: usize = 900 * (NODE_BYTES + CELL_BYTES / 2 + 1);
const MILLI_NS: u64 = 1_000_000;

fn limits() -> Limits {
    Limits {
        tree_bytes: BUDGET_BYTES,
        exited_processes: 20,
        ..Limits::default()
    }
}

fn process(number: u32) -> ProcessKey {
    ProcessKey {
        pid: number,
        start_ns: BootNs::new(900 * SECOND_NS + u64::from(number)),
    }
}

fn user(ms: u64) -> ClassNs {
    [ms * MILLI_NS, 0, 0, 0, 0]
}

/// One process that runs and is described; each stack has so many milliseconds.
fn run(
    small: &mut Small,
    pass: &mut DrainPass,
    key: ProcessKey,
    state: ThreadState,
    total_ms: u64,
    stacks: &[(Vec<String>, u64)],
) {
    let thread = ThreadKey {
        tid: key.pid,
        start_ns: key.start_ns,
    };
    let mut info = small::info(key);
    info.exited_at_unix_ns = (state == ThreadState::Exited).then_some(pass.now_unix_ns);
    pass.processes.push(info);
    pass.threads
        .push(small::thread(key, thread, state, user(total_ms)));
    for (frames, ms) in stacks {
        let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
        pass.stacks.push(StackDelta {
            process: key,
            thread,
            user: small.frames(&frames),
            kernel: Vec::new(),
            end: StackEnd::Complete,
            lost: None,
            primary: primary(*ms, &user(*ms)),
        });
    }
}

/// A heavy stack, and many of a millisecond each.
fn stacks(of: &str, light: u32) -> Vec<(Vec<String>, u64)> {
    stacks_of(of, light, 1)
}

/// A heavy stack, and many of so many milliseconds each.
fn stacks_of(of: &str, light: u32, ms: u64) -> Vec<(Vec<String>, u64)> {
    let stack = |names: &[String]| -> Vec<String> {
        ["main".to_owned(), format!("{of}_body")]
            .into_iter()
            .chain(names.iter().cloned())
            .collect()
    };
    let mut stacks = vec![(stack(&[format!("{of}_heavy")]), 1000)];
    for n in 0..light {
        stacks.push((stack(&[format!("{of}_l{n}"), format!("{of}_m{n}")]), ms));
    }
    stacks
}

/// Functions of a process and their own time, and the causes of the receipt.
fn functions(small: &Small, key: ProcessKey) -> (Vec<(String, u64)>, Vec<String>) {
    let scope = Scope::Process(ProcessSelector {
        pid: key.pid,
        start_ticks: None,
    });
    let query = TableQuery {
        limit: 0,
        ..TableQuery::default()
    };
    let list = report::functions(&small.profile.snapshot(), &scope, &query, &small.names).unwrap();
    let total: u64 = list
        .rows
        .iter()
        .map(|row| row.values.elapsed.exclusive_ns)
        .sum();
    let process = report::process(
        &small.profile.snapshot(),
        &Scope::Process(ProcessSelector {
            pid: key.pid,
            start_ticks: None,
        }),
        &ViewQuery::default(),
        &small.names,
    )
    .unwrap();
    assert_eq!(
        total, process.process.totals.elapsed_ns,
        "all time has a row"
    );
    let rows = list
        .rows
        .into_iter()
        .map(|row| (row.function, row.values.elapsed.exclusive_ns / MILLI_NS))
        .collect();
    (
        rows,
        list.completeness
            .causes
            .into_keys()
            .map(|cause| cause.to_string())
            .collect(),
    )
}

fn cause(small: &Small, name: &str) -> u64 {
    let session = report::session(
        &small.profile.snapshot(),
        &ViewQuery::default(),
        &small.names,
    )
    .unwrap();
    session.completeness.causes.get(name).copied().unwrap_or(0)
}

fn own_ms(rows: &[(String, u64)], name: &str) -> u64 {
    rows.iter()
        .filter(|(function, _)| function == name)
        .map(|(_, ms)| ms)
        .sum()
}

// Check that with one new program after another, many times what the trees hold, each new one has
// its stacks by name, and that the trees stay within their bytes.
#[test]
fn new_stacks_always_have_room() {
    let mut small = Small::new(limits());
    for number in 1..200u32 {
        let of = format!("p{number}");
        let mut pass = small.pass(u64::from(number));
        let named = stacks(&of, 60);
        run(
            &mut small,
            &mut pass,
            process(number),
            ThreadState::Exited,
            1060,
            &named,
        );
        small.profile.apply(pass);
        let (rows, _) = functions(&small, process(number));
        assert_eq!(own_ms(&rows, &format!("{of}_heavy")), 1000);
        assert_eq!(own_ms(&rows, &format!("{of}_m59")), 1);
        let bytes = small.profile.snapshot().stack_bytes() as usize;
        // The rows of lost stacks come on top: here one a process at most.
        assert!(
            bytes <= BUDGET_BYTES + 22 * (NODE_BYTES + 17 * CELL_BYTES),
            "{bytes} bytes"
        );
    }
    assert_eq!(cause(&small, "tree_full"), 0);
    assert!(cause(&small, "folded_exited_nodes") > 0);
    assert!(cause(&small, "folded_retired_nodes") > 0);
}

// Check that the lightest stacks give way, of exited and living processes alike, first by their
// callers and not by the functions that they were in, and that heavier ones stay, also an exited
// process's.
#[test]
fn the_lightest_gives_way_whoever_it_is_of() {
    let mut small = Small::new(limits());
    let (exited, living) = (ThreadState::Exited, ThreadState::Running);
    let mut pass = small.pass(1);
    let old = stacks("old", 105);
    run(&mut small, &mut pass, process(1), exited, 1105, &old);
    let heavier = stacks_of("heavier", 105, 20);
    run(&mut small, &mut pass, process(2), exited, 3100, &heavier);
    let alive = stacks("alive", 105);
    run(&mut small, &mut pass, process(3), living, 1105, &alive);
    small.profile.apply(pass);
    assert_eq!(cause(&small, "folded_exited_nodes"), 0);
    let mut pass = small.pass(2);
    let new = stacks("new", 110);
    run(&mut small, &mut pass, process(4), living, 1110, &new);
    small.profile.apply(pass);
    for (number, of, light, ms, callers) in [
        (1, "old", 105, 1, 0..105),
        (2, "heavier", 105, 20, 105..106),
        (3, "alive", 105, 1, 0..105),
        (4, "new", 110, 1, 1..111),
    ] {
        let (rows, causes) = functions(&small, process(number));
        assert_eq!(own_ms(&rows, &format!("{of}_heavy")), 1000);
        for n in 0..light {
            assert_eq!(own_ms(&rows, &format!("{of}_m{n}")), ms, "{of} {n}");
        }
        let is_caller = |(name, _): &&(String, u64)| name.starts_with(&format!("{of}_l"));
        let kept = rows.iter().filter(is_caller).count();
        assert!(callers.contains(&kept), "{kept} callers of {of} are kept");
        let lacks_functions = causes.iter().any(|cause| cause == "folded_ns");
        assert!(!lacks_functions, "all time has its function: {causes:?}");
    }
    assert!(cause(&small, "folded_exited_nodes") > 0);
    assert!(cause(&small, "folded_living_nodes") > 0);
}

// Check that where there is no room for the lightest functions either, the receipt says how much
// time has none.
#[test]
fn time_without_a_function_is_told() {
    let mut small = Small::new(limits());
    let mut all_ms = 0;
    for number in 1..=8 {
        let of = format!("p{number}");
        let mut pass = small.pass(u64::from(number));
        let living = ThreadState::Running;
        run(
            &mut small,
            &mut pass,
            process(number),
            living,
            1105,
            &stacks(&of, 105),
        );
        small.profile.apply(pass);
    }
    for number in 1..=8 {
        let (rows, causes) = functions(&small, process(number));
        assert_eq!(own_ms(&rows, &format!("p{number}_heavy")), 1000);
        let folded_ms = own_ms(&rows, "[folded]");
        let is_told = causes.iter().any(|cause| cause == "folded_ns");
        assert_eq!(folded_ms > 0, is_told, "{causes:?}");
        all_ms += folded_ms;
    }
    assert!(all_ms > 0);
    assert_eq!(cause(&small, "folded_living_ns"), all_ms * MILLI_NS);
}

// Check that the receipt says how much time is of functions whose callers were folded, that
// inclusive values of callers are too small by that and what was folded itself, and that the
// verdict says so where it is more than a hundredth.
#[test]
fn time_without_callers_is_told() {
    let mut small = Small::new(limits());
    let mut told = 0;
    for (number, light) in [(1, 2_u32), (2, 300)] {
        let of = format!("p{number}");
        let mut pass = small.pass(u64::from(number));
        // All light stacks go through one caller, each by a way of its own.
        let mut stacks = vec![(vec!["main".to_owned()], 1000)];
        for n in 0..light {
            let names = ["main".to_owned(), format!("{of}_{n}"), format!("{of}_by")];
            let leaf = format!("{of}_leaf{}", n % 3);
            stacks.push((names.into_iter().chain([leaf]).collect(), 1));
        }
        let total_ms = 1000 + u64::from(light);
        let living = ThreadState::Running;
        run(
            &mut small,
            &mut pass,
            process(number),
            living,
            total_ms,
            &stacks,
        );
        small.profile.apply(pass);
        let scope = Scope::Process(ProcessSelector {
            pid: number,
            start_ticks: None,
        });
        let query = TableQuery {
            limit: 0,
            ..TableQuery::default()
        };
        let list =
            report::functions(&small.profile.snapshot(), &scope, &query, &small.names).unwrap();
        let cause = |name: &str| list.completeness.causes.get(name).copied().unwrap_or(0);
        let through = list
            .rows
            .iter()
            .find(|row| row.function == format!("{of}_by"));
        let through_ns = through.map_or(0, |row| row.values.elapsed.inclusive_ns);
        let lacking_ns = u64::from(light) * MILLI_NS - through_ns;
        assert_eq!(lacking_ns, cause("callers_folded_ns") + cause("folded_ns"));
        let mut text = Vec::new();
        text::write(&list, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let is_much = cause("callers_folded_ns") * 100 > total_ms * MILLI_NS;
        assert_eq!(text.contains(", callers of "), is_much, "{text}");
        told += u32::from(is_much);
    }
    assert_eq!(told, 1, "one process lacks many, the other none");
}

// Check that of a living process what it did long ago gives way to what it does now.
#[test]
fn the_past_gives_way_to_the_present() {
    let mut small = Small::new(limits());
    let mut total_ms = 0;
    for phase in 0..40u64 {
        let of = format!("phase{phase}");
        total_ms += 1100;
        let mut pass = small.pass(1 + phase * 15);
        let named = stacks(&of, 100);
        run(
            &mut small,
            &mut pass,
            process(1),
            ThreadState::Running,
            total_ms,
            &named,
        );
        small.profile.apply(pass);
        let (rows, _) = functions(&small, process(1));
        assert_eq!(own_ms(&rows, &format!("{of}_heavy")), 1000);
        assert_eq!(own_ms(&rows, &format!("{of}_m99")), 1);
    }
    assert_eq!(cause(&small, "tree_full"), 0);
    assert!(cause(&small, "folded_living_ns") > 0);
}

// Check that kernel detail that was folded still belongs to the user function that called it.
#[test]
fn folded_kernel_frames_stay_with_their_caller() {
    let mut small = Small::new(limits());
    let mut pass = small.pass(1);
    run(
        &mut small,
        &mut pass,
        process(1),
        ThreadState::Exited,
        1400,
        &[],
    );
    for n in 0..400 {
        let mut stack = small.delta(&["main", "reads"], &[], 1, user(1));
        stack.kernel = small.frames(&[&format!("k:entry{n}"), &format!("k:copy{n}")]);
        stack.process = process(1);
        stack.thread = ThreadKey {
            tid: 1,
            start_ns: process(1).start_ns,
        };
        pass.stacks.push(stack);
    }
    let mut heavy = small.delta(&["main", "reads"], &[], 1, user(1000));
    heavy.process = process(1);
    heavy.thread.tid = 1;
    heavy.thread.start_ns = process(1).start_ns;
    pass.stacks.push(heavy);
    small.profile.apply(pass);
    let mut pass = small.pass(2);
    run(
        &mut small,
        &mut pass,
        process(2),
        ThreadState::Running,
        1060,
        &stacks("new", 60),
    );
    small.profile.apply(pass);
    let (rows, _) = functions(&small, process(1));
    assert_eq!(rows, [("reads".to_owned(), 1400), ("main".to_owned(), 0)]);
    let query = TableQuery {
        frames: FrameScope::All,
        limit: 0,
        ..TableQuery::default()
    };
    let scope = Scope::Process("1".parse().unwrap());
    let all = report::functions(&small.profile.snapshot(), &scope, &query, &small.names).unwrap();
    assert!(all.rows.iter().any(|row| row.function == "[folded]"));
    assert!(all.rows.len() < 700, "{} rows", all.rows.len());
}
