//! Exact functions: calls of chosen functions and their times, from entry to exit.
//!
//! A probe at a function's entry and one at each of its exits drive the [`ShadowStack`] of the
//! thread, with a snapshot of the thread's clock each. Nothing here knows how a probe is made. The
//! kernel program drives this code, and so do the host tests.

pub mod call_frame;
pub mod callers;
pub mod condition;
pub mod costs;
pub mod frames;
pub mod goroutines;
pub mod histogram;
pub mod row;

use crate::clock::{CLASS_COUNT, Class, ClassNs, NO_CALL, Phase, ThreadClock, UNTRACED};

pub use call_frame::{CallFrame, EnteredCall};
pub use callers::{CallerKey, CallerRow, MAX_CALLERS, OTHER_CALLERS};
pub use condition::Condition;
pub use costs::{CallCost, CallCosts};
pub use frames::{MAX_DEPTH, Rows, ShadowStack};
pub use goroutines::{Goroutine, GoroutineStack};
pub use row::{Extremes, MeasuredRow};

/// How a call was probed, which decides what its probes cost: a bit each for an exit (or, where
/// calls are counted, an entry) that is executed out of its line, an entry that is, and whether
/// exits are probed at all. With exits a goroutine's calls are where none is probed: all that can
/// be told of their exits is that they are returns, which are executed out of their line.
pub const PROBE_KINDS: usize = 8;

/// Which probe was hit: what the program gets with each hit (the cookie of the attachment).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Number of the function, never 0 and never used again.
    pub function: u32,
    /// Number of the instrumentation, below [`MAX_INSTRUMENTATIONS`].
    pub instrumentation: u8,
    /// Is this an exit?
    pub exit: bool,
    /// Is the instruction executed out of its line?
    pub stepped: bool,
    /// Of an exit: is that of the entry?
    pub entry_stepped: bool,
    /// Entries of the function are counted, and its exits are not probed.
    pub counted_only: bool,
    /// It is a function of Go: its calls are of goroutines, which threads take turns to run.
    pub goroutines: bool,
    /// Its code jumps back to where its probe is: not each hit of that is a call.
    pub loops: bool,
    /// Of an exit that is a conditional jump: when it is taken.
    pub condition: Condition,
}

/// Instrumentations at a time.
pub const MAX_INSTRUMENTATIONS: u32 = 31;
/// [`Cookie::instrumentation`]: that of the functions on which the cost of probes is measured. Who
/// hits its probes has the record in slot 0, which is no thread's and in which nothing ever
/// happens.
pub const CALIBRATION: u8 = 31;

const EXIT: u64 = 1;
const STEPPED: u64 = 2;
const COUNTED_ONLY: u64 = 4;
const ENTRY_STEPPED: u64 = 8;
const GOROUTINES: u64 = 16;
const LOOPS: u64 = 32;
/// From this bit on.
const CONDITION_SHIFT: u32 = 16;

impl Cookie {
    /// As the kernel keeps it.
    #[must_use]
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        (self.function as u64) << 32
            | (self.instrumentation as u64) << 8
            | if self.exit { EXIT } else { 0 }
            | if self.stepped { STEPPED } else { 0 }
            | if self.counted_only { COUNTED_ONLY } else { 0 }
            | if self.entry_stepped { ENTRY_STEPPED } else { 0 }
            | if self.goroutines { GOROUTINES } else { 0 }
            | if self.loops { LOOPS } else { 0 }
            | self.condition.to_bits() << CONDITION_SHIFT
    }

    /// What [`Cookie::to_bits`] made of it.
    #[must_use]
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            function: (bits >> 32) as u32,
            instrumentation: (bits >> 8) as u8,
            exit: bits & EXIT != 0,
            stepped: bits & STEPPED != 0,
            counted_only: bits & COUNTED_ONLY != 0,
            entry_stepped: bits & ENTRY_STEPPED != 0,
            goroutines: bits & GOROUTINES != 0,
            loops: bits & LOOPS != 0,
            condition: Condition::from_bits(bits >> CONDITION_SHIFT),
        }
    }
}

