//! One ring of side-band records shared with the kernel: opening the event, mapping its memory,
//! taking whole records out. What the records mean is `perf_record`.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{own_cost::page_bytes, perf_attr::Attr, perf_record};

/// Largest record: its size is a u16.
const MAX_RECORD_BYTES: usize = 1 << 16;

const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_SAMPLE_TID: u64 = 1 << 1;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
/// Where `data_head` and `data_tail` are in the first page of the ring.
const DATA_HEAD_AT: usize = 1024;
const DATA_TAIL_AT: usize = 1032;

/// Bits of the flag word of `perf_event_attr`, by position.
mod flag {
    pub(super) const MMAP: u32 = 8;
    pub(super) const COMM: u32 = 9;
    pub(super) const TASK: u32 = 13;
    pub(super) const WATERMARK: u32 = 14;
    pub(super) const SAMPLE_ID_ALL: u32 = 18;
    pub(super) const MMAP2: u32 = 23;
    pub(super) const COMM_EXEC: u32 = 24;
    pub(super) const USE_CLOCKID: u32 = 25;
}

/// The side-band ring of one processor.
#[derive(Debug)]
pub struct Ring {
    cpu: u32,
    event: File,
    memory: NonNull<u8>,
    /// Bytes of the whole mapping: one page of control, then the data.
    mapped_bytes: usize,
    /// Bytes of the data; a power of two.
    data_bytes: u64,
}

// SAFETY: the mapping belongs to this value alone and may be used by whichever thread owns the
// value.
unsafe impl Send for Ring {}

impl Ring {
    /// Opens the side-band of one processor, for all processes, with about `data_bytes` of room
    /// (rounded up to a power of two pages).
    ///
    /// # Errors
    ///
    /// Not allowed (`CAP_PERFMON` or `CAP_SYS_ADMIN` missing), no such processor, or out of memory.
    pub fn open(cpu: u32, data_bytes: usize) -> io::Result<Self> {
        let page = usize::try_from(page_bytes()).map_err(io::Error::other)?;
        let data_bytes = data_bytes.clamp(page, 64 << 20).next_power_of_two();
        let bits = [
            flag::MMAP,
            flag::COMM,
            flag::TASK,
            flag::WATERMARK,
            flag::SAMPLE_ID_ALL,
            flag::MMAP2,
            flag::COMM_EXEC,
            flag::USE_CLOCKID,
        ];
        let attr = Attr {
            config: PERF_COUNT_SW_DUMMY,
            sample_type: PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
            flags: bits.iter().fold(0, |flags, bit| flags | 1 << bit),
            // Wake the reader at the first record: a process may live for a few milliseconds only.
            wakeup_watermark: 1,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        let event = attr.open_software(cpu)?;
        let mapped_bytes = page + data_bytes;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing existing is touched.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory =
            NonNull::new(memory.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self {
            cpu,
            event,
            memory,
            mapped_bytes,
            data_bytes: data_bytes as u64,
        })
    }

    /// The processor that it is of.
    #[must_use]
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Bytes of locked memory this ring holds.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.mapped_bytes
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: `at` is one of the two constants, inside the first page, aligned to 8, and only
        // ever used atomically.
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().add(at).cast()) }
    }

    /// Copies `into.len()` bytes of data from this position on; wraps around at the end.
    fn copy(&self, position: u64, into: &mut [u8]) {
        let page = self.mapped_bytes
            - usize::try_from(self.data_bytes).expect("the ring is mapped, so it fits");
        let begin = usize::try_from(position & (self.data_bytes - 1)).expect("inside the ring");
        let data_bytes = self.mapped_bytes - page;
        let first = into.len().min(data_bytes - begin);
        let (head, tail) = into.split_at_mut(first);
        assert!(
            tail.len() <= begin,
            "a record is never longer than the ring"
        );
        // SAFETY: `begin + first <= data_bytes` and `tail.len() <= begin`, so both copies stay
        // inside the mapped data; the kernel does not write between tail and head, where these
        // bytes are.
        unsafe {
            let data = self.memory.as_ptr().add(page);
            std::ptr::copy_nonoverlapping(data.add(begin), head.as_mut_ptr(), head.len());
            std::ptr::copy_nonoverlapping(data, tail.as_mut_ptr(), tail.len());
        }
    }

    /// Takes out every record present when it is called. Answers how many bytes had to be thrown
    /// away because they were no records (0 as long as the kernel is sane).
    pub fn drain(
        &mut self,
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(perf_record::Header, &[u8]),
    ) -> u64 {
        let head = self.position(DATA_HEAD_AT).load(Ordering::Acquire);
        let mut tail = self.position(DATA_TAIL_AT).load(Ordering::Relaxed);
        let mut thrown_away = 0;
        while head != tail {
            let present = head.wrapping_sub(tail);
            let mut header = [0; perf_record::HEADER_BYTES];
            let decoded = if present > self.data_bytes || present < header.len() as u64 {
                None
            } else {
                self.copy(tail, &mut header);
                perf_record::Header::decode(header)
                    .ok()
                    .filter(|header| u64::from(header.size_bytes) <= present)
            };
            let Some(header) = decoded else {
                thrown_away += present;
                tail = head;
                break;
            };
            let size = usize::from(header.size_bytes);
            debug_assert!(size < MAX_RECORD_BYTES);
            scratch.resize(size, 0);
            self.copy(tail, scratch);
            each(header, scratch);
            tail = tail.wrapping_add(size as u64);
        }
        self.position(DATA_TAIL_AT).store(tail, Ordering::Release);
        thrown_away
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly the range mapped in `open`; nothing refers to it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.mapped_bytes) };
    }
}
