//! One pass over what the programs keep: everything is read once, in the order that keeps the ledger exact.
//!
//! The order: the sums of time per stack first, the threads' totals after them. So what stacks have received is never more
//! than the totals, and the difference, "not yet attributed", is exact and never negative.

use profiler_common::clock::{CALL_SEEN, Class, KERNEL_THREAD, NO_CALL};
use profiler_common::limits::COMM_BYTES;
use profiler_common::records::{END_MASK, StackHead, SumKey, SumValue, SyscallKey, ThreadRecord};
use profiler_common::unwind::UnwindFailure;
use profiler_common::{CLASS_COUNT, ClassNs, Counter, Phase, StackEnd};
use tracing::warn;

use super::batch;
use super::load::Kernel;
use super::refusal::StartError;

/// A thread as it stood at the pass, with its open interval closed.
#[derive(Clone, Copy, Debug)]
pub struct ThreadSnapshot {
    /// The record's place: unique among living threads.
    pub slot: u32,
    /// The thread's id.
    pub tid: u32,
    /// The process's id.
    pub pid: u32,
    /// The parent process's id when the thread was first seen.
    pub parent_pid: u32,
    /// Start of the thread since boot.
    pub start_boot_ns: u64,
    /// Start of the process since boot.
    pub process_start_boot_ns: u64,
    /// Start of the process, monotonic.
    pub process_start_ns: u64,
    /// Its name, zero-terminated.
    pub comm: [u8; COMM_BYTES],
    /// Where it is.
    pub phase: Phase,
    /// First event.
    pub first_event_ns: u64,
    /// Last event, or the pass.
    pub last_event_ns: u64,
    /// Time in between in which it was no target.
    pub unobserved_ns: u64,
    /// Totals by class.
    pub classes: ClassNs,
    /// It has no user mode.
    pub kernel_thread: bool,
    /// The system call it is in, if its entry was seen, and since when.
    pub call: Option<(u32, u64)>,
    /// While it is off the processor and its stack was walked as it left: that stack.
    pub away: Option<AwayStack>,
    /// How often its process image was replaced.
    pub exec_count: u32,
}

/// The stack of a thread that is off the processor, and the time it waits for.
#[derive(Clone, Copy, Debug)]
pub struct AwayStack {
    /// Id of the user stack, 0 = none.
    pub user: u64,
    /// Id of the kernel stack, 0 = none.
    pub kernel: u64,
    /// How the user walk ended.
    pub end: StackEnd,
    /// The absence so far, by class.
    pub classes: ClassNs,
}

/// Time and samples that a stack of a thread has received since the last pass.
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
    /// Nanoseconds by class.
    pub classes: ClassNs,
    /// Samples.
    pub samples: u64,
    /// Walks.
    pub walks: u64,
}

/// The frames of a stack that was new in its drain period.
#[derive(Clone, Debug)]
pub struct RawStack {
    /// What it is.
    pub head: StackHead,
    /// User addresses, innermost first.
    pub user: Box<[u64]>,
    /// Kernel addresses, innermost first, each but the first one behind its call.
    pub kernel: Box<[u64]>,
}

/// Counts of one system call of one thread, since the thread was first seen.
#[derive(Clone, Copy, Debug)]
pub struct SyscallSnapshot {
    /// The thread's place.
    pub slot: u32,
    /// System-call number.
    pub number: u32,
    /// Calls that returned.
    pub count: u64,
    /// Nanoseconds from entry to exit.
    pub total_ns: u64,
    /// Of these, running.
    pub running_ns: u64,
    /// Of these, blocked.
    pub blocked_ns: u64,
    /// The longest one.
    pub max_ns: u64,
}

