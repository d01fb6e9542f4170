//! Array maps shared with the kernel through a mapping: reading a record costs no system call.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use aya::Pod;
use profiler_common::records::ThreadRecord;

/// The elements of a memory-mappable array map.
pub(super) struct Records<T> {
    start: NonNull<u8>,
    len: usize,
    /// Bytes from one element to the next: array maps round up to eight.
    stride: usize,
    mapped_bytes: usize,
    elements: PhantomData<T>,
}

// SAFETY: plain memory shared with the kernel; all access goes through volatile reads and writes of plain data.
unsafe impl<T: Pod> Send for Records<T> {}

impl<T: Pod> Records<T> {
    /// Maps the `len` elements of the array map behind `map`.
    ///
    /// # Errors
    /// What `mmap` says.
    pub(super) fn map(map: impl AsFd, len: u32) -> io::Result<Self> {
        let stride = size_of::<T>().next_multiple_of(8);
        // SAFETY: takes nothing.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let mapped_bytes = (stride * len as usize).next_multiple_of(page);
        // SAFETY: a new mapping of a map that the kernel bounds; the result is checked.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast())
            .ok_or_else(|| io::Error::other("a mapping at address zero"))?;
        Ok(Self {
            start,
            len: len as usize,
            stride,
            mapped_bytes,
            elements: PhantomData,
        })
    }

    /// How many elements there are.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Where element `index` lies.
    fn at(&self, index: usize) -> NonNull<T> {
        assert!(index < self.len, "an index within the map");
        // SAFETY: within the mapping, by the assertion.
        unsafe { self.start.byte_add(index * self.stride).cast() }
    }

    /// Copies an element. The kernel may be changing it: for values whose fields stand alone.
    pub(super) fn read(&self, index: usize) -> T {
        // SAFETY: within the mapping; plain data, of which any bytes are a value.
        unsafe { self.at(index).read_volatile() }
    }

    /// Writes an element that no program looks at yet.
    pub(super) fn write(&self, index: usize, value: T) {
        // SAFETY: within the mapping.
        unsafe { self.at(index).write_volatile(value) };
    }

    /// Writes the first four bytes of an element in one piece.
    pub(super) fn write_first_word(&self, index: usize, word: u32) {
        const { assert!(size_of::<T>() >= 4 && align_of::<T>() >= 4) };
        // SAFETY: within the mapping and aligned, by the assertion.
        unsafe { self.at(index).cast::<u32>().write_volatile(word) };
    }

    /// Empties an element that the kernel does not use.
    pub(super) fn clear(&self, index: usize) {
        // SAFETY: within the mapping; plain data of which all-zero bytes are a value.
        unsafe { self.at(index).cast::<u8>().write_bytes(0, size_of::<T>()) };
    }
}

impl Records<ThreadRecord> {
    /// Copies a thread's record as it stood between two updates. `None`: empty, or no quiet moment in many tries.
    pub(super) fn read_quiet(&self, index: usize) -> Option<ThreadRecord> {
        /// An update takes some microseconds at most; this is far longer.
        const TRIES: usize = 100_000;
        let record = self.at(index).as_ptr();
        // SAFETY: fields within the mapping.
        let (sequence, tid) = unsafe { (&raw const (*record).sequence, &raw const (*record).tid) };
        for _ in 0..TRIES {
            // SAFETY: words within the mapping.
            let (before, tid) = unsafe { (sequence.read_volatile(), tid.read_volatile()) };
            if tid == 0 {
                return None;
            }
            if before & 1 == 0 {
                fence(Ordering::Acquire);
                let copy = self.read(index);
                fence(Ordering::Acquire);
                // SAFETY: a word within the mapping.
                if unsafe { sequence.read_volatile() } == before {
                    return Some(copy);
                }
            }
            std::hint::spin_loop();
        }
        None
    }
}

impl<T> Drop for Records<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`; nothing refers to it any more. It cannot fail for such a one.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped_bytes) };
    }
}
