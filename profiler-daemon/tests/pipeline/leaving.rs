//! What nothing names any more leaves: frames of processes that invent them, beside others that
//! must keep their names.

use std::{collections::BTreeMap, sync::Arc};

use profiler_common::StackEnd;
use profiler_daemon::{
    processes::{
        ids::{ProcessKey, ThreadKey},
        module::ModuleId,
        shares::Owner,
    },
    profile::{
        frames::{Frame, FrameId},
        input::{DrainPass, StackDelta, ThreadState},
        limits::Limits,
        snapshot::Snapshot,
    },
    report::{self, ProcessSelector, Scope, StackQuery, TableQuery, ViewQuery, names::Names},
    symbols::names::{FunctionKind, FunctionName},
    sys::clock::thread_ns,
    units::{BootNs, ModuleAddress, ModuleOffset},
};

use crate::{
    machine::SECOND_NS,
    primary::primary,
    small::{self, Small},
};

const VICTIM: u32 = 50;
const ATTACKER: u32 = 51;

fn process(pid: u32) -> ProcessKey {
    ProcessKey {
        pid,
        start_ns: BootNs::new(900 * SECOND_NS + u64::from(pid)),
    }
}

fn of_process(pid: u32) -> Scope {
    Scope::Process(ProcessSelector {
        pid,
        start_ticks: None,
    })
}

/// What a process has run by now, and this stack of it since the last pass, a second.
fn run(pass: &mut DrainPass, pid: u32, seconds: u64, user: Vec<FrameId>) {
    let key = process(pid);
    let thread = ThreadKey {
        tid: pid,
        start_ns: key.start_ns,
    };
    pass.processes.push(small::info(key));
    let classes = [seconds * SECOND_NS, 0, 0, 0, 0];
    let state = ThreadState::Running;
    pass.threads
        .push(small::thread(key, thread, state, classes));
    pass.stacks.push(StackDelta {
        process: key,
        thread,
        user,
        kernel: Vec::new(),
        end: StackEnd::Complete,
        lost: None,
        primary: primary(10, &[SECOND_NS, 0, 0, 0, 0]),
    });
}

/// Frames that a process makes up.
fn invent(small: &mut Small, pid: u32, first: u64, count: u64) -> Vec<FrameId> {
    let owner = Owner::Process {
        number: u64::from(pid),
        user: Some(pid),
    };
    let frame = |offset| Frame {
        module: ModuleId::JIT,
        offset: ModuleOffset::new(offset),
    };
    let frames = small.profile.frames();
    let offsets = first..first + count;
    offsets
        .map(|offset| frames.intern_for(owner, frame(offset)))
        .collect()
}

/// Names by what a snapshot means by a number: module and offset.
struct ByPlace(BTreeMap<FrameId, FunctionName>);

impl ByPlace {
    fn of(snapshot: &Snapshot) -> Self {
        let frames = report::frames_needed(snapshot, &Scope::Session).unwrap();
        let name = |id: &FrameId| {
            let frame = snapshot.frame(*id);
            let known = *id != FrameId::UNKNOWN;
            let name = FunctionName {
                name: format!("m{}+{}", frame.module.0, frame.offset.get()).into(),
                address: known.then_some(ModuleAddress::new(frame.offset.get())),
                kind: FunctionKind::User,
                known,
            };
            (*id, name)
        };
        Self(frames.iter().map(name).collect())
    }
}

impl Names for ByPlace {
    fn function(&self, frame: FrameId) -> &FunctionName {
        &self.0[&frame]
    }
}

// Check that a process which invents a million frames beside a victim takes none of the victim's
// names, in its own answer says how much has none, that the counters tell, and that a program that
// begins later has names, during it and after.
#[test]
fn a_million_invented_frames() {
    let mut small = Small::new(Limits::default());
    let mut seconds = 0;
    let mut offset = 0x1_0000;
    let mut step = |small: &mut Small, invents: bool, later: bool| {
        seconds += 1;
        let mut pass = small.pass(seconds);
        let of_victim = format!("victim_{seconds}");
        run(
            &mut pass,
            VICTIM,
            seconds,
            small.frames(&["main", &of_victim]),
        );
        if invents {
            // In a pass there are more stacks than are shown here: the others are seen once and
            // never again.
            invent(small, ATTACKER, offset, 300_000);
            offset += 300_000;
            let last = invent(small, ATTACKER, offset, 300);
            offset += 300;
            run(&mut pass, ATTACKER, seconds, last);
        }
        if later {
            let of_later = format!("later_{seconds}");
            run(&mut pass, 52, seconds, small.frames(&["main", &of_later]));
        }
        small.profile.apply(pass);
        if seconds % 2 == 0 && small.profile.frames().wants_sweep() {
            small.profile.sweep_frames(|_| {});
        }
    };
    for second in 0..4 {
        step(&mut small, true, second >= 2);
    }
    step(&mut small, false, true);
    small.profile.sweep_frames(|_| {});
    let snapshot = small.profile.snapshot();
    let names = ByPlace::of(&snapshot);
    for pid in [VICTIM, 52] {
        let table = TableQuery {
            limit: 0,
            ..TableQuery::default()
        };
        let list = report::functions(&snapshot, &of_process(pid), &table, &names).unwrap();
        assert_eq!(list.completeness.frames_unknown_percent, 0.0, "{pid}");
        assert_eq!(list.rows.len(), if pid == VICTIM { 6 } else { 4 });
    }
    let of_attacker = report::process(
        &snapshot,
        &of_process(ATTACKER),
        &ViewQuery::default(),
        &names,
    )
    .unwrap();
    let unknown = of_attacker.completeness.frames_unknown_percent;
    assert!(unknown > 10.0 && unknown < 100.0, "{unknown}");
    let session = report::processes(&snapshot, &TableQuery::default(), &names).unwrap();
    assert!(session.completeness.frames_unknown_percent > 0.0);
    let losses = &session.completeness.causes;
    assert!(losses["frames_over_share"] > 200_000 && !losses.contains_key("frames_full"));
    assert!(small.profile.frames().len() < 2_000);
}

