//! What other threads ask of the collector's thread.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};

use thiserror::Error;
use tokio::sync::oneshot;

use crate::config::targets::Targets;
use crate::kernel::TargetError;
use crate::processes::files::OpenModule;
use crate::processes::module::ModuleId;
use crate::profile::sessions::{SessionChange, SessionChanged, SessionRefusal};
use crate::profile::snapshot::Snapshot;
use crate::sys::waker::Waker;

use super::measuring::InstrumentationCommand;
use super::state::CollectorState;

/// Where an answer goes. Closed once the asker has gone: then the command is not executed.
pub type Reply<T> = oneshot::Sender<T>;

/// Requests waiting at most; beyond, the asker is told at once.
const MAX_WAITING: usize = 256;

/// A request to the collector.
pub enum Command {
    /// The profile, drained first if the last pass is older than `max_age_ns`. A kernel that has no
    /// time for the pass is not waited for long, unless that is 0.
    Snapshot {
        /// How old it may be.
        max_age_ns: u64,
        /// The snapshot.
        answer: Reply<Arc<Snapshot>>,
    },
    /// The open files of modules, as far as there are any, and where each was mapped last.
    Files {
        /// Which.
        modules: Vec<ModuleId>,
        /// The files.
        answer: Reply<HashMap<ModuleId, OpenModule>>,
    },
    /// New targets.
    SetTargets {
        /// Which.
        targets: Targets,
        /// What is profiled from now on; or why they cannot be set.
        answer: Reply<Result<Targets, TargetsRefused>>,
    },
    /// A change of the named sessions, right after a pass.
    ChangeSession {
        /// The change.
        change: SessionChange,
        /// What it did, and the profile as of the pass.
        answer: Reply<Result<(SessionChanged, Arc<Snapshot>), SessionUnchanged>>,
    },
    /// Functions are measured, or are not any more.
    Instrumentation(InstrumentationCommand),
    /// How the collector is.
    State {
        /// Its state.
        answer: Reply<CollectorState>,
    },
    /// One last pass, and the end.
    Stop,
}

/// Executes a command for whoever waits for its answer; for nobody, it does nothing. So what a
/// client was told is refused for lack of time does not come about later.
pub(super) fn reply<T>(answer: Reply<T>, execute: impl FnOnce() -> T) {
    if !answer.is_closed() {
        // Whoever leaves only now finds out by asking again.
        answer.send(execute()).ok();
    }
}

/// Why targets cannot be set.
#[derive(Debug, Error)]
pub enum TargetsRefused {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// Who descends from them cannot be told.
    #[error("cannot list processes: {0}")]
    Unlisted(#[source] io::Error),
    /// The kernel side does not take them.
    #[error(transparent)]
    Kernel(#[from] TargetError),
}

impl TargetsRefused {
    /// Did the system fail at what could have been set? Else these targets cannot be set.
    #[must_use]
    pub const fn is_system_failure(&self) -> bool {
        match self {
            Self::NoProcess(_) => false,
            Self::Unlisted(_) => true,
            Self::Kernel(error) => error.is_kernel_failure(),
        }
    }
}

/// Why the named sessions were not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SessionUnchanged {
    /// The change cannot be made.
    #[error(transparent)]
    Refused(#[from] SessionRefusal),
    /// The pass that would have been its border failed, or waits for the kernel.
    #[error("the kernel's maps could not be read in time: try again")]
    NoPass,
}

/// The collector is gone, or has too much to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Gone {
    /// It has stopped.
    #[error("the collector has stopped")]
    Stopped,
    /// Too many requests wait.
    #[error("too many requests wait for the collector")]
    Busy,
}

/// Sends commands to the collector; cheap to clone.
#[derive(Clone)]
pub struct Commander {
    sender: SyncSender<Command>,
    waker: Arc<Waker>,
}

impl Commander {
    /// A commander, the other end, and the waker that it uses.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<(Self, Receiver<Command>, Arc<Waker>)> {
        let (sender, receiver) = mpsc::sync_channel(MAX_WAITING);
        let waker = Arc::new(Waker::new()?);
        Ok((
            Self {
                sender,
                waker: Arc::clone(&waker),
            },
            receiver,
            waker,
        ))
    }

    /// Hands a command over. It is answered later, or its answer dropped if the collector ends
    /// first.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn send(&self, command: Command) -> Result<(), Gone> {
        self.sender.try_send(command).map_err(|error| match error {
            TrySendError::Full(_) => Gone::Busy,
            TrySendError::Disconnected(_) => Gone::Stopped,
        })?;
        self.waker.wake();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::reply;

    // Check that a command is executed while somebody waits for its answer, and not once nobody
    // does.
    #[test]
    fn commands_of_nobody() {
        let (answer, mut asker) = oneshot::channel();
        reply(answer, || 1);
        assert_eq!(asker.try_recv(), Ok(1));
        let (answer, asker) = oneshot::channel::<u32>();
        drop(asker);
        reply(answer, || unreachable!("nobody waits for it"));
    }
}
