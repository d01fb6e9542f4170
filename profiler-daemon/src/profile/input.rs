//! One drain pass as the profile takes it in: what the collector read from the kernel, already with
//! keys, modules and frames in place of addresses. Plain data; nothing here computes.

use std::{borrow::Cow, fmt, sync::Arc};

use profiler_common::{
    ClassNs, StackEnd,
    kinds::{KindNs, Primary},
};
use serde::{Deserialize, Serialize};

use super::{calls::CallTime, frames::FrameId, measured::MeasuredCalls};
pub use crate::processes::ids::Image;
use crate::processes::{
    ids::{ProcessKey, ThreadKey},
    module::ModuleTable,
};
use crate::units::{MonoNs, UnixNs};

/// Bytes of a thread name, its terminating zero included.
const COMM_BYTES: usize = 16;

/// A thread or process name as the kernel holds it: at most 15 bytes that the program chose,
/// zero-terminated.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct CommName(pub [u8; COMM_BYTES]);

impl CommName {
    /// The name made of the first bytes of `text`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; COMM_BYTES];
        for (to, from) in bytes[..COMM_BYTES - 1].iter_mut().zip(text.bytes()) {
            *to = from;
        }
        Self(bytes)
    }
}

/// The bytes up to the first zero; what is not UTF-8 is replaced.
impl fmt::Display for CommName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(COMM_BYTES);
        f.write_str(&String::from_utf8_lossy(&self.0[..end]))
    }
}

profiler_common::named_enum! {
    /// Where a thread is at the end of the pass.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub enum ThreadState {
        /// On a processor.
        #[default]
        Running => "running",
        /// Off the processor, having given it up.
        Blocked => "blocked",
        /// Off the processor although it could run.
        Runnable => "runnable",
        /// Gone.
        Exited => "exited",
    }
}

/// The exact account of one thread since it was first observed. Absolute values; a later pass
/// replaces them.
#[derive(Clone, Debug)]
pub struct ThreadUpdate {
    /// The thread.
    pub thread: ThreadKey,
    /// The process it belongs to.
    pub process: ProcessKey,
    /// Its own name.
    pub comm: CommName,
    /// What it does now.
    pub state: ThreadState,
    /// When it was first observed, monotonic nanoseconds.
    pub first_event_ns: MonoNs,
    /// Its last event; for a live thread the open interval is closed at the time of the pass.
    /// Monotonic nanoseconds.
    pub last_event_ns: MonoNs,
    /// Nanoseconds in between in which it was no target.
    pub unobserved_ns: u64,
    /// `sum == last_event_ns - first_event_ns - unobserved_ns`, exactly.
    pub classes: ClassNs,
    /// Nanoseconds per kind of time that is divided among stacks by marks; of waits those that have
    /// ended. No more than `classes`, class by class, with the waits that stacks have exactly.
    pub kinds: KindNs,
    /// Page faults that read nothing, as of the thread's last tick or switch-out.
    pub minor_faults: u64,
    /// Page faults that waited for a page to be read, likewise.
    pub major_faults: u64,
    /// Switches of it that were not seen: its time off the processor is in doubt.
    pub switches_missed: u64,
    /// Nanoseconds that profiling it has cost, as far as that is known.
    pub profiler_cost_ns: u64,
    /// The system call it is inside, if any.
    pub call: Option<OpenCall>,
    /// Kernel slot: unique among live threads.
    pub slot: u32,
}

/// The system call that a thread is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCall {
    /// Its number.
    pub number: u32,
    /// When the thread entered it, or was first observed in it, monotonic nanoseconds.
    pub since_ns: MonoNs,
    /// Whether it was seen to enter it: only then is the call counted when it returns.
    pub entry_seen: bool,
    /// What has passed of it.
    pub time: CallTime,
}

impl OpenCall {
    /// The same after the thread has slept in it for so long.
    #[must_use]
    pub(super) fn slept(self, ns: u64) -> Self {
        let CallTime {
            total_ns,
            running_ns,
            blocked_ns,
        } = self.time;
        Self {
            time: CallTime {
                total_ns: total_ns + ns,
                running_ns,
                blocked_ns: blocked_ns + ns,
            },
            ..self
        }
    }

