//! How the kernel programs are compiled: which compiler, which linker, which flags.
//!
//! Shared by `xtask` and by the build script of `profiler-daemon`, so it needs nothing but the
//! standard library. It finds tools and never installs one: that is `xtask`'s part.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the kernel programs are compiled for: little-endian BPF.
pub(crate) const TARGET: &str = "bpfel-unknown-none";

/// The features of the builds of the kernel programs: for kernels since 5.17, and for older ones.
pub(crate) const BUILDS: [&str; 2] = ["", "before_5_17"];

/// The oldest bpf-linker that links against the LLVM of current compilers, as (major, minor).
pub(crate) const OLDEST_LINKER: (u32, u32) = (0, 13);

/// Where the `core` library for [`TARGET`] comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Core {
    /// Compiled already, beside the compiler.
    Prebuilt,
    /// Compiled on the way, from the compiler's `rust-src` component.
    FromSource,
}

/// A Rust compiler that can target BPF, and the cargo that drives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compiler {
    /// The compiler's executable.
    pub(crate) rustc: PathBuf,
    /// The cargo that goes with it.
    pub(crate) cargo: PathBuf,
    /// Where its `core` comes from.
    pub(crate) core: Core,
}

/// All that is needed to compile the kernel programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Toolchain {
    /// Compiles.
    pub(crate) compiler: Compiler,
    /// Links: the bpf-linker executable.
    pub(crate) linker: PathBuf,
}

/// The part of the toolchain that was not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    /// No compiler has a `core` for BPF, prebuilt or as source.
    Compiler,
    /// No bpf-linker that runs and is new enough.
    Linker,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compiler => write!(f, "no Rust compiler with a core library for {TARGET}"),
            Self::Linker => {
                let (major, minor) = OLDEST_LINKER;
                write!(
                    f,
                    "no working bpf-linker of version {major}.{minor} or newer"
                )
            }
        }
    }
}

impl Toolchain {
    /// Looks for a compiler and a linker.
    pub(crate) fn find() -> Result<Self, Missing> {
        Ok(Self {
            compiler: find_compiler().ok_or(Missing::Compiler)?,
            linker: find_linker().ok_or(Missing::Linker)?,
        })
    }

    /// A cargo command over the kernel programs of the checkout at `root`, free of whatever an
    /// outer cargo set.
    ///
    /// `subcommand` is `build` or `check`; add to the command what else is wanted.
    pub(crate) fn cargo(&self, subcommand: &str, root: &Path) -> Command {
        let mut command = Command::new(&self.compiler.cargo);
        for (name, _) in env::vars_os() {
            if belongs_to_outer_cargo(&name) {
                command.env_remove(name);
            }
        }
        command
            .current_dir(programs_dir(root))
            .env("RUSTC", &self.compiler.rustc)
            // Debian's compiler is a stable release; the BPF target needs what only a nightly
            // offers by itself.
            .env("RUSTC_BOOTSTRAP", "1")
            // Empty means none, whatever a configuration file of the user says.
            .env("RUSTC_WRAPPER", "")
            .env("RUSTC_WORKSPACE_WRAPPER", "")
            .env("CARGO_ENCODED_RUSTFLAGS", self.rustflags(root))
            .args([subcommand, "--release", "--target", TARGET])
            .arg("--target-dir")
            .arg(programs_dir(root).join("target"));
        if self.compiler.core == Core::FromSource {
            command.args(["-Z", "build-std=core"]);
        }
        command
    }

    /// Compiler flags in cargo's encoding, which permits spaces in paths.
    fn rustflags(&self, root: &Path) -> OsString {
        let mut flags = OsString::from("-C\u{1f}linker=");
        flags.push(&self.linker);
        flags.push("\u{1f}-C\u{1f}link-arg=--btf\u{1f}-C\u{1f}debuginfo=2");
        // Else LLVM makes calls of zeroing and copying, even of 16 bytes, that do it byte by byte:
        // 25 to 90 ns each.
        flags.push("\u{1f}-C\u{1f}link-arg=--disable-expand-memcpy-in-order");
        // The object is the same wherever it is built: no path of this machine ends up in its line
        // table.
        let mut remap = |from: &Path, to: &str| {
            flags.push("\u{1f}--remap-path-prefix=");
            flags.push(from);
            flags.push(format!("={to}"));
        };
        if let Some(home) = cargo_home() {
            remap(&home, "cargo");
        }
        let sysroot = self.compiler.rustc.parent().and_then(Path::parent);
        if let (Core::FromSource, Some(sysroot)) = (self.compiler.core, sysroot) {
            remap(sysroot, "rust");
        }
        remap(root, "profiler");
        flags
    }
}

/// The folder of the kernel programs in the checkout at `root`.
pub(crate) fn programs_dir(root: &Path) -> PathBuf {
    root.join("profiler-ebpf")
}

/// A compiler with a prebuilt `core` for BPF, else a nightly one of rustup with the source of
/// `core`.
pub(crate) fn find_compiler() -> Option<Compiler> {
    let prebuilt = [PathBuf::from("/usr/bin/rustc"), PathBuf::from("rustc")]
        .into_iter()
        .find(|rustc| {
            output(
                Command::new(rustc)
                    .env_remove("RUSTUP_TOOLCHAIN")
                    .args(["--print", "sysroot"]),
            )
            .is_some_and(|sysroot| has_prebuilt_core(Path::new(&sysroot)))
        });
    if let Some(rustc) = prebuilt {
        let cargo = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
        return Some(Compiler {
            rustc,
            cargo,
            core: Core::Prebuilt,
        });
    }
    let which =
        |tool: &str| output(Command::new("rustup").args(["which", "--toolchain", "nightly", tool]));
    let rustc = PathBuf::from(which("rustc")?);
    let cargo = PathBuf::from(which("cargo")?);
    let sysroot = rustc.parent()?.parent()?;
    sysroot
        .join("lib/rustlib/src/rust/library/core/Cargo.toml")
        .is_file()
        .then_some(Compiler {
            rustc,
            cargo,
            core: Core::FromSource,
        })
}

