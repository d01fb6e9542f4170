//! What is asked of the measuring of functions.

use super::super::command::{Reply, reply};
use super::Measuring;
use super::instrumentation::{End, InstrumentationError, InstrumentationState, meant};
use super::plan::{MoreFunctions, Plan};
use super::untold::Untold;
use crate::config::targets::Targets;
use crate::kernel::{Kernel, ProbeCosts};
use crate::processes::live::Processes;

/// A request about instrumentations.
pub enum InstrumentationCommand {
    /// One begins.
    Start {
        /// What is measured, of whom.
        plan: Plan,
        /// Its number.
        answer: Reply<Result<Untold, InstrumentationError>>,
    },
    /// More functions are measured by one that runs.
    More {
        /// Its number.
        id: u32,
        /// Which.
        more: MoreFunctions,
        /// Whether they are.
        answer: Reply<Result<(), InstrumentationError>>,
    },
    /// Whom one would measure now.
    Meant {
        /// Of whom.
        whom: Targets,
        /// Their numbers, each with one that changes as it maps files.
        answer: Reply<Result<Vec<(u32, u64)>, InstrumentationError>>,
    },
    /// What probes cost here: measured, where they were not yet, on functions of this program.
    Costs {
        /// Also of functions of Go.
        goroutines: bool,
        /// By kind of call.
        answer: Reply<Result<ProbeCosts, InstrumentationError>>,
    },
    /// Whom one measures.
    Processes {
        /// Its number.
        id: u32,
        /// Their numbers, each with one that changes as it maps files; `None`: it does not run.
        answer: Reply<Option<Vec<(u32, u64)>>>,
    },
    /// What one has measured.
    One {
        /// Its number.
        id: u32,
        /// All of it, up to now; `None`: there is none.
        answer: Reply<Option<InstrumentationState>>,
    },
    /// All that are kept.
    All {
        /// All of them, up to the last pass or look.
        answer: Reply<Vec<InstrumentationState>>,
    },
    /// One that runs ends, so that it tells the same from then on.
    Stop {
        /// Its number.
        id: u32,
        /// All that it has measured; `None`: there is none.
        answer: Reply<Option<InstrumentationState>>,
    },
    /// One that runs ends; one that has ended is forgotten.
    End {
        /// Its number.
        id: u32,
        /// How it was once it had ended; within `None` if it is forgotten. `None`: there is none.
        answer: Reply<Option<Option<InstrumentationState>>>,
    },
}

impl InstrumentationCommand {
    /// Is it answered with calls and callers of one instrumentation, up to now?
    pub(in super::super) const fn tells_calls(&self) -> bool {
        matches!(
            self,
            Self::One { .. } | Self::Stop { .. } | Self::End { .. }
        )
    }
}

impl Measuring {
    /// Does what is asked. True if more is measured from then on: a pass should follow, from which
    /// on sampled values can be compared with what is measured.
    pub(in super::super) fn obey(
        &mut self,
        kernel: &mut Kernel,
        processes: &Processes,
        command: InstrumentationCommand,
    ) -> bool {
        let begins = matches!(
            command,
            InstrumentationCommand::Start { .. } | InstrumentationCommand::More { .. }
        );
        match command {
            InstrumentationCommand::Start { plan, answer } => {
                reply(answer, || self.start(kernel, processes, plan));
            }
            InstrumentationCommand::More { id, more, answer } => {
                reply(answer, || {
                    // First: who comes now has probes of what there was before, and of what is new.
                    self.follow(kernel, processes);
                    self.add(kernel, id, more)
                });
            }
            InstrumentationCommand::Meant { whom, answer } => {
                reply(answer, || meant(&whom, processes));
            }
            InstrumentationCommand::Costs { goroutines, answer } => {
                reply(answer, || self.calibrated(kernel, goroutines));
            }
            InstrumentationCommand::Processes { id, answer } => {
                reply(answer, || {
                    self.follow(kernel, processes);
                    self.processes(processes, id)
                });
            }
            InstrumentationCommand::One { id, answer } => {
                reply(answer, || {
                    self.read(kernel);
                    self.read_spans(kernel, id);
                    self.state(kernel, id)
                });
            }
            InstrumentationCommand::All { answer } => reply(answer, || self.states(kernel)),
            InstrumentationCommand::Stop { id, answer } => reply(answer, || {
                if self.runs(id) {
                    self.end(kernel, id, End::Asked);
                }
                self.state(kernel, id)
            }),
            InstrumentationCommand::End { id, answer } => reply(answer, || {
                let is_there = self.end_or_forget(kernel, id);
                is_there.then(|| self.state(kernel, id))
            }),
        }
        begins
    }
}
