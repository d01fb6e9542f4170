//! `cargo xtask test`: the tests of the workspace, those on the running kernel, those on another
//! one under emulation, one summary.
//!
//! A test that lacks a tool writes a line that begins with `skipped:` past the test harness, as
//! with `writeln!(std::io::stderr(), …)`; the summary repeats it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;

use crate::shell::{self, Root};
use crate::workspace::Workspace;
use crate::{kernels, packages, toolchain};

/// The test target whose tests load programs into the running kernel.
const KERNEL_TESTS: &str = "kernel";
/// Those of them that attack: they fill the tables of whatever daemon runs, so they run when the
/// one that others share is gone.
const ATTACKS: &str = "hostile::";

/// What the tests of one or more binaries came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    skips: Vec<String>,
}

/// Runs all tests; `full` adds those that are marked as ignored because they take long.
///
/// Fails when a test did, or when one could not be built or run.
pub(crate) fn test(workspace: &Workspace, full: bool) -> anyhow::Result<()> {
    toolchain::ensure(workspace)?;
    let path = path_with_tools(workspace)?;
    let names = integration_tests(workspace)?;
    let mut tally = Tally::default();
    let mut broken = Vec::new();
    let mut step = |title: &str, mut command: Command| {
        println!("\n== {title}");
        command.env("PATH", &path);
        match run(&mut command, &mut tally) {
            Ok(()) => {}
            Err(error) => broken.push(format!("{title}: {error:#}")),
        }
    };
    let ignored: &[&str] = if full { &["--include-ignored"] } else { &[] };

    let mut host = workspace.cargo("test");
    // The other programs only call libraries.
    host.args(["--workspace", "--no-fail-fast", "--lib", "--bin", "xtask"]);
    for name in names.iter().filter(|name| *name != KERNEL_TESTS) {
        host.args(["--test", name]);
    }
    host.arg("--").args(ignored);
    step("Tests that need no kernel", host);

    let mut documentation = workspace.cargo("test");
    documentation.args(["--workspace", "--no-fail-fast", "--doc"]);
    step("Examples in the documentation", documentation);

    let mut kernel_skip = None;
    if names.iter().any(|name| name == KERNEL_TESTS) {
        match kernel_tests(workspace, &path)? {
            Ok([build, mut tests]) => {
                tests.args(["--test-threads=1", "--skip", ATTACKS]);
                tests.args(ignored);
                step("Building the daemon and the workloads", build);
                step("Tests on the running kernel", tests);
                if let Ok([_, mut attacks]) = kernel_tests(workspace, &path)? {
                    attacks.args(["--test-threads=1", ATTACKS]);
                    step("Attacks on the daemon", attacks);
                }
            }
            Err(sentence) => kernel_skip = Some(sentence),
        }
    }
    tally.skips.extend(kernel_skip);

    println!("\n== Tests on another kernel");
    match kernels::test_another_kernel(workspace, full) {
        Ok(Ok(line)) => {
            println!("{line}");
            tally.passed += 1;
        }
        Ok(Err(error)) if !kernels::must_run() => {
            tally
                .skips
                .push(format!("skipped: the tests on another kernel: {error:#}"));
        }
        Ok(Err(error)) | Err(error) => broken.push(format!("Tests on another kernel: {error:#}")),
    }
    report(&tally, &broken)
}

/// The commands that build what the kernel's tests start, and run those tests as root; or why they
/// cannot run.
pub(crate) fn kernel_tests(
    workspace: &Workspace,
    path: &OsStr,
) -> anyhow::Result<Result<[Command; 2], String>> {
    let mut build = workspace.cargo("build");
    build.args(["--release", "--workspace"]);
    let mut tests = workspace.cargo("test");
    // As the other tests are built: for release, the library would be compiled once more for their
    // sake.
    tests.args(["--workspace", "--no-fail-fast", "--test", KERNEL_TESTS]);
    tests.env("DAEMON_BIN", workspace.daemon());
    // Else the tests would build it again, and as root.
    tests.env(
        "WORKLOAD_BIN",
        workspace.target_dir().join("release/workload"),
    );
    match Root::find() {
        Root::Already => {}
        Root::Sudo => {
            // Only the tests run as root: what cargo builds stays this user's. sudo would set
            // another PATH.
            let path = format!("PATH={}", path.display());
            let runner = serde_json::to_string(&["sudo", "-E", "env", &path])?;
            tests.args([
                "--config",
                &format!("target.'cfg(all())'.runner = {runner}"),
            ]);
        }
        Root::No if env::var_os("CI").is_some() => {
            bail!("the tests on the kernel need root, and there is no sudo")
        }
        Root::No => {
            return Ok(Err(
                "skipped: the tests on the kernel, which need root; there is no sudo".to_owned(),
            ));
        }
    }
    tests.arg("--");
    Ok(Ok([build, tests]))
}

