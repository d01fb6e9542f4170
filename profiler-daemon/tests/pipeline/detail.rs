//! Which detail a full call-tree budget keeps: what matters in the whole session, whoever it is of.

use profiler_common::{ClassNs, StackEnd};
use profiler_daemon::{
    processes::ids::{ProcessKey, ThreadKey},
    profile::{
        budget::NODE_BYTES,
        frames::FrameId,
        input::{DrainPass, OpenStack, StackDelta, ThreadState},
        limits::Limits,
        over::Span,
        tree::NodeId,
    },
    units::BootNs,
};

use crate::{
    machine::SECOND_NS,
    primary::primary,
    small::{self, Small},
};

const TICK_NS: u64 = 10_000_000;

/// Numbers that look drawn.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// One process of one thread: what it has been given so far.
struct Process {
    key: ProcessKey,
    uid: u32,
    classes: ClassNs,
    exited: bool,
}

impl Process {
    fn new(pid: u32, uid: u32) -> Self {
        let key = ProcessKey {
            pid,
            start_ns: BootNs::new(900 * SECOND_NS + u64::from(pid)),
        };
        Self {
            key,
            uid,
            classes: ClassNs::default(),
            exited: false,
        }
    }

    fn thread(&self) -> ThreadKey {
        ThreadKey {
            tid: self.key.pid,
            start_ns: self.key.start_ns,
        }
    }

    /// A pass of one second in which these stacks were found running once each, and the rest was
    /// slept through at `asleep`.
    fn pass(&mut self, pass: &mut DrainPass, ran: &[Vec<FrameId>], asleep: &[FrameId]) {
        let running_ns = ran.len() as u64 * TICK_NS;
        self.classes[0] += running_ns;
        self.classes[2] += SECOND_NS - running_ns;
        let mut info = small::info(self.key);
        info.uid = Some(self.uid);
        info.exited_at_unix_ns = self.exited.then_some(pass.now_unix_ns);
        let state = if self.exited {
            ThreadState::Exited
        } else {
            ThreadState::Blocked
        };
        pass.processes.push(info);
        let update = small::thread(self.key, self.thread(), state, self.classes);
        pass.threads.push(update);
        let stack = |user: &[FrameId], samples: u64, classes: ClassNs| StackDelta {
            process: self.key,
            thread: self.thread(),
            user: user.to_vec(),
            kernel: Vec::new(),
            end: StackEnd::Complete,
            lost: None,
            primary: primary(samples, &classes),
        };
        for frames in ran {
            pass.stacks.push(stack(frames, 1, [TICK_NS, 0, 0, 0, 0]));
        }
        let slept = [0, 0, SECOND_NS - running_ns, 0, 0];
        pass.stacks.push(stack(asleep, 0, slept));
    }
}

/// A stack that begins as many others of its program do and goes on as few do.
fn path(small: &mut Small, program: &str, common: u64, rest: &[u64]) -> Vec<FrameId> {
    let shared = (0..common).map(|n| (format!("{program} main"), n));
    let own = rest
        .iter()
        .map(|n| (format!("{program} {}", n / 64), n % 64));
    let frames: Vec<_> = shared.chain(own).collect();
    let place = |(function, number): &(String, u64)| small.place(function, *number).0;
    frames.iter().map(place).collect()
}

/// Samples of a process at stacks that end in some way.
#[derive(Debug, Default, PartialEq, Eq)]
struct Kept {
    all: u64,
    /// Those that have no function any more.
    folded: u64,
    /// Those that have one, and lack callers.
    without_callers: u64,
}

