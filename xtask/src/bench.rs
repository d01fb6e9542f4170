//! `cargo xtask bench`: what the profiler costs the machine, measured beside other tools.

use std::ffi::OsString;

use crate::shell::{self, Root};
use crate::workspace::Workspace;
use crate::{build, packages};

/// What the measurement compares with and loads the machine with.
const PACKAGES: [&str; 3] = ["libbpf-tools", "linux-perf", "redis-server"];

/// Builds optimized, then measures as root.
pub(crate) fn bench(workspace: &Workspace, arguments: &[OsString]) -> anyhow::Result<()> {
    if packages::has_apt() {
        packages::install(
            &PACKAGES,
            "the tools that the profiler's cost is compared with, and a server to profile (Debian starts redis-server)",
        )?;
    } else {
        println!(
            "There is no apt here: what the measurement cannot find of {} it leaves out.",
            PACKAGES.join(", ")
        );
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
