//! What is asked of the machine about processes: one trait, so that tests can play any machine, and
//! its real answer from `/proc`. Decides nothing but whether an opened file is the one that was
//! mapped.

use std::{
    fs::{File, Metadata, OpenOptions},
    ops::Range,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use crate::sys::{
    cgroup::CgroupFacts,
    open_in_root::{self, LastLink, Root},
    perf_record::Device,
    proc_fs,
    proc_maps::ExecMaps,
    proc_stat::ProcStat,
};
use crate::units::VirtualAddress;

/// Most bytes of a vDSO image.
const MAX_VDSO_BYTES: u64 = 256 << 10;

/// A mapping as the kernel describes it: which file, by which path, at which addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// First address.
    pub start: VirtualAddress,
    /// Address behind the last one.
    pub end: VirtualAddress,
    /// Device of the file; 0:0 without one.
    pub device: Device,
    /// Inode of the file; 0 without one.
    pub inode: u64,
    /// Path as the process sees it, or `[vdso]`, `//anon`, …
    pub path: Box<[u8]>,
}

impl Mapped {
    /// The path without the mark of a deleted file.
    #[must_use]
    pub fn plain_path(&self) -> &[u8] {
        self.path.strip_suffix(b" (deleted)").unwrap_or(&self.path)
    }
}

/// What a process is, beyond its `stat` line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Path of its program.
    pub exe: Option<PathBuf>,
    /// Real user.
    pub uid: Option<u32>,
    /// Control group, unit, container; `None` if it could not be read.
    pub cgroup: Option<CgroupFacts>,
    /// Command line, where asked for.
    pub cmdline: Option<String>,
}

/// The machine, as far as processes are concerned. Every answer may be missing: processes end at
/// any time.
pub trait ProcessSource: Send {
    /// All processes there are.
    fn pids(&self) -> Vec<u32>;
    /// The `stat` line.
    fn stat(&self, pid: u32) -> Option<ProcStat>;
    /// The executable mappings, at most `limit`.
    fn exec_maps(&self, pid: u32, limit: usize) -> Option<ExecMaps>;
    /// Program, user, control group; the command line only if asked for.
    fn describe(&self, pid: u32, with_cmdline: bool) -> Description;
    /// Opens the very file that is mapped; never waits for a device or a pipe.
    fn open(&self, pid: u32, ppid: u32, mapped: &Mapped) -> Option<File>;
    /// Opens the file that a process has mapped at these addresses, if these are one mapping; and
    /// says what is mapped there.
    fn open_mapped(&self, pid: u32, range: Range<VirtualAddress>) -> Option<(File, Mapped)>;
    /// The file in which the process names the code it makes at run time, if it belongs to the
    /// process's own user. Another user's, root's too, is not read: a process can have any file
    /// mounted in its place.
    fn perf_map(&self, pid: u32) -> Option<File>;
    /// This process's own vDSO image: that of every process of this machine's word size. The memory
    /// of others is never read for one: what they map there can make the reader wait for ever.
    fn own_vdso(&self) -> Option<Vec<u8>>;
}

/// The machine this runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcFs;

impl ProcessSource for ProcFs {
    fn pids(&self) -> Vec<u32> {
        proc_fs::pids().unwrap_or_default()
    }

    fn stat(&self, pid: u32) -> Option<ProcStat> {
        proc_fs::stat(pid)
    }

    fn exec_maps(&self, pid: u32, limit: usize) -> Option<ExecMaps> {
        proc_fs::exec_maps(pid, limit)
    }

    fn describe(&self, pid: u32, with_cmdline: bool) -> Description {
        Description {
            exe: proc_fs::exe(pid),
            uid: proc_fs::uid(pid),
            cgroup: proc_fs::cgroup(pid),
            cmdline: if with_cmdline {
                proc_fs::cmdline(pid)
            } else {
                None
            },
        }
    }

