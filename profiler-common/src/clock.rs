//! The thread clock: the one state machine that says what a thread was doing, to the nanosecond.
//!
//! Two collection events in a row bound an interval, and each interval has exactly one class
//! (docs/semantics.md section 3). The kernel programs drive this code, and so do the host tests:
//! same code, drawn timelines and random event sequences.
//!
//! Who writes: all fields are written on the processor the thread runs on (or switches on), one
//! event at a time, or by the scan of all tasks, which keeps the thread's own events out. The
//! exceptions are two words that any processor may store ([`ThreadClock::woken_ns`],
//! [`ThreadClock::gone_ns`]), and one of the marks (`Marks::woken_behind`). So a waker never races
//! with the switch-out: what a wake means is decided later, by the thread itself, when it is
//! switched in.

use core::hint::cold_path;

use crate::kinds::{WAITS, WaitNs};

/// How many classes of time there are.
pub const CLASS_COUNT: usize = 5;

/// Nanoseconds per class, indexed by [`Class`].
pub type ClassNs = [u64; CLASS_COUNT];

/// [`ThreadClock::call`] when the thread is in no system call.
pub const NO_CALL: u32 = u32::MAX;

/// [`ThreadClock::flags`]: the thread has no user mode (a kernel thread, or an io_uring worker).
pub const KERNEL_THREAD: u32 = 1;
/// [`ThreadClock::flags`]: the entry of the current system call was seen, so its exit may be
/// counted.
pub const CALL_SEEN: u32 = 2;
/// [`ThreadClock::flags`]: the thread's system calls are not traced: its class `user` is all of its
/// running time.
pub const UNTRACED: u32 = 4;

crate::named_enum! {
    /// What a thread was doing in an interval. The values are indexes into [`ClassNs`].
    #[repr(u32)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Class {
        /// Running in user mode, outside any system call.
        User = 0 => "user",
        /// Running inside a system call.
        Syscall = 1 => "syscall",
        /// Off the processor, having given it up, until it is woken.
        Blocked = 2 => "blocked",
        /// Off the processor although it could run.
        Runnable = 3 => "runnable",
        /// A kernel thread, running.
        Kernel = 4 => "kernel",
    }
}

/// Where the thread is, as of its last event. Stored as a number, because the record lives in a BPF
/// map.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not born: the record is empty.
    Empty = 0,
    /// On a processor.
    Running = 1,
    /// Off the processor, having given it up; perhaps woken since, which `woken_ns` tells.
    Blocked = 2,
    /// Off the processor although it could run: preempted, or woken before it had left.
    Runnable = 3,
    /// Not a target for now: its clock stands still.
    Unobserved = 4,
    /// Gone. No event changes it any more.
    Exited = 5,
}

impl Phase {
    /// The phase of that number; `None` for a number no phase has.
    #[must_use]
    pub const fn from_u32(value: u32) -> Option<Self> {
        match value {
            0 => Some(Self::Empty),
            1 => Some(Self::Running),
            2 => Some(Self::Blocked),
            3 => Some(Self::Runnable),
            4 => Some(Self::Unobserved),
            5 => Some(Self::Exited),
            _ => None,
        }
    }
}

/// How a switch-in explains the time off the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The thread had not given the processor up: no wake was needed.
    NotNeeded,
    /// Woken while off the processor: the ordinary case.
    Seen,
    /// The waker came before the switch-out was complete: the thread was runnable all the time.
    Early,
    /// The thread runs although nobody was seen to wake it: the time stays blocked.
    Missed,
    /// The thread comes although it was not seen to leave. If it was woken, it had been blocked;
    /// else it was preempted.
    NeverLeft,
}

/// The time off the processor that a switch-in closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffCpuInterval {
    /// Nanoseconds until it was woken.
    pub blocked_ns: u64,
    /// Nanoseconds in which it could have run.
    pub runnable_ns: u64,
    /// How the two were told apart.
    pub wake: Wake,
}

impl OffCpuInterval {
    /// Its time by class.
    #[must_use]
    #[inline(always)]
    pub const fn waited(&self) -> WaitNs {
        [self.blocked_ns, self.runnable_ns]
    }
}

