//! Loops of user code whose system calls take nothing, or take much: the user code before a call is
//! not the call's.

use std::hint::black_box;

use super::Program;
use crate::options::Options;
use crate::places::Places;
use crate::sys;
use crate::truth::Truth;
use crate::work::{Jitter, burn, workers};

pub(super) const NOTHING: Program = Program {
    name: "nothing",
    about: "user code 60/30/10 in maple, birch, cedar, then one getppid in ring [--seconds, --count microseconds between calls, \
            default 700]",
    run: run_nothing,
};

pub(super) const CHEAP_AND_DEAR: Program = Program {
    name: "cheap-and-dear",
    about: "10 getppid in small, 150 us of user code in pine, one getrandom of 20 kB in large [--seconds]",
    run: run_cheap_and_dear,
};

pub(super) const PLAIN: Program = Program {
    name: "plain",
    about: "nothing but user code, in turns of 307 us: half in oak, 30 % in elm, 20 % in ash [--seconds]",
    run: run_plain,
};

pub(super) const TURNS: Program = Program {
    name: "turns",
    about: "only user code: turn_over for the first half of each period by the clock, turn_under for the second [--seconds, --count \
            periods a second, default 997]",
    run: run_turns,
};

pub(super) const DEPTHS: Program = Program {
    name: "depths",
    about: "works 300 us in abyss, --depth (default 200) calls of descend down, then 150 us in shore, one getppid at each end; by up to \
            half more or less, but with --kind periodic [--seconds]",
    run: run_depths,
};

workers! {
    /// Six tenths.
    maple = 311;
    /// Three tenths.
    birch = 312;
    /// One tenth.
    cedar = 313;
    /// Between the cheap calls and the dear one.
    pine = 314;
    /// Half of a turn.
    oak = 315;
    /// 30 % of a turn.
    elm = 316;
    /// A fifth of a turn.
    ash = 317;
    /// At the bottom of the recursion.
    abyss = 318;
    /// Without any recursion.
    shore = 319;
}

#[inline(never)]
fn ring() {
    black_box(sys::getppid());
}

fn run_nothing(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["maple", "birch", "cedar", "ring"]);
    let between = places.rounds(options.count_or(700));
    let mut jitter = Jitter::new();
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        // Real programs are never exactly periodic.
        let between = between * jitter.between(980, 1020) / 1000;
        places.work(0, between * 6 / 10, maple);
        places.work(1, between * 3 / 10, birch);
        places.work(2, between / 10, cedar);
        places.call(3, ring);
    }
    truth.set("functions", places.json());
    Ok(truth)
}

const SMALL_CALLS: u64 = 10;

/// Little work and a cheap call, ten times; returns the rounds.
#[inline(never)]
fn small(rounds: u64) -> u64 {
    for _ in 0..SMALL_CALLS {
        black_box(burn(rounds, 320));
        black_box(sys::getppid());
    }
    rounds * SMALL_CALLS
}

#[inline(never)]
fn large(bytes: &mut [u8]) {
    black_box(sys::getrandom(bytes));
}

fn run_cheap_and_dear(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["small", "pine", "large"]);
    let mut bytes = vec![0; 20_000];
    let (little, much) = (places.rounds(1) / 3, places.rounds(150));
    let mut jitter = Jitter::new();
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        let start_ns = sys::monotonic_ns();
        let rounds = small(little);
        let took_ns = sys::monotonic_ns() - start_ns;
        let worked_ns = (rounds * 1_000_000 / places.per_ms()).min(took_ns);
        let times = places.of(0);
        times.user_ns += worked_ns;
        times.call_ns += took_ns - worked_ns;
        times.readings += 1;
        // The ways in and out of a call.
        times.user_error_ns += SMALL_CALLS * 300;
        places.work(1, much * jitter.between(980, 1020) / 1000, pine);
        places.call(2, || large(&mut bytes));
    }
    truth.set("functions", places.json());
    Ok(truth)
}

fn run_plain(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["oak", "elm", "ash"]);
    let turn = places.per_ms() * 307 / 1000;
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        places.work(0, turn / 2, oak);
        places.work(1, turn * 3 / 10, elm);
        places.work(2, turn / 5, ash);
    }
    truth.set("functions", places.json());
    Ok(truth)
}

/// Looks longer than this were not spent looking.
const LOOK_NS: u64 = 20_000;

/// Works until the clock says so; returns (wall, off the processor).
macro_rules! until_the_clock_says {
    ($name:ident, $seed:literal) => {
        #[inline(never)]
        fn $name(until_ns: u64, rounds: u64) -> (u64, u64) {
            let start_ns = sys::monotonic_ns();
            let (mut last_ns, mut off_ns) = (start_ns, 0);
            while last_ns < until_ns {
                black_box(burn(rounds, $seed));
                let now_ns = sys::monotonic_ns();
                if now_ns - last_ns > LOOK_NS {
                    off_ns += now_ns - last_ns;
                }
                last_ns = now_ns;
            }
            (last_ns - start_ns, off_ns)
        }
    };
}
until_the_clock_says!(turn_over, 321);
until_the_clock_says!(turn_under, 322);

fn run_turns(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["turn_over", "turn_under"]);
    let half_ns = 500_000_000 / options.count_or(997);
    let rounds = places.rounds(1);
    let mut turn = sys::monotonic_ns() / half_ns;
    let end = turn + options.duration_ns() / half_ns;
    while turn < end {
        let place = (turn % 2) as usize;
        let function = [turn_over, turn_under][place];
        turn += 1;
        let (wall_ns, off_ns) = function(turn * half_ns, rounds);
        let times = places.of(place);
        times.user_ns += wall_ns - off_ns;
        times.outside_ns += off_ns;
        times.readings += 1;
    }
    truth.set("functions", places.json());
    Ok(truth)
}

#[inline(never)]
fn descend(depth: u32, rounds: u64) -> u64 {
    let below = if depth == 0 {
        black_box(sys::getppid());
        abyss(rounds)
    } else {
        descend(depth - 1, rounds)
    };
    // So that the call is not the last thing: it must keep its frame.
    black_box(below).wrapping_add(1)
}

#[inline(never)]
fn beach(rounds: u64) -> u64 {
    black_box(sys::getppid());
    black_box(shore(rounds)).wrapping_add(1)
}

fn run_depths(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["descend", "beach"]);
    let (down, up) = (places.rounds(300), places.rounds(150));
    let depth = if options.depth == 0 {
        200
    } else {
        options.depth
    };
    let (low, high) = if options.kind == "periodic" {
        (100, 100)
    } else {
        (50, 150)
    };
    let mut jitter = Jitter::new();
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        // Never exactly periodic: a walk of a deep stack puts the program off, so that it may fall
        // into step with the ticks.
        let [down, up] = [down, up].map(|rounds| rounds * jitter.between(low, high) / 100);
        let start_ns = sys::monotonic_ns();
        black_box(descend(depth, down));
        places.worked(0, down, sys::monotonic_ns() - start_ns);
        let start_ns = sys::monotonic_ns();
        black_box(beach(up));
        places.worked(1, up, sys::monotonic_ns() - start_ns);
    }
    truth.set("functions", places.json());
    Ok(truth)
}
