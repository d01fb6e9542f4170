//! Array maps shared with the kernel through a mapping: reading a record costs no system call.

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use aya::Pod;
use profiler_common::records::ThreadRecord;

use super::last_read::Peeked;
use crate::sys::{mapping::MappedMemory, own_cost::page_bytes};

/// What [`Records::map_to`] maps at a time: whole pages.
const STEP_BYTES: usize = 1 << 20;

/// The elements of a memory-mappable array map. All access goes through volatile reads and writes
/// of plain data.
pub(super) struct Records<T> {
    memory: MappedMemory,
    /// Bytes in front of the first element.
    lead_bytes: usize,
    len: usize,
    /// So many of them are mapped.
    mapped: usize,
    /// Where not all of them are.
    rest: Option<Unmapped>,
    /// Bytes from one element to the next: array maps round up to eight.
    stride: usize,
    elements: PhantomData<T>,
}

/// What is not mapped yet of an array.
struct Unmapped {
    map: OwnedFd,
    from_byte: usize,
}

impl<T: Pod> Records<T> {
    /// Maps the `len` elements of the array map behind `map`.
    ///
    /// # Errors
    /// What `mmap` says.
    pub(super) fn map(map: impl AsFd, len: u32) -> io::Result<Self> {
        let stride = size_of::<T>().next_multiple_of(8);
        let page = usize::try_from(page_bytes()).map_err(io::Error::other)?;
        let memory = MappedMemory::shared(map, (stride * len as usize).next_multiple_of(page))?;
        Ok(Self {
            memory,
            lead_bytes: 0,
            len: len as usize,
            mapped: len as usize,
            rest: None,
            stride,
            elements: PhantomData,
        })
    }

    /// Maps only these elements of the array map behind `map`, to be read: the pages that hold
    /// them.
    ///
    /// # Errors
    /// What `mmap` says.
    pub(super) fn map_part(map: impl AsFd, elements: Range<usize>) -> io::Result<Self> {
        let stride = size_of::<T>().next_multiple_of(8);
        let page = usize::try_from(page_bytes()).map_err(io::Error::other)?;
        let (first, end) = (elements.start * stride, elements.end * stride);
        let lead_bytes = first % page;
        let pages = first - lead_bytes..end.next_multiple_of(page);
        Ok(Self {
            memory: MappedMemory::shared_part(map, pages)?,
            lead_bytes,
            len: elements.len(),
            mapped: elements.len(),
            rest: None,
            stride,
            elements: PhantomData,
        })
    }

    /// The same as [`Self::map`], of an array of which most is rarely in use: only the first
    /// elements are mapped, and others with [`Self::map_to`]. Mapping them all would make all of
    /// the array resident memory of this process.
    ///
    /// # Errors
    /// What `mmap` says.
    pub(super) fn map_first(map: OwnedFd, len: u32) -> io::Result<Self> {
        let stride = size_of::<T>().next_multiple_of(8);
        let bytes = stride * len as usize;
        let mut records = Self {
            memory: MappedMemory::reserved(bytes.next_multiple_of(STEP_BYTES))?,
            lead_bytes: 0,
            len: len as usize,
            mapped: 0,
            rest: Some(Unmapped { map, from_byte: 0 }),
            stride,
            elements: PhantomData,
        };
        records.map_to(1)?;
        Ok(records)
    }

    /// Has at least the first `elements` mapped, as far as there are so many.
    ///
    /// # Errors
    /// What `mmap` says: no more are mapped than before.
    pub(super) fn map_to(&mut self, elements: usize) -> io::Result<()> {
        let elements = elements.min(self.len);
        let Some(rest) = self.rest.as_mut().filter(|_| elements > self.mapped) else {
            return Ok(());
        };
        let page = usize::try_from(page_bytes()).map_err(io::Error::other)?;
        let all = (self.stride * self.len).next_multiple_of(page);
        let end = (self.stride * elements)
            .next_multiple_of(STEP_BYTES)
            .min(all);
        self.memory.place_shared(&rest.map, rest.from_byte..end)?;
        rest.from_byte = end;
        self.mapped = (end / self.stride).min(self.len);
        Ok(())
    }