/// A system call that has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedCall {
    /// The system call's number.
    pub number: u32,
    /// Nanoseconds from entry to exit.
    pub total_ns: u64,
    /// Nanoseconds of it on a processor.
    pub running_ns: u64,
    /// Nanoseconds of it blocked. What is missing to `total_ns` was runnable.
    pub blocked_ns: u64,
}

/// The state of one thread and its exact totals.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadClock {
    /// Closed intervals, by class.
    pub totals: ClassNs,
    /// The last event: the start of the open interval.
    pub last_ns: u64,
    /// When the thread last came onto a processor.
    pub resumed_ns: u64,
    /// When the thread was last woken. Written by wakers, on any processor.
    pub woken_ns: u64,
    /// The current system call, or [`NO_CALL`].
    pub call: u32,
    /// A [`Phase`].
    pub phase: u32,
    /// [`KERNEL_THREAD`], [`CALL_SEEN`], [`UNTRACED`].
    pub flags: u32,
    /// How often it came though it had not been seen to leave, or was found where it had not been
    /// seen to come. Modulo 2^32.
    pub switches_missed: u32,
    /// Entry of the current system call.
    pub call_entered_ns: u64,
    /// `totals[Syscall]` at that entry.
    pub call_running_base_ns: u64,
    /// `totals[Blocked]` at that entry.
    pub call_blocked_base_ns: u64,
    /// When the thread's processor was last found with another thread on it, though it had not been
    /// seen to leave. Written on that processor, and no more than a hint: void as soon as the
    /// thread has a later event.
    pub gone_ns: u64,
    /// The first event.
    pub first_ns: u64,
    /// Time between the first and the last event in which the thread was not a target.
    pub unobserved_ns: u64,
    /// The part of `totals[User]` that does not grow now: while calls are traced what was untraced,
    /// and the other way round.
    pub standing_ns: u64,
}

impl ThreadClock {
    /// The clock starts: the thread is first seen, or born, in `phase` and perhaps inside the
    /// system call `call`.
    #[inline(always)]
    pub fn start(&mut self, now_ns: u64, phase: Phase, call: u32, flags: u32) {
        self.first_ns = now_ns;
        self.last_ns = now_ns;
        self.resumed_ns = now_ns;
        self.call_entered_ns = now_ns;
        self.call = call;
        self.flags = flags;
        self.phase = phase as u32;
    }

    /// The thread is a target again after a time in which it was not.
    #[inline(always)]
    pub fn resume(&mut self, now_ns: u64, phase: Phase, call: u32, flags: u32) {
        let gap_ns = now_ns.saturating_sub(self.last_ns);
        self.unobserved_ns += gap_ns;
        self.last_ns += gap_ns;
        self.resumed_ns = self.last_ns;
        self.call_entered_ns = self.last_ns;
        self.call_running_base_ns = self.totals[Class::Syscall as usize];
        self.call_blocked_base_ns = self.totals[Class::Blocked as usize];
        self.call = call;
        self.trace(flags);
        self.flags = flags;
        self.phase = phase as u32;
    }

    /// The thread is no target any more: its open interval is closed and the clock stands still.
    /// Returns what ended of a wait.
    #[inline(always)]
    pub fn suspend(&mut self, now_ns: u64) -> WaitNs {
        self.heed_gone();
        let waited = self.close(now_ns);
        self.phase = Phase::Unobserved as u32;
        waited
    }

    /// A timer tick found the thread running (or any other moment at which the open interval is cut
    /// without a change).
    #[inline(always)]
    pub fn tick(&mut self, now_ns: u64) {
        if self.phase == Phase::Running as u32 {
            self.close_running(now_ns);
        }
    }

    /// The thread is found on a processor whose last known switch, to another thread, was at
    /// `since_ns` (0: none is known). If it was not seen to come, it came as soon as it can have:
    /// then, or when it was woken. `queued_ns`: as for [`ThreadClock::switch_in`], asked where that
    /// is so. `None`: it was seen.
    #[inline(always)]
    pub fn arrive_unseen(
        &mut self,
        now_ns: u64,
        since_ns: u64,
        queued_ns: impl FnOnce() -> Option<u64>,
    ) -> Option<OffCpuInterval> {
        let came_ns = self.unseen_arrival_ns(now_ns, since_ns)?;
        cold_path();
        self.miss_switch();
        Some(self.switch_in(came_ns, queued_ns()))
    }

