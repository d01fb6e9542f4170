//! Running other programs: as this user or as root, with errors that name the program.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

/// Runs a command with the terminal as its own; fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .status()
        .with_context(|| format!("starting {}", line(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", line(command));
    }
    Ok(())
}

/// The trimmed standard output of a command; fails unless it succeeds.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .output()
        .with_context(|| format!("starting {}", line(command)))?;
    if !output.status.success() {
        bail!(
            "{} ended with {}: {}",
            line(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether a program of this name is on `PATH`.
pub(crate) fn has(program: &str) -> bool {
    find(program).is_some()
}

/// The file that a program's name stands for.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// How this user can run a program as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    /// Is root.
    Already,
    /// May ask sudo.
    Sudo,
    /// Neither.
    No,
}

impl Root {
    /// Looks at who runs this, and whether sudo is there.
    pub(crate) fn find() -> Self {
        let is_root = Path::new("/proc/self")
            .metadata()
            .is_ok_and(|metadata| metadata.uid() == 0);
        match (is_root, has("sudo")) {
            (true, _) => Self::Already,
            (false, true) => Self::Sudo,
            (false, false) => Self::No,
        }
    }

    /// A command that runs `program` as root, the environment kept where sudo permits.
    ///
    /// Fails, with a sentence for people, where there is no way to become root.
    pub(crate) fn command(self, program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
        match self {
            Self::Already => Ok(Command::new(program)),
            Self::Sudo => {
                let mut command = Command::new("sudo");
                command.arg("-E").arg(program);
                Ok(command)
            }
            Self::No => bail!(
                "{} needs root, and there is no sudo: run this as root",
                program.as_ref().display()
            ),
        }
    }
}

/// The command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}
