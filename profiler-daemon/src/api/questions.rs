//! The questions, a file each: what is asked, by which parameters, and how it is answered. What has
//! a path is in `endpoints`.

mod calltree;
mod code;
mod daemon;
mod diff;
mod functions;
mod instrumentations;
mod modules;
mod neighbours;
mod os_events;
mod overview;
mod pprof;
mod processes;
mod recording;
mod saved;
mod session;
mod sessions;
mod threads;
mod timeline;

pub(crate) use calltree::{CALLTREE, OneValueOf, sections};
pub(crate) use code::{INSTRUCTIONS, LINES};
pub(crate) use daemon::{STATUS, TARGETS};
pub(crate) use diff::{DIFF, PROCESS_DIFF};
pub(crate) use functions::{FUNCTIONS, Functions};
pub(crate) use instrumentations::{
    INSTRUMENTATION, INSTRUMENTATIONS, unknown as unknown_instrumentation,
};
pub(crate) use modules::MODULES;
pub(crate) use neighbours::{CALLEES, CALLERS};
pub(crate) use os_events::OS_EVENTS;
pub(crate) use overview::{OVERVIEW, Screen};
pub(crate) use pprof::{AllValuesBetween, AllValuesOf, PPROF, RECORD_CPU, RECORD_WALL};
pub(crate) use processes::{PROCESS, PROCESSES, ProcessQuestion, ProcessesQuestion};
pub(crate) use recording::WholeRecording;
pub(crate) use saved::PROFILE;
pub use saved::saved;
pub(crate) use session::{SESSION, SessionQuestion};
pub(crate) use sessions::{NAMED_SESSION, NamedSession, SESSIONS};
pub(crate) use threads::{THREADS, Threads};
pub(crate) use timeline::{PROCESS_TIMELINE, THREAD_TIMELINE};
