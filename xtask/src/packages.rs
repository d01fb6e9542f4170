//! Packages of Debian, of npm and of PyPI: whether they are there, can be had, and how they are
//! installed or merely unpacked.
//!
//! Nothing is installed before what and why are printed, and nothing that is installed is ever
//! removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::shell::{self, Root};

/// Whether this machine installs packages with apt.
pub(crate) fn has_apt() -> bool {
    shell::has("apt-get") && shell::has("dpkg-query")
}

/// Those of the packages that are not installed.
pub(crate) fn missing<'a>(names: &[&'a str]) -> Vec<&'a str> {
    names
        .iter()
        .copied()
        .filter(|name| !is_installed(name))
        .collect()
}

/// Whether apt knows all of the packages, if need be after it has read the lists anew.
pub(crate) fn are_available(names: &[&str]) -> bool {
    let known = || {
        names.iter().all(|name| {
            let show = Command::new("apt-cache")
                .args(["show", "--no-all-versions", name])
                .stderr(Stdio::null())
                .output();
            show.is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
        })
    };
    known() || (update().is_ok() && known())
}

/// Installs the packages that are missing, after saying which and why; does nothing when none is.
///
/// Fails rather than removes a package that stands in the way.
pub(crate) fn install(names: &[&str], why: &str) -> anyhow::Result<()> {
    let missing = missing(names);
    if missing.is_empty() {
        return Ok(());
    }
    println!("Installing Debian packages {}: {why}.", missing.join(", "));
    let attempt = || {
        let mut command = Root::find().command("env")?;
        command
            .args([
                "DEBIAN_FRONTEND=noninteractive",
                "apt-get",
                "install",
                "--yes",
                "--no-remove",
            ])
            .args(["--no-install-recommends", "-qq", "-o=Dpkg::Use-Pty=0"])
            .args(&missing)
            .stdin(Stdio::null());
        // What dpkg unpacks, in which order, is of no interest unless it fails.
        shell::output(&mut command)
    };
    // Lists that are missing or stale name versions that are no longer served.
    if are_available(&missing) && attempt().is_ok() {
        return Ok(());
    }
    update()?;
    attempt()
        .with_context(|| format!("installing {}", missing.join(", ")))
        .map(drop)
}

