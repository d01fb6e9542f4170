//! What the emulated machine starts with: a shell, the daemon, a workload, the tests, the libraries
//! they are linked with.
//!
//! All but the shell lie where they lie on this machine, so that the tests find the daemon, and the
//! programs their libraries.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::cpio::Archive;
use super::outcome::{FIRST_LINE, LAST_LINE};
use crate::shell;

/// The files that go into an image.
pub(super) struct Files {
    /// A busybox that needs no libraries.
    pub(super) busybox: PathBuf,
    /// The daemon, where the tests look for it.
    pub(super) daemon: PathBuf,
    /// The programs with known answers.
    pub(super) workload: PathBuf,
    /// The tests.
    pub(super) tests: PathBuf,
    /// The program of goroutines; `None`: there is no Go here to build it with.
    pub(super) goroutines: Option<PathBuf>,
}

impl Files {
    /// Packs the image whose `init` runs `command`, which [`Files::tests_command`] gives.
    pub(super) fn image(&self, command: &str) -> anyhow::Result<Vec<u8>> {
        let programs = [&self.daemon, &self.workload, &self.tests];
        let mut libraries = BTreeSet::new();
        for program in programs {
            libraries.extend(parse_libraries(&shell::output(
                Command::new("ldd").arg(program),
            )?));
        }
        let mut archive = Archive::default();
        for folder in ["bin", "dev", "proc", "root", "sys", "tmp"] {
            archive.folder(folder);
        }
        archive.file("init", self.init(command).as_bytes());
        archive.file("bin/busybox", &read(&self.busybox)?);
        archive.file(
            "etc/passwd",
            b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
        );
        let programs = [&self.daemon, &self.workload].into_iter();
        for file in programs.chain(&self.goroutines).chain(&libraries) {
            archive.file(&file.to_string_lossy(), &read(file)?);
        }
        archive.file(&self.tests.to_string_lossy(), &self.tests_without_debug()?);
        Ok(archive.finish())
    }

    /// The tests without debug information, which would take more memory than the machine has.
    fn tests_without_debug(&self) -> anyhow::Result<Vec<u8>> {
        let stripped = self.tests.with_extension("stripped");
        shell::run(
            Command::new("strip")
                .arg("--strip-debug")
                .arg("-o")
                .arg(&stripped)
                .arg(&self.tests),
        )?;
        read(&stripped)
    }

    /// Runs these tests, one at a time.
    pub(super) fn tests_command(&self, tests: &[&str]) -> String {
        format!(
            "{} --test-threads=1 --exact {} 2>&1",
            self.tests.display(),
            tests.join(" ")
        )
    }

    fn init(&self, command: &str) -> String {
        let (daemon, workload) = (self.daemon.display(), self.workload.display());
        let goroutines = self.goroutines.as_ref();
        let goroutines = goroutines.map_or_else(String::new, |program| {
            format!(" GOROUTINES_BIN={}", program.display())
        });
        format!(
            "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root CI=true DAEMON_BIN={daemon} WORKLOAD_BIN={workload}{goroutines}
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup /sys/fs/cgroup
ifconfig lo 127.0.0.1 up
cd /tmp
echo \"{FIRST_LINE}$(uname -r)\"
{command}
echo \"{LAST_LINE}$?\"
poweroff -f
"
        )
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}

/// The files that `ldd` names: `libc.so.6 => /lib/… (0x…)`, and the loader alone as `/lib64/…
/// (0x…)`.
fn parse_libraries(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| {
            let file = line.split_once("=> ").map_or(line, |(_, file)| file);
            let file = file.split_whitespace().next()?;
            file.starts_with('/').then(|| PathBuf::from(file))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        // Check that libraries and the loader are taken, and neither the kernel's own nor those
        // that a static program has not.
        let text = "\tlinux-vdso.so.1 (0x00007f)\n\tlibgcc_s.so.1 => /lib/x/libgcc_s.so.1 (0x00007f)\n\t/lib64/ld-linux.so.2 (0x00007f)\n";
        let expected = ["/lib/x/libgcc_s.so.1", "/lib64/ld-linux.so.2"].map(PathBuf::from);
        assert_eq!(parse_libraries(text), expected);
        assert_eq!(
            parse_libraries("\tstatically linked\n"),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn init_says_where_it_begins_and_ends() {
        // Check that the command stands between the two lines that the outcome is read by, its
        // status in the last.
        let file = |name: &str| PathBuf::from(format!("/build/{name}"));
        let files = Files {
            busybox: file("busybox"),
            daemon: file("daemon"),
            workload: file("workload"),
            tests: file("tests"),
            goroutines: Some(file("goroutines")),
        };
        let init = files.init(&files.tests_command(&["a::b", "c"]));
        let lines: Vec<_> = init.lines().collect();
        let at = lines
            .iter()
            .position(|line| *line == "/build/tests --test-threads=1 --exact a::b c 2>&1")
            .expect("the command");
        assert_eq!(lines[at - 1], "echo \"guest: Linux $(uname -r)\"");
        assert_eq!(lines[at + 1], "echo \"guest: ended with $?\"");
        let programs = "DAEMON_BIN=/build/daemon WORKLOAD_BIN=/build/workload";
        assert!(init.contains(&format!("{programs} GOROUTINES_BIN=/build/goroutines\n")));
    }
}
