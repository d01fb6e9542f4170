//! A file as bytes in memory, page by page as they are read. Only for short-lived processes that
//! may die of what they read: where the file shrinks meanwhile, the kernel ends the process.

use std::{fs::File, io, ops::Deref, slice};

use super::mapping::MappedMemory;

/// See the module. Read-only; unmapped when dropped.
#[derive(Debug)]
pub struct MappedFile(MappedMemory);

impl MappedFile {
    /// Maps all of a file.
    ///
    /// # Errors
    /// What the kernel says; `InvalidInput` for an empty file.
    pub fn new(file: &File) -> io::Result<Self> {
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        MappedMemory::private(file, bytes).map(Self)
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is that long and lives as long as `self`. Its contents may change
        // when the file does, which only makes wrong bytes out of hostile ones: nobody relies on a
        // byte to stay as it was read.
        unsafe { slice::from_raw_parts(self.0.start().as_ptr(), self.0.bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that a file reads as its bytes, and that an empty one is refused.
    #[test]
    fn reads() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(MappedFile::new(file.as_file()).is_err());
        std::fs::write(file.path(), "some bytes").unwrap();
        let mapped = MappedFile::new(file.as_file()).unwrap();
        assert_eq!(&*mapped, b"some bytes");
    }
}
