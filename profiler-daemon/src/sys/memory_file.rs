//! A file that lives in memory only: gives bytes (the vDSO image) a path that file readers can
//! open.

use std::{
    fs::File,
    io::{self, Write as _},
};

use rustix::fs::{MemfdFlags, memfd_create};

/// A new memory file with these contents, closed on exec.
///
/// # Errors
///
/// Out of file descriptors or memory.
pub fn memory_file(contents: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("profiler", MemfdFlags::CLOEXEC)?);
    file.write_all(contents)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::{fd::AsRawFd as _, unix::fs::FileExt as _};

    // Check that the contents can be read back through a second opening by path.
    #[test]
    fn contents_have_a_path() {
        let file = memory_file(b"some bytes").unwrap();
        let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let mut bytes = [0; 5];
        again.read_exact_at(&mut bytes, 5).unwrap();
        assert_eq!(&bytes, b"bytes");
    }
}
