//! Wakes a thread that waits for file descriptors (an eventfd).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::poll::poll;

/// Any thread may wake the one that polls it.
#[derive(Debug)]
pub struct Waker(File);

impl Waker {
    /// One that has woken nobody yet.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(event.into()))
    }

    /// Wakes it. To do so twice before it has noticed is to do so once.
    pub fn wake(&self) {
        // It can only fail when it was used 2^64 times unnoticed: then it is awake already.
        (&self.0).write_all(&1u64.to_ne_bytes()).ok();
    }

    /// Waits until it is used or `timeout` is over. True if it was used.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut polled = [libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        // If it fails (no memory) the wait is short.
        poll(&mut polled, timeout).ok();
        let is_used = polled[0].revents != 0;
        if is_used {
            self.reset();
        }
        is_used
    }

    /// Makes it as new.
    pub(super) fn reset(&self) {
        // Fails when it was not used: that is the aim.
        (&self.0).read_exact(&mut [0; 8]).ok();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
