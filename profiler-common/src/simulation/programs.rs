//! Programs whose answer is known: the twelve of the design's simulation, and some that were made
//! to break the rule.
//!
//! Each is one round of a loop, or a whole world of short threads and processes.

use super::draw::{Draw, MS, SECOND, US};
use super::next_walk::OldThread;
use super::rules::DivisionRule;
use super::thread::SimulatedThread;
use super::world::{Actions, SimulatedProcess, World};
use crate::clock::{KERNEL_THREAD, UNTRACED};

/// One round of a thread's loop.
type Round = fn(&mut dyn Actions, &mut Draw);

/// A program.
#[derive(Clone, Copy)]
pub(super) enum ProgramKind {
    /// One thread, whose clock has these flags, does this for so long.
    Loop(Round, u32, u64),
    /// Anything else.
    World(fn(&mut World)),
}

/// Runs it in a new world.
pub(super) fn run(program: ProgramKind, seed: u64, rule: DivisionRule) -> World {
    let mut world = World::new(seed, rule);
    run_in(&mut world, program);
    world
}

/// Runs it.
pub(super) fn run_in(world: &mut World, program: ProgramKind) {
    match program {
        ProgramKind::World(all) => all(world),
        ProgramKind::Loop(round, flags, ns) => {
            let end_ns = world.now_ns + ns;
            thread(world, flags, |thread, draw| {
                while thread.now_ns() < end_ns {
                    round(thread, draw);
                }
            });
        }
    }
}

/// Runs a thread under the world's rule, until it has done `all`.
pub(super) fn thread(world: &mut World, flags: u32, all: impl FnOnce(&mut dyn Actions, &mut Draw)) {
    let mut draw = world.draw.clone();
    if world.rule == DivisionRule::NextWalk {
        let mut thread = OldThread::new(world);
        all(&mut thread, &mut draw);
        thread.end();
    } else {
        let mut thread = SimulatedThread::new(world, flags);
        all(&mut thread, &mut draw);
        thread.end();
    }
    world.draw = draw;
}

const fn traced(round: Round) -> ProgramKind {
    ProgramKind::Loop(round, 0, 20 * SECOND)
}

/// All programs that need no rule but the right one to be told apart from their truth.
pub(super) const ALL: &[(&str, ProgramKind)] = &[
    ("calls of nothing", traced(nothing)),
    ("cheap and dear calls", traced(cheap_and_dear)),
    ("short and long sleeps", traced(naps)),
    ("period of exactly 1 ms", traced(exactly)),
    ("a server", traced(server)),
    ("page faults that wait", traced(faults_that_wait)),
    ("quick faults and late ones", traced(quick_and_late)),
    ("a burst, then a long wait", traced(burst)),
    ("calls of 4 s and of 50 us", traced(storm)),
    ("60 frames a second", traced(frames_60)),
    ("90 frames a second", traced(frames_90)),
    ("threads of 1 ms", ProgramKind::World(pool)),
    (
        "processes of 3 and 12 ms",
        ProgramKind::World(small_processes),
    ),
    ("fast faults, then a long one", traced(rare_long_fault)),
    ("the first faults of each 100 ms", traced(first_faults)),
    ("calls of 5 ms and of 30 us", traced(lengths)),
    ("calls of 12.5 ms and of 0.1 ms", traced(long_calls)),
    (
        "calls that wait, then run for 9 ms",
        traced(looks_then_none),
    ),
    ("faults and user code", traced(minor_faults)),
    ("preempted in calls and outside", traced(preempted)),
    ("calls that do not return", traced(no_return)),
    ("a call killed in its middle", ProgramKind::World(killed)),
    ("waits found from outside", ProgramKind::World(found_waits)),
    ("few walks of faults", ProgramKind::World(few_walks_outside)),
    ("few walks of calls", ProgramKind::World(few_walks_of_calls)),
    (
        "waits in calls that are drawn",
        ProgramKind::World(drawn_in_calls),
    ),
    (
        "calls that are not traced",
        ProgramKind::Loop(server, UNTRACED, 20 * SECOND),
    ),
    (
        "a kernel thread",
        ProgramKind::Loop(kernel_thread, KERNEL_THREAD, 20 * SECOND),
    ),
];

fn nothing(does: &mut dyn Actions, draw: &mut Draw) {
    for (place, us) in [(0, 420), (1, 210), (2, 70)] {
        does.user(place, draw.wiggle(us * US));
    }
    does.call(3, draw.wiggle(500));
}

fn cheap_and_dear(does: &mut dyn Actions, draw: &mut Draw) {
    for _ in 0..10 {
        does.user(0, draw.wiggle(300));
        does.call(0, draw.wiggle(500));
    }
    does.user(1, draw.wiggle(150 * US));
    does.call(2, draw.wiggle(60 * US));
}

fn naps(does: &mut dyn Actions, draw: &mut Draw) {
    for (count, place, us, more_us) in [(4, 0, 150, 60), (1, 1, 1060, 50), (10, 2, 60, 10)] {
        for _ in 0..count {
            does.enter(place);
            does.run(2 * US);
            does.wait([us * US, draw.even(more_us * US, 0.0, 1.0)]);
            does.leave(true);
        }
    }
}

