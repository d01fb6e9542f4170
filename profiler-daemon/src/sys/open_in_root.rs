//! Opens a file as a process sees it: links inside its root stay inside its root, whatever the
//! process made them point to. Only regular files are opened: opening a device or a pipe can have
//! effects.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    },
};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

/// What becomes of a link at the end of a path. Those before it are followed, inside the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// It is followed, inside the root.
    Follow,
    /// It is refused.
    Refuse,
}

/// The root of a mount namespace, or of what a process can see of one.
#[derive(Debug)]
pub struct Root {
    directory: File,
}

impl Root {
    /// What process `pid` takes for the root.
    ///
    /// # Errors
    /// What the kernel says: no such process, no permission.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        Self::at(&format!("/proc/{pid}/root"))
    }

    /// This process's own.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn own() -> io::Result<Self> {
        Self::at("/")
    }

    /// Looks at the directory only: to open one would ask its file system, which may be one that
    /// never answers.
    fn at(path: &str) -> io::Result<Self> {
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC)
            .open(path)?;
        Ok(Self { directory })
    }

    /// Whether both are the same directory.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let place = |root: &Self| {
            let metadata = root.directory.metadata().ok()?;
            Some((metadata.dev(), metadata.ino()))
        };
        place(self).is_some() && place(self) == place(other)
    }

    /// Opens the regular file at `path` below this root for reading; never waits.
    ///
    /// # Errors
    /// What the kernel says; `InvalidInput` for a path with a zero byte and for what is no regular
    /// file.
    pub fn open(&self, path: &[u8], last: LastLink) -> io::Result<File> {
        let start = path.iter().position(|byte| *byte != b'/');
        let path = &path[start.unwrap_or(path.len())..];
        let no_follow = match last {
            LastLink::Follow => OFlags::empty(),
            LastLink::Refuse => OFlags::NOFOLLOW,
        };
        let looked_at = openat2(
            &self.directory,
            path,
            OFlags::PATH | OFlags::CLOEXEC | no_follow,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        )?;
        open_regular(&looked_at.into())
    }
}

/// Opens for reading what was looked at only (`O_PATH`), if it is a regular file.
///
/// # Errors
/// What the kernel says; `InvalidInput` for what is no regular file.
pub fn open_regular(looked_at: &File) -> io::Result<File> {
    if !looked_at.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(format!("/proc/self/fd/{}", looked_at.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Read, os::unix::ffi::OsStrExt as _, path::Path};

    fn bytes(path: &Path) -> &[u8] {
        path.as_os_str().as_bytes()
    }

    #[test]
    fn opens_files_and_follows_links_only_where_asked() {
        // Check that a file is opened by its path, and that a link in its place is followed or
        // refused, as is asked.
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "text").expect("a file");
        let root = Root::of_process(std::process::id()).expect("an own root");
        let mut text = String::new();
        let mut opened = root.open(bytes(&file), LastLink::Refuse).expect("opens");
        opened.read_to_string(&mut text).expect("reads");
        assert_eq!(text, "text");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        assert!(root.open(bytes(&link), LastLink::Refuse).is_err());
        assert!(root.open(bytes(&link), LastLink::Follow).is_ok());
        assert!(root.open(b"/no\0path", LastLink::Follow).is_err());
        assert!(root.open(b"", LastLink::Follow).is_err());
        assert!(root.is_same(&Root::own().expect("a root")));
    }

    #[test]
    fn links_stay_inside_and_devices_are_left_alone() {
        // Check that a link that leads out of the root is looked up inside it, and that folders,
        // pipes and devices are refused.
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root {
            directory: File::open(folder.path()).expect("the folder"),
        };
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/../../etc/passwd", &link).expect("a link");
        let missing = root.open(b"link", LastLink::Follow).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        std::fs::create_dir(folder.path().join("etc")).expect("a folder");
        std::fs::write(folder.path().join("etc/passwd"), "own").expect("a file");
        let inside = root.open(b"/link", LastLink::Follow).expect("opens");
        assert_eq!(inside.metadata().expect("a file").len(), 3);
        assert!(root.open(b"etc", LastLink::Follow).is_err());
        let own = Root::own().expect("a root");
        assert!(own.open(b"/dev/zero", LastLink::Follow).is_err());
    }
}
