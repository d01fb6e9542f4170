//! Opens a file as a process sees it: links inside its root stay inside its root, whatever the process made them point to.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// `struct open_how` of `openat2` (Linux 5.6).
#[repr(C)]
struct How {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// Opens `path` below the root of process `pid` for reading. Never waits for a pipe, never follows a link at the end.
///
/// # Errors
/// What the kernel says; `InvalidInput` for a path with a zero byte.
pub fn open_in_root(pid: u32, path: &str) -> io::Result<File> {
    let root = File::open(format!("/proc/{pid}/root"))?;
    let path = CString::new(path.trim_start_matches('/'))?;
    let flags =
        libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let how = How {
        flags: u64::from(flags.cast_unsigned()),
        mode: 0,
        resolve: libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS,
    };
    // SAFETY: a zero-terminated path and a struct of the size given, both alive through the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<How>(),
        )
    };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn opens_files_and_follows_no_link_at_the_end() {
        // Check that a file is opened by its path, and that a link in its place is refused.
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "text").expect("a file");
        let own = std::process::id();
        let mut text = String::new();
        let mut opened = open_in_root(own, file.to_str().expect("a plain path")).expect("opens");
        opened.read_to_string(&mut text).expect("reads");
        assert_eq!(text, "text");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        assert!(open_in_root(own, link.to_str().expect("a plain path")).is_err());
        assert!(open_in_root(own, "/no\0path").is_err());
    }
}
