//! One ring of side-band records shared with the kernel: opening the event, mapping its memory,
//! taking whole records out. What the records mean is `perf_record`.

use std::{
    fs::File,
    io,
    mem::offset_of,
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{AtomicU64, Ordering},
};

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_DUMMY, PERF_SAMPLE_TID, PERF_SAMPLE_TIME, perf_event_attr, perf_event_mmap_page,
};

use super::{mapping::MappedMemory, own_cost::page_bytes, perf_attr::open_software, perf_record};

/// Largest record: its size is a u16.
const MAX_RECORD_BYTES: usize = 1 << 16;

/// Where the first page of the ring says how far the kernel has written and how far was read.
const DATA_HEAD_AT: usize = offset_of!(perf_event_mmap_page, data_head);
const DATA_TAIL_AT: usize = offset_of!(perf_event_mmap_page, data_tail);

/// The side-band ring of one processor.
#[derive(Debug)]
pub struct Ring {
    cpu: u32,
    event: File,
    /// One page of control, then the data.
    memory: MappedMemory,
    /// Bytes of the data; a power of two.
    data_bytes: u64,
}

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
        let mut attr = perf_event_attr {
            config: PERF_COUNT_SW_DUMMY.into(),
            sample_type: (PERF_SAMPLE_TID | PERF_SAMPLE_TIME).into(),
            clockid: libc::CLOCK_MONOTONIC,
            ..perf_event_attr::default()
        };
        attr.set_mmap(1);
        attr.set_mmap2(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_task(1);
        attr.set_sample_id_all(1);
        attr.set_use_clockid(1);
        // Wake the reader at the first record: a process may live for a few milliseconds only.
        attr.set_watermark(1);
        attr.wakeup_watermark = 1;
        let event = open_software(attr, cpu)?;
        let memory = MappedMemory::shared(&event, page + data_bytes)?;
        Ok(Self {
            cpu,
            event,
            memory,
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
        self.memory.bytes()
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: `at` is one of the two constants, inside the first page, aligned to 8, and only
        // ever used atomically.
        unsafe { AtomicU64::from_ptr(self.memory.start().as_ptr().add(at).cast()) }
    }

    /// Copies `into.len()` bytes of data from this position on; wraps around at the end.
    fn copy(&self, position: u64, into: &mut [u8]) {
        let page = self.memory.bytes()
            - usize::try_from(self.data_bytes).expect("the ring is mapped, so it fits");
        let begin = usize::try_from(position & (self.data_bytes - 1)).expect("inside the ring");
        let data_bytes = self.memory.bytes() - page;
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
            let data = self.memory.start().as_ptr().add(page);
            std::ptr::copy_nonoverlapping(data.add(begin), head.as_mut_ptr(), head.len());
            std::ptr::copy_nonoverlapping(data, tail.as_mut_ptr(), tail.len());
        }
    }

    /// Whether more than a quarter of it is in use.
    pub fn is_filling(&self) -> bool {
        let head = self.position(DATA_HEAD_AT).load(Ordering::Relaxed);
        let tail = self.position(DATA_TAIL_AT).load(Ordering::Relaxed);
        head.wrapping_sub(tail) > self.data_bytes / 4
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