    /// As [`ThreadClock::arrive_unseen`], without a change: when it came, and the time that it was
    /// off its processor.
    #[must_use]
    #[inline(always)]
    pub fn unseen_arrival(&self, now_ns: u64, since_ns: u64) -> Option<(u64, OffCpuInterval)> {
        let came_ns = self.unseen_arrival_ns(now_ns, since_ns)?;
        let off_cpu = self.off_cpu_interval(came_ns);
        Some((
            self.last_ns + off_cpu.blocked_ns + off_cpu.runnable_ns,
            off_cpu,
        ))
    }

    #[inline(always)]
    fn unseen_arrival_ns(&self, now_ns: u64, since_ns: u64) -> Option<u64> {
        if self.phase != Phase::Blocked as u32 && self.phase != Phase::Runnable as u32 {
            return None;
        }
        let came_ns = if since_ns == 0 {
            now_ns
        } else if self.woken_ns > since_ns {
            self.woken_ns
        } else {
            since_ns
        };
        Some(if came_ns < now_ns { came_ns } else { now_ns })
    }

    /// From now on the thread is taken to be in `call` (or none), as far as it can be told: whether
    /// its system calls are traced has changed (`flags`). The call's entry was not seen, and it is
    /// not counted. One that was seen to be entered is taken to return now: its exit will not be
    /// seen. Returns what ended of a wait, and that call.
    #[inline(always)]
    pub fn assume_call(
        &mut self,
        now_ns: u64,
        call: u32,
        flags: u32,
    ) -> (WaitNs, Option<FinishedCall>) {
        self.heed_gone();
        let waited = self.close(now_ns);
        let finished = self.finish_call();
        self.call = call;
        self.call_entered_ns = self.last_ns;
        self.trace(flags);
        self.flags = flags;
        (waited, finished)
    }

    /// After [`ThreadClock::assume_call`], and after the marks that fell before it were taken: what
    /// the thread runs and waits from now on is that call's.
    #[inline(always)]
    pub fn begin_assumed_call(&mut self) {
        self.call_running_base_ns = self.totals[Class::Syscall as usize];
        self.call_blocked_base_ns = self.totals[Class::Blocked as usize];
    }

    /// A tick found the thread in user mode: it is in no call, whatever was missed. True if it was
    /// believed to be in one.
    #[inline(always)]
    pub fn end_missed_call(&mut self) -> bool {
        let missed = self.call != NO_CALL;
        self.call = NO_CALL;
        self.flags &= !CALL_SEEN;
        missed
    }

    /// The thread leaves its processor: `gave_up` when it waits for something, false when it could
    /// go on. It was there: see [`ThreadClock::arrive_unseen`].
    #[inline(always)]
    pub fn switch_out(&mut self, now_ns: u64, gave_up: bool) {
        self.close_running(now_ns);
        self.phase = if gave_up {
            Phase::Blocked as u32
        } else {
            Phase::Runnable as u32
        };
    }

    /// The thread comes onto a processor. `queued_ns`: how long it was in run queues since it left,
    /// by the scheduler's account; `None`: by when it was woken.
    #[inline(always)]
    pub fn switch_in(&mut self, now_ns: u64, queued_ns: Option<u64>) -> OffCpuInterval {
        let off_cpu = match queued_ns {
            Some(queued_ns) => self.queued_interval(now_ns, queued_ns),
            None => self.off_cpu_interval(now_ns),
        };
        if matches!(off_cpu.wake, Wake::NeverLeft) {
            cold_path();
            self.miss_switch();
        }
        self.totals[Class::Blocked as usize] += off_cpu.blocked_ns;
        self.totals[Class::Runnable as usize] += off_cpu.runnable_ns;
        self.last_ns += off_cpu.blocked_ns + off_cpu.runnable_ns;
        self.phase = Phase::Running as u32;
        self.resumed_ns = self.last_ns;
        off_cpu
    }

