//! Keys and values of the BPF maps and the one record of the ring: defined once, fixed width,
//! padding named, size asserted.

#[cfg(doc)]
use crate::clock::FinishedCall;
use crate::clock::ThreadClock;
use crate::kinds::{MARKS, TICKS, WaitNs};
#[cfg(doc)]
use crate::limits::UNTRACED_CALL;
use crate::limits::{CALL_CACHE, COMM_BYTES, MAX_FRAMES};
use crate::marks::{ThreadMarks, WaitSums};
use crate::queue_clock::QueueClock;
use crate::walk_budget::{WalkBudget, WalkShares};

/// [`TaskRef::slot`]: the thread has no record.
pub const NO_SLOT: u32 = 0;
/// [`TaskRef::slot`]: the thread is gone, and its late events are ignored.
pub const GONE_SLOT: u32 = u32::MAX;
/// [`TaskRef::generation`]: the thread is to evaluate itself at its next event, and the scan of all
/// tasks leaves it alone until then.
pub const EVALUATE_ITSELF: u32 = u32::MAX;
/// [`Control::generation`] until all tasks have been scanned for the first time.
pub const FIRST_GENERATION: u32 = 1;
/// [`TaskRef::flags`]: the thread is profiled.
pub const REF_TARGET: u32 = 1;
/// [`TaskRef::flags`]: its system calls are traced.
pub const REF_CALLS: u32 = 2;

/// System-call tracing modes, as the kernel programs read them ([`Control::system_calls`]).
pub mod system_calls {
    /// System calls are traced for every target.
    pub const ALL: u32 = 0;
    /// System calls are traced only for targets named by process id, process name or control group.
    pub const NAMED: u32 = 1;
    /// The hooks are not attached, or about to be detached.
    pub const OFF: u32 = 2;
    /// As [`ALL`], for a moment: whoever waits now will mostly come back when they are detached, so
    /// waits are drawn as they are outside calls.
    pub const SAMPLED: u32 = 3;
}

/// Values of [`Control::scanning`].
pub mod scanning {
    /// No scan is under way.
    pub const NO: u32 = 0;
    /// All tasks are scanned.
    pub const ALL: u32 = 1;
    /// Tasks that are on a processor are: all others evaluate themselves when they come.
    pub const RUNNING: u32 = 2;
}

/// [`SumKey::end`]: the bits of a [`crate::StackEnd`].
pub const END_MASK: u32 = 0xff;
/// Bit of [`SumKey::end`]: the row of ticks that interrupted an update of the thread's record.
pub const NESTED_TICK: u32 = 1 << 8;
/// [`SumKey::end`]: from this bit on, how often the thread had executed a program
/// ([`ThreadRecord::exec_count`], as many bits as fit): equal addresses of two programs meet within
/// a drain period.
pub const IMAGE_SHIFT: u32 = 16;

/// The part of [`SumKey::end`] that names the program, `exec_count` programs after the first.
#[must_use]
#[inline(always)]
pub const fn image_bits(exec_count: u32) -> u32 {
    exec_count << IMAGE_SHIFT
}

/// What the kernel keeps with each task: where its record is, and whether it is a target.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskRef {
    /// Index of the thread's record; [`NO_SLOT`] or [`GONE_SLOT`].
    pub slot: u32,
    /// The [`Control::generation`] for which an event of the thread's own decided `flags`; 0 =
    /// never, or [`EVALUATE_ITSELF`]. The scan of all tasks decides them too, and leaves this as it
    /// is.
    pub generation: u32,
    /// [`REF_TARGET`], [`REF_CALLS`].
    pub flags: u32,
    /// Not 0: the thread is past its last event. If its record has not ended yet, who holds its
    /// claim ends it.
    pub exited: u32,
    /// When it was first met or has last executed a program, monotonic nanoseconds: later than the
    /// exec of an earlier program of its process, earlier than that of the next. 0 = not met yet.
    pub image_ns: u64,
}