// Check that the sweep of a table of a million frames is cheaper than filling it, most of them gone
// and all of them named: it takes a tenth, and would take minutes if it went by pairs.
#[test]
fn sweeping_a_million() {
    let mut small = Small::new(Limits::default());
    let frames = small.profile.frames();
    // Time on processors, which others do not lengthen.
    let took_ns = |began_ns: u64| thread_ns() - began_ns;
    let began_ns = thread_ns();
    let all: Vec<FrameId> = (1..1u64 << 20)
        .map(|offset| {
            frames.intern(Frame {
                module: ModuleId::JIT,
                offset: ModuleOffset::new(offset),
            })
        })
        .collect();
    let filled_ns = took_ns(began_ns);
    let copy = frames.list();
    let began_ns = thread_ns();
    assert_eq!(
        frames.sweep(|marks| all.iter().for_each(|id| marks.keep(*id))),
        0
    );
    let named_ns = took_ns(began_ns);
    let began_ns = thread_ns();
    let few = || all.iter().step_by(1000);
    frames.sweep(|marks| few().for_each(|id| marks.keep(*id)));
    let gone_ns = took_ns(began_ns);
    assert!(
        named_ns < filled_ns,
        "{named_ns} where all stay, {filled_ns} to fill"
    );
    assert!(
        gone_ns < filled_ns,
        "{gone_ns} where most leave, {filled_ns} to fill"
    );
    assert!(few().all(|id| frames.get(*id) == copy.get(*id)));
}

// Check that the time between two snapshots is what it was, function by function, where frames left
// in between and their numbers are others' now.
#[test]
fn two_snapshots_with_other_numbers() {
    let mut small = Small::new(Limits {
        exited_processes: 0,
        ..Limits::default()
    });
    let mut pass = small.pass(1);
    run(&mut pass, VICTIM, 1, small.frames(&["main", "before"]));
    let invented = invent(&mut small, ATTACKER, 77, 3);
    run(&mut pass, ATTACKER, 1, invented.clone());
    small.profile.apply(pass);
    let earlier = Arc::new(small.profile.snapshot());
    let mut pass = small.pass(2);
    run(&mut pass, VICTIM, 2, small.frames(&["main", "after"]));
    small.profile.apply(pass);
    // Only what the victim has is still named: as if the others' tree had been folded.
    let kept = small.frames(&["main", "before", "after"]);
    let unnamed = small.profile.snapshot();
    assert_eq!(unnamed.frame(invented[1]).offset.get(), 78);
    small
        .profile
        .frames()
        .sweep(|marks| kept.iter().for_each(|id| marks.keep(*id)));
    let reused = invent(&mut small, VICTIM, 1_000, 3);
    assert_eq!(reused, invented, "their numbers are others' now");
    let mut pass = small.pass(3);
    run(&mut pass, VICTIM, 3, reused);
    small.profile.apply(pass);
    let later = Arc::new(small.profile.snapshot());
    let (earlier, later) = Snapshot::with_one_numbering(earlier, later);
    let frames = |snapshot: &Snapshot, pid| -> Vec<u64> {
        let needed = report::frames_needed(snapshot, &of_process(pid)).unwrap();
        let mut offsets: Vec<u64> = needed
            .iter()
            .map(|id| later.frame(*id).offset.get())
            .collect();
        offsets.sort_unstable();
        offsets
    };
    assert_eq!(
        frames(&earlier, ATTACKER),
        [77, 78, 79],
        "by the numbers of the later one"
    );
    let mut names = ByPlace::of(&later);
    names.0.extend(ByPlace::of(&earlier).0);
    let stacks = report::stacks_between(
        &earlier,
        &later,
        &of_process(VICTIM),
        &StackQuery::default(),
        &names,
    )
    .unwrap();
    let elapsed: u64 = stacks.nodes.iter().map(|node| node.own.elapsed_ns()).sum();
    assert_eq!((elapsed, stacks.shrunk_ns), (2 * SECOND_NS, 0));
    let has = |name: &str| {
        stacks
            .functions
            .iter()
            .any(|function| function.name == name)
    };
    assert!(has("m2+1000") && has("m2+1002") && !has("m2+77"));
}
