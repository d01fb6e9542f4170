//! `cargo xtask accuracy`: the tables *accuracy* of docs/benchmarks.md: programs that time their
//! own functions beside what the daemon reports of them, and real programs beside what perf
//! reports.

use std::env;
use std::ffi::OsString;

use anyhow::anyhow;

use crate::shell::{self, Root};
use crate::workspace::Workspace;
use crate::{packages, test, toolchain};

/// What real programs are compared with, and two of them.
const PACKAGES: [&str; 3] = ["linux-perf", "postgresql", "redis-server"];

/// Builds optimized, then measures as root. `only` chooses programs by a word of their command
/// line, and leaves the real ones out.
///
/// Fails when a function of a program is too far from its truth, after the tables are written.
pub(crate) fn accuracy(workspace: &Workspace, only: Option<&OsString>) -> anyhow::Result<()> {
    toolchain::ensure(workspace)?;
    let path = env::var_os("PATH").unwrap_or_default();
    let [mut build, mut tests] =
        test::kernel_tests(workspace, &path)?.map_err(|sentence| anyhow!(sentence))?;
    shell::run(&mut build)?;
    let target = workspace.target_dir();
    let [table, shares] = ["accuracy.md", "shares.md"].map(|file| target.join(file));
    tests
        .args(["accuracy::every_program_at_both_frequencies", "--ignored"])
        .args(["--exact", "--nocapture"])
        .env("ACCURACY_TABLE", &table);
    if let Some(only) = only {
        tests.env("ACCURACY_ONLY", only);
    }
    let held = shell::run(&mut tests);
    println!("The programs that time themselves: {}", table.display());
    if only.is_none() {
        if packages::has_apt() {
            packages::install(
                &PACKAGES,
                "shares of real programs are compared with perf's",
            )?;
        }
        shell::run(
            Root::find()
                .command(target.join("release/cost"))?
                .arg("--shares")
                .arg("--markdown")
                .arg(&shares),
        )?;
        println!("The real programs: {}", shares.display());
    }
    held
}