/// One pass.
#[derive(Debug, Default)]
pub struct Pass {
    /// When the threads were read, monotonic.
    pub at_ns: u64,
    /// Every thread with a record: those that have exited for the last time.
    pub threads: Vec<ThreadSnapshot>,
    /// What stacks have received. Threads are those of this pass, or of the one before if they have exited since.
    pub sums: Vec<StackSum>,
    /// System calls of all threads.
    pub calls: Vec<SyscallSnapshot>,
    /// Counters since the start, in the order of [`Counter::ALL`].
    pub counters: Vec<u64>,
    /// Records that could not be read whole.
    pub unreadable: u64,
    /// Elements in use, by map.
    pub fill: [(&'static str, u64); 3],
}

/// What is remembered from pass to pass.
#[derive(Debug, Default)]
pub(super) struct DrainState {
    /// Threads whose exit the last pass reported. Their place is given back after this one, when the last of their time
    /// has been read from both halves.
    dying: Vec<u32>,
    /// Threads were turned away for want of a record.
    turned_away: u64,
    /// Records and rows beyond these were never in use: the lowest free one is always taken.
    threads_used: usize,
    rows_used: usize,
}

/// Elements that are looked at beyond those that were in use, to see whether more are now.
const LOOK_AHEAD: usize = 64;

/// How many of `len` elements were ever in use, if `used` were at the last look.
fn reach(used: usize, len: usize, in_use: impl Fn(usize) -> bool) -> usize {
    let mut used = used;
    while (used..len.min(used + LOOK_AHEAD)).any(&in_use) {
        used = len.min(used + LOOK_AHEAD);
    }
    used
}

impl Kernel {
    /// Takes the frames that have travelled since the last call. Cheap when there are none: call it some times a second.
    pub fn take_stacks(&mut self, each: &mut dyn FnMut(RawStack)) {
        while let Some(item) = self.stacks.next() {
            if let Some(stack) = decode(&item) {
                each(stack);
            }
        }
    }

    /// One pass: frames to `each`, all else as the result. Every thread that is seen as exited is gone with the next pass.
    ///
    /// # Errors
    /// [`StartError::Map`] if the kernel refuses to hand over a map.
    pub fn drain(&mut self, each: &mut dyn FnMut(RawStack)) -> Result<Pass, StartError> {
        let full = self.control_value.half as usize;
        self.control_value.half = 1 - self.control_value.half;
        self.write_control()?;
        batch::wait_for_programs();
        if let Some(unwind) = &mut self.unwind {
            unwind.pass_over();
        }
        // Frames travel before the row that needs them is made: after the wait, all of this half's are here.
        self.take_stacks(each);
        let mut pass = Pass::default();
        batch::drain(
            self.sums[full].fd(),
            self.settings.stacks_per_drain,
            |key: Key, value: Value| {
                pass.sums.push(StackSum {
                    slot: key.0.slot,
                    user: key.0.user,
                    kernel: key.0.kernel,
                    end: stack_end(key.0.end & END_MASK),
                    classes: value.0.classes,
                    samples: value.0.samples,
                    walks: value.0.walks,
                });
            },
        )
        .map_err(|error| StartError::Map {
            map: "SUMS",
            reason: error.to_string(),
        })?;
        self.state.threads_used = reach(self.state.threads_used, self.threads.len(), |slot| {
            self.threads.read(slot).tid != 0
        });
        self.state.rows_used = reach(self.state.rows_used, self.rows.len(), |row| {
            self.rows.read(row).slot != 0
        });
        let freed = self.give_back();
        pass.counters = self.counters();
        pass.at_ns = monotonic_ns();
        self.read_threads(&mut pass);
        self.read_calls(&mut pass);
        pass.fill = [
            ("threads", pass.threads.len() as u64),
            ("stacks_per_drain", pass.sums.len() as u64),
            ("system_call_rows", pass.calls.len() as u64),
        ];
        self.readmit(&pass, freed)?;
        self.flush_log();
        Ok(pass)
    }

    fn read_threads(&mut self, pass: &mut Pass) {
        for slot in 1..self.state.threads_used {
            match self.threads.read_quiet(slot) {
                Some(record) => {
                    if record.clock.phase == Phase::Exited as u32 {
                        self.state.dying.push(slot as u32);
                    }
                    if let Some(thread) = snapshot(slot as u32, &record, pass.at_ns) {
                        pass.threads.push(thread);
                    }
                }
                None if self.threads.read(slot).tid != 0 => pass.unreadable += 1,
                None => {}
            }
        }
    }

    fn read_calls(&self, pass: &mut Pass) {
        for index in 1..self.state.rows_used {
            let row = self.rows.read(index);
            if row.slot != 0 && row.count != 0 {
                pass.calls.push(SyscallSnapshot {
                    slot: row.slot,
                    number: row.number,
                    count: row.count,
                    total_ns: row.total_ns,
                    running_ns: row.running_ns,
                    blocked_ns: row.blocked_ns,
                    max_ns: row.max_ns,
                });
            }
        }
    }

    /// Gives back the places of threads whose exit the last pass reported. Returns how many.
    fn give_back(&mut self) -> usize {
        let dying = std::mem::take(&mut self.state.dying);
        if dying.is_empty() {
            return 0;
        }
        let mut gone = vec![false; self.threads.len()];
        for slot in &dying {
            gone[*slot as usize] = true;
        }
        for index in 1..self.state.rows_used {
            let row = self.rows.read(index);
            if row.slot != 0 && gone.get(row.slot as usize) == Some(&true) {
                let key = SyscallKey {
                    slot: row.slot,
                    number: row.number,
                };
                self.rows.clear(index);
                if let Err(error) = self
                    .row_index
                    .remove(&key)
                    .and_then(|()| self.free_rows.push(index as u32, 0))
                {
                    warn!("a system-call row cannot be given back: {error}");
                }
            }
        }
        for slot in &dying {
            self.threads.clear(*slot as usize);
            if let Err(error) = self.free_slots.push(*slot, 0) {
                warn!("a thread record cannot be given back: {error}");
            }
        }
        dying.len()
    }

    /// Threads that were turned away for want of a record get another chance once there are some again.
    fn readmit(&mut self, pass: &Pass, freed: usize) -> Result<(), StartError> {
        let turned_away = pass
            .counters
            .get(Counter::ThreadsNoRecord as usize)
            .copied()
            .unwrap_or(0);
        if freed > 0 && turned_away > self.state.turned_away {
            self.judge_anew()?;
        }
        self.state.turned_away = turned_away;
        Ok(())
    }

    fn counters(&self) -> Vec<u64> {
        Counter::ALL
            .iter()
            .map(|counter| match self.counts.get(&(*counter as u32), 0) {
                Ok(values) => values.iter().sum(),
                Err(error) => {
                    warn!("the counter {} cannot be read: {error}", counter.name());
                    0
                }
            })
            .collect()
    }
}

/// A record as of `at_ns`; `None` for a phase that no program writes.
fn snapshot(slot: u32, record: &ThreadRecord, at_ns: u64) -> Option<ThreadSnapshot> {
    let phase = Phase::from_u32(record.clock.phase)?;
    let view = record.clock.view(at_ns);
    let is_away = matches!(phase, Phase::Blocked | Phase::Runnable);
    let away = (is_away && record.away_user | record.away_kernel != 0).then(|| {
        let mut classes = [0; CLASS_COUNT];
        for class in Class::ALL {
            classes[class as usize] =
                view.totals[class as usize] - record.clock.totals[class as usize];
        }
        AwayStack {
            user: record.away_user,
            kernel: record.away_kernel,
            end: stack_end(record.away_end & END_MASK),
            classes,
        }
    });
    let in_call = view.call != NO_CALL && view.flags & CALL_SEEN != 0 && phase != Phase::Exited;
    // Woken, but not yet on a processor.
    let woken = phase == Phase::Blocked && record.clock.woken_ns >= record.clock.last_ns;
    Some(ThreadSnapshot {
        slot,
        tid: record.tid,
        pid: record.pid,
        parent_pid: record.parent_pid,
        start_boot_ns: record.start_boot_ns,
        process_start_boot_ns: record.process_start_boot_ns,
        process_start_ns: record.process_start_ns,
        comm: record.comm,
        phase: if woken { Phase::Runnable } else { phase },
        first_event_ns: view.first_ns,
        last_event_ns: view.last_ns,
        unobserved_ns: view.unobserved_ns,
        classes: view.totals,
        kernel_thread: view.flags & KERNEL_THREAD != 0,
        call: in_call.then_some((view.call, view.call_entered_ns)),
        away,
        exec_count: record.exec_count,
    })
}

/// How a walk ended, by its number; one that no program writes is no walk to rely on.
fn stack_end(number: u32) -> StackEnd {
    StackEnd::from_u32(number).unwrap_or(StackEnd::Incomplete(UnwindFailure::UnknownKind))
}

/// A ring record; `None` if its lengths do not fit, which no program writes.
fn decode(bytes: &[u8]) -> Option<RawStack> {
    const HEAD: usize = size_of::<StackHead>();
    let head: &[u8; HEAD] = bytes.first_chunk()?;
    // SAFETY: as many bytes as the struct has; plain data, of which any bytes are a value; read unaligned.
    let head = unsafe { head.as_ptr().cast::<StackHead>().read_unaligned() };
    let frames = |from: usize, len: u16| {
        bytes.get(from..from + 8 * usize::from(len)).map(|bytes| {
            bytes
                .chunks_exact(8)
                .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
                .collect()
        })
    };
    let user = frames(HEAD, head.user_len)?;
    let kernel = frames(HEAD + 8 * usize::from(head.user_len), head.kernel_len)?;
    Some(RawStack { head, user, kernel })
}

/// The clock the programs read.
fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the struct it is given; cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Keys and values as the batch reads them: plain data with an all-zero default.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Key(SumKey);
#[repr(transparent)]
#[derive(Clone, Copy, Default)]
struct Value(SumValue);

impl Default for Key {
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
unsafe impl aya::Pod for Key {}
// SAFETY: transparent over plain data.
unsafe impl aya::Pod for Value {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reach_grows_with_what_is_in_use() {
        // Check that elements in use are found across gaps shorter than the look ahead, up to the end, and kept when freed.
        let in_use = |last: usize| {
            move |index: usize| index <= last && index.is_multiple_of(60) && index > 0
        };
        assert_eq!(reach(0, 1000, |_| false), 0);
        assert_eq!(reach(0, 1000, in_use(60)), 64);
        assert_eq!(reach(0, 1000, in_use(300)), 320);
        assert_eq!(reach(320, 1000, |_| false), 320);
        assert_eq!(reach(0, 1000, in_use(999)), 1000);
    }
}