/// Which thread is on a processor: a copy of what is kept with its task.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct OnProcessor {
    /// Address of the task; 0 = nothing is known.
    pub task: u64,
    /// Address of the registers its system calls save: the same for all calls of a task, and no
    /// other's. 0 = not known yet.
    pub registers: u64,
    /// When the last switch on this processor was seen.
    pub since_ns: u64,
    /// As in [`TaskRef`], but the slot of a record in any case where `flags` is not 0.
    pub slot: u32,
    /// As in [`TaskRef`].
    pub generation: u32,
    /// As in [`TaskRef`].
    pub flags: u32,
    /// What the processor does since then ([`idle`]).
    pub idle: u32,
    /// How long it was idle, nanoseconds, up to then.
    pub idle_ns: u64,
    /// What the run queue's clock is beside the monotonic one.
    pub queue_clock: QueueClock,
    /// Runs of the two system-call programs so far.
    pub call_hooks: u64,
    /// What walks of these have cost so far, nanoseconds.
    pub call_walks_ns: u64,
    /// Runs of the switch program so far.
    pub switches: u64,
    /// Runs of the tick program so far. They are counted here too so that whoever gives ticks other
    /// rates, some times a second, reads this map alone.
    pub ticks: u64,
    /// What may be walked here.
    pub walks: WalkBudget,
}

/// Values of [`OnProcessor::idle`].
pub mod idle {
    /// No switch has been seen.
    pub const NOT_KNOWN: u32 = 0;
    /// It is idle.
    pub const IDLE: u32 = 1;
    /// It runs a thread.
    pub const AT_WORK: u32 = 2;
}

impl OnProcessor {
    /// A switch at `now_ns`, to a thread or to none. Of what it was at work, `walks` may be spent
    /// on walks.
    #[inline(always)]
    pub fn switch(&mut self, now_ns: u64, to_idle: bool, walks: WalkShares) {
        if self.idle == idle::IDLE {
            self.idle_ns += now_ns.saturating_sub(self.since_ns);
            self.walks.rest(now_ns);
        } else if to_idle {
            self.walks.earn(now_ns, walks);
        }
        self.since_ns = now_ns;
        self.idle = if to_idle { idle::IDLE } else { idle::AT_WORK };
    }

    /// How long it has been idle by `now_ns`, in nanoseconds since the programs were loaded;
    /// `None`: not known.
    #[must_use]
    pub const fn idle_by(&self, now_ns: u64) -> Option<u64> {
        match self.idle {
            idle::NOT_KNOWN => None,
            idle::IDLE => Some(self.idle_ns + now_ns.saturating_sub(self.since_ns)),
            _ => Some(self.idle_ns),
        }
    }
}

/// One thread: its clock, its marks, and who it is.
///
/// Written by the kernel programs under [`ThreadRecord::sequence`], at the thread's own events or
/// by the scan of all tasks, never both at once; names and numbers are written alone. Read by the
/// daemon through a mapping. Emptied by the daemon after the thread has exited and its last values
/// were read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadRecord {
    /// Odd while an update is under way. A tick that interrupts one leaves the clock alone.
    pub sequence: u32,
    /// The thread's id. 0: the record is empty.
    pub tid: u32,
    /// The process's id.
    pub pid: u32,
    /// While it is off its processor: the system call it waits in, with [`UNTRACED_CALL`], where
    /// its calls are not traced. 0 = none.
    pub wait_call: u32,
    /// State and totals.
    pub clock: ThreadClock,
    /// What stands for them.
    pub marks: ThreadMarks,
    /// How the walk of `off_cpu_user` ended, as in [`SumKey::end`].
    pub off_cpu_end: u32,
    /// How often it has been switched out. Modulo 2^32.
    pub switches: u32,
    /// A call, or a wait in one that is not traced, that is over and is counted when the thread is
    /// switched out next.
    pub left: LeftCall,
    /// Rows of [`SyscallRecord`]s by system-call number modulo the size; each checked before use.
    pub call_rows: [u32; CALL_CACHE],
    /// The task's minor and major page faults as of its last tick or switch-out.
    pub faults: [u64; 2],
    /// The task's minor and major page faults that are not counted: those before it was first seen,
    /// or while it was no target.
    pub first_faults: [u64; 2],
    /// User stack of the current wait, where it was walked ([`ThreadMarks::wait`] says whether).
    pub off_cpu_user: u64,
    /// Kernel stack of the current wait.
    pub off_cpu_kernel: u64,
    /// User stack of the entry of the call that was entered at `entry_ns`.
    pub entry_user: u64,
    /// Entry of the last call that was walked at its entry: the stack is that of the current call
    /// if this is its entry.
    pub entry_ns: u64,
    /// How the walk of `entry_user` ended, as in [`SumKey::end`].
    pub entry_end: u32,
    /// Not 0: the stack of the entry at `entry_ns` was not kept, and there is no other that its
    /// call can be given to.
    pub entry_lost: u32,
    /// Start of the thread since boot (its identity together with `tid`).
    pub start_boot_ns: u64,
    /// Start of the process since boot (its identity together with `pid`).
    pub process_start_boot_ns: u64,
    /// Start of the process on the monotonic clock, to match the side-band's records.
    pub process_start_ns: u64,
    /// What its walks have cost, nanoseconds: from the event to the end of the walk.
    pub walk_cost_ns: u64,
    /// How long it has waited in run queues since its birth, nanoseconds, by the scheduler's own
    /// account: as of its last switch-out, or when it was met. 0 where that is not read.
    pub queued_base_ns: u64,
    /// The thread's name, zero-terminated.
    pub comm: [u8; COMM_BYTES],
    /// Times the process image was replaced while this thread, or the one that made it, was
    /// observed.
    pub exec_count: u32,
    /// The parent process's id when the record was made.
    pub parent_pid: u32,
}

