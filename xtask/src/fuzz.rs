//! `cargo xtask fuzz`: gives each reader of bytes from outside inputs that a fuzzer makes up, for
//! as long as is wanted.
//!
//! All programs of `fuzz/` are built once, by nightly Rust, and run beside each other. What one
//! finds by itself stays in `target/fuzz/corpus` for the next time; `fuzz/corpus` is what every run
//! begins with, and what `cargo test` reads.

use std::collections::VecDeque;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, bail};

use crate::workspace::Workspace;
use crate::{shell, toolchain};

/// What is installed where it is missing. It needs no nightly Rust itself.
const TOOL: &str = "cargo-fuzz";
const TOOL_VERSION: &str = "0.13.2";
/// What programs with sanitizers can be built for.
const HOST: &str = "x86_64-unknown-linux-gnu";
/// Longest input that is tried, bytes.
const MAX_INPUT_BYTES: u32 = 64 << 10;
/// Time after which an input is taken to hold its reader up for ever, seconds. (How long it ran is
/// bounded by the programs themselves, on machines that are busy too.)
const MAX_INPUT_SECONDS: u32 = 60;
/// Most memory of one program, MiB.
const MAX_MEMORY_MB: u32 = 2048;
/// Lines of what a program said that are shown when it failed.
const SHOWN_LINES: usize = 30;

/// Runs the named targets, or all, for so many seconds each; fails when one found something.
pub(crate) fn fuzz(
    workspace: &Workspace,
    wanted: &[String],
    seconds: u32,
    or_skip: bool,
) -> anyhow::Result<()> {
    let known = targets(workspace.root())?;
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name)) {
        bail!(
            "there is no target {unknown}; there are {}",
            known.join(", ")
        );
    }
    if let Err(missing) = nightly() {
        if or_skip {
            println!("skipped: fuzzing, since {missing}");
            return Ok(());
        }
        bail!("{missing}: `rustup toolchain install nightly`");
    }
    toolchain::ensure(workspace)?;
    ensure_tool(workspace)?;
    let folder = workspace.target_dir().join("fuzz");
    build(workspace, &folder, wanted)?;
    let names = if wanted.is_empty() { &known } else { wanted };
    run_all(&Runs {
        root: workspace.root(),
        folder: &folder,
        seconds,
        waiting: Mutex::new(names.iter().map(String::as_str).collect()),
        failed: Mutex::default(),
    })
}

/// The programs of `fuzz/`, by name.
fn targets(root: &Path) -> anyhow::Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        names.extend(stem.map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Whether there is a nightly compiler, which alone can build programs with sanitizers; else what
/// is missing.
fn nightly() -> Result<(), &'static str> {
    if !shell::has("rustup") {
        return Err("there is no rustup, and so no nightly Rust");
    }
    let list = shell::output(Command::new("rustup").args(["toolchain", "list"]));
    let is_there = list.is_ok_and(|list| {
        list.lines()
            .any(|line| line.split_whitespace().next() == Some(&*format!("nightly-{HOST}")))
    });
    is_there.then_some(()).ok_or("there is no nightly Rust")
}

fn ensure_tool(workspace: &Workspace) -> anyhow::Result<()> {
    if shell::has(TOOL) {
        return Ok(());
    }
    println!("Installing {TOOL} {TOOL_VERSION} with `cargo install`: it builds what is fuzzed.");
    let mut install = workspace.cargo("install");
    install
        .args([TOOL, "--version", TOOL_VERSION, "--locked", "--quiet"])
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS");
    shell::run(&mut install).context("installing cargo-fuzz")
}

/// Builds one program, or all.
fn build(workspace: &Workspace, folder: &Path, wanted: &[String]) -> anyhow::Result<()> {
    let mut build = Command::new("rustup");
    build.args(["run", "nightly", "cargo", "fuzz", "build"]);
    build.args(["--release", "--codegen-units", "16", "--target", HOST]);
    build.arg("--target-dir").arg(folder);
    if let [one] = wanted {
        build.arg(one);
    }
    // What cargo and rustup set for this program would lead to the compiler that it was built by.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            build.env_remove(&name);
        }
    }
    for name in ["CARGO", "CARGO_TARGET_DIR", "RUSTFLAGS", "RUSTUP_TOOLCHAIN"] {
        build.env_remove(name);
    }
    build.current_dir(workspace.root());
    shell::run(&mut build).context("building what is fuzzed")
}

/// What is to be run, and what came of it.
struct Runs<'a> {
    root: &'a Path,
    folder: &'a Path,
    seconds: u32,
    waiting: Mutex<VecDeque<&'a str>>,
    failed: Mutex<Vec<&'a str>>,
}

/// As many at a time as there are processors.
fn run_all(runs: &Runs<'_>) -> anyhow::Result<()> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(name) = next(&runs.waiting) {
                    if let Err(error) = run(runs, name) {
                        println!("{name}: {error:#}");
                        let mut failed = runs.failed.lock().unwrap_or_else(PoisonError::into_inner);
                        failed.push(name);
                    }
                }
            });
        }
    });
    let failed = runs.failed.lock().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() {
        return Ok(());
    }
    bail!("fuzzing found something in {}", failed.join(", "))
}

fn next<'a>(waiting: &Mutex<VecDeque<&'a str>>) -> Option<&'a str> {
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.pop_front()
}

/// Runs one program; says how far it came, or fails with what it found.
fn run(runs: &Runs<'_>, name: &str) -> anyhow::Result<()> {
    let made = |part: &str| -> anyhow::Result<PathBuf> {
        let folder = runs.folder.join(part).join(name);
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(folder)
    };
    let (found, artifacts) = (made("corpus")?, made("artifacts")?);
    let said = runs.folder.join(format!("{name}.log"));
    let log = File::create(&said).with_context(|| format!("making {}", said.display()))?;
    let program = runs.folder.join(HOST).join("release").join(name);
    let status = Command::new(&program)
        .arg(format!("-max_total_time={}", runs.seconds))
        .arg(format!("-max_len={MAX_INPUT_BYTES}"))
        .arg(format!("-timeout={MAX_INPUT_SECONDS}"))
        .arg(format!("-rss_limit_mb={MAX_MEMORY_MB}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1")
        .args([&found, &runs.root.join("fuzz/corpus").join(name)])
        .stdout(log.try_clone().context("sharing the log")?)
        .stderr(log)
        .current_dir(runs.folder)
        .status()
        .with_context(|| format!("starting {}", program.display()))?;
    let text = fs::read(&said).with_context(|| format!("reading {}", said.display()))?;
    let text = String::from_utf8_lossy(&text);
    if !status.success() {
        let skipped = text.lines().count().saturating_sub(SHOWN_LINES);
        let shown: Vec<&str> = text.lines().skip(skipped).collect();
        bail!(
            "it ended with {status}:\n{}\nThe whole of it is in {}; the input, in {}, is tried again by `{} INPUT`, and belongs into fuzz/corpus/{name} once it is mended.",
            shown.join("\n"),
            said.display(),
            artifacts.display(),
            program.display()
        );
    }
    let number = |stat: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(stat));
        line.map_or("?", str::trim).to_owned()
    };
    println!(
        "{name}: {} inputs in {} s, {} MiB at most",
        number("stat::number_of_executed_units:"),
        runs.seconds,
        number("stat::peak_rss_mb:")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_declared() {
        // Check that each program of `fuzz/` is one that its package builds.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let manifest = fs::read_to_string(root.join("fuzz/Cargo.toml")).expect("there is one");
        let names = targets(&root).expect("there are some");
        assert!(names.len() > 10, "{names:?}");
        for name in names {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        }
    }
}
