//! How a recording ends: what ends it, what is waited for afterwards, and the exit code.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::sys::ending_signal::EndingSignal;
use crate::sys::held_command::terminate;

use super::progress;

/// The exit code of a program that was ended by a signal is this much more than the signal.
const SIGNALLED: i32 = 128;
/// The exit code where a command is there and cannot be executed.
pub(super) const NOT_EXECUTABLE: u8 = 126;
/// The exit code where there is no such command.
pub(super) const NOT_FOUND: u8 = 127;

/// The signals that matter to a recording.
pub(super) struct Signals {
    /// Those that end it.
    pub(super) quit: Quit,
    /// A child may have ended.
    pub(super) child: Signal,
}

/// The signals that end a recording.
pub(super) struct Quit {
    interrupt: Signal,
    terminate: Signal,
    hangup: EndingSignal,
    quit: EndingSignal,
    /// There was one.
    told: bool,
}

/// A signal that ended a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuitSignal {
    Interrupt,
    Terminate,
    Hangup,
    Quit,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            quit: Quit {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
                hangup: EndingSignal::new(SignalKind::hangup())?,
                quit: EndingSignal::new(SignalKind::quit())?,
                told: false,
            },
            child: signal(SignalKind::child())?,
        })
    }
}

impl Quit {
    /// Waits for the next one. A terminal that goes away sends SIGHUP, and so does its shell, once
    /// more: it counts as the first signal alone, or the report that is then made would be given
    /// up.
    pub(super) async fn next(&mut self) -> QuitSignal {
        let signal = tokio::select! {
            _ = self.interrupt.recv() => QuitSignal::Interrupt,
            _ = self.terminate.recv() => QuitSignal::Terminate,
            () = self.hangup.recv(), if !self.told => QuitSignal::Hangup,
            () = self.quit.recv() => QuitSignal::Quit,
        };
        self.told = true;
        signal
    }
}

impl QuitSignal {
    /// The exit code of a program that it ended.
    pub(super) fn exit_code(self) -> u8 {
        of_signal(match self {
            Self::Interrupt => SignalKind::interrupt(),
            Self::Terminate => SignalKind::terminate(),
            Self::Hangup => SignalKind::hangup(),
            Self::Quit => SignalKind::quit(),
        })
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
            Self::Quit => "SIGQUIT",
        }
    }
}

/// What ended a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordingEnd {
    /// All that was recorded has ended itself.
    Done,
    /// Its time was over.
    Duration,
    /// It was told to.
    Signal,
}

/// What is left once the report is written.
pub(super) enum Left {
    /// Nothing: this is the exit code.
    Nothing(u8),
    /// A command that may still run.
    Command {
        /// Its process.
        child: Child,
        /// What ended the recording.
        ended: RecordingEnd,
    },
}

impl Left {
    /// Waits for the command and answers its exit code. A command whose recording was told to end
    /// is told so, too; one that outlives the time of its recording is left in peace, and whoever
    /// waits is told what for. A signal ends the wait.
    pub(super) async fn exit_code(self, signals: &mut Signals) -> anyhow::Result<u8> {
        let (mut child, ended) = match self {
            Self::Nothing(exit_code) => return Ok(exit_code),
            Self::Command { child, ended } => (child, ended),
        };
        let runs = child
            .try_wait()
            .context("cannot wait for the command")?
            .is_none();
        match ended {
            RecordingEnd::Signal if runs => terminate(&child),
            // A server may run for ever, and nothing else shows that the recording is over.
            RecordingEnd::Duration if runs => {
                progress::say(&waits_for(child.id(), std::process::id()));
            }
            RecordingEnd::Done | RecordingEnd::Duration | RecordingEnd::Signal => {}
        }
        let Signals { quit, child: news } = signals;
        tokio::select! {
            status = until_ended(&mut child, news) => Ok(exit_code_of(status?)),
            signal = quit.next() => Ok(signal.exit_code()),
        }
    }
}

/// What is waited for once the time of a recording is over, and how to stop that: a terminal sends
/// Ctrl-C to the command as well.
fn waits_for(command: u32, own: u32) -> String {
    format!(
        "the time is over and the report is made; process {command} still runs and this waits for its end \
         (Ctrl-C in a terminal interrupts both, `kill {own}` ends the wait alone)"
    )
}

/// Waits until the child has ended. `news` was made before the child was.
pub(super) async fn until_ended(
    child: &mut Child,
    news: &mut Signal,
) -> anyhow::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the command")? {
            return Ok(status);
        }
        news.recv().await;
    }
}

/// The exit code that passes a command's end on: its own, or 128 and the signal that ended it.
pub(super) fn exit_code_of(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| SIGNALLED + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

fn of_signal(kind: SignalKind) -> u8 {
    u8::try_from(SIGNALLED + kind.as_raw_value()).unwrap_or(u8::MAX)
}

/// The exit code where a command could not be executed.
pub(super) fn not_executed(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        NOT_EXECUTABLE
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::{QuitSignal, exit_code_of, not_executed};

    // Check that exit codes are passed on as they are, and ends by signal as shells tell them.
    #[test]
    fn exit_codes() {
        for (wait_status, code) in [
            (0, 0),
            (3 << 8, 3),
            (255 << 8, 255),
            (9, 137),
            (15, 143),
            // With a core file.
            (11 | 0x80, 139),
        ] {
            assert_eq!(exit_code_of(ExitStatus::from_raw(wait_status)), code);
        }
        assert_eq!(QuitSignal::Interrupt.exit_code(), 130);
        assert_eq!(QuitSignal::Terminate.exit_code(), 143);
        assert_eq!(QuitSignal::Hangup.exit_code(), 129);
        assert_eq!(QuitSignal::Quit.exit_code(), 131);
    }

    // Check that a missing command and one that may not be executed are told apart as shells do.
    #[test]
    fn commands_that_cannot_run() {
        assert_eq!(not_executed(&io::ErrorKind::NotFound.into()), 127);
        assert_eq!(not_executed(&io::ErrorKind::PermissionDenied.into()), 126);
    }
}
