//! `cargo xtask run`: builds the daemon, starts it as root, and says where to point a browser and
//! curl.
//!
//! The daemon takes this process over, so signals and the exit code are its own. What announces it
//! is another process, which ends by itself.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{self, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::build;
use crate::shell::{self, Root};
use crate::workspace::Workspace;

/// Where the daemon listens unless told otherwise.
const DEFAULT_LISTEN: &str = "127.0.0.1:9797";

/// How long the daemon may take to answer, with a password to be typed before it starts.
const PATIENCE: Duration = Duration::from_secs(120);

/// This program, even where the build has just replaced its file.
const THIS_PROGRAM: &str = "/proc/self/exe";

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Builds and becomes the daemon; returns only when that fails.
pub(crate) fn run(workspace: &Workspace, arguments: &[OsString]) -> anyhow::Result<()> {
    build::build(workspace, true)?;
    let daemon = workspace.daemon();
    let mut command = Root::find().command(&daemon)?;
    command.args(arguments);
    start_announcer(&listen_address(arguments))?;
    println!("Starting {}", shell::line(&command));
    let error = command.exec();
    Err(error).with_context(|| format!("starting {}", shell::line(&command)))
}

/// Starts `announce` as nobody's child, so that the daemon has no child it does not know.
fn start_announcer(listen: &str) -> anyhow::Result<()> {
    shell::run(&mut announcer(process::id(), listen, &["--detach"]))
}

fn announcer(pid: u32, listen: &str, more: &[&str]) -> Command {
    let mut command = Command::new(THIS_PROGRAM);
    command
        .args(["announce", "--pid", &pid.to_string(), "--listen", listen])
        .args(more);
    command
}

/// Starts `announce` and does not wait for it, which makes it nobody's child as soon as this
/// process ends.
pub(crate) fn announce_detached(pid: u32, listen: &str) -> anyhow::Result<()> {
    announcer(pid, listen, &[])
        .spawn()
        .map(drop)
        .context("starting what announces the daemon")
}

/// Waits until the daemon is ready and prints where to ask it; gives up silently when it ends
/// first.
pub(crate) fn announce(pid: u32, listen: &str) {
    let process = Path::new("/proc").join(pid.to_string());
    let start = Instant::now();
    while process.exists() && start.elapsed() < PATIENCE {
        if is_ready(listen) {
            println!(
                "\nThe profiler is ready: open http://{listen}/ or\n  curl 'http://{listen}/api/v1/processes?format=text'\n"
            );
            return;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Whether `/readyz` answers with 200.
fn is_ready(listen: &str) -> bool {
    let ask = || -> Option<bool> {
        let address: SocketAddr = listen.parse().ok()?;
        let mut stream = TcpStream::connect_timeout(&address, POLL_INTERVAL).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(
            stream,
            "GET /readyz HTTP/1.1\r\nHost: {listen}\r\nConnection: close\r\n\r\n"
        )
        .ok()?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).ok()?;
        Some(status.ends_with(b" 200"))
    };
    ask().unwrap_or(false)
}

/// The address that the daemon's arguments name, as one that can be connected to.
fn listen_address(arguments: &[OsString]) -> String {
    let mut given = DEFAULT_LISTEN.to_owned();
    let mut arguments = arguments.iter().map(|argument| argument.to_string_lossy());
    while let Some(argument) = arguments.next() {
        if argument == "--listen" {
            given = arguments.next().map_or(given, Into::into);
        } else if let Some(address) = argument.strip_prefix("--listen=") {
            given = address.to_owned();
        }
    }
    given
        .replace("0.0.0.0:", "127.0.0.1:")
        .replace("[::]:", "[::1]:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_daemon_listens() {
        // Check that the printed address is the one the daemon was given, and one that a client can
        // reach.
        let listen = |arguments: &[&str]| {
            listen_address(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
        };
        assert_eq!(listen(&[]), "127.0.0.1:9797");
        assert_eq!(
            listen(&["--frequency-hz", "99", "--listen", "127.0.0.1:80"]),
            "127.0.0.1:80"
        );
        assert_eq!(listen(&["--listen=0.0.0.0:81"]), "127.0.0.1:81");
        assert_eq!(listen(&["--listen"]), "127.0.0.1:9797");
    }
}
