//! Bytes: random ones, read into many pieces at once, sent to another thread.

use std::io;

use super::{checked, raw};

/// Asks once for random bytes.
#[inline(always)]
pub(crate) fn getrandom(buffer: &mut [u8]) -> isize {
    // SAFETY: the buffer is valid for its length.
    unsafe {
        raw(
            libc::SYS_getrandom,
            [buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0, 0],
        )
    }
}

/// Reads once into many pieces. The caller answers for what they point to: memory of its own that
/// holds plain bytes.
#[inline(always)]
pub(crate) fn readv(fd: i32, pieces: &[libc::iovec]) -> isize {
    // SAFETY: the kernel checks the pieces; the caller's promise is that their bytes may change.
    unsafe {
        raw(
            libc::SYS_readv,
            [fd as usize, pieces.as_ptr() as usize, pieces.len(), 0, 0, 0],
        )
    }
}

/// Two ends of one stream.
pub(crate) fn socket_pair() -> io::Result<(i32, i32)> {
    let mut ends = [0i32; 2];
    // SAFETY: room for two descriptors.
    checked(unsafe {
        raw(
            libc::SYS_socketpair,
            [
                libc::AF_UNIX as usize,
                libc::SOCK_STREAM as usize,
                0,
                ends.as_mut_ptr() as usize,
                0,
                0,
            ],
        )
    })?;
    Ok((ends[0], ends[1]))
}

/// Nothing more can be read from or written to this end: who waits on it is woken.
pub(crate) fn shut_down(fd: i32) {
    // SAFETY: plain numbers.
    unsafe {
        raw(
            libc::SYS_shutdown,
            [fd as usize, libc::SHUT_RDWR as usize, 0, 0, 0, 0],
        )
    };
}