fn kept_of(small: &Small, key: ProcessKey, wanted: impl Fn(StackEnd) -> bool) -> Kept {
    let snapshot = small.profile.snapshot();
    let aggregate = &snapshot.processes()[&key].aggregate;
    let held = aggregate.held_over(Span::Session);
    let mut kept = Kept::default();
    // Of each node how its stacks end, and whether frames of them up to it were folded.
    let mut known: Vec<(StackEnd, bool)> = Vec::new();
    for (number, node) in (0..).zip(aggregate.nodes()) {
        let samples = held.get(&NodeId(number)).map_or(0, |held| held.samples());
        let (end, below) = match node.parent {
            NodeId::ROOT => (node.end, false),
            parent => known[parent.index()],
        };
        let folded = node.place.is_folded();
        known.push((end, below || folded));
        if wanted(end) {
            kept.all += samples;
            kept.folded += samples * u64::from(folded);
            kept.without_callers += samples * u64::from(below && !folded);
        }
    }
    kept
}

#[track_caller]
fn assert_kept(small: &Small, key: ProcessKey, samples: u64) {
    let Kept { all, folded, .. } = kept_of(small, key, |_| true);
    assert_eq!(all, samples);
    assert!(
        folded * 20 <= all,
        "process {}: {folded} of {all} are folded",
        key.pid
    );
}

fn cause(small: &Small, name: &str) -> u64 {
    let losses = small.profile.own_losses();
    losses
        .iter()
        .find(|(of, _)| of == name)
        .map_or(0, |(_, count)| *count)
}

/// Room for so many nodes, a few numbers included.
fn room(nodes: usize) -> Limits {
    Limits {
        tree_bytes: nodes * NODE_BYTES * 3 / 2,
        ..Limits::default()
    }
}

// Check that a program that mostly sleeps, with 4 % of the samples, each of its stacks below 1 % of
// its own, keeps its functions beside a crowd whose stacks are all different, and that what was
// folded is the crowd's.
#[test]
fn a_program_that_mostly_sleeps() {
    let mut small = Small::new(room(100_000));
    let mut draws = Draws(1);
    let mut script = Process::new(7, 1000);
    let mut crowd: Vec<Process> = (100..120).map(|pid| Process::new(pid, 1000)).collect();
    let waits = path(&mut small, "script", 4, &[9999]);
    let idle = path(&mut small, "browser", 10, &[9999]);
    for second in 1..=90u64 {
        let mut pass = small.pass(second);
        let ran: Vec<_> = (0..4)
            .map(|n| path(&mut small, "script", 4, &[n, (second * 4 + n) % 120, 3]))
            .collect();
        script.pass(&mut pass, &ran, &waits);
        for process in &mut crowd {
            let ran: Vec<_> = (0..5)
                .map(|_| {
                    let rest: Vec<u64> = (0..20).map(|_| draws.below(2000)).collect();
                    path(&mut small, "browser", 10, &rest)
                })
                .collect();
            process.pass(&mut pass, &ran, &idle);
        }
        small.profile.apply(pass);
    }
    assert_kept(&small, script.key, 360);
    assert!(cause(&small, "folded_living_nodes") > 50_000);
    assert_eq!(cause(&small, "tree_full"), 0);
}

// Check that programs that have ended keep their functions where stacks of others are lighter, one
// of them 400 frames deep.
#[test]
fn programs_that_ended() {
    let mut small = Small::new(room(60_000));
    let mut draws = Draws(2);
    let mut programs: Vec<Process> = (100..115).map(|pid| Process::new(pid, 1000)).collect();
    for second in 0..15 * 7u64 {
        let mut pass = small.pass(second + 1);
        let index = (second / 7) as usize;
        let process = &mut programs[index];
        process.exited = second % 7 == 6;
        let name = format!("program{index}");
        let ran: Vec<_> = (0..90u64)
            .map(|n| match index {
                // Each time it calls itself from one of two places.
                5 => {
                    let calls: Vec<u64> = (0..400).map(|_| draws.below(2)).collect();
                    path(&mut small, &name, 3, &calls)
                }
                _ => path(&mut small, &name, 3, &[n % 30, n % 45, (second + n) % 120]),
            })
            .collect();
        let waits = path(&mut small, &name, 3, &[9999]);
        process.pass(&mut pass, &ran, &waits);
        small.profile.apply(pass);
    }
    for (index, process) in programs.iter().enumerate() {
        if index != 5 {
            assert_kept(&small, process.key, 630);
        }
    }
    let folded = ["folded_exited_nodes", "folded_living_nodes"].map(|name| cause(&small, name));
    assert!(folded.iter().sum::<u64>() > 100_000);
}