fn exactly(does: &mut dyn Actions, _: &mut Draw) {
    does.sleep(0, 250 * US);
    does.sleep(1, 750 * US);
}

fn server(does: &mut dyn Actions, draw: &mut Draw) {
    does.user(0, draw.exponential(300 * US));
    does.call(1, draw.exponential(20 * US));
    does.user(2, draw.exponential(2 * MS));
    does.call(3, draw.exponential(100 * US));
    does.enter(4);
    does.run(3 * US);
    does.wait([draw.exponential(800 * US), draw.exponential(20 * US)]);
    does.run(2 * US);
    does.leave(true);
}

/// Waits outside any call, thousands a second; one place never waits.
fn faults_that_wait(does: &mut dyn Actions, draw: &mut Draw) {
    for _ in 0..150 {
        does.user(0, 20 * US);
        does.off_cpu(0, [draw.wiggle(100 * US), 3 * US]);
        does.user(1, 30 * US);
        does.off_cpu(1, [draw.wiggle(50 * US), 0]);
    }
    does.call(2, 500);
}

/// Waits outside any call, some as short as it takes to walk them.
fn quick_and_late(does: &mut dyn Actions, draw: &mut Draw) {
    for _ in 0..3 {
        does.user(0, 5 * US);
        does.off_cpu(0, [draw.wiggle(4 * US), 2 * US]);
    }
    does.user(1, 10 * US);
    does.off_cpu(1, [draw.wiggle(100 * US), 2 * US]);
}

/// Short waits, then one long one, which is a call of its own.
fn burst(does: &mut dyn Actions, draw: &mut Draw) {
    for _ in 0..30 {
        does.user(0, 30 * US);
        does.sleep(1, 20 * US);
    }
    does.sleep(2, draw.wiggle(700 * MS));
}

fn storm(does: &mut dyn Actions, _: &mut Draw) {
    does.call(0, 4 * SECOND);
    does.user(1, 30 * MS);
    does.call(2, 50 * US);
}

/// Four functions of 0.25 ms each, so many times a second, at absolute times.
fn frames(does: &mut dyn Actions, hz: u64) {
    for place in 0..4 {
        does.user(place, 250 * US);
    }
    let frame_ns = SECOND / hz;
    does.sleep(4, frame_ns - does.now_ns() % frame_ns);
}

fn frames_60(does: &mut dyn Actions, _: &mut Draw) {
    frames(does, 60);
}

fn frames_90(does: &mut dyn Actions, _: &mut Draw) {
    frames(does, 90);
}

/// Threads of one process, each with 1 ms of calls: half in one place, then half in another.
fn pool(world: &mut World) {
    for _ in 0..3000 {
        thread(world, 0, |does, _| {
            for place in [0, 1] {
                for _ in 0..10 {
                    does.call(place, 50 * US);
                }
            }
        });
        world.now_ns += MS;
    }
}

/// Processes of one image with 3 or 12 ms of user time each: two thirds in one place, then a third
/// in another.
fn small_processes(world: &mut World) {
    for index in 0..3000 {
        if index > 0 {
            world.processes.push(SimulatedProcess::default());
        }
        let ms = [3, 12][index % 2];
        thread(world, 0, |does, _| {
            does.user(0, ms * MS * 2 / 3);
            does.user(1, ms * MS / 3);
        });
        world.now_ns += world.draw.even(5 * MS, 0.0, 1.0);
    }
}

/// Faults at a rate of which one in sixteen is walked, then one that outlasts the stretch in which
/// they are counted.
fn rare_long_fault(does: &mut dyn Actions, draw: &mut Draw) {
    for _ in 0..4000 {
        does.user(0, 10 * US);
        does.off_cpu(0, [draw.wiggle(50 * US), 0]);
    }
    does.off_cpu(1, [draw.wiggle(150 * MS), 0]);
}

/// Each 100 ms begins with short waits; those that follow are ten times as long.
fn first_faults(does: &mut dyn Actions, draw: &mut Draw) {
    for (place, us) in [(0, 20), (1, 200)] {
        for _ in 0..300 {
            does.user(2, 10 * US);
            does.off_cpu(place, [0, draw.wiggle(us * US)]);
        }
    }
    does.sleep(3, 29 * MS);
}

fn lengths(does: &mut dyn Actions, draw: &mut Draw) {
    for _ in 0..40 {
        does.call(0, draw.wiggle(30 * US));
    }
    does.call(1, draw.wiggle(5 * MS));
    does.call(2, draw.wiggle(700 * US));
}

/// Calls that are longer than marks are stepped through; a tick may come, or two.
fn long_calls(does: &mut dyn Actions, draw: &mut Draw) {
    does.call(0, draw.wiggle(12_500 * US));
    does.sleep(2, 5 * MS);
    does.enter(2);
    does.wait([draw.wiggle(8600 * US), draw.wiggle(100 * US)]);
    does.leave(true);
    for _ in 0..100 {
        does.call(1, draw.wiggle(100 * US));
    }
}