/// A [`FinishedCall`] of a thread. All zero: none, as one that took no time is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftCall {
    /// Nanoseconds from entry to exit. 0 = there is none.
    pub total_ns: u64,
    /// Of these, on a processor.
    pub running_ns: u64,
    /// Of these, blocked.
    pub blocked_ns: u64,
    /// The call's number.
    pub number: u64,
}

/// Counts of one system call of one thread. Grows as long as the thread lives.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyscallRecord {
    /// The thread's slot; [`NO_SLOT`]: the row is free.
    pub slot: u32,
    /// System-call number.
    pub number: u32,
    /// Calls that returned.
    pub count: u64,
    /// Nanoseconds from entry to exit, summed.
    pub total_ns: u64,
    /// Of these, on a processor.
    pub running_ns: u64,
    /// Of these, blocked.
    pub blocked_ns: u64,
    /// The longest call.
    pub max_ns: u64,
}

/// Key of a system-call row.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyscallKey {
    /// The thread's slot.
    pub slot: u32,
    /// System-call number.
    pub number: u32,
}

/// Key of a row of time per stack.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SumKey {
    /// Id of the user stack, 0 = none.
    pub user: u64,
    /// Id of the kernel stack, 0 = none.
    pub kernel: u64,
    /// The thread's slot.
    pub slot: u32,
    /// How the user walk ended (a [`crate::StackEnd`]), perhaps with [`NESTED_TICK`], and the
    /// program ([`image_bits`]).
    pub end: u32,
}

/// What one stack of one thread has in one drain period. All of it is additive.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumValue {
    /// Waits.
    pub waits: WaitSums,
    /// Marks at drawn gaps ([`crate::kinds::MARK_CALL`] and others).
    pub marks: [u64; MARKS],
    /// See [`crate::kinds::Primary::excess`].
    pub excess: [u64; MARKS],
    /// See [`crate::kinds::Primary::tick_excess`].
    pub tick_excess: u64,
    /// Ticks by what they found ([`crate::kinds::Tick`]).
    pub ticks: [u32; TICKS],
    /// Walks, those of the ticks included.
    pub walks: u32,
}

impl SumValue {
    /// Adds `other`.
    #[inline(always)]
    pub fn add(&mut self, other: &Self) {
        self.waits.add(&other.waits);
        let mut kind = 0;
        while kind < MARKS {
            self.marks[kind] += other.marks[kind];
            self.excess[kind] = self.excess[kind].saturating_add(other.excess[kind]);
            kind += 1;
        }
        self.tick_excess = self.tick_excess.saturating_add(other.tick_excess);
        kind = 0;
        while kind < TICKS {
            self.ticks[kind] = self.ticks[kind].wrapping_add(other.ticks[kind]);
            kind += 1;
        }
        self.walks = self.walks.wrapping_add(other.walks);
    }
}

/// What of a thread has no stack, for as long as it lives: no mark is ever dropped. It grows only,
/// ticks and walks modulo 2^32.
///
/// Written at the thread's own events or by the scan of all tasks, without a lock: each number
/// stands alone.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// What was walked, and whose stack found no room.
    pub not_kept: SumValue,
    /// Marks that no walk took.
    pub not_sampled: [u64; MARKS],
    /// Waits that had no chance of being walked, nanoseconds.
    pub not_sampled_ns: WaitNs,
}