/// A process with as many stacks that reach the beginning of their thread as such that do not, each
/// seen once, in room for so many nodes: what is left of the first and of the second.
fn whole_and_broken(nodes: usize) -> [Kept; 2] {
    let mut small = Small::new(room(nodes));
    let mut draws = Draws(3);
    let mut process = Process::new(7, 1000);
    let waits = path(&mut small, "app", 1, &[9999]);
    for second in 1..=60u64 {
        let mut pass = small.pass(second);
        let ran: Vec<_> = (0..20)
            .map(|_| {
                let rest: Vec<u64> = (0..8).map(|_| draws.below(2000)).collect();
                path(&mut small, "app", 1, &rest)
            })
            .collect();
        process.pass(&mut pass, &ran, &waits);
        let odd = pass.stacks.iter_mut().step_by(2).take(10);
        odd.for_each(|stack| stack.end = StackEnd::TRUNCATED);
        small.profile.apply(pass);
    }
    [StackEnd::Complete, StackEnd::TRUNCATED]
        .map(|wanted| kept_of(&small, process.key, |end| end == wanted))
}

// Check that of innermost frames which weigh the same those give way first whose stacks do not
// reach the beginning of their thread.
#[test]
fn incomplete_stacks_first() {
    let [whole, broken] = whole_and_broken(900);
    assert_eq!((whole.all, broken.all), (600, 600));
    assert!(
        broken.folded > 150 && whole.folded * 3 < broken.folded,
        "{whole:?} {broken:?}"
    );
}

// Check that where their callers alone make room, stacks that reach the beginning of their thread
// keep every one of theirs, while others lose them; and that both keep their functions.
#[test]
fn callers_of_incomplete_stacks_first() {
    let [whole, broken] = whole_and_broken(6000);
    let untouched = Kept {
        all: 600,
        ..Kept::default()
    };
    assert_eq!(whole, untouched, "{broken:?}");
    assert_eq!((broken.all, broken.folded), (600, 0));
    assert!(broken.without_callers > 200, "{broken:?}");
}

// Check that a user whose threads sleep at deep stacks of their own, so that each has more of the
// elapsed time than a stack of another's has of anything, takes no detail of that other's.
#[test]
fn sleepers_take_the_room_of_nobody_else() {
    let mut small = Small::new(room(20_000));
    let mut draws = Draws(4);
    let mut victim = Process::new(7, 1001);
    let mut sleepers: Vec<Process> = (100..220).map(|pid| Process::new(pid, 1002)).collect();
    let beds: Vec<Vec<FrameId>> = sleepers
        .iter()
        .map(|_| {
            let rest: Vec<u64> = (0..300).map(|_| draws.below(2000)).collect();
            path(&mut small, "sleeper", 1, &rest)
        })
        .collect();
    let waits = path(&mut small, "app", 2, &[9999]);
    for second in 1..=60u64 {
        let mut pass = small.pass(second);
        let ran: Vec<_> = (0..20)
            .map(|n| path(&mut small, "app", 2, &[n, second * 20 + n, 3]))
            .collect();
        victim.pass(&mut pass, &ran, &waits);
        for (process, bed) in sleepers.iter_mut().zip(&beds) {
            process.pass(&mut pass, &[], bed);
            pass.open.push(OpenStack {
                process: process.key,
                thread: process.thread(),
                user: bed.clone(),
                kernel: Vec::new(),
                end: StackEnd::Complete,
                lost: None,
                classes: ClassNs::default(),
            });
        }
        small.profile.apply(pass);
    }
    assert_kept(&small, victim.key, 1200);
    assert!(cause(&small, "folded_living_nodes") > 0);
}
