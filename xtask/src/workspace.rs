//! Where this checkout is, and cargo commands over it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

/// The checkout that `cargo xtask` was called in.
pub(crate) struct Workspace {
    root: PathBuf,
    target_dir: PathBuf,
    cargo: PathBuf,
}

impl Workspace {
    /// Finds the checkout from what cargo sets for the programs it runs.
    ///
    /// Fails when xtask was not started by cargo.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let manifest_dir =
            env::var_os("CARGO_MANIFEST_DIR").context("start this as `cargo xtask`")?;
        let root = Path::new(&manifest_dir)
            .parent()
            .context("xtask's folder has no parent")?
            .to_owned();
        let target_dir = env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |dir| root.join(dir));
        let cargo = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
        Ok(Self {
            root,
            target_dir,
            cargo,
        })
    }

    /// The checkout's topmost folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where cargo puts what it builds.
    pub(crate) fn target_dir(&self) -> &Path {
        &self.target_dir
    }

    /// The daemon built by `cargo xtask build --release`.
    pub(crate) fn daemon(&self) -> PathBuf {
        self.target_dir.join("release/profiler-daemon")
    }

    /// `cargo <subcommand>` at the checkout's root, without what `cargo run` set for xtask itself.
    pub(crate) fn cargo(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.cargo);
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command.current_dir(&self.root).arg(subcommand);
        command
    }
}