    /// First by address, which is exact even for deleted files; then by path from the process's
    /// root, its parent's, ours.
    fn open(&self, pid: u32, ppid: u32, mapped: &Mapped) -> Option<File> {
        let by_address = by_address(pid, mapped.start..mapped.end);
        if let Some(file) = open_regular(&by_address) {
            // File systems without a disk of their own show another device than in the mapping; a
            // path alone decides nothing: whoever owns the process mounts what he likes there.
            let no_disk = file
                .metadata()
                .is_ok_and(|metadata| libc::major(metadata.dev()) == 0)
                || mapped.device.major == 0;
            let same_path = || {
                let link = std::fs::read_link(&by_address);
                link.is_ok_and(|link| link.as_os_str().as_bytes() == &*mapped.path)
            };
            let is_the_file = file
                .metadata()
                .is_ok_and(|metadata| is_the_file(&metadata, mapped));
            if is_the_file || (no_disk && same_path()) {
                return Some(file);
            }
        }
        let path = mapped.plain_path();
        if !path.starts_with(b"/") {
            return None;
        }
        let uid = proc_fs::uid(pid);
        let roots = [Root::of_process(pid), Root::of_process(ppid), Root::own()];
        roots.into_iter().flatten().find_map(|root| {
            let file = root.open(path, LastLink::Refuse).ok()?;
            may_be_the_file(&file, mapped, uid).then_some(file)
        })
    }

    fn open_mapped(&self, pid: u32, range: Range<VirtualAddress>) -> Option<(File, Mapped)> {
        let by_address = by_address(pid, range.clone());
        let file = open_regular(&by_address)?;
        let metadata = file.metadata().ok()?;
        let path = std::fs::read_link(&by_address).ok()?;
        let mapped = Mapped {
            start: range.start,
            end: range.end,
            device: Device {
                major: libc::major(metadata.dev()),
                minor: libc::minor(metadata.dev()),
            },
            inode: metadata.ino(),
            path: path.as_os_str().as_bytes().into(),
        };
        Some((file, mapped))
    }

    fn perf_map(&self, pid: u32) -> Option<File> {
        let path = format!("tmp/perf-{}.map", proc_fs::own_pid(pid)?);
        let root = Root::of_process(pid).ok()?;
        let file = root.open(path.as_bytes(), LastLink::Refuse).ok()?;
        let owner = file.metadata().ok()?.uid();
        (Some(owner) == proc_fs::uid(pid)).then_some(file)
    }

    fn own_vdso(&self) -> Option<Vec<u8>> {
        let maps = proc_fs::exec_maps(std::process::id(), usize::MAX)?;
        let mut entries = maps.entries.into_iter();
        let own = entries.find(|entry| &*entry.path == b"[vdso]")?;
        let bytes = own.end.checked_from(own.start);
        let bytes = bytes.filter(|bytes| *bytes <= MAX_VDSO_BYTES)?;
        let mut image = vec![0; usize::try_from(bytes).ok()?];
        let memory = File::open("/proc/self/mem").ok()?;
        memory.read_exact_at(&mut image, own.start.get()).ok()?;
        Some(image)
    }
}

fn by_address(pid: u32, range: Range<VirtualAddress>) -> PathBuf {
    let Range { start, end } = range;
    format!("/proc/{pid}/map_files/{start:x}-{end:x}").into()
}

/// Opens a path for reading if it is a regular file. Looks before it opens: opening a device or a
/// pipe can have effects.
fn open_regular(path: &Path) -> Option<File> {
    let looked_at = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_CLOEXEC)
        .open(path)
        .ok()?;
    open_in_root::open_regular(&looked_at).ok()
}

/// Whether an open file has the device and the inode of the mapped one.
pub(super) fn is_the_file(metadata: &Metadata, mapped: &Mapped) -> bool {
    let device = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
    device == (mapped.device.major, mapped.device.minor) && metadata.ino() == mapped.inode
}