    /// Whether it is the call that the thread was in `before`.
    #[must_use]
    pub fn goes_on(&self, before: &Self) -> bool {
        (self.number, self.since_ns) == (before.number, before.since_ns)
    }
}

profiler_common::named_enum! {
    /// Why the body of a stack is not known. Its time goes under `[unknown]` with this reason.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[repr(u8)]
    pub enum LossCause {
        /// The kernel's stack map had no room.
        MapFull => "map_full",
        /// The ring to the daemon had no room.
        RingFull => "ring_full",
        /// The stack's memory could not be read.
        StackUnreadable => "stack_unreadable",
        /// The stack could not be walked at all.
        UnwindFailed => "unwind_failed",
        /// The process was gone before its mappings were read.
        ProcessGone => "process_gone",
        /// The record arrived without a frame.
        NoFrames => "no_frames",
        /// The profile's own call trees had no room.
        TreeFull => "tree_full",
        /// The profile's own call trees had no room for it any more.
        Folded => "folded",
        /// Marks whose look never came: nobody knows what the thread was doing.
        NotSampled => "not_sampled",
        /// Marks whose stack found no room in the kernel's maps or the ring.
        NotKept => "not_kept",
        /// Anything else.
        Other => "other",
    }
}

impl LossCause {
    /// The function that reports show in place of the stack.
    #[must_use]
    pub const fn row_name(self) -> &'static str {
        match self {
            Self::MapFull => "[unknown: map_full]",
            Self::RingFull => "[unknown: ring_full]",
            Self::StackUnreadable => "[unknown: stack_unreadable]",
            Self::UnwindFailed => "[unknown: unwind_failed]",
            Self::ProcessGone => "[unknown: process_gone]",
            Self::NoFrames => "[unknown: no_frames]",
            Self::TreeFull => "[unknown: tree_full]",
            Self::Folded => "[unknown: folded]",
            Self::NotSampled => "[not sampled]",
            Self::NotKept => "[unknown: not_kept]",
            Self::Other => "[unknown: other]",
        }
    }
}

/// What one stack of one thread has received since the last pass; added to the profile.
#[derive(Clone, Debug)]
pub struct StackDelta {
    /// The process.
    pub process: ProcessKey,
    /// The thread.
    pub thread: ThreadKey,
    /// User frames, outermost first.
    pub user: Vec<FrameId>,
    /// Kernel frames, outermost first; called from the last user frame.
    pub kernel: Vec<FrameId>,
    /// How the walk of the user stack ended.
    pub end: StackEnd,
    /// Set when the frames are not known; they are ignored then.
    pub lost: Option<LossCause>,
    /// What it received.
    pub primary: Primary,
}

/// The stack and time so far of an interval that is still open: a sleeping thread. Valid for one
/// pass only.
#[derive(Clone, Debug)]
pub struct OpenStack {
    /// The process.
    pub process: ProcessKey,
    /// The thread; the last record of a thread counts.
    pub thread: ThreadKey,
    /// User frames, outermost first.
    pub user: Vec<FrameId>,
    /// Kernel frames, outermost first.
    pub kernel: Vec<FrameId>,
    /// How the walk of the user stack ended.
    pub end: StackEnd,
    /// Set when the frames are not known.
    pub lost: Option<LossCause>,
    /// Nanoseconds per class since the interval began; of waiting only.
    pub classes: ClassNs,
}

/// The calls of one number by one thread since it was first observed. Absolute values.
#[derive(Clone, Debug)]
pub struct SyscallUpdate {
    /// The process.
    pub process: ProcessKey,
    /// The thread.
    pub thread: ThreadKey,
    /// The system call's number.
    pub number: u32,
    /// Calls that returned.
    pub count: u64,
    /// Nanoseconds from entry to exit.
    pub total_ns: u64,
    /// Nanoseconds of it on a processor.
    pub running_ns: u64,
    /// Nanoseconds of it blocked.
    pub blocked_ns: u64,
    /// The longest call, nanoseconds.
    pub max_ns: u64,
}