/// The first bpf-linker that runs and is new enough: on `PATH`, or where `cargo install` puts
/// programs.
pub(crate) fn find_linker() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(cargo_home().map(|home| home.join("bin")))
        .map(|folder| folder.join("bpf-linker"))
        .filter(|candidate| candidate.is_file())
        .find(|candidate| {
            output(Command::new(candidate).arg("--version"))
                .is_some_and(|text| is_new_enough(&text))
        })
}

/// Where cargo keeps its downloads and installed programs.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    let default = || env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(default)
}

/// Whether what `bpf-linker --version` printed names a version that will do.
pub(crate) fn is_new_enough(version_line: &str) -> bool {
    let mut numbers = version_line
        .split_whitespace()
        .nth(1)
        .unwrap_or_default()
        .split('.')
        .map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= OLDEST_LINKER,
        _ => false,
    }
}

/// Whether the compiler of this sysroot came with a `core` for BPF.
fn has_prebuilt_core(sysroot: &Path) -> bool {
    sysroot
        .join("lib/rustlib")
        .join(TARGET)
        .join("lib")
        .read_dir()
        .is_ok_and(|mut files| {
            files.any(|file| {
                file.is_ok_and(|file| file.file_name().to_string_lossy().starts_with("libcore-"))
            })
        })
}

/// What cargo sets for the programs and build scripts it runs, and what would steer a cargo run
/// from there.
fn belongs_to_outer_cargo(name: &OsStr) -> bool {
    const KEPT: [&str; 7] = [
        "CARGO_HOME",
        "CARGO_HTTP_",
        "CARGO_NET_",
        "CARGO_REGISTRIES_",
        "CARGO_REGISTRY_",
        "CARGO_SOURCE_",
        "CARGO_TERM_",
    ];
    const REMOVED: [&str; 5] = ["CARGO", "CLIPPY_", "DEP_", "RUSTC", "RUSTDOC"];
    const REMOVED_WHOLE: [&str; 12] = [
        "DEBUG",
        "HOST",
        // Points at the libraries of the outer compiler.
        "LD_LIBRARY_PATH",
        "MAKEFLAGS",
        "MFLAGS",
        "NUM_JOBS",
        "OPT_LEVEL",
        "OUT_DIR",
        "PROFILE",
        "RUSTFLAGS",
        "RUSTUP_TOOLCHAIN",
        "TARGET",
    ];
    let name = name.to_string_lossy();
    let starts_with_any =
        |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    REMOVED_WHOLE.contains(&name.as_ref()) || (starts_with_any(&REMOVED) && !starts_with_any(&KEPT))
}

/// The trimmed standard output of a command that succeeded.
fn output(command: &mut Command) -> Option<String> {
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_the_linker() {
        // Check that an old or unreadable version of bpf-linker is not taken for a usable one.
        assert!(is_new_enough("bpf-linker 0.13.0"));
        assert!(is_new_enough("bpf-linker 0.14.2-dev\n"));
        assert!(is_new_enough("bpf-linker 1.0.0"));
        assert!(!is_new_enough("bpf-linker 0.9.15"));
        assert!(!is_new_enough("bpf-linker"));
        assert!(!is_new_enough("bpf-linker new"));
    }

    #[test]
    fn what_an_outer_cargo_set() {
        // Check that the inner cargo loses what the outer one set and keeps how to reach the
        // network.
        for gone in [
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO",
            "CARGO_BUILD_TARGET",
            "RUSTC_WRAPPER",
            "RUSTUP_TOOLCHAIN",
        ] {
            assert!(belongs_to_outer_cargo(OsStr::new(gone)), "{gone}");
        }
        for kept in [
            "CARGO_HOME",
            "CARGO_NET_OFFLINE",
            "CARGO_HTTP_PROXY",
            "PATH",
            "HOME",
            "RUSTUP_HOME",
            "HTTPS_PROXY",
        ] {
            assert!(!belongs_to_outer_cargo(OsStr::new(kept)), "{kept}");
        }
    }

    #[test]
    fn flags_with_spaces_in_paths() {
        // Check that a checkout in a folder with a space in its name yields whole flags.
        let toolchain = Toolchain {
            compiler: Compiler {
                rustc: "rustc".into(),
                cargo: "cargo".into(),
                core: Core::FromSource,
            },
            linker: "/some where/bpf-linker".into(),
        };
        let command = toolchain.cargo("build", Path::new("/a b"));
        let flags = command
            .get_envs()
            .find_map(|(name, value)| {
                (name == "CARGO_ENCODED_RUSTFLAGS").then_some(value?.to_string_lossy())
            })
            .expect("the flags are set");
        let flags: Vec<_> = flags.split('\u{1f}').collect();
        assert!(
            flags.contains(&"linker=/some where/bpf-linker"),
            "{flags:?}"
        );
        assert!(
            flags.contains(&"--remap-path-prefix=/a b=profiler"),
            "{flags:?}"
        );
        assert!(
            command
                .get_args()
                .any(|argument| argument == "build-std=core")
        );
    }
}
