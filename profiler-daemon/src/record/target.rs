//! Who is recorded, and when that is over.

use std::ffi::OsString;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use crate::args::RecordArgs;
use crate::report::{ProcessSelector, Scope};
use crate::sys::held_command::HeldCommand;
use crate::sys::proc_fs;

use super::ending::{Left, RecordingEnd, Signals, not_executed, until_ended};

/// Time between two looks at whether the processes are still there.
const LOOK: Duration = Duration::from_millis(100);

/// Who is recorded.
pub(super) enum Recorded {
    /// Everybody, or whoever has a name: there is no end.
    Everybody,
    /// These processes.
    Processes {
        /// Each with its start.
        processes: Vec<ProcessSelector>,
        /// What they start as well.
        children: bool,
    },
    /// A command that waits to be let go.
    Held {
        /// The process.
        held: HeldCommand,
        /// What it will execute, as was typed.
        program: OsString,
    },
    /// A command that runs, or has ended.
    Command(Child),
    /// A command that could not be let go.
    Failed,
}

/// A command that could not be executed.
pub(super) struct Failure {
    /// What to say.
    pub(super) sentence: String,
    /// As shells answer it.
    pub(super) exit_code: u8,
}

impl Recorded {
    /// Looks the processes up; makes the command's process, and holds it.
    pub(super) fn new(args: &RecordArgs) -> anyhow::Result<Self> {
        if let [program, arguments @ ..] = args.command.as_slice() {
            let mut command = Command::new(program);
            command.args(arguments);
            let held =
                HeldCommand::start(command).context("cannot start a process for the command")?;
            return Ok(Self::Held {
                held,
                program: program.clone(),
            });
        }
        if args.pids.is_empty() || !args.comms.is_empty() {
            return Ok(Self::Everybody);
        }
        let find = |pid: &u32| {
            let stat = proc_fs::stat(*pid).filter(|stat| !stat.dead());
            let stat = stat.ok_or_else(|| anyhow!("there is no process {pid}"))?;
            Ok(ProcessSelector {
                pid: *pid,
                start_ticks: Some(stat.start_ticks),
            })
        };
        Ok(Self::Processes {
            processes: args.pids.iter().map(find).collect::<anyhow::Result<_>>()?,
            children: args.children,
        })
    }

    /// The same on another machine: what ends there is not seen here.
    pub(super) fn elsewhere(args: &RecordArgs) -> anyhow::Result<Self> {
        if args.command.is_empty() {
            Ok(Self::Everybody)
        } else {
            Err(anyhow!(
                "a command runs on this machine: --connect must name a daemon on it"
            ))
        }
    }

    /// The process that will execute the command.
    pub(super) fn command_pid(&self) -> Option<u32> {
        match self {
            Self::Held { held, .. } => Some(held.pid()),
            _ => None,
        }
    }

    /// What the report is about: one process, or all that was recorded.
    pub(super) fn scope(&self) -> Scope {
        match self {
            Self::Processes {
                processes,
                children: false,
            } => match processes.as_slice() {
                [one] => Scope::Process(*one),
                _ => Scope::Session,
            },
            _ => Scope::Session,
        }
    }

    /// Lets the command go, where there is one.
    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        match std::mem::replace(self, Self::Failed) {
            Self::Held { held, program } => match held.let_go() {
                Ok(child) => {
                    *self = Self::Command(child);
                    Ok(())
                }
                Err(error) => Err(Failure {
                    sentence: format!("cannot run {}: {error}", program.display()),
                    exit_code: not_executed(&error),
                }),
            },
            other => {
                *self = other;
                Ok(())
            }
        }
    }

    /// Waits until the recording is over.
    pub(super) async fn end(
        &mut self,
        length: Option<Duration>,
        signals: &mut Signals,
    ) -> anyhow::Result<RecordingEnd> {
        let Signals { quit, child: news } = signals;
        let time_is_over = async {
            match length {
                Some(length) => tokio::time::sleep(length).await,
                None => std::future::pending().await,
            }
        };
        let done = async {
            match self {
                Self::Command(child) => until_ended(child, news).await.map(drop),
                Self::Processes { processes, .. } => {
                    while processes.iter().any(is_alive) {
                        tokio::time::sleep(LOOK).await;
                    }
                    Ok(())
                }
                Self::Everybody | Self::Held { .. } | Self::Failed => std::future::pending().await,
            }
        };
        tokio::select! {
            done = done => done.map(|()| RecordingEnd::Done),
            () = time_is_over => Ok(RecordingEnd::Duration),
            _ = quit.next() => Ok(RecordingEnd::Signal),
        }
    }

    /// What is left to wait for.
    pub(super) fn left(self, ended: RecordingEnd) -> Left {
        match self {
            Self::Command(child) => Left::Command { child, ended },
            _ => Left::Nothing(0),
        }
    }
}

fn is_alive(process: &ProcessSelector) -> bool {
    proc_fs::stat(process.pid)
        .is_some_and(|stat| !stat.dead() && Some(stat.start_ticks) == process.start_ticks)
}

#[cfg(test)]
mod tests {
    use super::Recorded;
    use crate::args::RecordArgs;
    use crate::report::Scope;

    fn of_pids(pids: &[u32], children: bool) -> anyhow::Result<Recorded> {
        Recorded::new(&RecordArgs {
            pids: pids.to_vec(),
            children,
            ..RecordArgs::default()
        })
    }

    // Check that one process alone is reported as that process, more as all, and that a process
    // that is not there is told.
    #[test]
    fn scopes() {
        let own = std::process::id();
        let one = of_pids(&[own], false).unwrap().scope();
        assert!(
            matches!(one, Scope::Process(selector) if selector.pid == own && selector.start_ticks.is_some())
        );
        for recorded in [
            of_pids(&[own], true),
            of_pids(&[own, 1], false),
            of_pids(&[], false),
        ] {
            assert_eq!(recorded.unwrap().scope(), Scope::Session);
        }
        let missing = of_pids(&[4_194_304], false).err().unwrap();
        assert_eq!(missing.to_string(), "there is no process 4194304");
    }
}