    /// The thread enters the system call `number`. True if it was in one already (its exit was
    /// missed).
    #[inline(always)]
    pub fn enter_call(&mut self, now_ns: u64, number: u32) -> bool {
        let nested = self.call != NO_CALL;
        self.close_running(now_ns);
        self.phase = Phase::Running as u32;
        self.call = number;
        self.flags |= CALL_SEEN;
        self.call_entered_ns = self.last_ns;
        self.call_running_base_ns = self.totals[Class::Syscall as usize];
        self.call_blocked_base_ns = self.totals[Class::Blocked as usize];
        nested
    }

    /// The thread leaves its system call. `None` when its entry was not seen: a new thread on its
    /// way out of the call that made it, or a call that was under way when the thread was first
    /// seen.
    #[inline(always)]
    pub fn leave_call(&mut self, now_ns: u64) -> Option<FinishedCall> {
        self.close_running(now_ns);
        self.phase = Phase::Running as u32;
        self.finish_call()
    }

    /// The current call is over by the last event.
    #[inline(always)]
    fn finish_call(&mut self) -> Option<FinishedCall> {
        let number = self.call;
        self.call = NO_CALL;
        if number == NO_CALL || self.flags & CALL_SEEN == 0 {
            return None;
        }
        self.flags &= !CALL_SEEN;
        Some(FinishedCall {
            number,
            total_ns: self.last_ns - self.call_entered_ns,
            running_ns: self.totals[Class::Syscall as usize] - self.call_running_base_ns,
            blocked_ns: self.totals[Class::Blocked as usize] - self.call_blocked_base_ns,
        })
    }

    /// The thread has, or has no longer, a user mode (`flags` = [`KERNEL_THREAD`] or 0): a kernel
    /// thread may execute a program.
    #[inline(always)]
    pub fn set_flags(&mut self, flags: u32) {
        self.trace(flags);
        self.flags = self.flags & CALL_SEEN | flags;
    }

    /// The thread is gone. Returns what ended of a wait.
    #[inline(always)]
    pub fn exit(&mut self, now_ns: u64) -> WaitNs {
        let waited = self.close(now_ns);
        self.phase = Phase::Exited as u32;
        waited
    }

    /// Nanoseconds of class `user` in which calls were not traced, up to the last event.
    #[must_use]
    #[inline(always)]
    pub const fn untraced_ns(&self) -> u64 {
        if self.flags & UNTRACED == 0 {
            self.standing_ns
        } else {
            self.totals[Class::User as usize] - self.standing_ns
        }
    }

    /// The flags are about to become `flags`: which part of class `user` grows may change.
    #[inline(always)]
    fn trace(&mut self, flags: u32) {
        if (self.flags ^ flags) & UNTRACED != 0 {
            self.standing_ns = self.totals[Class::User as usize] - self.standing_ns;
        }
    }

    /// The clock as it stands at `now_ns`, with the open interval closed. What reports read: a
    /// sleeping thread's time grows.
    ///
    /// A thread that is woken early (see [`Wake::Early`]) counts as blocked until it runs; that is
    /// corrected then. So does one that has left unseen.
    #[must_use]
    #[inline(always)]
    pub fn view(&self, now_ns: u64) -> Self {
        let mut view = *self;
        view.heed_gone();
        view.close(now_ns);
        view
    }

    /// The sum over all classes: last event - first event - time unobserved, by construction.
    #[must_use]
    #[inline(always)]
    pub fn elapsed_ns(&self) -> u64 {
        self.last_ns - self.first_ns - self.unobserved_ns
    }