/// Walks come often, then not for longer than marks are stepped through; another call has none of
/// either.
fn looks_then_none(does: &mut dyn Actions, draw: &mut Draw) {
    does.enter(0);
    for _ in 0..8 {
        does.run(draw.wiggle(200 * US));
        does.wait([US, 0]);
    }
    does.run(draw.wiggle(8600 * US));
    does.leave(true);
    does.sleep(2, draw.wiggle(30 * MS));
    for _ in 0..25 {
        does.call(1, draw.wiggle(400 * US));
    }
}

fn minor_faults(does: &mut dyn Actions, draw: &mut Draw) {
    does.user(0, draw.exponential(5 * US));
    does.fault(0, draw.exponential(20 * US));
    does.user(1, draw.exponential(40 * US));
    does.fault(1, draw.exponential(US));
}

fn preempted(does: &mut dyn Actions, draw: &mut Draw) {
    does.user(0, draw.exponential(900 * US));
    does.off_cpu(0, [0, draw.exponential(2 * MS)]);
    does.user(1, draw.exponential(100 * US));
    does.enter(2);
    does.run(draw.exponential(400 * US));
    does.wait([0, draw.exponential(600 * US)]);
    does.run(draw.exponential(100 * US));
    does.leave(true);
    for _ in 0..6 {
        does.enter(3);
        does.run(10 * US);
        does.wait([draw.exponential(50 * US), draw.exponential(100 * US)]);
        does.leave(true);
    }
}

fn no_return(does: &mut dyn Actions, draw: &mut Draw) {
    does.user(0, draw.exponential(300 * US));
    for (place, seen) in [(1, true), (2, false), (3, true)] {
        does.enter(place);
        does.run(draw.exponential(100 * US));
        does.wait([draw.exponential(200 * US), draw.exponential(20 * US)]);
        does.run(draw.exponential(50 * US));
        does.leave(seen);
    }
}

/// Threads of 3 ms that die within a call.
fn killed(world: &mut World) {
    for _ in 0..2000 {
        thread(world, 0, |does, draw| {
            does.call(0, draw.exponential(MS));
            does.enter(1);
            does.run(draw.exponential(2 * MS));
        });
    }
}

/// Waits of a second or so, of which few are walked. Which are found from outside depends on where
/// they are and on their length.
fn found_waits(world: &mut World) {
    if world.gap_ns > 0 {
        world.affords = |_| 3;
    }
    world.finds = |place, ns| match place {
        0 if ns > SECOND => 0.9,
        1 => 0.2,
        _ => 0.0,
    };
    thread(world, UNTRACED, |does, draw| {
        for _ in 0..4000 {
            does.off_cpu(0, [draw.even(SECOND, 0.5, 1.5), 20 * US]);
            does.off_cpu(1, [draw.wiggle(1500 * MS), 10 * US]);
            does.off_cpu(2, [draw.wiggle(300 * MS), 5 * US]);
        }
    });
}

/// Waits outside calls of which few are walked: one that comes after long ones has been unwalked
/// for longer than one that comes after short ones.
fn few_walks_outside(world: &mut World) {
    if world.gap_ns > 0 {
        world.affords = |_| 5;
    }
    thread(world, UNTRACED, |does, draw| {
        for _ in 0..4000 {
            for _ in 0..4 {
                does.off_cpu(0, [draw.exponential(20 * MS), 0]);
            }
            does.off_cpu(1, [draw.exponential(SECOND), 0]);
            does.off_cpu(2, [draw.exponential(100 * MS), 0]);
        }
    });
}

/// The same in calls, whose exits are walked where marks have fallen.
fn few_walks_of_calls(world: &mut World) {
    if world.gap_ns > 0 {
        world.affords = |_| 7;
    }
    thread(world, 0, |does, draw| {
        for _ in 0..4000 {
            for _ in 0..4 {
                does.sleep(0, draw.exponential(20 * MS));
            }
            does.sleep(1, draw.exponential(SECOND));
            does.sleep(2, draw.exponential(100 * MS));
        }
    });
}

/// Waits in calls that are traced in samples: the exit of one that lasts is not seen.
fn drawn_in_calls(world: &mut World) {
    world.draws_waits = true;
    if world.gap_ns > 0 {
        world.affords = |_| 2;
    }
    thread(world, 0, |does, draw| {
        for _ in 0..3000 {
            for (place, us, seen) in [(0, 2000, true), (1, 6000, false), (2, 500, true)] {
                does.enter(place);
                does.run(10 * US);
                does.wait([draw.exponential(us * US), 20 * US]);
                does.leave(seen);
            }
        }
    });
}

fn kernel_thread(does: &mut dyn Actions, draw: &mut Draw) {
    does.fault(0, draw.exponential(300 * US));
    does.off_cpu(0, [draw.exponential(100 * US), draw.exponential(10 * US)]);
    does.fault(1, draw.exponential(700 * US));
    does.off_cpu(2, [draw.exponential(2 * MS), 0]);
}
