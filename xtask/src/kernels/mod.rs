//! `cargo xtask test-kernel`: the kernel's tests, the very ones that run on this machine, on other kernels under emulation.
//!
//! Emulation takes ten to twenty times as long, so not all tests hold there: [`TESTS`] are those that do.

mod cpio;
mod debian;
mod emulator;
mod image;
mod outcome;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::workspace::Workspace;
use crate::{packages, shell, toolchain};
use emulator::Emulator;
use image::Files;
use outcome::Outcome;

/// A kernel to test on.
struct Kernel {
    /// The first two numbers of its release.
    version: &'static str,
    /// Debian's name of the release that has it.
    suite: &'static str,
    /// What the daemon says where it cannot work; none where it works.
    refusal: Option<&'static str>,
}

/// Oldest first.
const KERNELS: [Kernel; 4] = [
    Kernel {
        version: "5.10",
        suite: "bullseye",
        refusal: Some(
            "this kernel lacks BPF task storage, without which nothing can be profiled: Linux 5.15 or later is needed",
        ),
    },
    Kernel {
        version: "6.1",
        suite: "bookworm",
        refusal: None,
    },
    Kernel {
        version: "6.12",
        suite: "trixie",
        refusal: None,
    },
    Kernel {
        version: "7.2",
        suite: "sid",
        refusal: None,
    },
];

/// Those that `cargo xtask test` chooses from: the oldest that has all that is needed, or the next one.
const ROUTINE: [&str; 2] = ["6.1", "6.12"];

/// The tests that hold under emulation.
///
/// Counts, identities, the ledger and sums to the nanosecond hold on any machine, and so does processor time against
/// `getrusage`. Left out is what compares with a clock read outside the thread (its start and end take tens of
/// milliseconds here), what needs processors that run at the same time or a given number of samples (the emulator runs
/// the processors in turn), what ticks thousands of times a second (a tick then takes longer than the time to the next),
/// and what needs tools that the image has not.
const TESTS: [&str; 1] = ["system_calls::every_system_call_is_counted"];

/// How long a boot with all tests may take, in seconds.
const WITHIN: Duration = Duration::from_secs(300);
/// How much of the console is shown where something went wrong.
const TAIL_LINES: usize = 60;

/// What one kernel came to.
pub(crate) struct Row {
    version: &'static str,
    release: String,
    took: Duration,
    /// Tests that passed, and what a success means besides.
    found: String,
    /// Why it is no success.
    fault: Option<String>,
}

/// Tests on the kernels with these versions, all of [`KERNELS`] where none is named; prints a table at the end.
pub(crate) fn test_kernels(workspace: &Workspace, versions: &[String]) -> anyhow::Result<()> {
    let kernels = choose(versions)?;
    let laboratory = Laboratory::prepare(workspace)?;
    let mut rows = Vec::new();
    for kernel in kernels {
        rows.push(laboratory.test(kernel)?);
    }
    println!("\n{}", table(&rows));
    if rows.iter().any(|row| row.fault.is_some()) {
        bail!("not all kernels passed");
    }
    Ok(())
}

/// Tests on one kernel that is not this machine's; answers with a line that says what it came to.
///
/// The inner error: it could not be tried here, and why.
pub(crate) fn test_another_kernel(
    workspace: &Workspace,
) -> anyhow::Result<Result<String, anyhow::Error>> {
    let own = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = another(&own);
    let laboratory = match Laboratory::prepare(workspace) {
        Ok(laboratory) => laboratory,
        Err(error) => return Ok(Err(error)),
    };
    if let Err(error) = laboratory.fetch(kernel) {
        return Ok(Err(error));
    }
    let row = laboratory.test(kernel)?;
    match &row.fault {
        None => Ok(Ok(line(&row))),
        Some(fault) => bail!("Linux {}: {fault}", row.version),
    }
}

fn choose(versions: &[String]) -> anyhow::Result<Vec<&'static Kernel>> {
    if versions.is_empty() {
        return Ok(KERNELS.iter().collect());
    }
    let find = |version: &String| {
        KERNELS
            .iter()
            .find(|kernel| kernel.version == version)
            .with_context(|| {
                let known = KERNELS.map(|kernel| kernel.version).join(", ");
                format!("no kernel {version}: there are {known}")
            })
    };
    versions.iter().map(find).collect()
}