/// How a hit counts among what probes cost: of [`PROBE_KINDS`].
#[must_use]
#[inline(always)]
pub const fn probe_kind(cookie: Cookie) -> usize {
    let stepped = cookie.stepped as usize;
    if cookie.counted_only {
        stepped
    } else if cookie.goroutines {
        2 | cookie.entry_stepped as usize
    } else {
        4 | (cookie.entry_stepped as usize) << 1 | stepped
    }
}

/// What a thread has had of everything, at one moment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// Time by class, the open interval closed.
    pub times: ClassNs,
    /// Minor and major page faults. Modulo 2^32.
    pub faults: [u32; 2],
    /// Not 0: the thread's system calls were not traced then.
    pub untraced: u32,
    /// Unused.
    pub padding: u32,
}

impl ThreadUsage {
    /// Of a thread that is on its processor, in user mode, at `now_ns`; the last switch seen on it
    /// was at `since_ns` (0: none is known). Where the thread was not seen to come, it came as
    /// [`ThreadClock::arrive_unseen`] will have it. `None`: the thread is not observed.
    #[must_use]
    #[inline(always)]
    pub fn of(clock: &ThreadClock, faults: [u64; 2], now_ns: u64, since_ns: u64) -> Option<Self> {
        let mut times = clock.totals;
        let mut came_ns = clock.last_ns;
        if clock.phase != Phase::Running as u32 {
            let (unseen_ns, off_cpu) = clock.unseen_arrival(now_ns, since_ns)?;
            came_ns = unseen_ns;
            times[Class::Blocked as usize] += off_cpu.blocked_ns;
            times[Class::Runnable as usize] += off_cpu.runnable_ns;
        }
        let class = if clock.call == NO_CALL {
            Class::User
        } else {
            Class::Syscall
        };
        times[class as usize] += now_ns.saturating_sub(came_ns);
        Some(Self {
            times,
            faults: [faults[0] as u32, faults[1] as u32],
            untraced: clock.flags & UNTRACED,
            padding: 0,
        })
    }
}

/// All classes together.
#[must_use]
#[inline(always)]
pub const fn elapsed_ns(times: &ClassNs) -> u64 {
    times[0] + times[1] + times[2] + times[3] + times[4]
}

/// `a - b`, each class for itself, never below 0.
#[must_use]
#[inline(always)]
pub fn less(a: &ClassNs, b: &ClassNs) -> ClassNs {
    let mut difference = [0; CLASS_COUNT];
    let mut class = 0;
    while class < CLASS_COUNT {
        difference[class] = a[class].saturating_sub(b[class]);
        class += 1;
    }
    difference
}

/// `to += other`.
#[inline(always)]
pub fn add(to: &mut ClassNs, other: &ClassNs) {
    let mut class = 0;
    while class < CLASS_COUNT {
        to[class] += other[class];
        class += 1;
    }
}

/// Which thread frames and rows are of.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MeasuredThread {
    /// Start of the thread since boot, nanoseconds.
    pub start_boot_ns: u64,
    /// The thread's id.
    pub tid: u32,
    /// The process's id.
    pub pid: u32,
}

/// Key of a [`MeasuredRow`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MeasuredKey {
    /// Whose calls.
    pub thread: MeasuredThread,
    /// Start of the process since boot, nanoseconds.
    pub process_start_boot_ns: u64,
    /// Of which function.
    pub function: u32,
    /// How often the thread had executed a program.
    pub exec_count: u32,
}

const _: () = assert!(size_of::<MeasuredThread>() == 16);
const _: () = assert!(size_of::<MeasuredKey>() == 32);
const _: () = assert!(size_of::<ThreadUsage>() == 56);