    /// How many elements there are.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Where element `index` lies.
    fn at(&self, index: usize) -> NonNull<T> {
        assert!(index < self.mapped, "an index within what is mapped");
        // SAFETY: within the mapping, by the assertion.
        unsafe {
            let first = self.memory.start().byte_add(self.lead_bytes);
            first.byte_add(index * self.stride).cast()
        }
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

    /// Writes the first eight bytes of an element in one piece.
    pub(super) fn write_first_long(&self, index: usize, word: u64) {
        const { assert!(size_of::<T>() >= 8 && align_of::<T>() >= 8) };
        // SAFETY: within the mapping and aligned, by the assertion.
        unsafe { self.at(index).cast::<u64>().write_volatile(word) };
    }

    /// Empties an element that the kernel does not use.
    pub(super) fn clear(&self, index: usize) {
        // SAFETY: within the mapping; plain data of which all-zero bytes are a value.
        unsafe { self.at(index).cast::<u8>().write_bytes(0, size_of::<T>()) };
    }
}

/// How long a record that is being changed is waited for, spinning: an update takes some
/// microseconds, with the walk of a deep stack a hundred.
const SPIN: Duration = Duration::from_micros(100);
/// Rest before those that were still being changed are read again: their writers, preempted, need a
/// processor for it.
const REST: Duration = Duration::from_millis(1);
/// Rests.
const RESTS: u32 = 4;
/// All spinning and resting of one reading.
const PATIENCE: Duration = Duration::from_millis(20);

impl Records<ThreadRecord> {
    /// What says of a thread whether it has had an event; of an empty record, as if it were that of
    /// no process.
    pub(super) fn peek(&self, index: usize) -> Peeked {
        let record = self.at(index).as_ptr();
        // SAFETY: words within the mapping, each written in one piece.
        unsafe {
            if (&raw const (*record).tid).read_volatile() == 0 {
                return Peeked::default();
            }
            Peeked {
                sequence: (&raw const (*record).sequence).read_volatile(),
                pid: (&raw const (*record).pid).read_volatile(),
                woken_ns: (&raw const (*record).clock.woken_ns).read_volatile(),
            }
        }
    }

    /// Hands over the `wanted` records but the first, each as it stood between two updates; the
    /// empty ones are left out. Returns those that could not be read so, because they
    /// were being changed all the time (by programs that were preempted, on kernels that do that).
    /// Waits no more than 20 ms for all of them.
    pub(super) fn read_all(
        &self,
        wanted: &[bool],
        mut each: impl FnMut(u32, &ThreadRecord),
    ) -> Vec<u32> {
        let deadline = Instant::now() + PATIENCE;
        let mut read = |slot: u32| match self.read_quiet(slot as usize, deadline) {
            Ok(Some(record)) => {
                each(slot, &record);
                true
            }
            Ok(None) => true,
            Err(Busy) => false,
        };
        let slots = (0..wanted.len() as u32).skip(1);
        let mut busy: Vec<u32> = slots
            .filter(|slot| wanted[*slot as usize] && !read(*slot))
            .collect();
        for _ in 0..RESTS {
            if busy.is_empty() || Instant::now() + REST > deadline {
                break;
            }
            std::thread::sleep(REST);
            busy.retain(|slot| !read(*slot));
        }
        busy
    }

    /// Copies a thread's record as it stood between two updates, without waiting; `None`: it is
    /// empty, or is being changed.
    pub(super) fn read_now(&self, index: usize) -> Option<ThreadRecord> {
        self.read_quiet(index, Instant::now()).ok().flatten()
    }

