//! `cargo xtask test-kernel`: the kernel's tests, the very ones that run on this machine, on other
//! kernels under emulation.
//!
//! [`list`] says which tests, and which kernels. The table at the end says what each kernel came
//! to.

mod cpio;
mod debian;
mod emulator;
mod image;
mod list;
mod outcome;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::workspace::Workspace;
use crate::{packages, shell, toolchain};
use emulator::Emulator;
use image::Files;
use list::{Extent, Kernel};
use outcome::Outcome;

/// How long a boot may take with no test, and with each test more: some three times what it takes
/// on a machine that does nothing else.
const BOOT_WITHIN: Duration = Duration::from_secs(120);
const TEST_WITHIN: Duration = Duration::from_secs(30);
/// How often a kernel is booted that does not come as far as the tests.
const BOOTS: u32 = 3;
/// How much of the console is shown where something went wrong.
const TAIL_LINES: usize = 60;

/// What one kernel came to.
pub(crate) struct Row {
    version: &'static str,
    release: String,
    took: Duration,
    /// How many tests passed.
    found: String,
    /// Why it is no success.
    fault: Option<String>,
}

/// Tests on the kernels with these versions, all of Debian's where none is named; prints a table at
/// the end. `given`: the file of the one that is named.
pub(crate) fn test_kernels(
    workspace: &Workspace,
    versions: &[String],
    given: Option<&Path>,
) -> anyhow::Result<()> {
    let kernels = list::choose(versions, given.is_some())?;
    if let Some(file) = given.filter(|file| !file.is_file()) {
        bail!("--image: there is no file {}", file.display());
    }
    let laboratory = Laboratory::prepare(workspace, Tools::find(workspace)?)?;
    let mut rows = Vec::new();
    for kernel in kernels {
        let file = match given {
            Some(file) => file.to_owned(),
            None => fetch(workspace, kernel)?,
        };
        rows.push(laboratory.test(kernel, &file, Extent::Full)?);
    }
    println!("\n{}", table(&rows));
    if rows.iter().any(|row| row.fault.is_some()) {
        bail!("not all kernels passed");
    }
    Ok(())
}

/// Tests on one kernel that is not this machine's, those of the routine or, with `full`, all;
/// answers with a line that says what it came to.
///
/// The inner error: it could not be tried here, and why.
pub(crate) fn test_another_kernel(
    workspace: &Workspace,
    full: bool,
) -> anyhow::Result<Result<String, anyhow::Error>> {
    let own = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = list::another(&own);
    let tools = match Tools::find(workspace) {
        Ok(tools) => tools,
        Err(error) => return Ok(Err(error)),
    };
    let file = match fetch(workspace, kernel) {
        Ok(file) => file,
        Err(error) => return Ok(Err(error)),
    };
    let laboratory = Laboratory::prepare(workspace, tools)?;
    let extent = if full { Extent::Full } else { Extent::Routine };
    let row = laboratory.test(kernel, &file, extent)?;
    match &row.fault {
        None => Ok(Ok(line(&row))),
        Some(fault) => bail!("Linux {}: {fault}", row.version),
    }
}

/// What a boot needs that is not built here.
struct Tools {
    emulator: Emulator,
    busybox: PathBuf,
}

impl Tools {
    /// Finds the tools, or downloads what is missing.
    fn find(workspace: &Workspace) -> anyhow::Result<Self> {
        Ok(Self {
            emulator: Emulator::find(workspace)?,
            busybox: busybox(workspace)?,
        })
    }
}

/// All that a boot needs but the kernel.
struct Laboratory<'a> {
    workspace: &'a Workspace,
    emulator: Emulator,
    files: Files,
}

/// Where a kernel, and what is left of its boots, is kept.
fn folder(workspace: &Workspace, kernel: &Kernel) -> PathBuf {
    workspace.target_dir().join("kernels").join(kernel.version)
}

/// The kernel's file, downloaded if it is missing.
fn fetch(workspace: &Workspace, kernel: &Kernel) -> anyhow::Result<PathBuf> {
    let suite = kernel.suite.with_context(|| {
        let version = kernel.version;
        format!(
            "no release of Debian has Linux {version}: get a vmlinuz of it elsewhere and name it, `cargo xtask test-kernel {version} --image FILE`"
        )
    })?;
    debian::kernel(suite, &folder(workspace, kernel))
}

impl<'a> Laboratory<'a> {
    /// Builds what is tested.
    fn prepare(workspace: &'a Workspace, tools: Tools) -> anyhow::Result<Self> {
        toolchain::ensure(workspace)?;
        let mut build = workspace.cargo("build");
        shell::run(build.args(["--release", "--workspace"]))?;
        let files = Files {
            busybox: tools.busybox,
            daemon: workspace.daemon(),
            workload: workspace.target_dir().join("release/workload"),
            tests: build_tests(workspace)?,
            goroutines: build_goroutines(workspace)?,
        };
        Ok(Self {
            workspace,
            emulator: tools.emulator,
            files,
        })
    }

