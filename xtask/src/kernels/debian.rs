//! Debian's kernels: which package holds that of a release, and the kernel out of it. Nothing is
//! installed.
//!
//! The mirror is the one that this machine's apt uses; the lists of other releases are kept apart
//! from its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::packages;
use crate::shell;

/// Debian's keys, where the machine has them in a file of their own.
const KEYS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];
/// Depends on the newest kernel of a release, small, with all that a virtual machine needs built
/// in.
const NEWEST: &str = "linux-image-cloud-amd64";

/// The kernel of a Debian release, downloaded into `folder` unless it is there. Answers with its
/// file.
pub(super) fn kernel(suite: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let kept = folder.join("vmlinuz");
    if kept.is_file() {
        return Ok(kept);
    }
    if !packages::has_apt() {
        bail!("there is no apt to download Debian's kernel of {suite} with");
    }
    println!(
        "Downloading Debian's kernel of {suite} into {}: it is booted under emulation, not installed.",
        folder.display()
    );
    let work = folder.join("partial");
    if work.is_dir() {
        fs::remove_dir_all(&work).with_context(|| format!("clearing {}", work.display()))?;
    }
    let apt = Apt::prepare(&mirror()?, suite, &work)?;
    shell::output(apt.command("apt-get").args(["update", "-qq"]))?;
    let package = package(|name| apt.dependencies(name))?;
    shell::output(
        apt.command("apt-get")
            .current_dir(&work)
            .args(["download", "-qq", &package]),
    )?;
    packages::unpack_archives(&work, &work.join("unpacked"))?;
    let found = find_kernel(&work.join("unpacked"))
        .with_context(|| format!("there is no vmlinuz in the package {package}"))?;
    fs::rename(&found, &kept).with_context(|| format!("keeping {}", found.display()))?;
    fs::remove_dir_all(&work).with_context(|| format!("clearing {}", work.display()))?;
    Ok(kept)
}

/// apt with lists and settings of its own below a folder.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn prepare(mirror: &str, suite: &str, folder: &Path) -> anyhow::Result<Self> {
        let path = |name: &str| folder.join(name);
        for name in ["sources", "state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(path(name))
                .with_context(|| format!("making {}", path(name).display()))?;
        }
        let keys = KEYS.into_iter().find(|file| Path::new(file).is_file());
        fs::write(path("sources/kernel.sources"), source(mirror, suite, keys))
            .context("writing apt's source of kernels")?;
        let option = |name: &str, value: &Path| format!("-o{name}={}", value.display());
        Ok(Self {
            options: vec![
                option("Dir::Etc::SourceList", Path::new("/dev/null")),
                option("Dir::Etc::SourceParts", &path("sources")),
                option("Dir::State", &path("state")),
                option("Dir::State::status", Path::new("/dev/null")),
                option("Dir::Cache", &path("cache")),
                "-oAPT::Architecture=amd64".to_owned(),
                "-oAcquire::Languages=none".to_owned(),
                "-oAcquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            ],
        })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(&self.options);
        command
    }

    /// The names of the packages that the newest version of one depends on.
    fn dependencies(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let text =
            shell::output(
                self.command("apt-cache")
                    .args(["show", "--no-all-versions", name]),
            )?;
        Ok(parse_dependencies(&text))
    }
}

/// Where this machine's apt gets Debian from; if need be after it has read its lists anew.
fn mirror() -> anyhow::Result<String> {
    let ask = || {
        shell::output(Command::new("apt-get").args([
            "indextargets",
            "--format",
            "$(REPO_URI) $(COMPONENT) $(LABEL)",
            "Created-By: Packages",
        ]))
    };
    if let Some(mirror) = parse_mirror(&ask()?) {
        return Ok(mirror);
    }
    packages::update()?;
    parse_mirror(&ask()?).context("this machine's apt has no source of Debian's main packages")
}

/// The first of `URI component label` that is Debian proper.
fn parse_mirror(targets: &str) -> Option<String> {
    targets.lines().find_map(|line| {
        let (uri, rest) = line.split_once(' ')?;
        (rest == "main Debian").then(|| uri.to_owned())
    })
}

/// A description of a source in apt's format.
fn source(mirror: &str, suite: &str, keys: Option<&str>) -> String {
    let signed = keys.map_or_else(String::new, |file| format!("Signed-By: {file}\n"));
    format!("Types: deb\nURIs: {mirror}\nSuites: {suite}\nComponents: main\n{signed}")
}

