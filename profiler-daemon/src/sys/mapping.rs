//! Memory that is mapped from a file, a ring or a map of the kernel for as long as it is wanted.
//! What lies there, and who else writes to it, is the user's to know.

use std::{io, ops::Range, os::fd::AsFd, ptr::NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;

/// See the module. Unmapped when dropped.
#[derive(Debug)]
pub struct MappedMemory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory, which this value does not read or write itself.
unsafe impl Send for MappedMemory {}

impl MappedMemory {
    /// Maps `bytes` from the beginning, to be read only. What this process changes of it others do
    /// not see.
    ///
    /// # Errors
    /// What the kernel says; `InvalidInput` for no bytes.
    pub fn private(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        Self::new(file, 0..bytes, ProtFlags::READ, flags)
    }

    /// Maps the first page as code, as whoever executes the file does.
    ///
    /// # Errors
    /// What the kernel says: a file of a place where none may be executed is refused.
    pub fn code(file: impl AsFd) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::EXEC;
        Self::new(file, 0..page_size(), access, MapFlags::PRIVATE)
    }

    /// Maps `bytes` from the beginning, to be read and written by whoever maps them.
    ///
    /// # Errors
    /// What the kernel says; `InvalidInput` for no bytes.
    pub fn shared(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        Self::new(file, 0..bytes, access, MapFlags::SHARED)
    }

    /// Maps these bytes, which begin and end with a page, to be read as whoever writes them does.
    ///
    /// # Errors
    /// What the kernel says; `InvalidInput` for no bytes, or for others than whole pages.
    pub fn shared_part(file: impl AsFd, bytes: Range<usize>) -> io::Result<Self> {
        Self::new(file, bytes, ProtFlags::READ, MapFlags::SHARED)
    }

    /// Keeps so many bytes of addresses free for [`Self::place_shared`]: nothing is there yet.
    ///
    /// # Errors
    /// What the kernel says; `InvalidInput` for no bytes.
    pub fn reserved(bytes: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing existing is touched.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags) }?;
        Self::at(start.cast(), bytes)
    }

    /// Maps these bytes of the file, which begin and end with a page, where they lie in what was
    /// reserved, to be read and written by whoever maps them.
    ///
    /// # Errors
    /// What the kernel says; `InvalidInput` for others than whole pages within these addresses.
    /// What was mapped stays.
    pub fn place_shared(&mut self, file: impl AsFd, bytes: Range<usize>) -> io::Result<()> {
        if bytes.end > self.bytes || bytes.start >= bytes.end {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let from = bytes.start as u64;
        // SAFETY: within the addresses of this value, by the comparison; whoever has a pointer into
        // them finds what is placed there.
        unsafe {
            let start = self.start.byte_add(bytes.start).as_ptr();
            mmap(start.cast(), bytes.len(), access, flags, file, from)
        }?;
        Ok(())
    }

    fn new(
        file: impl AsFd,
        range: Range<usize>,
        access: ProtFlags,
        flags: MapFlags,
    ) -> io::Result<Self> {
        let (bytes, from) = (range.len(), range.start as u64);
        // SAFETY: a new mapping at an address of the kernel's choice; nothing existing is touched.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, file, from) }?;
        Self::at(start.cast(), bytes)
    }

    fn at(start: *mut u8, bytes: usize) -> io::Result<Self> {
        let start =
            NonNull::new(start).ok_or_else(|| io::Error::other("a mapping at address zero"))?;
        Ok(Self { start, bytes })
    }

    /// Where it begins: the beginning of a page.
    #[must_use]
    pub const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many bytes there are.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly the addresses that were mapped at first; whoever has a pointer into them
        // keeps this value alive.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "it is mapped");
    }
}
