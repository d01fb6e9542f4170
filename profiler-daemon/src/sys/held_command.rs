//! A command that is started, but held before its first instruction until it is let go: what is to
//! see all of it can get ready.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread::{self, JoinHandle};

use rustix::io::{Errno, close, read, retry_on_intr, write};
use rustix::process::{Pid, Signal, getpid, kill_process};

/// A child that waits for [`HeldCommand::let_go`] before it executes its program. Dropped instead,
/// it ends and has done nothing.
#[derive(Debug)]
pub struct HeldCommand {
    pid: u32,
    gate: io::PipeWriter,
    started: JoinHandle<io::Result<Child>>,
}

impl HeldCommand {
    /// Makes the process. Whether its program can be executed is not known before it is let go.
    ///
    /// # Errors
    /// The system gives no process, thread or pipe.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let (mut number, tell) = io::pipe()?;
        let (waiting, gate) = io::pipe()?;
        let held = ChildSide {
            tell: tell.as_raw_fd(),
            waiting: waiting.as_raw_fd(),
            gate: gate.as_raw_fd(),
        };
        // SAFETY: what runs between fork and exec only makes system calls on descriptors and memory
        // of its own. The descriptors stay open until the thread below has seen the command start:
        // it and the gate's owner hold them.
        unsafe {
            command.pre_exec(move || held.hold());
        }
        // Starting returns only once the program runs, so it has a thread of its own.
        let started = thread::Builder::new()
            .name("command".into())
            .spawn(move || {
                let child = command.spawn();
                drop((tell, waiting));
                child
            })?;
        let mut pid = [0; 4];
        match number.read_exact(&mut pid) {
            Ok(()) => Ok(Self {
                pid: u32::from_ne_bytes(pid),
                gate,
                started,
            }),
            // There was no process to tell its number: the thread knows why.
            Err(error) => Err(joined(started).err().unwrap_or(error)),
        }
    }

    /// Its process. It keeps this number when it executes its program.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Has it execute its program, and waits until it does.
    ///
    /// # Errors
    /// The program cannot be executed, or something ended the process while it waited.
    pub fn let_go(mut self) -> io::Result<Child> {
        match self.gate.write_all(&[1]) {
            Ok(()) => joined(self.started),
            Err(error) => Err(joined(self.started).err().unwrap_or(error)),
        }
    }
}

fn joined(started: JoinHandle<io::Result<Child>>) -> io::Result<Child> {
    started
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread that starts the command broke")))
}

/// The child's side.
#[derive(Clone, Copy)]
struct ChildSide {
    tell: RawFd,
    waiting: RawFd,
    gate: RawFd,
}

impl ChildSide {
    /// Tells the process's number, and waits. Allocates nothing and takes no lock, as is due
    /// between fork and exec.
    fn hold(self) -> io::Result<()> {
        let pid = getpid().as_raw_pid().to_ne_bytes();
        // SAFETY: the child's copies of descriptors that the parent had open at the fork. Its copy
        // of the gate is closed, so that the end of the parent is an end of the pipe and not a wait
        // for ever.
        let (tell, waiting) = unsafe {
            close(self.gate);
            (
                BorrowedFd::borrow_raw(self.tell),
                BorrowedFd::borrow_raw(self.waiting),
            )
        };
        // So few bytes are written whole or not at all.
        write(tell, &pid)?;
        match retry_on_intr(|| read(waiting, &mut [0_u8; 1]))? {
            0 => Err(Errno::CANCELED.into()),
            _ => Ok(()),
        }
    }
}

/// Asks a child that was not waited for yet to end. One that has ended already is left as it is.
pub fn terminate(child: &Child) {
    // Nobody has waited for the child, so the number is still its own.
    if let Err(error) = kill_process(Pid::from_child(child), Signal::TERM) {
        tracing::debug!("the command cannot be told to end: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use super::{HeldCommand, terminate};
    use crate::sys::proc_fs;

    // Check that the process is there under the number it keeps, has not executed its program while
    // held, and then does.
    #[test]
    fn held_then_let_go() {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "echo $$; exit 3"])
            .stdout(Stdio::piped());
        let held = HeldCommand::start(command).unwrap();
        let pid = held.pid();
        let own = proc_fs::exe(std::process::id());
        assert_eq!(proc_fs::exe(pid), own, "it still is this program");
        let output = held.let_go().unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            format!("{pid}\n"),
            "the number stays"
        );
    }

    // Check that a program that is not there is told when it is let go, and that a command that is
    // given up never runs.
    #[test]
    fn what_cannot_run_and_what_may_not() {
        let held = HeldCommand::start(Command::new("/nonexistent/program")).unwrap();
        assert_eq!(
            held.let_go().unwrap_err().kind(),
            std::io::ErrorKind::NotFound
        );
        let folder = tempfile::TempDir::new().unwrap();
        let made = folder.path().join("made");
        let mut command = Command::new("/bin/touch");
        command.arg(&made);
        let held = HeldCommand::start(command).unwrap();
        let HeldCommand { gate, started, .. } = held;
        drop(gate);
        assert!(started.join().unwrap().is_err(), "it was not started");
        assert!(!made.exists(), "it did nothing");
    }

    // Check that a running command can be asked to end, and that asking one that has ended is
    // harmless.
    #[test]
    fn terminated() {
        let mut command = Command::new("/bin/sleep");
        command.arg("60");
        let mut child = HeldCommand::start(command).unwrap().let_go().unwrap();
        terminate(&child);
        terminate(&child);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    }
}
