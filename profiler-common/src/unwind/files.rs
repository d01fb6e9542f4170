//! Files whose unwind tables the walker finds by what the kernel knows of the file that is mapped:
//! for code of processes whose mappings the daemon has not told it of yet.

/// Stretches of code of one file that are known so at most; nearly all files have one.
pub const FILE_SEGMENTS: usize = 4;

/// Any user's, as [`MappedFile::user`].
pub const ANY_USER: u32 = u32::MAX;

/// Key of the map of files: one state of one file that is mapped.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappedFile {
    /// Inode number.
    pub inode: u64,
    /// Size, bytes.
    pub size_bytes: u64,
    /// When it was written last: seconds of that time since 1970.
    pub modified_s: i64,
    /// And nanoseconds beside these.
    pub modified_ns: u32,
    /// Device of the file system, as the kernel writes it: the minor number in 20 bits, the major
    /// one above.
    pub device: u32,
    /// Whose processes it is known for: a real user, or [`ANY_USER`].
    pub user: u32,
    /// Zero.
    pub padding: u32,
}

/// One stretch of code of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSegment {
    /// Where mappings of it may begin: an offset in the file, bytes.
    pub first: u64,
    /// The first offset behind it; 0: there is no such stretch.
    pub end: u64,
    /// Virtual address less offset in the file.
    pub address_less_offset: u64,
}

/// Value of the map of files: how the code of one is unwound.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTable {
    /// The table's id.
    pub table: u32,
    /// [`mapping::TABLE`](super::mapping::TABLE) or
    /// [`mapping::FRAME_POINTER`](super::mapping::FRAME_POINTER).
    pub kind: u32,
    /// Stretches of code.
    pub segments: [FileSegment; FILE_SEGMENTS],
}

impl FileTable {
    /// What to subtract from an address in a mapping at `start` from `offset` in the file on to get
    /// the file's virtual address; `None` if no code of the file is there.
    #[must_use]
    #[inline(always)]
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let mut index = 0;
        while index < FILE_SEGMENTS {
            let segment = &self.segments[index];
            if offset >= segment.first && offset < segment.end {
                let address = offset.wrapping_add(segment.address_less_offset);
                return Some(start.wrapping_sub(address));
            }
            index += 1;
        }
        None
    }
}

const _: () = assert!(size_of::<MappedFile>() == 40);
const _: () = assert!(size_of::<FileTable>() == 8 + 24 * FILE_SEGMENTS);

#[cfg(feature = "user")]
mod pod {
    // SAFETY: `#[repr(C)]`, only integers, no implicit padding (size asserted above).
    unsafe impl aya::Pod for super::MappedFile {}
    // SAFETY: as above.
    unsafe impl aya::Pod for super::FileTable {}
}
