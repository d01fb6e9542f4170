//! `cargo xtask build`: the whole workspace, the kernel programs within the daemon.

use crate::workspace::Workspace;
use crate::{shell, toolchain};

/// Builds everything; optimized, the daemon is target/release/profiler-daemon.
pub(crate) fn build(workspace: &Workspace, release: bool) -> anyhow::Result<()> {
    toolchain::ensure(workspace)?;
    let mut command = workspace.cargo("build");
    command.arg("--workspace");
    if release {
        command.arg("--release");
    }
    shell::run(&mut command)
}
