//! Child processes of the benchmark: started quietly, stopped by a signal, never left behind.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// How long a child may take to stop after it was asked to. Some profilers resolve names then.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// Prints a result.
pub(crate) fn print(text: &str) {
    // A closed standard output means that nobody reads it any more.
    std::io::stdout()
        .write_all(text.as_bytes())
        .unwrap_or_default();
}

/// Tells how far it is.
pub(crate) fn say(text: &str) {
    std::io::stderr()
        .write_all(format!("{text}\n").as_bytes())
        .unwrap_or_default();
}

/// A child that runs until it is stopped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    name: String,
    signal: i32,
}

impl Running {
    /// Starts it with nothing to read and nowhere to print.
    pub(crate) fn start(mut command: Command, signal: i32) -> anyhow::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("executing {name}"))?;
        Ok(Self {
            child,
            name,
            signal,
        })
    }

    /// Its pid.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The program.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// An error when it has already ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("{} ended by itself with {status}", self.name),
            None => Ok(()),
        }
    }

    /// Stops it. An error when it had ended before, or would not end.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        self.check()?;
        // SAFETY: plain numbers; the child was not reaped, so the pid is its own.
        unsafe { libc::kill(self.child.id().cast_signed(), self.signal) };
        let deadline = Instant::now() + STOP_WITHIN;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                bail!("{} did not stop in {STOP_WITHIN:?}", self.name);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After a clean stop there is nothing to kill, and that is no error here.
        if self.child.kill().is_ok() {
            self.child.wait().map(drop).unwrap_or_default();
        }
    }
}

/// Runs a command to its end and returns what it printed.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("executing {name}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        bail!(
            "{name} ended with {}: {}",
            output.status,
            text(&output.stderr).trim()
        );
    }
    Ok(text(&output.stdout) + &text(&output.stderr))
}

/// Whether a program is there to be executed.
pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    program.contains('/') && std::path::Path::new(program).exists()
        || std::env::split_paths(&path).any(|directory| directory.join(program).exists())
}