    /// How the open interval of a thread off its processor divides at `now_ns`.
    #[inline(always)]
    fn off_cpu_interval(&self, now_ns: u64) -> OffCpuInterval {
        let off_cpu_ns = now_ns.saturating_sub(self.last_ns);
        let is_running = self.phase == Phase::Running as u32;
        let (blocked_ns, wake) = if is_running && self.woken_ns <= self.resumed_ns {
            (0, Wake::NeverLeft)
        } else if !is_running && (self.phase != Phase::Blocked as u32 || off_cpu_ns == 0) {
            // Nothing is to be divided either where tracing changed while it was away: it was
            // accounted for up to now as it came.
            (0, Wake::NotNeeded)
        } else if self.woken_ns >= self.last_ns {
            // Clocks of two processors may differ by a hair: never more than the whole interval.
            let blocked_ns = self.woken_ns - self.last_ns;
            let wake = if is_running {
                Wake::NeverLeft
            } else {
                Wake::Seen
            };
            (
                if blocked_ns < off_cpu_ns {
                    blocked_ns
                } else {
                    off_cpu_ns
                },
                wake,
            )
        } else if self.woken_ns > self.resumed_ns {
            // Woken in the stretch that the switch-out ended, and by nobody since: the waker was at
            // work on another processor while the thread was on its way out. (A wake that came to
            // nothing is followed by another one.)
            (0, Wake::Early)
        } else {
            (off_cpu_ns, Wake::Missed)
        };
        OffCpuInterval {
            blocked_ns,
            runnable_ns: off_cpu_ns - blocked_ns,
            wake,
        }
    }

    /// The same where it was in run queues for the last `queued_ns`. If it was preempted, that is
    /// all of it, also where the account leaves it out, as of a thread that was about to give its
    /// processor up.
    #[inline(always)]
    fn queued_interval(&self, now_ns: u64, queued_ns: u64) -> OffCpuInterval {
        let off_cpu_ns = now_ns.saturating_sub(self.last_ns);
        // Clocks of two processors may differ by a hair: never more than the whole interval.
        let blocked_ns = if self.phase == Phase::Runnable as u32 {
            0
        } else {
            off_cpu_ns.saturating_sub(queued_ns)
        };
        OffCpuInterval {
            blocked_ns,
            runnable_ns: off_cpu_ns - blocked_ns,
            wake: if self.phase == Phase::Running as u32 {
                Wake::NeverLeft
            } else {
                Wake::Seen
            },
        }
    }

    #[inline(always)]
    fn miss_switch(&mut self) {
        self.switches_missed = self.switches_missed.wrapping_add(1);
    }

    /// Another thread was found on its processor since its last event: for all that is known from
    /// outside, it is off the processor.
    #[inline(always)]
    fn heed_gone(&mut self) {
        if self.phase == Phase::Running as u32 && self.gone_ns > self.last_ns {
            self.phase = Phase::Blocked as u32;
        }
    }

    /// Closes the open interval, whatever it is. Returns what of it was a wait.
    #[inline(always)]
    fn close(&mut self, now_ns: u64) -> WaitNs {
        if self.phase == Phase::Running as u32 {
            self.close_running(now_ns);
            return [0; WAITS];
        }
        if self.phase != Phase::Blocked as u32 && self.phase != Phase::Runnable as u32 {
            return [0; WAITS];
        }
        let off_cpu_ns = now_ns.saturating_sub(self.last_ns);
        // Only a wake seen since the switch-out ends the blocked time here: an early one is decided
        // at the switch-in.
        let blocked_ns = if self.phase == Phase::Runnable as u32 {
            0
        } else if self.woken_ns >= self.last_ns && self.woken_ns - self.last_ns < off_cpu_ns {
            self.woken_ns - self.last_ns
        } else {
            off_cpu_ns
        };
        self.totals[Class::Blocked as usize] += blocked_ns;
        self.totals[Class::Runnable as usize] += off_cpu_ns - blocked_ns;
        self.last_ns += off_cpu_ns;
        [blocked_ns, off_cpu_ns - blocked_ns]
    }

    /// Closes the open interval of a running thread.
    #[inline(always)]
    fn close_running(&mut self, now_ns: u64) {
        // Two processors' clocks may differ by a hair: time never runs backwards here, and nothing
        // is counted twice.
        let ran_ns = now_ns.saturating_sub(self.last_ns);
        if self.flags & KERNEL_THREAD != 0 {
            self.totals[Class::Kernel as usize] += ran_ns;
        } else if self.call == NO_CALL {
            self.totals[Class::User as usize] += ran_ns;
        } else {
            self.totals[Class::Syscall as usize] += ran_ns;
        }
        self.last_ns += ran_ns;
    }
}

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
