//! `cargo xtask lint`: formatting, clippy over host and kernel programs, and `tidy`.

use std::process::Command;

use crate::toolchain::bpf;
use crate::workspace::Workspace;
use crate::{shell, tidy, toolchain};

/// Fails on the first kind of check that finds something.
pub(crate) fn lint(workspace: &Workspace) -> anyhow::Result<()> {
    format(workspace.cargo("fmt").arg("--all"))?;
    format(
        workspace
            .cargo("fmt")
            .current_dir(bpf::programs_dir(workspace.root())),
    )?;
    tidy::tidy(workspace)?;

    let toolchain = toolchain::ensure(workspace)?;
    toolchain::lint_programs(workspace, &toolchain)?;
    let mut clippy = workspace.cargo("clippy");
    // Optimized, like the build that follows, so that build scripts and macros are compiled once for both.
    clippy.args([
        "--workspace",
        "--all-targets",
        "--release",
        "--",
        "-D",
        "warnings",
    ]);
    shell::run(&mut clippy)
}

fn format(command: &mut Command) -> anyhow::Result<()> {
    shell::run(command.arg("--check"))
}