/// Prints what all tests came to; fails when one failed.
fn report(tally: &Tally, broken: &[String]) -> anyhow::Result<()> {
    println!("\n== Summary");
    for skip in &tally.skips {
        println!("{skip}");
    }
    for sentence in broken {
        println!("failed: {sentence}");
    }
    println!(
        "{} passed, {} failed, {} ignored, {} skipped",
        tally.passed,
        tally.failed,
        tally.ignored,
        tally.skips.len()
    );
    if tally.failed > 0 || !broken.is_empty() {
        bail!("not all tests passed");
    }
    Ok(())
}

/// Runs a command, passes on what it prints, and adds what its tests came to.
fn run(command: &mut Command, tally: &mut Tally) -> anyhow::Result<()> {
    if io::stderr().is_terminal() && env::var_os("CARGO_TERM_COLOR").is_none() {
        // The pipe hides from cargo that a person reads this.
        command.env("CARGO_TERM_COLOR", "always");
    }
    let spawned = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.with_context(|| format!("starting {}", shell::line(command)))?;
    let stdout = child
        .stdout
        .take()
        .context("standard output was asked for")?;
    let stderr = child
        .stderr
        .take()
        .context("standard error was asked for")?;
    let of_stderr = thread::spawn(move || pass_on(stderr, io::stderr()));
    tally.add(pass_on(stdout, io::stdout())?);
    tally.add(
        of_stderr
            .join()
            .map_err(|_| anyhow!("the thread that reads standard error failed"))??,
    );
    let status = child.wait().context("waiting for the tests")?;
    if !status.success() {
        bail!("`{}` ended with {status}", shell::line(command));
    }
    Ok(())
}

/// Copies lines from one to the other and says what they came to.
fn pass_on(from: impl Read, mut to: impl Write) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for line in BufReader::new(from).split(b'\n') {
        let line = line.context("reading what the tests print")?;
        let line = String::from_utf8_lossy(&line);
        writeln!(to, "{line}").context("passing on what the tests print")?;
        tally.read(&line);
    }
    Ok(tally)
}

impl Tally {
    /// Adds what other tests came to.
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.skips.extend(other.skips);
    }

    /// Adds one line of output, if it says anything about results.
    fn read(&mut self, line: &str) {
        if line.starts_with("skipped:") {
            self.skips.push(line.to_owned());
        }
        let Some(results) = line.strip_prefix("test result: ") else {
            return;
        };
        // "ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s"
        let results = results
            .split_once(". ")
            .map_or(results, |(_, counts)| counts);
        for count in results.split("; ") {
            match count
                .split_once(' ')
                .map(|(number, what)| (number.parse::<u64>(), what))
            {
                Some((Ok(number), "passed")) => self.passed += number,
                Some((Ok(number), "failed")) => self.failed += number,
                Some((Ok(number), "ignored")) => self.ignored += number,
                _ => {}
            }
        }
    }
}

/// `PATH` with the tools that tests use, which are brought here if they are missing and can be had.
fn path_with_tools(workspace: &Workspace) -> anyhow::Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = env::split_paths(&path).collect();
    let missing = |program: &str, error: &anyhow::Error| {
        println!("Tests that use {program} will be skipped: {error:#}.");
    };
    if let Err(error) = page_tools(workspace) {
        missing("a browser", &error);
    }
    if let Err(error) = packages::install_locked_wheels(
        &workspace
            .root()
            .join("profiler-daemon/tests/http/schemathesis/requirements.txt"),
        "a test asks the HTTP interface with them",
        &workspace.target_dir().join("tools/schemathesis"),
    ) {
        missing("schemathesis", &error);
    }
    if !shell::has("promtool") {
        // Unpacked only: installing the package would start a Prometheus server.
        match unpack_promtool(&workspace.target_dir().join("tools")) {
            Ok(folder) => folders.push(folder),
            Err(error) => missing("promtool", &error),
        }
    }
    if !shell::has("pprof") {
        match unpack_pprof(&workspace.target_dir().join("tools")) {
            Ok(folder) => folders.push(folder),
            Err(error) => missing("pprof", &error),
        }
    }
    if !shell::has("musl-gcc") {
        let installed = if packages::has_apt() {
            packages::install(
                &["musl-tools"],
                "tests build programs over another C library",
            )
        } else {
            Err(anyhow!("there is no apt to install musl-tools with"))
        };
        if let Err(error) = installed {
            missing("musl-gcc", &error);
        }
    }
    if !shell::has("perf") {
        let installed = if packages::has_apt() {
            packages::install(
                &["linux-perf"],
                "tests compare the profiler's numbers with those of perf",
            )
        } else {
            Err(anyhow!("there is no apt to install perf with"))
        };
        if let Err(error) = installed {
            missing("perf", &error);
        }
    }
    env::join_paths(folders).context("joining the folders of PATH")
}