/// The package that holds the kernel itself: what [`NEWEST`] depends on, or what that one depends
/// on in its turn. (With 7.2 Debian has moved the kernel from `linux-image-…` to `linux-binary-…`.)
fn package(dependencies: impl Fn(&str) -> anyhow::Result<Vec<String>>) -> anyhow::Result<String> {
    let begins =
        |list: Vec<String>, prefix: &str| list.into_iter().find(|name| name.starts_with(prefix));
    let image = begins(dependencies(NEWEST)?, "linux-image-")
        .with_context(|| format!("{NEWEST} depends on no kernel"))?;
    let binary = begins(dependencies(&image)?, "linux-binary-");
    Ok(binary.unwrap_or(image))
}

/// The names in the `Depends` line of a package's description.
fn parse_dependencies(description: &str) -> Vec<String> {
    description
        .lines()
        .find_map(|line| line.strip_prefix("Depends: "))
        .into_iter()
        .flat_map(|list| list.split(','))
        .filter_map(|entry| entry.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// The first file below `folder` whose name begins with `vmlinuz`. Links are not followed.
fn find_kernel(folder: &Path) -> Option<PathBuf> {
    let entries: Vec<_> = fs::read_dir(folder).ok()?.filter_map(Result::ok).collect();
    let is = |entry: &fs::DirEntry, test: fn(&fs::FileType) -> bool| {
        entry.file_type().is_ok_and(|kind| test(&kind))
    };
    entries
        .iter()
        .find(|entry| {
            is(entry, fs::FileType::is_file)
                && entry.file_name().to_string_lossy().starts_with("vmlinuz")
        })
        .map(fs::DirEntry::path)
        .or_else(|| {
            let mut folders = entries
                .iter()
                .filter(|entry| is(entry, fs::FileType::is_dir));
            folders.find_map(|entry| find_kernel(&entry.path()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_that_of_debian_proper() {
        // Check that security updates, other components, other archives and sources never read are
        // passed over.
        let targets = "https://example.org/other main Other\nhttp://security.example/debian-security/ main Debian-Security\n\
            http://mirror.example/debian/ contrib Debian\nhttp://mirror.example/debian/ main Debian\nhttp://late.example/ main Debian\n";
        assert_eq!(
            parse_mirror(targets).as_deref(),
            Some("http://mirror.example/debian/")
        );
        assert_eq!(
            parse_mirror("http://mirror.example/debian/ main $(LABEL)\n"),
            None
        );
        assert_eq!(parse_mirror(""), None);
    }

    #[test]
    fn a_source_names_mirror_release_and_keys() {
        // Check the description of a source, with and without a file of keys.
        assert_eq!(
            source("http://mirror.example/debian/", "sid", Some("/keys")),
            "Types: deb\nURIs: http://mirror.example/debian/\nSuites: sid\nComponents: main\nSigned-By: /keys\n"
        );
        assert!(!source("http://mirror.example/", "sid", None).contains("Signed-By"));
    }

    #[test]
    fn the_kernel_is_found_in_either_package() {
        // Check that the kernel's package is found where the image holds it, and where the image
        // depends on another that does.
        let old = |name: &str| {
            Ok(match name {
                NEWEST => parse_dependencies(
                    "Package: x\nDepends: linux-image-6.1.0-50-cloud-amd64 (= 6.1.176-1)\n",
                ),
                _ => {
                    parse_dependencies("Depends: kmod, linux-base (>= 4.3~), initramfs-tools | x\n")
                }
            })
        };
        assert_eq!(
            package(old).expect("there is one"),
            "linux-image-6.1.0-50-cloud-amd64"
        );
        let new = |name: &str| {
            Ok(match name {
                NEWEST => parse_dependencies(
                    "Depends: linux-base-cloud-amd64 (= 7.2.13-1), linux-image-7.2.13-cloud-amd64 (= 7.2.13-1)\n",
                ),
                _ => parse_dependencies(
                    "Depends: linux-binary-7.2.13-cloud-amd64 (= 7.2.13-1), linux-modules-7.2.13-cloud-amd64\n",
                ),
            })
        };
        assert_eq!(
            package(new).expect("there is one"),
            "linux-binary-7.2.13-cloud-amd64"
        );
        assert!(package(|_| Ok(Vec::new())).is_err());
    }
}
