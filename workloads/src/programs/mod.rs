//! The list of programs. Each is its own file; a program takes the options and gives back its
//! truth.

mod asleep;
mod attacks;
mod brief_work;
mod children;
mod comm;
mod contention;
mod crowd;
mod cut_short;
mod dear_calls;
mod deleted;
mod exec;
mod faults;
mod given_up;
mod jit;
mod loops;
mod many;
mod marked;
mod measured;
mod naps;
mod paging;
mod pid_reuse;
mod pingpong;
mod preempt;
mod race;
mod recursion;
mod signal;
mod sleeper;
mod small;
mod split;
mod storm;
mod threads;
mod together;
mod wait_split;
mod wakers;
mod withheld;

use anyhow::bail;

use crate::options::Options;
use crate::truth::Truth;

/// One program.
pub(crate) struct Program {
    /// As typed.
    pub(crate) name: &'static str,
    /// What it does and which options it reads.
    pub(crate) about: &'static str,
    /// Runs it to its end.
    pub(crate) run: fn(&Options, Truth) -> anyhow::Result<Truth>,
}

const PROGRAMS: &[Program] = &[
    split::PROGRAM,
    wait_split::PROGRAM,
    brief_work::PROGRAM,
    sleeper::PROGRAM,
    asleep::PROGRAM,
    asleep::IN_TURN,
    withheld::PROGRAM,
    wakers::PROGRAM,
    faults::PROGRAM,
    given_up::PROGRAM,
    faults::IO,
    storm::PROGRAM,
    recursion::PROGRAM,
    threads::PROGRAM,
    threads::CHURN,
    contention::PROGRAM,
    crowd::PROGRAM,
    pingpong::PROGRAM,
    preempt::PROGRAM,
    children::PROGRAM,
    children::CHILD,
    children::FORK,
    children::VANISH,
    pid_reuse::PROGRAM,
    exec::PROGRAM,
    exec::AFTER,
    signal::PROGRAM,
    comm::PROGRAM,
    comm::HOSTILE,
    comm::NAMED,
    jit::PROGRAM,
    deleted::PROGRAM,
    deleted::DELETED,
    many::PROGRAM,
    marked::PROGRAM,
    marked::AGAIN,
    measured::PROGRAM,
    race::PROGRAM,
    loops::NOTHING,
    loops::CHEAP_AND_DEAR,
    loops::PLAIN,
    loops::TURNS,
    loops::DEPTHS,
    naps::NAPS,
    naps::BURST,
    naps::EXACTLY,
    naps::BUCKET,
    naps::FRAMES,
    paging::MINOR,
    paging::WAITING,
    dear_calls::LONG_CALLS,
    dear_calls::SHORT_THREADS,
    dear_calls::KILLED,
    small::PROCESSES,
    small::SMALL,
    small::LEAVERS,
    small::LEAVER,
    together::SERVER,
    together::LOCKSTEP,
    together::YIELDS,
    together::CONVOY,
    cut_short::SIGRETURNS,
    cut_short::RESTARTS,
    cut_short::STOPS,
    cut_short::LEAVES,
];

fn all() -> impl Iterator<Item = &'static Program> {
    PROGRAMS.iter().chain(&attacks::PROGRAMS)
}

/// Finds a program by name.
pub(crate) fn find(name: &str) -> anyhow::Result<&'static Program> {
    match all().find(|program| program.name == name) {
        Some(program) => Ok(program),
        None => bail!("no program `{name}`; `workload help` lists them"),
    }
}

/// The list, for people.
pub(crate) fn help() -> String {
    let mut text = String::from(
        "workload <program> [--seconds s] [--count n] [--threads n] [--millis n] [--depth n] [--cpu n] [--kind k] \
         [--path p] [--nice n] [--wait] [--hold]\n\n",
    );
    for program in all() {
        text.push_str(&format!("{:15} {}\n", program.name, program.about));
    }
    text
}
