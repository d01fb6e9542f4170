//! A running program whose file is gone: its functions must still have names, or at least their
//! module.

use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;
use crate::work::{rounds_per_ms, workers};

pub(super) const PROGRAM: Program = Program {
    name: "deleted",
    about: "copies itself under --path, executes the copy, which deletes itself and works for --seconds",
    run,
};

pub(super) const DELETED: Program = Program {
    name: "deleted-running",
    about: "what `deleted` executes; works in deleted_work",
    run: run_deleted,
};

workers! {
    /// Works after its file is gone.
    deleted_work = 771;
}

fn run(options: &Options, truth: Truth) -> anyhow::Result<Truth> {
    drop(truth);
    let directory = options.path.clone().unwrap_or_else(std::env::temp_dir);
    let path = directory.join(format!("workload-deleted-{}", std::process::id()));
    std::fs::copy(std::env::current_exe()?, &path)
        .with_context(|| format!("copying to {}", path.display()))?;
    let mut command = Command::new(&path);
    command
        .args(["deleted-running", "--seconds", &options.seconds.to_string()])
        .arg("--path")
        .arg(&path);
    if options.hold {
        command.arg("--hold");
    }
    Err(command.exec().into())
}

fn run_deleted(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let path = options
        .path
        .as_ref()
        .context("--path is the file to delete")?;
    std::fs::remove_file(path).with_context(|| format!("deleting {}", path.display()))?;
    let per_ms = rounds_per_ms();
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        black_box(deleted_work(per_ms));
    }
    truth.set("deleted", path.to_string_lossy().into_owned());
    Ok(truth)
}
