//! One pass over what the programs keep: everything is read once, in the order that keeps the
//! ledger exact.
//!
//! The order: the sums of time per stack first, the threads' totals after them. So what stacks have
//! received is never more than the totals, and the difference, "not yet attributed", is exact and
//! never negative.

use std::ops::Range;

use aya::Pod;
use aya::maps::{HashMap, MapData, RingBuf, Stack};
use profiler_common::clock::NO_CALL;
use profiler_common::kinds::{Primary, WaitNs};
use profiler_common::records::{
    END_MASK, NO_SLOT, Reserve, StackHead, SumKey, SumValue, SyscallKey, SyscallRecord,
    ThreadRecord,
};
use profiler_common::{Phase, StackEnd};
use tracing::warn;

use super::batch;
use super::call_rows::CallRows;
use super::counts::Counts;
use super::last_read::LastRead;
use super::looks::Looks;
use super::maps::Maps;
use super::phantoms::{self, Phantoms, Quiet};
use super::records::Records;
use super::refusal::StartError;
use super::settings::KernelSettings;
use super::thread_snapshot::{ThreadSnapshot, image, snapshot, stack_end};
use crate::sys::clock::monotonic_ns;
use crate::units::{MonoNs, VirtualAddress};

/// Why there is no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingStack {
    /// Marks that no walk took, waits that had no chance of being walked.
    NotSampled,
    /// It was walked, and found no room in a map or the ring.
    NotKept,
}

/// What a stack of a thread has received since the last pass.
#[derive(Clone, Copy, Debug)]
pub struct StackSum {
    /// The thread's place.
    pub slot: u32,
    /// Id of the user stack, 0 = none.
    pub user: u64,
    /// Id of the kernel stack, 0 = none.
    pub kernel: u64,
    /// How the user walk ended.
    pub end: StackEnd,
    /// Which program of its thread was walked: how many it had executed by then, modulo 2^16.
    pub image: u16,
    /// Why there is no stack, where that is known.
    pub missing: Option<MissingStack>,
    /// Ticks, marks and waits.
    pub primary: Primary,
}

/// The frames of a stack that was new in its drain period.
#[derive(Clone, Debug)]
pub struct RawStack {
    /// What it is.
    pub head: StackHead,
    /// User addresses, innermost first.
    pub user: Box<[VirtualAddress]>,
    /// Kernel addresses, innermost first, each but the first one behind its call.
    pub kernel: Box<[VirtualAddress]>,
}

