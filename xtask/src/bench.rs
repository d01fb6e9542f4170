//! `cargo xtask bench`: what the profiler costs the machine, measured beside other tools.

use std::ffi::OsString;

use anyhow::anyhow;

use crate::shell::{self, Root};
use crate::workspace::Workspace;
use crate::{build, packages};

/// What the measurement compares with and loads the machine with.
const PACKAGES: [&str; 7] = [
    "bpftool",
    "libbpf-tools",
    "linux-perf",
    "nginx",
    "postgresql",
    "redis-server",
    "wrk",
];

/// Builds optimized, then measures as root.
pub(crate) fn bench(workspace: &Workspace, arguments: &[OsString]) -> anyhow::Result<()> {
    let why = "the tools that the profiler's cost is compared with, and servers to profile (Debian starts them)";
    let installed = if packages::has_apt() {
        packages::install(&PACKAGES, why)
    } else {
        Err(anyhow!(
            "there is no apt to install {} with",
            PACKAGES.join(", ")
        ))
    };
    if let Err(error) = installed {
        println!("The measurement leaves out what it does not find: {error:#}.");
    }
    build::build(workspace, true)?;
    let measurement = workspace.target_dir().join("release/cost");
    shell::run(
        Root::find()
            .command(measurement)?
            .args(arguments)
            .current_dir(workspace.root()),
    )
}