    /// Copies a thread's record as it stood between two updates; `None`: it is empty.
    fn read_quiet(&self, index: usize, deadline: Instant) -> Result<Option<ThreadRecord>, Busy> {
        /// Tries between two looks at the time.
        const TRIES: usize = 32;
        let record = self.at(index).as_ptr();
        // SAFETY: fields within the mapping.
        let (sequence, tid) = unsafe { (&raw const (*record).sequence, &raw const (*record).tid) };
        let mut until = None;
        loop {
            for _ in 0..TRIES {
                // SAFETY: words within the mapping.
                let (before, tid) = unsafe { (sequence.read_volatile(), tid.read_volatile()) };
                if tid == 0 {
                    return Ok(None);
                }
                if before & 1 == 0 {
                    fence(Ordering::Acquire);
                    let copy = self.read(index);
                    fence(Ordering::Acquire);
                    // SAFETY: a word within the mapping.
                    if unsafe { sequence.read_volatile() } == before {
                        return Ok(Some(copy));
                    }
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            if now >= *until.get_or_insert(deadline.min(now + SPIN)) {
                return Err(Busy);
            }
        }
    }
}

/// The record was being changed all the time.
struct Busy;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::sys::memory_file::memory_file;

    /// So many records, each of a thread whose id is its place, all of them quiet.
    fn records(len: u32) -> Records<ThreadRecord> {
        let stride = size_of::<ThreadRecord>().next_multiple_of(8);
        let file = memory_file(&vec![0; stride * len as usize]).expect("a memory file");
        let records: Records<ThreadRecord> = Records::map(&file, len).expect("it can be mapped");
        for slot in 0..len {
            let mut record = records.read(slot as usize);
            record.tid = slot;
            records.write(slot as usize, record);
        }
        records
    }

    #[test]
    fn a_part_has_its_own_elements() {
        // Check that elements in the middle of a page, and over the ends of pages, are those of
        // these places, and that none behind them can be read.
        let words: Vec<u8> = (0..4096_u64).flat_map(u64::to_ne_bytes).collect();
        let file = memory_file(&words).expect("a memory file");
        for range in [0..1, 7..9, 511..513, 512..1024, 700..3000, 4095..4096] {
            let part = Records::<u64>::map_part(&file, range.clone()).expect("it can be mapped");
            let read: Vec<u64> = (0..part.len()).map(|index| part.read(index)).collect();
            assert_eq!(read, Vec::from_iter(range.start as u64..range.end as u64));
            let behind = std::panic::catch_unwind(|| part.read(part.len()));
            assert!(behind.is_err(), "{range:?}");
        }
    }

    #[test]
    fn more_elements_are_mapped_when_they_are_wanted() {
        // Check that of an array of which only the first elements are mapped none beyond can be
        // read, that those wanted next are those of the file, also where one lies across the end of
        // what was mapped before, that what is written reaches the file, and that no more can be
        // mapped than there are.
        type Element = [u64; 3];
        const LEN: usize = 100_000;
        let words: Vec<u8> = (0..3 * LEN as u64).flat_map(u64::to_ne_bytes).collect();
        let file = memory_file(&words).expect("a memory file");
        let all = Records::<Element>::map(&file, LEN as u32).expect("it can be mapped");
        let mut some =
            Records::<Element>::map_first(file.into(), LEN as u32).expect("it can be mapped");
        let element = |index: usize| [0, 1, 2].map(|word| 3 * index as u64 + word);
        let mut wanted = 1;
        while wanted <= LEN {
            let mapped = some.mapped;
            if mapped < LEN {
                let beyond = std::panic::catch_unwind(|| some.read(mapped));
                assert!(beyond.is_err(), "{mapped}");
            }
            some.map_to(wanted).expect("it can be mapped");
            for index in [
                0,
                mapped.saturating_sub(1),
                mapped.min(wanted - 1),
                wanted - 1,
            ] {
                assert_eq!(some.read(index), element(index), "{index} of {wanted}");
            }
            wanted += 7_777;
        }
        assert!(some.map_to(LEN + 1).is_ok() && some.mapped == LEN);
        assert_eq!(some.read(LEN - 1), element(LEN - 1));
        some.write(LEN - 1, [1, 2, 3]);
        assert_eq!(all.read(LEN - 1), [1, 2, 3]);
    }

    #[test]
    fn records_under_change_are_waited_for_but_not_for_long() {
        // Check that a record whose writer is preempted for milliseconds is read once the writer
        // goes on, that those whose writers never do are told, and that all of them together cost
        // no more than a bounded time.
        const NEVER: u32 = 500;
        let records = records(NEVER + 2);
        for slot in 1..=NEVER {
            records.write_first_word(slot as usize, 1);
        }
        let preempted = NEVER + 1;
        records.write_first_word(preempted as usize, 1);
        let (begin, begun) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let records = &records;
            let address = records.at(preempted as usize).as_ptr() as usize;
            scope.spawn(move || {
                begun.recv().expect("the reader begins");
                std::thread::sleep(Duration::from_micros(1500));
                // SAFETY: the record's first word, of a mapping that outlives this thread.
                unsafe { (address as *mut u32).write_volatile(2) };
            });
            let mut read = Vec::new();
            begin.send(()).expect("the writer waits");
            let began = Instant::now();
            let busy = records.read_all(&vec![true; preempted as usize + 1], |slot, record| {
                assert_eq!(record.tid, slot, "a whole record");
                read.push(slot);
            });
            let took = began.elapsed();
            assert_eq!(read, [preempted]);
            assert_eq!(busy, (1..=NEVER).collect::<Vec<u32>>());
            assert!(took < Duration::from_millis(500), "{took:?}");
        });
    }
}
