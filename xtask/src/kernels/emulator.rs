//! The emulated machine: qemu, without hardware support, so that it works inside virtual machines
//! too.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};

use crate::workspace::Workspace;
use crate::{packages, shell};

const PROGRAM: &str = "qemu-system-x86_64";
const PACKAGE: &str = "qemu-system-x86";
/// More than any console has: what is beyond is read and dropped.
const CONSOLE_BYTES: u64 = 4 << 20;

/// Where qemu and its files are.
pub(super) struct Emulator {
    program: PathBuf,
    /// The folder its package was unpacked into; none if it is installed.
    unpacked: Option<PathBuf>,
}

/// What a boot left behind.
pub(super) struct Console {
    /// What was written to the console.
    pub(super) text: String,
    /// Whether the machine was switched off because its time was over.
    pub(super) overran: bool,
}

impl Emulator {
    /// Finds qemu, or downloads and unpacks it. It is not installed: its libraries may stand in
    /// another package's way.
    pub(super) fn find(workspace: &Workspace) -> anyhow::Result<Self> {
        if let Some(program) = shell::find(PROGRAM) {
            return Ok(Self {
                program,
                unpacked: None,
            });
        }
        if !packages::has_apt() {
            bail!("{PROGRAM} is not installed, and there is no apt to download it with");
        }
        let folder = packages::unpack_with_dependencies(
            PACKAGE,
            "it boots other kernels under emulation",
            &workspace.target_dir().join("tools"),
        )?;
        Ok(Self {
            program: folder.join("usr/bin").join(PROGRAM),
            unpacked: Some(folder),
        })
    }

    /// Boots a kernel and waits until the machine switches itself off, or its time is over.
    pub(super) fn boot(
        &self,
        kernel: &Path,
        image: &Path,
        within: Duration,
    ) -> anyhow::Result<Console> {
        let mut command = self.command();
        command
            // The machine's clock counts instructions, two nanoseconds each, and skips what nobody
            // works in: time passes in it as on a slow machine of its own, however busy this one
            // is.
            .args([
                "-accel",
                "tcg,thread=single",
                "-icount",
                "shift=1,sleep=off",
            ])
            .args(["-rtc", "clock=vm"])
            // That goes with one processor only. (Without it, with several, qemu goes on executing
            // instructions that another processor has replaced: endless loops where a kernel
            // patches itself, as for BPF statistics.)
            .args(["-smp", "1"])
            // Of all that qemu can emulate, what Linux 6.12 panics with under qemu 7.2.
            .args(["-cpu", "max,la57=off,pku=off", "-m", "1024"])
            .args([
                "-nographic",
                "-monitor",
                "none",
                "-vga",
                "none",
                "-nic",
                "none",
            ])
            .args(["-no-reboot", "-append", "console=ttyS0 quiet panic=-1"])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(image)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let deadline = Instant::now() + within;
        let mut child = command
            .spawn()
            .with_context(|| format!("starting {}", self.program.display()))?;
        let stdout = child
            .stdout
            .take()
            .context("standard output was asked for")?;
        let stderr = child
            .stderr
            .take()
            .context("standard error was asked for")?;
        let console = thread::spawn(move || read_all(stdout));
        let errors = thread::spawn(move || read_all(stderr));
        let mut overran = false;
        let status = loop {
            if let Some(status) = child.try_wait().context("waiting for the emulator")? {
                break status;
            }
            if Instant::now() >= deadline {
                overran = true;
                child.kill().context("ending the emulator")?;
                break child.wait().context("waiting for the emulator")?;
            }
            thread::sleep(Duration::from_millis(100));
        };
        let join = |reader: thread::JoinHandle<String>| {
            reader
                .join()
                .map_err(|_| anyhow!("a thread that reads the emulator's output failed"))
        };
        let (text, errors) = (join(console)?, join(errors)?);
        if !overran && !status.success() {
            bail!("the emulator ended with {status}: {}", errors.trim());
        }
        Ok(Console { text, overran })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(folder) = &self.unpacked {
            let below = |path: &str| folder.join(path);
            let mut libraries = below("usr/lib/x86_64-linux-gnu").into_os_string();
            libraries.push(":");
            libraries.push(below("lib/x86_64-linux-gnu"));
            command
                .env("LD_LIBRARY_PATH", libraries)
                .env("QEMU_MODULE_DIR", below("usr/lib/x86_64-linux-gnu/qemu"));
            for data in ["usr/share/qemu", "usr/share/seabios"] {
                command.arg("-L").arg(below(data));
            }
        }
        command
    }
}

/// Reads to the end, keeps the beginning.
fn read_all(mut from: impl std::io::Read) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is all there is to show.
    if from
        .by_ref()
        .take(CONSOLE_BYTES)
        .read_to_end(&mut bytes)
        .is_ok()
    {
        std::io::copy(&mut from, &mut std::io::sink()).unwrap_or(0);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last lines of a console, for people.
pub(super) fn tail(console: &str, lines: usize) -> String {
    let all: Vec<_> = console.lines().map(str::trim_end).collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Keeps a console in a file.
pub(super) fn keep(console: &str, file: &Path) -> anyhow::Result<()> {
    fs::write(file, console).with_context(|| format!("writing {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::tail;

    #[test]
    fn the_tail_is_the_end() {
        // Check that the last lines are shown, without carriage returns, and all where there are
        // few.
        assert_eq!(tail("a\r\nb\r\nc\r\n", 2), "b\nc");
        assert_eq!(tail("a\n", 5), "a");
        assert_eq!(tail("", 5), "");
    }
}
