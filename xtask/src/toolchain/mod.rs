//! Makes sure that the kernel programs can be compiled: finds the tools, and installs those that
//! are missing.

pub(crate) mod bpf;

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::workspace::Workspace;
use crate::{packages, shell};

use bpf::{Missing, Toolchain};

/// Debian's compiler, and a `core` for BPF that goes with it.
const COMPILER_PACKAGES: [&str; 2] = ["rustc-web", "libstd-rust-web-dev-bpf"];

/// bpf-linker links against the LLVM that the compiler was built with.
const LLVM_PACKAGE: &str = "llvm-22-dev";
const LLVM_PREFIX: &str = "/usr/lib/llvm-22";
const LLVM_FEATURE: &str = "llvm-22";
const LINKER_VERSION: &str = "0.13.0";

/// The toolchain for the kernel programs; installs what is missing of it, after saying what and
/// why.
///
/// Fails with one sentence on what to install where it cannot do so itself.
pub(crate) fn ensure(workspace: &Workspace) -> anyhow::Result<Toolchain> {
    check_host_tools()?;
    if bpf::find_compiler().is_none() {
        install_compiler()?;
    }
    if bpf::find_linker().is_none() {
        install_linker(workspace)?;
    }
    Toolchain::find().map_err(|missing| anyhow::anyhow!("{}", advice(&missing)))
}

/// Says what is missing for compiling anything at all, which a machine with stable Rust normally
/// has.
fn check_host_tools() -> anyhow::Result<()> {
    if !shell::has("cc") {
        bail!(
            "there is no C compiler (cc), which Rust itself links with: install gcc (Debian: build-essential)"
        );
    }
    Ok(())
}

fn install_compiler() -> anyhow::Result<()> {
    if !packages::has_apt() || !packages::are_available(&COMPILER_PACKAGES) {
        bail!("{}", advice(&Missing::Compiler));
    }
    packages::install(
        &COMPILER_PACKAGES,
        "a Rust compiler with a core library for BPF, to compile the kernel programs",
    )
}

fn install_linker(workspace: &Workspace) -> anyhow::Result<()> {
    if !Path::new(LLVM_PREFIX).join("bin/llvm-config").exists() {
        if !packages::has_apt() || !packages::are_available(&[LLVM_PACKAGE]) {
            bail!("{}", advice(&Missing::Linker));
        }
        packages::install(
            &[LLVM_PACKAGE],
            "the LLVM that bpf-linker links the kernel programs with",
        )?;
    }
    println!(
        "Installing bpf-linker {LINKER_VERSION} with `cargo install`: it links the kernel programs."
    );
    let mut install = workspace.cargo("install");
    install
        .args([
            "bpf-linker",
            "--version",
            LINKER_VERSION,
            "--locked",
            "--force",
            "--quiet",
        ])
        .args(["--no-default-features", "--features", LLVM_FEATURE])
        .env("LLVM_PREFIX", LLVM_PREFIX)
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS");
    shell::run(&mut install).context("installing bpf-linker")
}

/// What a person should install, in one sentence.
fn advice(missing: &Missing) -> String {
    match missing {
        Missing::Compiler => format!(
            "{missing}: install Debian's {}, or `rustup toolchain install nightly --component rust-src`",
            COMPILER_PACKAGES.join(" and ")
        ),
        Missing::Linker => format!(
            "{missing}: install LLVM 22 with its headers, then \
             `LLVM_PREFIX=<its folder> cargo install bpf-linker --version {LINKER_VERSION} \
             --no-default-features --features {LLVM_FEATURE}`"
        ),
    }
}

/// Runs clippy over both builds of the kernel programs, if a clippy of the same compiler can be
/// had; else says why not.
pub(crate) fn lint_programs(workspace: &Workspace, toolchain: &Toolchain) -> anyhow::Result<()> {
    let Some(driver) = clippy_driver(workspace, toolchain)? else {
        println!(
            "skipped: clippy over the kernel programs, since their compiler has no clippy on this machine"
        );
        return Ok(());
    };
    for features in bpf::BUILDS {
        let mut check = toolchain.cargo("check", workspace.root());
        check
            .args(["--features", features])
            .env("RUSTC_WORKSPACE_WRAPPER", &driver)
            // What `cargo clippy -- -D warnings` sets.
            .env(
                "CLIPPY_ARGS",
                "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
            );
        shell::run(&mut check).context("clippy over the kernel programs")?;
    }
    Ok(())
}

fn clippy_driver(
    workspace: &Workspace,
    toolchain: &Toolchain,
) -> anyhow::Result<Option<std::path::PathBuf>> {
    let beside = toolchain.compiler.rustc.with_file_name("clippy-driver");
    let version = |program: &Path| shell::output(Command::new(program).arg("--version"));
    if beside.is_file() {
        return Ok(Some(beside));
    }
    // Debian's clippy cannot be installed beside its rustup, but runs where it is unpacked.
    if toolchain.compiler.rustc == Path::new("/usr/bin/rustc") && packages::has_apt() {
        let why = "to lint the kernel programs with clippy";
        let folder = packages::unpack(
            "rust-web-clippy",
            why,
            &workspace.target_dir().join("tools"),
        )?;
        let driver = folder.join("usr/bin/clippy-driver");
        version(&driver)?;
        return Ok(Some(driver));
    }
    Ok(None)
}