/// Unpacks a package into a folder of its own under `tools` without installing it; answers with
/// that folder.
///
/// For programs whose package would also start a service, or stand in another package's way.
pub(crate) fn unpack(name: &str, why: &str, tools: &Path) -> anyhow::Result<PathBuf> {
    let folder = tools.join(name);
    if folder.is_dir() {
        return Ok(folder);
    }
    println!(
        "Downloading and unpacking Debian package {name} into {}: {why}.",
        tools.display()
    );
    let partial = tools.join(format!("{name}.partial"));
    if partial.is_dir() {
        fs::remove_dir_all(&partial).with_context(|| format!("clearing {}", partial.display()))?;
    }
    fs::create_dir_all(&partial).with_context(|| format!("making {}", partial.display()))?;
    let download = || {
        shell::output(
            Command::new("apt-get")
                .current_dir(&partial)
                .args(["download", "-qq", name]),
        )
    };
    if !are_available(&[name]) || download().is_err() {
        update()?;
        download()?;
    }
    unpack_archives(&partial, &partial)?;
    fs::rename(&partial, &folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

/// Like [`unpack`], together with all packages that it depends on and that this machine lacks.
///
/// For programs whose libraries may stand in another package's way. What is unpacked finds the
/// other libraries installed.
pub(crate) fn unpack_with_dependencies(
    name: &str,
    why: &str,
    tools: &Path,
) -> anyhow::Result<PathBuf> {
    let folder = tools.join(name);
    if folder.is_dir() {
        return Ok(folder);
    }
    println!(
        "Downloading Debian package {name} and what it depends on, unpacking them into {}: {why}.",
        tools.display()
    );
    let partial = tools.join(format!("{name}.partial"));
    if partial.is_dir() {
        fs::remove_dir_all(&partial).with_context(|| format!("clearing {}", partial.display()))?;
    }
    let archives = partial.join("archives");
    fs::create_dir_all(archives.join("partial"))
        .with_context(|| format!("making {}", archives.display()))?;
    let download = || {
        shell::output(
            Command::new("apt-get")
                .args(["install", "--download-only", "--yes", "-qq"])
                .arg("--no-install-recommends")
                // Nothing is installed, so nobody needs to be kept away, and nobody needs to be
                // root.
                .arg("-oDebug::NoLocking=1")
                .arg(format!("-oDir::Cache::archives={}", archives.display()))
                .arg(name)
                .stdin(Stdio::null()),
        )
    };
    if !are_available(&[name]) || download().is_err() {
        update()?;
        download()?;
    }
    unpack_archives(&archives, &partial)?;
    fs::remove_dir_all(&archives).with_context(|| format!("clearing {}", archives.display()))?;
    fs::rename(&partial, &folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

/// Unpacks all archives of packages that lie in `from` into `to`, and removes them. Fails when
/// there is none.
pub(crate) fn unpack_archives(from: &Path, to: &Path) -> anyhow::Result<()> {
    let entries = fs::read_dir(from).with_context(|| format!("listing {}", from.display()))?;
    let archives: Vec<_> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect();
    if archives.is_empty() {
        bail!("apt-get left no package in {}", from.display());
    }
    fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    for archive in archives {
        shell::run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(to))?;
        fs::remove_file(&archive).with_context(|| format!("removing {}", archive.display()))?;
    }
    Ok(())
}

/// Installs the modules that the `package-lock.json` in `from` pins, by their hashes, into `tools`;
/// does nothing where they are there. No script of theirs is run.
pub(crate) fn install_locked_modules(from: &Path, why: &str, tools: &Path) -> anyhow::Result<()> {
    let lock = "package-lock.json";
    let read = |folder: &Path, name: &str| {
        let file = folder.join(name);
        fs::read(&file).with_context(|| format!("reading {}", file.display()))
    };
    let wanted = read(from, lock)?;
    // Written last, so that it stands for a whole installation.
    let stamp = "installed.json";
    if read(tools, stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    println!(
        "Installing the modules of {} into {}: {why}.",
        from.join(lock).display(),
        tools.display()
    );
    let write = |name: &str, bytes: &[u8]| {
        let file = tools.join(name);
        fs::write(&file, bytes).with_context(|| format!("writing {}", file.display()))
    };
    fs::create_dir_all(tools).with_context(|| format!("making {}", tools.display()))?;
    write("package.json", &read(from, "package.json")?)?;
    write(lock, &wanted)?;
    shell::output(
        Command::new("npm")
            .current_dir(tools)
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
            .stdin(Stdio::null()),
    )?;
    write(stamp, &wanted)
}

/// Installs the Python packages that the list `requirements` pins, by their hashes, into an
/// environment of their own at `tools`; does nothing where they are there. Only wheels are taken:
/// no script of theirs is run.
pub(crate) fn install_locked_wheels(
    requirements: &Path,
    why: &str,
    tools: &Path,
) -> anyhow::Result<()> {
    let wanted =
        fs::read(requirements).with_context(|| format!("reading {}", requirements.display()))?;
    // Written last, so that it stands for a whole installation.
    let stamp = tools.join("installed.txt");
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    println!(
        "Installing the packages of {} into {}: {why}.",
        requirements.display(),
        tools.display()
    );
    let environment = || {
        shell::output(
            Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(tools)
                .stdin(Stdio::null()),
        )
    };
    if !shell::has("python3") || environment().is_err() {
        // Debian has the making of environments in a package of its own.
        if !has_apt() {
            bail!("there is no apt to install python3-venv with");
        }
        install(&["python3", "python3-venv"], why)?;
        environment()?;
    }
    shell::output(
        Command::new(tools.join("bin/python"))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .args([
                "--require-hashes",
                "--only-binary",
                ":all:",
                "--requirement",
            ])
            .arg(requirements)
            .stdin(Stdio::null()),
    )?;
    fs::write(&stamp, &wanted).with_context(|| format!("writing {}", stamp.display()))
}

fn is_installed(name: &str) -> bool {
    let query = Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", name])
        .output();
    query.is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}

/// Lets apt read the lists of its sources anew.
pub(crate) fn update() -> anyhow::Result<()> {
    println!("Reading Debian's package lists anew: apt-get update.");
    shell::run(
        Root::find()
            .command("apt-get")?
            .args(["update", "-qq"])
            .stdin(Stdio::null()),
    )
}