/// The kernel for the routine, given the release of this machine's own.
fn another(own: &str) -> &'static Kernel {
    let is_own = |version: &str| {
        own.strip_prefix(version)
            .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
    };
    let version = ROUTINE.into_iter().find(|version| !is_own(version));
    KERNELS
        .iter()
        .find(|kernel| Some(kernel.version) == version)
        .expect("the routine's kernels are in the list, and at most one is this machine's")
}

/// All that a boot needs but the kernel.
struct Laboratory {
    emulator: Emulator,
    files: Files,
    folder: PathBuf,
}

impl Laboratory {
    /// Builds what is tested, and brings the emulator and a shell if they are missing.
    fn prepare(workspace: &Workspace) -> anyhow::Result<Self> {
        toolchain::ensure(workspace)?;
        let emulator = Emulator::find(workspace)?;
        let busybox = busybox(workspace)?;
        let mut build = workspace.cargo("build");
        shell::run(build.args(["--release", "--workspace"]))?;
        let files = Files {
            busybox,
            daemon: workspace.daemon(),
            workload: workspace.target_dir().join("release/workload"),
            tests: build_tests(workspace)?,
        };
        Ok(Self {
            emulator,
            files,
            folder: workspace.target_dir().join("kernels"),
        })
    }

    /// The kernel's file, downloaded if it is missing.
    fn fetch(&self, kernel: &Kernel) -> anyhow::Result<PathBuf> {
        debian::kernel(kernel.suite, &self.folder.join(kernel.version))
    }

    /// Boots a kernel and judges what its console says; shows the end of it where that is no success.
    fn test(&self, kernel: &Kernel) -> anyhow::Result<Row> {
        let file = self.fetch(kernel)?;
        let folder = self.folder.join(kernel.version);
        let command = match kernel.refusal {
            None => self.files.tests_command(&TESTS),
            Some(_) => self.files.start_command(),
        };
        let image = folder.join("image");
        fs::write(&image, self.files.image(&command)?)
            .with_context(|| format!("writing {}", image.display()))?;
        println!("Booting Linux {} under emulation.", kernel.version);
        let start = Instant::now();
        let console = self.emulator.boot(&file, &image, WITHIN)?;
        let took = start.elapsed();
        let log = folder.join("console");
        emulator::keep(&console.text, &log)?;
        let outcome = Outcome::read(&console.text);
        let mut fault = match kernel.refusal {
            None => outcome.fault_of_tests(TESTS.len()),
            Some(sentence) => outcome.fault_of_refusal(sentence),
        };
        if console.overran {
            let reason = fault.unwrap_or_else(|| "it did not switch itself off".to_owned());
            fault = Some(format!("{reason} in {} s", WITHIN.as_secs()));
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
            found: match kernel.refusal {
                None => format!("{} of {} tests", outcome.passed, TESTS.len()),
                Some(_) => "refuses, and says why".to_owned(),
            },
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

/// Builds the kernel's tests and answers with their program.
fn build_tests(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let mut command = workspace.cargo("test");
    command
        .args(["--release", "--workspace", "--no-run", "--test", "kernel"])
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
    fn kernels_are_chosen_by_version() {
        // Check that none means all, that named ones come in that order, and that an unknown one is refused with those known.
        let versions = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            choose(&names).map(|kernels| {
                kernels
                    .iter()
                    .map(|kernel| kernel.version)
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(
            versions(&[]).expect("all"),
            KERNELS.map(|kernel| kernel.version)
        );
        assert_eq!(versions(&["7.2", "6.1"]).expect("both"), ["7.2", "6.1"]);
        let error = versions(&["4.19"]).expect_err("there is none").to_string();
        assert!(error.contains("4.19") && error.contains("6.12"), "{error}");
    }

    #[test]
    fn the_routine_is_never_on_the_own_kernel() {
        // Check that another kernel than the running one is taken, and that 6.12 is not taken for 6.1.
        assert_eq!(another("6.18.44").version, "6.1");
        assert_eq!(another("6.12.107+deb13-cloud-amd64").version, "6.1");
        assert_eq!(another("6.1.0-50-amd64").version, "6.12");
        assert_eq!(another("").version, "6.1");
    }

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
