//! What the reader of memory and its child share: the ranges that are asked for, how far the child
//! is, what it found.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::mapping::MappedMemory;
use super::{Page, PageRange};

/// Bytes of a page of memory (x86-64).
pub const PAGE_BYTES: usize = 4096;
/// Most pages of a range.
pub const RANGE_PAGES: usize = 16;
/// Most ranges that are read at a time.
pub const MAX_RANGES: usize = 32;

/// [`RangeRequest::state`]: the process cannot be read.
const REFUSED: u32 = 0;
/// [`RangeRequest::state`]: it was read.
const READ: u32 = 1;

/// A range, and what came of it.
#[repr(C)]
#[derive(Clone, Copy)]
struct RangeRequest {
    first: u64,
    tid: u32,
    count: u32,
    state: u32,
    present: u32,
}

/// The whole.
#[repr(C)]
struct SharedLayout {
    count: AtomicU32,
    done: AtomicU32,
    requests: [RangeRequest; MAX_RANGES],
    pages: [[Page; RANGE_PAGES]; MAX_RANGES],
}

/// What was found in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeState {
    /// The process cannot be read.
    Refused,
    /// Which pages were read: a bit for each, the lowest for the first.
    Read(u32),
}

const _: () = assert!(RANGE_PAGES <= 32);

/// Memory that both sides have mapped. They take turns: who has asked touches nothing but `done`
/// until there is an answer, or the other side is dead. All access goes through volatile or atomic
/// reads and writes of plain data.
#[derive(Debug)]
pub(super) struct SharedPages(MappedMemory);

impl SharedPages {
    /// Makes an empty file as large as needed, and maps it.
    pub(super) fn create(file: &File) -> io::Result<Self> {
        file.set_len(size_of::<SharedLayout>() as u64)?;
        Self::map(file)
    }

    /// Maps what the other side has made.
    pub(super) fn map(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() < size_of::<SharedLayout>() as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        MappedMemory::shared(file, size_of::<SharedLayout>()).map(Self)
    }

    /// Where the whole lies.
    fn layout(&self) -> *mut SharedLayout {
        self.0.start().as_ptr().cast()
    }

    /// How many ranges are asked for.
    fn count_word(&self) -> &AtomicU32 {
        // SAFETY: within the mapping, aligned, only used as an atomic.
        unsafe { &(*self.layout()).count }
    }

    /// How many of them were looked at.
    fn done_word(&self) -> &AtomicU32 {
        // SAFETY: within the mapping, aligned, only used as an atomic.
        unsafe { &(*self.layout()).done }
    }

    fn request(&self, index: usize) -> *mut RangeRequest {
        assert!(index < MAX_RANGES, "an index within the table");
        // SAFETY: within the mapping, by the assertion.
        unsafe {
            (&raw mut (*self.layout()).requests)
                .cast::<RangeRequest>()
                .add(index)
        }
    }

    /// Where the pages of a range lie.
    pub(super) fn pages(&self, index: usize) -> *mut Page {
        assert!(index < MAX_RANGES, "an index within the table");
        // SAFETY: within the mapping, by the assertion.
        unsafe {
            (&raw mut (*self.layout()).pages)
                .cast::<[Page; RANGE_PAGES]>()
                .add(index)
                .cast()
        }
    }

    /// Writes down what is asked for.
    pub(super) fn ask(&self, ranges: &[PageRange]) {
        let ranges = &ranges[..ranges.len().min(MAX_RANGES)];
        for (index, range) in ranges.iter().enumerate() {
            let request = RangeRequest {
                first: range.first,
                tid: range.tid,
                count: range.count.min(RANGE_PAGES as u32),
                state: REFUSED,
                present: 0,
            };
            // SAFETY: a place within the mapping.
            unsafe { self.request(index).write_volatile(request) };
        }
        self.done_word().store(0, Ordering::SeqCst);
        self.count_word()
            .store(ranges.len() as u32, Ordering::SeqCst);
    }

    /// What is asked for.
    pub(super) fn asked(&self) -> Vec<PageRange> {
        let count = self.count_word().load(Ordering::SeqCst) as usize;
        (0..count.min(MAX_RANGES))
            .map(|index| {
                // SAFETY: a place within the mapping; plain data, of which any bytes are a value.
                let request = unsafe { self.request(index).read_volatile() };
                PageRange {
                    tid: request.tid,
                    first: request.first,
                    count: request.count.min(RANGE_PAGES as u32),
                }
            })
            .collect()
    }

    /// Writes down what came of a range; its pages are in their place. The next one is begun after
    /// this.
    pub(super) fn set_answer(&self, index: usize, answer: RangeState) {
        let request = self.request(index);
        let (state, present) = match answer {
            RangeState::Refused => (REFUSED, 0),
            RangeState::Read(present) => (READ, present),
        };
        // SAFETY: words within the mapping.
        unsafe {
            (&raw mut (*request).state).write_volatile(state);
            (&raw mut (*request).present).write_volatile(present);
        }
        self.done_word().store(index as u32 + 1, Ordering::SeqCst);
    }

    /// How many ranges were looked at.
    pub(super) fn done(&self) -> usize {
        self.done_word().load(Ordering::SeqCst) as usize
    }

    /// What came of a range that was looked at.
    pub(super) fn answer(&self, index: usize) -> RangeState {
        // SAFETY: a place within the mapping; plain data, of which any bytes are a value.
        let request = unsafe { self.request(index).read_volatile() };
        if request.state == READ {
            RangeState::Read(request.present)
        } else {
            RangeState::Refused
        }
    }

    /// A copy of a page that was read.
    pub(super) fn page(&self, index: usize, page: usize) -> Page {
        assert!(page < RANGE_PAGES, "a page of the range");
        // SAFETY: within the mapping, by the assertion; plain bytes.
        unsafe { self.pages(index).add(page).read_volatile() }
    }
}
