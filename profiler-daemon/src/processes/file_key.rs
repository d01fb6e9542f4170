//! How mapped files are told apart before they are opened.

use super::{shares::Owner, source::Mapped};
use crate::sys::perf_record::Device;

/// How the kernel tells mapped files apart. On file systems without a disk of their own two
/// subvolumes can share both numbers, so there the path belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileKey {
    pub(super) device: Device,
    pub(super) inode: u64,
    path: Option<Box<[u8]>>,
    /// Whose processes it is known for, where it could not be told by device and inode that it is
    /// the file that is mapped: a user who has another file taken for it deceives himself.
    pub(super) of_user: Option<Option<u32>>,
}

impl FileKey {
    pub(super) fn of(mapped: &Mapped) -> Self {
        Self {
            device: mapped.device,
            inode: mapped.inode,
            path: (mapped.device.major == 0).then(|| mapped.plain_path().into()),
            of_user: None,
        }
    }

    /// The same for processes of this owner's user only.
    pub(super) fn of_user(&self, owner: Owner) -> Self {
        Self {
            of_user: Some(owner.user()),
            ..self.clone()
        }
    }
}
