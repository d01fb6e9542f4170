//! Waiting for file descriptors, to the nanosecond: `poll(2)` counts milliseconds, and whoever
//! waits for the rest of one spins.
//!
//! By libc's list of descriptors, which may be kept from one wait to the next: that of rustix
//! borrows them.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
    time::{Duration, Instant},
};

/// Waits until one of `entries` is ready or `timeout` is over. Returns how many are ready; a signal
/// ends the wait early, with none.
///
/// # Errors
///
/// The kernel refused to wait: no memory, or more entries than files may be open.
pub(super) fn poll(entries: &mut [libc::pollfd], timeout: Duration) -> io::Result<usize> {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    };
    // SAFETY: a valid array of so many entries, a time, and no signal mask.
    let ready = unsafe {
        libc::ppoll(
            entries.as_mut_ptr(),
            entries.len() as libc::nfds_t,
            &raw const timeout,
            std::ptr::null(),
        )
    };
    usize::try_from(ready).or_else(|_| {
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::Interrupted {
            Ok(0)
        } else {
            Err(error)
        }
    })
}

/// Whether `fd` can be read, or its other side is gone, before `deadline`. Signals do not end the
/// wait.
///
/// # Errors
///
/// As [`poll`].
pub(super) fn readable_before(fd: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut wanted = [libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        match poll(&mut wanted, left)? {
            0 if left.is_zero() => return Ok(false),
            0 => {}
            _ => return Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    // Check that a wait lasts as long as it was asked to, also where that is no whole millisecond,
    // and that what is ready ends it.
    #[test]
    fn lasts_as_long_as_asked() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut entry = [libc::pollfd {
            fd: reader.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        let timeout = Duration::from_micros(2700);
        let start = Instant::now();
        assert_eq!(poll(&mut entry, timeout).unwrap(), 0);
        assert!(start.elapsed() >= timeout);
        writer.write_all(b"x").unwrap();
        assert_eq!(poll(&mut entry, Duration::MAX).unwrap(), 1);
        assert_eq!(entry[0].revents, libc::POLLIN);
    }
}