    /// Boots a kernel and judges what its console says; shows the end of it where that is no
    /// success.
    fn test(&self, kernel: &Kernel, file: &Path, extent: Extent) -> anyhow::Result<Row> {
        let folder = folder(self.workspace, kernel);
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let tests = kernel.tests(extent);
        let command = self.files.tests_command(&tests);
        let image = folder.join("image");
        fs::write(&image, self.files.image(&command)?)
            .with_context(|| format!("writing {}", image.display()))?;
        println!("Booting Linux {} under emulation.", kernel.version);
        let within = BOOT_WITHIN + TEST_WITHIN * u32::try_from(tests.len())?;
        let start = Instant::now();
        let mut console = self.emulator.boot(file, &image, within)?;
        let mut outcome = Outcome::read(&console.text);
        for _ in 1..BOOTS {
            if outcome.release.is_some() {
                break;
            }
            // The emulator breaks some boots long before anything of ours runs: it may interrupt
            // what must be whole.
            println!(
                "Linux {} did not come up; booting it again.",
                kernel.version
            );
            console = self.emulator.boot(file, &image, within)?;
            outcome = Outcome::read(&console.text);
        }
        let took = start.elapsed();
        let log = folder.join("console");
        emulator::keep(&console.text, &log)?;
        let mut fault = outcome.fault(tests.len());
        if console.overran {
            let reason = fault.unwrap_or_else(|| "it did not switch itself off".to_owned());
            fault = Some(format!("{reason} in {} s", within.as_secs()));
        }
        if let Some(fault) = &fault {
            println!(
                "{}\nLinux {}: {fault}. The end of its console is above, all of it in {}.",
                emulator::tail(&console.text, TAIL_LINES),
                kernel.version,
                log.display()
            );
        }
        Ok(Row {
            version: kernel.version,
            release: outcome.release.unwrap_or_else(|| "did not boot".to_owned()),
            took,
            found: format!("{} of {} tests", outcome.passed, tests.len()),
            fault,
        })
    }
}

fn busybox(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    if !packages::has_apt() {
        bail!("there is no apt to download busybox-static with");
    }
    let folder = packages::unpack(
        "busybox-static",
        "it is the shell of the emulated machines",
        &workspace.target_dir().join("tools"),
    )?;
    ["bin/busybox", "usr/bin/busybox"]
        .map(|path| folder.join(path))
        .into_iter()
        .find(|path| path.is_file())
        .context("the package busybox-static has no busybox")
}

/// The program of goroutines that the tests build where they can: the emulated machine has no Go.
/// `None`: nor has this one.
fn build_goroutines(workspace: &Workspace) -> anyhow::Result<Option<PathBuf>> {
    let source = workspace
        .root()
        .join("profiler-daemon/tests/kernel/survival/goroutines.go");
    let program = workspace.target_dir().join("kernels/goroutines");
    let mut build = Command::new("go");
    build
        .envs([("GO111MODULE", "off"), ("CGO_ENABLED", "0")])
        .args(["build", "-o"])
        .args([&program, &source]);
    match build.status() {
        Ok(status) if status.success() => Ok(Some(program)),
        Ok(status) => bail!("go build of {} ended with {status}", source.display()),
        Err(error) => {
            println!("Without a program of goroutines: there is no Go here ({error}).");
            Ok(None)
        }
    }
}

/// Builds the kernel's tests and answers with their program.
fn build_tests(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let mut command = workspace.cargo("test");
    command
        .args(["--workspace", "--no-run", "--test", "kernel"])
        .args(["--quiet", "--message-format", "json"]);
    parse_executable(&shell::output(&mut command)?).context("cargo names no program of the tests")
}

/// The program in the messages of a build of one test target.
fn parse_executable(messages: &str) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        target: Target,
        executable: Option<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Target {
        kind: Vec<String>,
    }
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .find(|message| message.target.kind == ["test"])
        .and_then(|message| message.executable)
}

fn line(row: &Row) -> String {
    format!(
        "Linux {} under emulation: {} in {} s",
        row.release,
        row.found,
        row.took.as_secs()
    )
}

fn table(rows: &[Row]) -> String {
    let mut text = format!("{:<7} {:<28} {:>6}  RESULT", "KERNEL", "RELEASE", "TIME");
    for row in rows {
        let result = match &row.fault {
            None => format!("ok: {}", row.found),
            Some(fault) => format!("FAILED: {fault}"),
        };
        let time = format!("{} s", row.took.as_secs());
        text.push_str(&format!(
            "\n{:<7} {:<28} {time:>6}  {result}",
            row.version, row.release
        ));
    }
    text
}

/// Whether what cannot be tried must fail, because nobody would read that it was skipped.
pub(crate) fn must_run() -> bool {
    env::var_os("CI").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_program_is_found() {
        // Check that of all that cargo built the test's program is taken.
        let messages = r#"{"reason":"compiler-artifact","target":{"kind":["lib"]},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"]},"executable":"/t/daemon"}
{"reason":"compiler-artifact","target":{"kind":["test"]},"executable":"/t/kernel-1"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(
            parse_executable(messages),
            Some(PathBuf::from("/t/kernel-1"))
        );
        assert_eq!(parse_executable(""), None);
    }

    #[test]
    fn the_table_says_what_failed() {
        // Check that each kernel has a line, with its fault where there is one.
        let row = |fault: Option<&str>| Row {
            version: "6.1",
            release: "6.1.0-50".to_owned(),
            took: Duration::from_millis(61_900),
            found: "9 of 9 tests".to_owned(),
            fault: fault.map(str::to_owned),
        };
        let text = table(&[row(None), row(Some("it did not come to its end"))]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].contains("61 s  ok: 9 of 9 tests"), "{text}");
        assert!(
            lines[2].ends_with("FAILED: it did not come to its end"),
            "{text}"
        );
    }
}