/// What is known of a process. A later one replaces it (exec changes names; the key stays).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// The process.
    pub key: ProcessKey,
    /// Its parent's number.
    pub ppid: u32,
    /// Its name.
    pub comm: CommName,
    /// Path of its program.
    pub exe: Option<Arc<str>>,
    /// The file it executed last.
    pub image: Option<Arc<Image>>,
    /// Its user.
    pub uid: Option<u32>,
    /// Its control group's path.
    pub cgroup: Option<Arc<str>>,
    /// The systemd unit it runs in.
    pub unit: Option<Arc<str>>,
    /// The container it runs in.
    pub container_id: Option<Arc<str>>,
    /// Its start, nanoseconds since 1970.
    pub started_at_unix_ns: UnixNs,
    /// Its end, nanoseconds since 1970.
    pub exited_at_unix_ns: Option<UnixNs>,
    /// It has no user mode.
    pub kernel_thread: bool,
    /// Its command line; only where the configuration allows it.
    pub cmdline: Option<Arc<str>>,
}

impl ProcessInfo {
    /// What is known of a process nobody has described: its key and a name.
    #[must_use]
    pub fn unknown(key: ProcessKey, comm: CommName, boot_unix_ns: UnixNs) -> Self {
        Self {
            key,
            ppid: 0,
            comm,
            exe: None,
            image: None,
            uid: None,
            cgroup: None,
            unit: None,
            container_id: None,
            started_at_unix_ns: boot_unix_ns.saturating_add(key.start_ns.ns()),
            exited_at_unix_ns: None,
            kernel_thread: false,
            cmdline: None,
        }
    }
}

/// The name of a counter: the program's own, or one that a recorded profile brought.
pub type CounterName = Cow<'static, str>;
/// Counts by cause, absolute since the session began.
pub type NamedCounts = Vec<(CounterName, u64)>;

/// Everything one drain of the kernel's maps brought. Stacks are best read before the threads'
/// clocks: then no stack holds time that its thread's totals do not yet have (time that does is
/// deferred until a later pass).
#[derive(Clone, Debug, Default)]
pub struct DrainPass {
    /// Time of the pass, monotonic nanoseconds.
    pub now_ns: MonoNs,
    /// Time of the pass, nanoseconds since 1970.
    pub now_unix_ns: UnixNs,
    /// When the machine booted (what `start_ns` counts from), nanoseconds since 1970.
    pub boot_unix_ns: UnixNs,
    /// Processors that are profiled; 0: not known.
    pub processors: u32,
    /// New or changed processes.
    pub processes: Vec<ProcessInfo>,
    /// Every live thread, and those that exited since the last pass. In a partial pass only those
    /// of some processes: the other threads that were told to be blocked have slept on since.
    pub threads: Vec<ThreadUpdate>,
    /// Whether it is partial. It has no open intervals then, and nobody may ask for a snapshot
    /// until there was another that is not.
    pub is_partial: bool,
    /// Threads of which nothing is known but that they live: they need not have slept.
    pub unread: Vec<(ProcessKey, ThreadKey)>,
    /// Time and samples by stack since the last pass.
    pub stacks: Vec<StackDelta>,
    /// Intervals still open.
    pub open: Vec<OpenStack>,
    /// System calls by thread and number.
    pub syscalls: Vec<SyscallUpdate>,
    /// The kernel's loss counters, by name.
    pub losses: NamedCounts,
    /// Samples that were taken and could not be stored at all.
    pub samples_lost: u64,
    /// Samples discarded on purpose, by reason.
    pub discarded: NamedCounts,
    /// For how long control groups were throttled, since each was first looked at: nanoseconds by
    /// path, all processors together.
    pub throttled: NamedCounts,
    /// Processes that waited for a processor while a group around them was throttled, and that
    /// group's path.
    pub quota_groups: Vec<(ProcessKey, Arc<str>)>,
    /// The modules that frames and measured functions name.
    pub modules: ModuleTable,
    /// Functions that are measured exactly, with all of their calls up to now.
    pub measured: MeasuredCalls,
}
