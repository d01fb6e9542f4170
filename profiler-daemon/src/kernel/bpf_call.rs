//! The system call `bpf`, for commands that aya has no call for.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// The command that makes a link.
pub(super) const BPF_LINK_CREATE: libc::c_long = 28;

/// A command that writes into its attributes.
///
/// # Errors
/// What the kernel says.
pub(super) fn ask<T>(command: libc::c_long, attributes: &mut T) -> io::Result<()> {
    call(command, attributes).map(drop)
}

/// A command that answers with a descriptor.
///
/// # Errors
/// What the kernel says.
pub(super) fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    let answer = call(command, std::ptr::from_ref(attributes))?;
    let descriptor = i32::try_from(answer).map_err(io::Error::other)?;
    // SAFETY: a descriptor that the kernel just made, and nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn call<T>(command: libc::c_long, attributes: *const T) -> io::Result<libc::c_long> {
    // SAFETY: a live structure as the kernel reads it for this command, with its size, which is the
    // caller's alone where the kernel writes it; what it points at lives through the call too.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}
