//! What tells one file of code from another, where probes are to be set.
//!
//! Its device and inode do, but for files of overlay mounts, which containers run from: each mount
//! has a device number of its own, while the kernel sets probes in the file below, which mounts of
//! one image share. Probed once for each mount, its calls would be counted as often.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{StatFs, fstatfs, statfs};

/// What `statfs` says of an overlay mount.
const OVERLAYFS_MAGIC: i64 = 0x794c_7630;

/// The same for each opening of a file, and for each overlay mount that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeFileIdentity {
    /// A file of any other file system.
    OfDevice {
        /// Its device number.
        device: u64,
        /// Its inode number.
        inode: u64,
    },
    /// A file of an overlay mount, by what that takes over from the file below. Whoever made
    /// another file cannot give it this time of change.
    OfOverlay {
        /// The inode number of the file below.
        inode: u64,
        /// Its size.
        size_bytes: u64,
        /// When it was last written, seconds and nanoseconds since 1970.
        modified: (i64, i64),
        /// When it or its attributes were last changed.
        changed: (i64, i64),
    },
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
        if file_system.f_type == OVERLAYFS_MAGIC {
            return Self::OfOverlay {
                inode: metadata.ino(),
                size_bytes: metadata.size(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            };
        }
        Self::OfDevice {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that a file is the same by each of its names, and no other with its content.
    #[test]
    fn names_of_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("one"), "code").unwrap();
        fs::hard_link(path("one"), path("same")).unwrap();
        fs::copy(path("one"), path("other")).unwrap();
        let at = |name: &str| CodeFileIdentity::at(&path(name)).unwrap();
        assert_eq!(at("one"), at("same"));
        assert_ne!(at("one"), at("other"));
        let file = File::open(path("one")).unwrap();
        assert_eq!(CodeFileIdentity::of(&file).unwrap(), at("one"));
        assert!(CodeFileIdentity::at(&path("none")).is_err());
    }
}
