//! What tells one file of code from another, where probes are to be set.
//!
//! Its device and inode do, but for files of overlay mounts, which containers run from: each mount
//! has a device number of its own, while the kernel sets probes in the file below, which mounts of
//! one image share, and which may be mapped without any. Probed once for each, its calls would be
//! counted as often.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{StatFs, fstatfs, statfs};

/// What `statfs` says of an overlay mount.
const OVERLAYFS_MAGIC: i64 = 0x794c_7630;

/// What is known of a file, to tell it from another ([`CodeFileIdentity::is_same`]).
#[derive(Clone, Copy, Debug)]
pub struct CodeFileIdentity {
    /// `None`: it is shown by an overlay mount, whose device says nothing of the file below. The
    /// rest is taken over from that.
    device: Option<u64>,
    inode: u64,
    size_bytes: u64,
    /// When it was last written, seconds and nanoseconds since 1970.
    modified: (i64, i64),
    /// When it or its attributes were last changed. Nobody can give a file another's.
    changed: (i64, i64),
}

impl CodeFileIdentity {
    /// Of an open file.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of(file: &File) -> io::Result<Self> {
        Ok(Self::new(&file.metadata()?, &fstatfs(file)?))
    }

    /// Of the file at a path.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self::new(&fs::metadata(path)?, &statfs(path)?))
    }

    fn new(metadata: &Metadata, file_system: &StatFs) -> Self {
        let is_overlay = file_system.f_type == OVERLAYFS_MAGIC;
        Self {
            device: (!is_overlay).then(|| metadata.dev()),
            inode: metadata.ino(),
            size_bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether probes of the one are in the other: by device and inode, and where an overlay mount
    /// shows one of them by all else. (Not always by that: a file that is deleted has changed, and
    /// snapshots of a file system have files that are alike.)
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        if self.device.is_some() && other.device.is_some() {
            return (self.device, self.inode) == (other.device, other.inode);
        }
        let below = |of: &Self| (of.inode, of.size_bytes, of.modified, of.changed);
        below(self) == below(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that a file is the same by each of its names, and after its attributes have changed,
    // that no other with its content is, and that an overlay mount's is as long as nothing has
    // changed. (Real mounts: tests/kernel/exact_overlays.rs.)
    #[test]
    fn names_of_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("one"), "code").unwrap();
        fs::copy(path("one"), path("other")).unwrap();
        let at = |name: &str| CodeFileIdentity::at(&path(name)).unwrap();
        let before = at("one");
        fs::hard_link(path("one"), path("same")).unwrap();
        assert!(at("one").is_same(&at("same")) && at("one").is_same(&before));
        assert!(!at("one").is_same(&at("other")));
        let file = File::open(path("one")).unwrap();
        assert!(CodeFileIdentity::of(&file).unwrap().is_same(&at("one")));
        assert!(CodeFileIdentity::at(&path("none")).is_err());
        let shown = |of: CodeFileIdentity| CodeFileIdentity { device: None, ..of };
        assert!(shown(at("one")).is_same(&at("one")) && at("one").is_same(&shown(at("one"))));
        assert!(shown(at("one")).is_same(&shown(at("one"))));
        assert!(!shown(at("one")).is_same(&shown(at("other"))));
    }
}