/// Whether a file found at the path of a mapping may be the mapped one. File systems without a disk
/// of their own (overlay, btrfs) show another device in `stat` than in the mapping. There only the
/// inode can be compared, which decides nothing of its own: whoever owns a process can give a file
/// of its own any inode, and mount another file at its path. So such a file is taken only if the
/// process's user (`None`: no longer known) may read it anyway.
fn may_be_the_file(file: &File, mapped: &Mapped, uid: Option<u32>) -> bool {
    let Ok(metadata) = file.metadata() else {
        return false;
    };
    let no_disk = libc::major(metadata.dev()) == 0 || mapped.device.major == 0;
    let may_read = metadata.mode() & 0o004 != 0 || uid == Some(0) || uid == Some(metadata.uid());
    is_the_file(&metadata, mapped) || (metadata.ino() == mapped.inode && no_disk && may_read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::build_id::{self, ElfIdentity};

    fn own_mapping(filter: impl Fn(&[u8]) -> bool) -> Mapped {
        let maps = ProcFs.exec_maps(std::process::id(), 1000).unwrap();
        let entry = maps
            .entries
            .into_iter()
            .find(|entry| filter(&entry.path))
            .unwrap();
        Mapped {
            start: entry.start,
            end: entry.end,
            device: entry.device,
            inode: entry.inode,
            path: entry.path,
        }
    }

    // Check that a mapped file is found by its addresses, and by its path once the addresses are
    // wrong.
    #[test]
    fn opens_own_program() {
        let own = std::env::current_exe().unwrap();
        let mut mapped = own_mapping(|path| path == own.as_os_str().as_bytes());
        let pid = std::process::id();
        let inode = std::fs::metadata(&own).unwrap().ino();
        let by_address = ProcFs.open(pid, 0, &mapped).unwrap();
        let (again, at) = ProcFs.open_mapped(pid, mapped.start..mapped.end).unwrap();
        assert_eq!((at.start, &at.path), (mapped.start, &mapped.path));
        mapped.start = VirtualAddress::new(0x1000);
        mapped.end = VirtualAddress::new(0x2000);
        let by_path = ProcFs.open(pid, 0, &mapped).unwrap();
        assert!(
            ProcFs
                .open_mapped(
                    pid,
                    VirtualAddress::new(0x1000)..VirtualAddress::new(0x2000)
                )
                .is_none()
        );
        let gone = ProcFs.open(u32::MAX / 2, u32::MAX / 2, &mapped).unwrap();
        for file in [by_address, again, by_path, gone] {
            assert_eq!(file.metadata().unwrap().ino(), inode);
        }
        mapped.inode += 1;
        assert!(ProcFs.open(pid, 0, &mapped).is_none());
    }

    // Check that a link at the path of a mapping is not followed, and that a file of which only the
    // inode is known to be right is taken if the process's user may read it, and not else.
    #[test]
    fn no_file_that_others_put_there() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("file"), directory.path().join("link"));
        std::fs::write(&path, "secret").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let file = File::open(&path).unwrap();
        let metadata = file.metadata().unwrap();
        let device = Device {
            major: libc::major(metadata.dev()),
            minor: libc::minor(metadata.dev()),
        };
        let mapped = |path: &Path, device| Mapped {
            start: VirtualAddress::new(0x1000),
            end: VirtualAddress::new(0x2000),
            device,
            inode: metadata.ino(),
            path: path.as_os_str().as_bytes().into(),
        };
        let pid = std::process::id();
        assert!(ProcFs.open(pid, 0, &mapped(&path, device)).is_some());
        assert!(ProcFs.open(pid, 0, &mapped(&link, device)).is_none());
        let elsewhere = mapped(&path, Device { major: 0, minor: 9 });
        let (owner, other) = (metadata.uid(), metadata.uid() + 1);
        let may_be = |mode, uid| {
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
                .unwrap();
            may_be_the_file(&file, &elsewhere, uid)
        };
        assert!(may_be(0o600, Some(owner)) && may_be(0o604, Some(other)) && may_be(0o604, None));
        assert!(!may_be(0o640, Some(other)) && !may_be(0o640, None));
    }

    // Check that neither a directory nor a pipe is opened, and that this does not wait for the
    // pipe's writer.
    #[test]
    fn only_regular_files() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap();
        assert!(made.success());
        assert!(open_regular(&pipe).is_none());
        assert!(open_regular(directory.path()).is_none());
        assert!(open_regular(Path::new("/dev/zero")).is_none());
    }

    // Check that this process's vDSO is an ELF image.
    #[test]
    fn own_vdso() {
        let image = ProcFs.own_vdso().unwrap();
        assert!(!matches!(
            build_id::of_bytes(&image),
            ElfIdentity::NotElf | ElfIdentity::Corrupt
        ));
    }
}
