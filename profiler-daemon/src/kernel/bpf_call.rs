//! The system call `bpf`, for commands that aya has no call for.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// The command that makes a link.
pub(super) const BPF_LINK_CREATE: libc::c_long = 28;

/// A command that answers with a descriptor.
///
/// # Errors
/// What the kernel says.
pub(super) fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: a live structure as the kernel reads it for this command, with its size; what it
    // points at lives through the call too.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    let descriptor = i32::try_from(answer).map_err(io::Error::other)?;
    // SAFETY: a descriptor that the kernel just made, and nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