/// Brings what the page is tested with: a browser, and what drives it
/// (`profiler-daemon/tests/page`).
fn page_tools(workspace: &Workspace) -> anyhow::Result<()> {
    let programs = [("chromium", "chromium"), ("node", "nodejs"), ("npm", "npm")];
    let wanted: Vec<_> = programs
        .into_iter()
        .filter(|(program, _)| !shell::has(program))
        .map(|(_, package)| package)
        .collect();
    if !wanted.is_empty() {
        if !packages::has_apt() {
            bail!("there is no apt to install {} with", wanted.join(", "));
        }
        packages::install(&wanted, "tests open the page in a browser")?;
    }
    packages::install_locked_modules(
        &workspace.root().join("profiler-daemon/tests/page"),
        "tests drive the browser with them",
        &workspace.target_dir().join("tools/page"),
    )
}

fn unpack_promtool(tools: &Path) -> anyhow::Result<PathBuf> {
    if !packages::has_apt() {
        bail!("there is no apt to download promtool with");
    }
    Ok(packages::unpack(
        "prometheus",
        "tests check the metrics with its promtool",
        tools,
    )?
    .join("usr/bin"))
}

fn unpack_pprof(tools: &Path) -> anyhow::Result<PathBuf> {
    if !packages::has_apt() {
        bail!("there is no apt to download pprof with");
    }
    // It stands on its own; the rest of the package is not needed.
    Ok(packages::unpack(
        "golang-1.19-go",
        "tests read profiles with its pprof",
        tools,
    )?
    .join("usr/lib/go-1.19/pkg/tool/linux_amd64"))
}

/// The names of the integration tests of all packages.
fn integration_tests(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let text =
        shell::output(
            workspace
                .cargo("metadata")
                .args(["--no-deps", "--format-version", "1"]),
        )?;
    parse_integration_tests(&text)
}

fn parse_integration_tests(metadata: &str) -> anyhow::Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        targets: Vec<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
        kind: Vec<String>,
    }
    let metadata: Metadata =
        serde_json::from_str(metadata).context("reading cargo's description of the workspace")?;
    let targets = metadata
        .packages
        .into_iter()
        .flat_map(|package| package.targets);
    let mut names: Vec<_> = targets
        .filter(|target| target.kind.iter().any(|kind| kind == "test"))
        .map(|target| target.name)
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_up_results() {
        // Check that the results of several binaries add up, failures and skips included.
        let mut tally = Tally::default();
        tally.read("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        tally.read("test a::b ... ok");
        tally.read("skipped: comparing with perf, which is not installed");
        tally.read("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1.2s");
        let skips = vec!["skipped: comparing with perf, which is not installed".to_owned()];
        assert_eq!(
            tally,
            Tally {
                passed: 15,
                failed: 2,
                ignored: 1,
                skips
            }
        );
    }

    #[test]
    fn failure_is_reported() {
        // Check that a failed test, or a step that could not run, makes the whole command fail.
        assert!(report(&Tally::default(), &[]).is_ok());
        assert!(
            report(
                &Tally {
                    failed: 1,
                    ..Tally::default()
                },
                &[]
            )
            .is_err()
        );
        assert!(report(&Tally::default(), &["did not build".to_owned()]).is_err());
    }

    #[test]
    fn finding_integration_tests() {
        // Check that only integration tests are named, each once.
        let metadata = r#"{"packages":[
            {"targets":[{"name":"a","kind":["lib"]},{"name":"http","kind":["test"]}]},
            {"targets":[{"name":"kernel","kind":["test"]},{"name":"http","kind":["test"]}]}]}"#;
        let names = parse_integration_tests(metadata).expect("the description is sound");
        assert_eq!(names, ["http", "kernel"]);
    }
}
