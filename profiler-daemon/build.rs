//! Compiles the kernel programs, for new and for old kernels, and hands their objects to the daemon
//! as environment variables.
//!
//! It installs nothing: where the BPF toolchain is missing, it fails and names the command that
//! brings it.
#![expect(clippy::print_stderr, reason = "how a build script says why it failed")]

#[path = "../xtask/src/toolchain/bpf.rs"]
mod bpf;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use bpf::Toolchain;

/// What the object is made from, relative to the root of the checkout.
const SOURCES: [&str; 6] = [
    "Cargo.toml",
    "profiler-common/Cargo.toml",
    "profiler-common/src",
    "profiler-ebpf/Cargo.lock",
    "profiler-ebpf/Cargo.toml",
    "profiler-ebpf/src",
];

/// For each of [`bpf::BUILDS`] its object's name, and the variable that tells where it is.
const OBJECTS: [(&str, &str); bpf::BUILDS.len()] = [
    ("profiler-ebpf.o", "PROFILER_EBPF_OBJECT"),
    (
        "profiler-ebpf-before-5.17.o",
        "PROFILER_EBPF_OBJECT_BEFORE_5_17",
    ),
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let manifest_dir =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo names no manifest folder")?);
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo names no output folder")?);
    let root = manifest_dir
        .parent()
        .ok_or("the manifest folder has no parent")?;

    let toolchain = Toolchain::find().map_err(|missing| {
        format!("The kernel programs cannot be compiled ({missing}): `cargo xtask build` installs what is needed.")
    })?;
    for source in SOURCES {
        rerun_if_changed(&root.join(source));
    }
    for tool in [&toolchain.compiler.rustc, &toolchain.linker] {
        // A bare name is looked up on PATH; as a path it would name a file that is never there.
        if tool.is_absolute() {
            rerun_if_changed(tool);
        }
    }

    for (features, (object, variable)) in bpf::BUILDS.into_iter().zip(OBJECTS) {
        compile(&toolchain, root, features)?;
        let object = out_dir.join(object);
        let built = bpf::programs_dir(root)
            .join("target")
            .join(bpf::TARGET)
            .join("release/profiler-ebpf");
        fs::copy(&built, &object)
            .map_err(|error| format!("copying {}: {error}", built.display()))?;
        println!("cargo::rustc-env={variable}={}", object.display());
    }
    Ok(())
}

/// Compiles the kernel programs with these features; what the compiler said is passed on only when
/// it failed.
fn compile(toolchain: &Toolchain, root: &Path, features: &str) -> Result<(), Box<dyn Error>> {
    let mut command = toolchain.cargo("build", root);
    let output = command
        .args(["--features", features])
        .output()
        .map_err(|error| format!("starting {}: {error}", toolchain.compiler.cargo.display()))?;
    if output.status.success() {
        return Ok(());
    }
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    Err(format!(
        "The kernel programs do not compile ({}); the compiler's words are above.",
        output.status
    )
    .into())
}

fn rerun_if_changed(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}