/// One pass.
#[derive(Debug, Default)]
pub struct Pass {
    /// When the threads were read, monotonic.
    pub at_ns: MonoNs,
    /// Every thread with a record: those that have exited for the last time. In a partial pass
    /// those of processes of which no thread has had an event since the last one are left out: all
    /// of them sleep on.
    pub threads: Vec<ThreadSnapshot>,
    /// Whether threads are left out.
    pub is_partial: bool,
    /// Threads that live, those that are left out too.
    pub living: usize,
    /// What stacks have received. Threads are those of this pass, or of the one before if they have
    /// exited since.
    pub sums: Vec<StackSum>,
    /// System calls of these threads.
    pub calls: Vec<SyscallRecord>,
    /// Counters since the start, in the order of [`profiler_common::Counter::ALL`].
    pub counters: Vec<u64>,
    /// Places of threads whose records could not be read whole: these are as they were at an
    /// earlier pass.
    pub unreadable: Vec<u32>,
    /// Elements in use, by map.
    pub fill: [(&'static str, u64); 3],
}

/// What a pass reads, and what is remembered from pass to pass.
pub struct Drain {
    threads: Records<ThreadRecord>,
    reserves: Records<Reserve>,
    rows: Records<SyscallRecord>,
    row_index: HashMap<MapData, SyscallKey, u32>,
    free_slots: Stack<MapData, u32>,
    free_rows: Stack<MapData, u32>,
    sums: [MapData; 2],
    stacks_per_drain: u32,
    stacks: RingBuf<MapData>,
    /// Threads whose exit the last pass reported. Their place is given back after this one, when
    /// the last of their time has been read from both buffers.
    dying: Vec<u32>,
    phantoms: Phantoms,
    /// Records of the ring that made no sense.
    malformed_stacks: u64,
    /// Records and rows beyond these were never in use: the lowest free one is always taken.
    threads_used: usize,
    rows_used: usize,
    /// What was read of each slot's reserve.
    reserves_read: Vec<Reserve>,
    /// What each slot's thread was when it was last read.
    last_read: LastRead,
}

/// Elements that are looked at beyond those that were in use, to see whether more are now.
const LOOK_AHEAD: usize = 64;

/// How many of `len` elements were ever in use, if `used` were at the last look. `any_in_use` says
/// whether one of some is.
fn reach(used: usize, len: usize, mut any_in_use: impl FnMut(Range<usize>) -> bool) -> usize {
    let mut used = used;
    loop {
        let ahead = used..len.min(used + LOOK_AHEAD);
        if ahead.is_empty() || !any_in_use(ahead.clone()) {
            return used;
        }
        used = ahead.end;
    }
}

/// Has elements up to `end` mapped; false, and in the log, where that fails: they are looked at
/// again with the next pass.
fn is_mapped<T: Pod>(records: &mut Records<T>, end: usize, what: &str) -> bool {
    let mapped = records.map_to(end);
    if let Err(error) = &mapped {
        warn!("{what} beyond those that are mapped cannot be read now: {error}");
    }
    mapped.is_ok()
}

impl Drain {
    /// All places free.
    ///
    /// # Errors
    /// [`StartError::Map`] if a map is missing, cannot be mapped, or does not take what is free.
    pub(super) fn new(maps: &mut Maps<'_>, settings: &KernelSettings) -> Result<Self, StartError> {
        let mut drain = Self {
            threads: maps.first_records("THREADS", settings.max_threads)?,
            reserves: maps.first_records("RESERVES", settings.max_threads)?,
            rows: maps.first_records("CALL_ROWS_BY_INDEX", settings.call_rows())?,
            row_index: maps.typed("CALL_ROW_INDEX")?,
            free_slots: maps.typed("FREE_SLOTS")?,
            free_rows: maps.typed("FREE_CALL_ROWS")?,
            sums: [maps.hash("SUMS_0")?, maps.hash("SUMS_1")?],
            stacks_per_drain: settings.stacks_per_drain,
            stacks: maps.typed("STACKS")?,
            dying: Vec::new(),
            phantoms: Phantoms::default(),
            malformed_stacks: 0,
            threads_used: 0,
            rows_used: 0,
            reserves_read: Vec::new(),
            last_read: LastRead::default(),
        };
        drain.fill_free_lists()?;
        drain.make_calibration_record();
        Ok(drain)
    }

    /// The record in slot 0 is no thread's: in it the cost of probes is measured, by a clock that
    /// runs in user mode and never meets an event.
    fn make_calibration_record(&self) {
        let mut record = self.threads.read(0);
        record.clock.phase = Phase::Running as u32;
        record.clock.call = NO_CALL;
        self.threads.write(0, record);
    }

    /// All slots but 0, which means "none", and all rows; the lowest on top.
    fn fill_free_lists(&mut self) -> Result<(), StartError> {
        for slot in (1..self.threads.len() as u32).rev() {
            self.free_slots
                .push(slot, 0)
                .map_err(|error| StartError::map("FREE_SLOTS", error))?;
        }
        for row in (1..self.rows.len() as u32).rev() {
            self.free_rows
                .push(row, 0)
                .map_err(|error| StartError::map("FREE_CALL_ROWS", error))?;
        }
        Ok(())
    }

    /// Takes the frames that have travelled since the last call. Cheap when there are none: call it
    /// some times a second.
    pub fn take_stacks(&mut self, each: &mut dyn FnMut(RawStack)) {
        while let Some(item) = self.stacks.next() {
            match decode(&item) {
                Some(stack) => each(stack),
                None => self.malformed_stacks += 1,
            }
        }
    }

    /// Records of stacks so far that made no sense: they were left out.
    #[must_use]
    pub const fn malformed_stacks(&self) -> u64 {
        self.malformed_stacks
    }

    /// Records of threads that are, or were, in use: about as many as there are threads.
    #[must_use]
    pub const fn threads_used(&self) -> usize {
        self.threads_used
    }

    /// Threads so far whose end was not seen, and that were found to be gone later.
    #[must_use]
    pub const fn missed_ends(&self) -> u64 {
        self.phantoms.ended()
    }

    /// One pass over the buffer that is `full`, to which nobody writes any more: frames to `each`,
    /// all else as the result, with how many records of threads were given back. `is_partial`:
    /// processes that sleep are left out. `note_queued` notes in records who was woken. Every
    /// thread that is seen as exited is gone with the next pass.
    ///
    /// # Errors
    /// [`StartError::Map`] if the kernel refuses to hand over a map.
    pub(super) fn pass(
        &mut self,
        (full, is_partial): (usize, bool),
        (counts, looks): (&Counts, &Looks),
        note_queued: impl FnOnce(),
        each: &mut dyn FnMut(RawStack),
    ) -> Result<(Pass, usize), StartError> {
        // Frames travel before the row that needs them is made: after the wait, all of this
        // buffer's are here.
        self.take_stacks(each);
        let mut pass = Pass {
            is_partial,
            ..Pass::default()
        };
        batch::drain(
            self.sums[full].fd(),
            self.stacks_per_drain,
            |key: BatchKey, value: Value| pass.sums.push(stack_sum(&key.0, &value.0)),
        )
        .map_err(|error| StartError::map("SUMS", error))?;
        pass.counters = counts.counters();
        // Before the reach is looked at: whoever has begun by then is told.
        pass.at_ns = monotonic_ns();
        note_queued();
        self.threads_used = self.threads_in_reach();
        self.rows_used = self.rows_in_reach();
        self.last_read.grow(self.threads_used);
        let mut wanted = self.wanted(is_partial);
        self.read_reserves(&mut pass, &wanted);
        let ended = self.take_ended();
        let gone = self.gone(pass.at_ns, &ended, &mut wanted);
        for (wanted, ended) in wanted.iter_mut().zip(&ended) {
            *wanted &= !ended;
        }
        let mut calls = CallRows::read(&self.rows, self.rows_used, &wanted);
        let rows_in_use = calls.in_use();
        self.read_threads(&mut pass, &mut calls, (looks, &wanted));
        self.end_phantoms(&mut pass, &gone);
        // By now they may lie further on.
        self.rows_used = self.rows_in_reach();
        pass.calls = calls.finish(&self.rows, self.rows_used, &self.dying);
        let (freed, rows_freed) = self.give_back(&ended);
        pass.living = self.last_read.living();
        pass.fill = [
            ("threads", self.last_read.in_use() as u64),
            ("stacks_per_drain", pass.sums.len() as u64),
            (
                "system_call_rows",
                rows_in_use.saturating_sub(rows_freed) as u64,
            ),
        ];
        Ok((pass, freed))
    }

    /// Whose records are to be read.
    fn wanted(&self, is_partial: bool) -> Vec<bool> {
        let mut wanted = vec![!is_partial; self.threads_used];
        if is_partial {
            self.last_read
                .changed(|slot| self.threads.peek(slot), &mut wanted);
        }
        wanted
    }

    fn threads_in_reach(&mut self) -> usize {
        let (threads, reserves) = (&mut self.threads, &mut self.reserves);
        reach(self.threads_used, threads.len(), |mut slots| {
            is_mapped(threads, slots.end, "threads")
                && is_mapped(reserves, slots.end, "reserves of threads")
                && slots.any(|slot| threads.read(slot).tid != 0)
        })
    }

    fn rows_in_reach(&mut self) -> usize {
        let rows = &mut self.rows;
        reach(self.rows_used, rows.len(), |mut some| {
            is_mapped(rows, some.end, "rows of system calls")
                && some.any(|row| rows.read(row).slot != NO_SLOT)
        })
    }

    fn read_threads(
        &mut self,
        pass: &mut Pass,
        calls: &mut CallRows,
        (looks, wanted): (&Looks, &[bool]),
    ) {
        let at_ns = pass.at_ns;
        let (threads, dying, last_read) = (&mut pass.threads, &mut self.dying, &mut self.last_read);
        let of_kernel = (&self.rows, &self.threads);
        pass.unreadable = self.threads.read_all(wanted, |slot, record| {
            let newer = calls.settle(of_kernel, slot);
            let record = newer.as_ref().unwrap_or(record);
            if record.clock.phase == Phase::Exited as u32 {
                dying.push(slot);
            }
            last_read.read(slot, record);
            threads.extend(snapshot(slot, record, &looks.found(slot), at_ns));
        });
        for slot in &pass.unreadable {
            last_read.unsettle(*slot);
        }
    }

    /// Threads without an event for long that are gone, some of all that there are at a time: they
    /// and all of their processes are wanted then.
    fn gone(&mut self, at_ns: MonoNs, ended: &[bool], wanted: &mut [bool]) -> Vec<u32> {
        if !self.phantoms.is_due(at_ns) {
            return Vec::new();
        }
        let threads = &self.threads;
        let quiet = |slot: u32| {
            let record = threads.read_now(slot as usize)?;
            Quiet::of(&record, at_ns).filter(|_| !ended[slot as usize])
        };
        let slots = self.threads_used as u32;
        let gone = self.phantoms.check(at_ns, slots, quiet, phantoms::is_gone);
        for slot in &gone {
            self.last_read.want_process(*slot, wanted);
        }
        gone
    }

    /// These threads are gone, and their end was not seen: this pass reports it.
    fn end_phantoms(&mut self, pass: &mut Pass, gone: &[u32]) {
        for thread in &mut pass.threads {
            if gone.contains(&thread.slot) {
                thread.phase = Phase::Exited;
                thread.off_cpu = None;
                thread.unwalked = None;
                thread.call = None;
                self.last_read.end(thread.slot);
                self.dying.push(thread.slot);
            }
        }
    }

    /// What has found no stack since the last pass. Read before the threads, as all that stacks
    /// have received.
    fn read_reserves(&mut self, pass: &mut Pass, wanted: &[bool]) {
        self.reserves_read
            .resize(self.threads_used, Reserve::default());
        let read = self.reserves_read.iter_mut().zip(wanted).enumerate();
        for (slot, (before, _)) in read.skip(1).filter(|(_, (_, is_wanted))| **is_wanted) {
            let now = self.reserves.read(slot);
            if now != *before {
                pass.sums.extend(grown(slot as u32, before, &now));
                *before = now;
            }
        }
    }

    /// By slot: whether the last pass reported that its thread has exited.
    fn take_ended(&mut self) -> Vec<bool> {
        let mut ended = vec![false; self.threads_used];
        for slot in self.dying.drain(..) {
            ended[slot as usize] = true;
        }
        ended
    }

    /// Gives back the places of threads that have `ended`. Last of all, because it takes some
    /// microseconds for each. Returns how many, and how many rows of system calls they had.
    fn give_back(&mut self, ended: &[bool]) -> (usize, usize) {
        let (mut freed, mut rows_freed) = (0, 0);
        if !ended.contains(&true) {
            return (freed, rows_freed);
        }
        for index in 1..self.rows_used {
            let row = self.rows.read(index);
            if row.slot != NO_SLOT && ended.get(row.slot as usize) == Some(&true) {
                let key = SyscallKey {
                    slot: row.slot,
                    number: row.number,
                };
                self.rows.clear(index);
                rows_freed += 1;
                if let Err(error) = self
                    .row_index
                    .remove(&key)
                    .and_then(|()| self.free_rows.push(index as u32, 0))
                {
                    warn!("a system-call row cannot be given back: {error}");
                }
            }
        }
        for slot in (0..ended.len()).filter(|slot| ended[*slot]) {
            self.threads.clear(slot);
            self.reserves.clear(slot);
            self.reserves_read[slot] = Reserve::default();
            self.last_read.forget(slot as u32);
            freed += 1;
            if let Err(error) = self.free_slots.push(slot as u32, 0) {
                warn!("a thread record cannot be given back: {error}");
            }
        }
        (freed, rows_freed)
    }
}

/// A row as it was found.
fn stack_sum(key: &SumKey, value: &SumValue) -> StackSum {
    StackSum {
        slot: key.slot,
        user: key.user,
        kernel: key.kernel,
        end: stack_end(key.end & END_MASK),
        image: image(key.end),
        missing: None,
        primary: Primary {
            ticks: value.ticks.map(u64::from),
            marks: value.marks,
            exact: value.waits.exact,
            weighted: value.waits.weighted,
            squares_ms2: value.waits.squares_ms2,
            excess: value.excess,
            tick_excess: value.tick_excess,
            walks: value.walks.into(),
        },
    }
}

/// What the reserve of `slot` has received from one look to the next. Its ticks and walks are
/// counted modulo 2^32.
fn grown(slot: u32, before: &Reserve, now: &Reserve) -> impl Iterator<Item = StackSum> {
    let (old, new) = (&before.not_kept, &now.not_kept);
    let since = |new: &[u64], old: &[u64], index: usize| new[index].saturating_sub(old[index]);
    let waits = |new: &WaitNs, old: &WaitNs| std::array::from_fn(|at| since(new, old, at));
    // Sums that stop at the largest number there is: nobody knows what came since, as if it were
    // all one.
    let squares = |new: u64, old: u64| match new {
        u64::MAX => u64::MAX,
        now => now.saturating_sub(old),
    };
    let not_kept = Primary {
        ticks: std::array::from_fn(|at| new.ticks[at].wrapping_sub(old.ticks[at]).into()),
        marks: std::array::from_fn(|at| since(&new.marks, &old.marks, at)),
        exact: waits(&new.waits.exact, &old.waits.exact),
        weighted: waits(&new.waits.weighted, &old.waits.weighted),
        squares_ms2: std::array::from_fn(|at| {
            squares(new.waits.squares_ms2[at], old.waits.squares_ms2[at])
        }),
        excess: std::array::from_fn(|at| squares(new.excess[at], old.excess[at])),
        tick_excess: squares(new.tick_excess, old.tick_excess),
        walks: new.walks.wrapping_sub(old.walks).into(),
    };
    let not_sampled = Primary {
        marks: std::array::from_fn(|at| since(&now.not_sampled, &before.not_sampled, at)),
        exact: waits(&now.not_sampled_ns, &before.not_sampled_ns),
        ..Primary::default()
    };
    let rows = [
        (MissingStack::NotKept, not_kept),
        (MissingStack::NotSampled, not_sampled),
    ];
    let rows = rows
        .into_iter()
        .filter(|(_, primary)| *primary != Primary::default());
    rows.map(move |(missing, primary)| StackSum {
        slot,
        user: 0,
        kernel: 0,
        end: StackEnd::None,
        image: 0,
        missing: Some(missing),
        primary,
    })
}

/// A ring record; `None` if its lengths do not fit, which no program writes.
fn decode(bytes: &[u8]) -> Option<RawStack> {
    const HEAD: usize = size_of::<StackHead>();
    let head: &[u8; HEAD] = bytes.first_chunk()?;
    // SAFETY: as many bytes as the struct has; plain data, of which any bytes are a value; read
    // unaligned.
    let head = unsafe { head.as_ptr().cast::<StackHead>().read_unaligned() };
    let frames = |from: usize, len: u16| {
        bytes.get(from..from + 8 * usize::from(len)).map(|bytes| {
            bytes
                .chunks_exact(8)
                .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
                .map(VirtualAddress::new)
                .collect()
        })
    };
    let user = frames(HEAD, head.user_len)?;
    let kernel = frames(HEAD + 8 * usize::from(head.user_len), head.kernel_len)?;
    Some(RawStack { head, user, kernel })
}

/// Keys and values as the batch reads them: plain data with an all-zero default.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct BatchKey(SumKey);
#[repr(transparent)]
#[derive(Clone, Copy, Default)]
struct Value(SumValue);

impl Default for BatchKey {
    fn default() -> Self {
        Self(SumKey {
            user: 0,
            kernel: 0,
            slot: 0,
            end: 0,
        })
    }
}

// SAFETY: transparent over plain data.
unsafe impl aya::Pod for BatchKey {}
// SAFETY: transparent over plain data.
unsafe impl aya::Pod for Value {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reach_grows_with_what_is_in_use() {
        // Check that elements in use are found across gaps shorter than the look ahead, up to the
        // end, and kept when freed.
        let in_use = |last: usize| {
            let is_in_use = move |index: usize| index <= last && index.is_multiple_of(60);
            move |mut some: Range<usize>| some.any(|index| index > 0 && is_in_use(index))
        };
        assert_eq!(reach(0, 1000, |_| false), 0);
        assert_eq!(reach(0, 1000, in_use(60)), 64);
        assert_eq!(reach(0, 1000, in_use(300)), 320);
        assert_eq!(reach(320, 1000, |_| false), 320);
        assert_eq!(reach(0, 1000, in_use(999)), 1000);
        assert_eq!(reach(1000, 1000, |_| true), 1000);
    }

    #[test]
    fn records_that_make_no_sense_are_told_apart() {
        // Check that a record of the ring is taken with the addresses it announces, and that one
        // that is shorter than it says is none.
        let mut bytes = vec![0; size_of::<StackHead>() + 3 * 8];
        let lens = std::mem::offset_of!(StackHead, user_len);
        bytes[lens] = 2;
        bytes[lens + 2] = 1;
        let stack = decode(&bytes).expect("a whole record");
        assert_eq!((stack.user.len(), stack.kernel.len()), (2, 1));
        bytes.pop();
        assert!(decode(&bytes).is_none());
        assert!(decode(&bytes[..size_of::<StackHead>() - 1]).is_none());
    }
}