/// Head of a ring record: a stack that is new in this drain period. `user_len` and then
/// `kernel_len` addresses follow, innermost first. User addresses are ready for lookup (callers'
/// already lie inside their call); kernel ones are raw.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StackHead {
    /// Id of the user stack, 0 = none.
    pub user: u64,
    /// Id of the kernel stack, 0 = none.
    pub kernel: u64,
    /// When it was walked.
    pub time_ns: u64,
    /// Start of the process since boot.
    pub process_start_boot_ns: u64,
    /// Start of the process, monotonic.
    pub process_start_ns: u64,
    /// The process's id.
    pub pid: u32,
    /// User addresses that follow.
    pub user_len: u16,
    /// Kernel addresses that follow them.
    pub kernel_len: u16,
    /// How the user walk ended (a [`crate::StackEnd`]).
    pub end: u32,
    /// The program that was walked, as in [`SumKey::end`].
    pub image: u32,
}

/// A whole ring record; only as many addresses as there are travel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StackRecord {
    /// What it is.
    pub head: StackHead,
    /// The addresses.
    pub addresses: [u64; MAX_FRAMES],
}

/// What the daemon changes while the programs run. One element; each field is written alone.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Control {
    /// Bumped whenever targets change: each thread is then evaluated anew at its next event. Starts
    /// at [`FIRST_GENERATION`].
    pub generation: u32,
    /// Not 0: every process is a target.
    pub all: u32,
    /// Not 0: children of named targets become targets.
    pub children: u32,
    /// Which of the two buffers of sums the programs add to: 0 or 1.
    pub buffer: u32,
    /// Not 0: the programs work. Set last at start, cleared first at the end.
    pub enabled: u32,
    /// Which tasks are being scanned ([`scanning`]). Set, with a new generation, before any program
    /// of the scan runs; cleared after the last.
    pub scanning: u32,
    /// Whose system calls are traced ([`system_calls`]).
    pub system_calls: u32,
    /// What may be spent on walks ([`WalkBudget`]).
    pub walks: WalkShares,
    /// A bit for each instrumentation that measures every process.
    pub measured_all: u32,
    /// A bit for each instrumentation that measures children of what it measures.
    pub measured_children: u32,
}

const _: () = assert!(size_of::<TaskRef>() == 24);
const _: () = assert!(size_of::<OnProcessor>() == 144);
const _: () =
    assert!(size_of::<ThreadRecord>().is_multiple_of(8) && size_of::<ThreadRecord>() == 512);
const _: () = assert!(size_of::<SyscallRecord>() == 48);
const _: () = assert!(size_of::<SyscallKey>() == 8);
const _: () = assert!(size_of::<SumKey>() == 24);
const _: () = assert!(size_of::<SumValue>() == 136);
const _: () = assert!(size_of::<Reserve>() == 176);
const _: () = assert!(size_of::<StackHead>() == 56);
const _: () = assert!(size_of::<StackRecord>() == 56 + 8 * MAX_FRAMES);
const _: () = assert!(size_of::<Control>() == 44);

#[cfg(feature = "user")]
mod pod {
    use super::{Control, Reserve, SumKey, SumValue, SyscallKey, SyscallRecord, ThreadRecord};

    // SAFETY: `#[repr(C)]`, only integers and arrays of them, no implicit padding (sizes asserted
    // above).
    unsafe impl aya::Pod for ThreadRecord {}
    // SAFETY: as above.
    unsafe impl aya::Pod for SyscallRecord {}
    // SAFETY: as above.
    unsafe impl aya::Pod for SyscallKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for SumKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for SumValue {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Reserve {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Control {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::measured::CallCosts {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::measured::MeasuredThread {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::measured::MeasuredKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::measured::MeasuredRow {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::measured::CallerKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::measured::CallerRow {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::measured::ShadowStack {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::measured::Goroutine {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::spans::PlaceAction {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::spans::ItemKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::spans::OpenKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::spans::UsdtRow {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::spans::SpanRow {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::unwind::UnwindRow {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::unwind::UnwindPage {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::unwind::MappingRow {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::unwind::TableRow {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::unwind::ProcessMappings {}
}
