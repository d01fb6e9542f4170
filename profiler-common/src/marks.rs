//! Which of a thread's exact time is divided by marks, where the marks fall, and which waits are
//! walked (docs/semantics.md section 4). Totals are exact and belong to the clock; this says what
//! stands for them.
//!
//! Every decision depends on the past or on the length of what it is about, never on where it is:
//! so each nanosecond of a kind has the same chance of a mark. Random numbers are arguments; no
//! loop grows with time.

mod age;
mod wait_sums;

use core::hint::cold_path;

use crate::clock::{Class, KERNEL_THREAD, NO_CALL, ThreadClock, UNTRACED};
use crate::gaps::{gap, residual, share};
use crate::kinds::{
    BLOCKED, KINDS, Kind, KindNs, MARK_BLOCKED, MARK_CALL, MARK_RUNNABLE, MARKS, RUNNABLE, Tick,
    WAITS, WaitNs,
};

pub use wait_sums::WaitSums;

/// Walked switch-outs inside calls in quick succession, after so many times `min_interval` without
/// one.
pub const WALK_BURST: u64 = 8;
/// A stretch of more mean gaps than this is given its share of marks at once.
pub const MAX_GAPS: u64 = 8;
/// Points that lie in a stretch of [`MAX_GAPS`] at most: gaps are half a mean gap or more.
const MAX_POINTS: u64 = 2 * MAX_GAPS + 1;
/// Waits outside calls are counted over stretches of this length, to choose how many are walked.
pub const RATE_NS: u64 = 100_000_000;
/// At least one of `1 << MAX_RATE_SHIFT` waits outside calls is walked.
pub const MAX_RATE_SHIFT: u32 = 16;
/// Waits outside calls of this length or more are no part of a division: exactly their stack's,
/// where that is known. Most of that length have been looked at from outside long before; and a
/// weight of up to `1 << MAX_RATE_SHIFT` times as long overflows nothing.
pub const LONG_WAIT_NS: u64 = 600_000_000_000;

/// What is known of the wait that is open, or was last: values of [`ThreadMarks::wait`].
pub mod wait {
    /// Nobody saw it begin, or inside a call: it was not walked.
    pub const UNSEEN: u32 = 0;
    /// Exactly its stack's: inside a call and walked, or read from outside.
    pub const EXACT: u32 = 1;
    /// Drawn, as outside calls, and walked.
    pub const DRAWN: u32 = 2;
    /// Drawn, but its stack found no room.
    pub const UNKEPT: u32 = 3;
    /// Not drawn.
    pub const PASSED: u32 = 4;
}

/// Where the time of a wait that has ended goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Into the totals that marks divide: no stack has it.
    Divided,
    /// To the stack that was walked at its switch-out. Where that cannot be kept, what
    /// [`ThreadMarks::cannot_keep`] says.
    Walked(WaitSums),
    /// To the row of stacks that found no room.
    NotKept(WaitSums),
    /// To the row of what was not sampled: it had no chance of being walked.
    NotSampled(WaitNs),
}

/// The marks of one thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadMarks {
    /// The next mark of running call time: a word on the clock's total of [`Class::Syscall`].
    pub next_call_ns: u64,
    /// Marks of unwalked waits that have fallen in the current call and wait for its next walk.
    /// Here, because each exit reads both.
    pub pending: [u64; WAITS],
    /// That total when marks were taken last.
    pub taken_ns: u64,
    /// The next mark of unwalked waits inside calls: a word on the sum of `unwalked`.
    pub next_wait_ns: u64,
    /// When the next switch-out inside a call is walked if walks are evenly spaced: each puts it
    /// off by `min_interval` (the theoretical arrival time of the generic cell rate algorithm).
    pub next_walk_ns: u64,
    /// Closed waits inside calls that no stack has exactly.
    pub unwalked: WaitNs,
    /// Closed waits outside calls that drawn ones stand for.
    pub outside: WaitNs,
    /// Start of the stretch in which waits outside calls are counted.
    pub rate_since_ns: u64,
    /// Waits outside calls in that stretch.
    pub rate: u32,
    /// One of `1 << rate_shift` of them is walked.
    pub rate_shift: u16,
    /// A drawn wait stands for `1 << wait_shift`.
    pub wait_shift: u16,
    /// What is known of the wait that is open, or was last ([`wait`]).
    pub wait: u32,
    /// When the thread was walked last at a switch or at an exit, or first seen: monotonic, in
    /// units of 2^20 ns, modulo 2^32.
    pub walked_at: u32,
    /// How long the walk at its switch-out took; 0 = not drawn.
    pub walk_ns: u64,
    /// How long the processor of the walk had been idle then, as in `OnProcessor::idle_ns`, modulo
    /// 2^32.
    pub walk_idle: u32,
    /// That processor, modulo 2^16.
    pub walk_cpu: u16,
    /// Not 0: what ended it had to wait for that walk: it ran on the same processor, which had no
    /// pause since. Written by wakers, on any processor.
    pub woken_behind: u16,
}

/// True with a chance of one in `1 << shift`.
#[inline(always)]
pub fn is_drawn(shift: u32, random: &mut impl FnMut() -> u32) -> bool {
    shift == 0 || random() & ((1 << shift) - 1) == 0
}

impl ThreadMarks {
    /// The thread is first seen at `now_ns`: each pile begins by the residual law, so that its
    /// first nanosecond has the chance of any other.
    #[inline(always)]
    pub fn start(&mut self, now_ns: u64, min_interval_ns: u64, random: &mut impl FnMut() -> u32) {
        self.note_walked(now_ns);
        self.next_call_ns = residual(min_interval_ns, random);
        self.next_wait_ns = residual(min_interval_ns, random);
    }

    /// Have marks fallen that no walk has taken? Asked at the clock's last event.
    #[must_use]
    #[inline(always)]
    pub fn is_due(&self, clock: &ThreadClock) -> bool {
        clock.totals[Class::Syscall as usize] >= self.next_call_ns
            || self.pending[BLOCKED] | self.pending[RUNNABLE] != 0
    }

    /// At a walk within a call, or at the end of one without a walk: takes all marks that have
    /// fallen.
    #[inline(always)]
    pub fn take_fallen(
        &mut self,
        clock: &ThreadClock,
        min_interval_ns: u64,
        random: &mut impl FnMut() -> u32,
    ) -> [u64; MARKS] {
        let to_ns = clock.totals[Class::Syscall as usize];
        // What earlier calls ran was taken then, or came to nothing.
        let from_ns = if clock.call_running_base_ns > self.taken_ns {
            clock.call_running_base_ns
        } else {
            self.taken_ns
        };
        let mut marks = [0; MARKS];
        if min_interval_ns == 0 {
            marks[MARK_CALL] = to_ns - self.taken_ns;
            self.next_call_ns = to_ns + 1;
        } else if to_ns < self.next_call_ns {
        } else if to_ns - from_ns > MAX_GAPS * min_interval_ns {
            marks[MARK_CALL] = share(to_ns - from_ns, min_interval_ns, random());
            self.next_call_ns = to_ns + residual(min_interval_ns, random);
        } else {
            while marks[MARK_CALL] < MAX_POINTS && self.next_call_ns <= to_ns {
                marks[MARK_CALL] += 1;
                self.next_call_ns += gap(min_interval_ns, random());
            }
        }
        self.taken_ns = to_ns;
        marks[MARK_BLOCKED] = self.pending[BLOCKED];
        marks[MARK_RUNNABLE] = self.pending[RUNNABLE];
        self.pending = [0; WAITS];
        marks
    }

    /// The thread leaves its processor at `now_ns`, inside a call whose exit will be seen, or not
    /// (`inside`). True: it is to be walked. Then [`ThreadMarks::keep`] follows if that comes to a
    /// row, and [`ThreadMarks::walked`] if the wait was drawn. The processor affords one of `1 <<
    /// walk_shift()` such walks, which is asked where it matters.
    #[inline(always)]
    pub fn leave(
        &mut self,
        inside: bool,
        now_ns: u64,
        walk_shift: impl FnOnce() -> u32,
        min_interval_ns: u64,
        random: &mut impl FnMut() -> u32,
    ) -> bool {
        self.wait_shift = 0;
        self.walk_ns = 0;
        self.woken_behind = 0;
        if inside {
            self.wait = wait::UNSEEN;
            // Which waits are walked and which divided is free to choose: nothing is weighted here.
            if now_ns + (WALK_BURST - 1) * min_interval_ns < self.next_walk_ns
                || !is_drawn(self.shift_by_age(walk_shift(), now_ns), random)
            {
                return false;
            }
            self.note_walked(now_ns);
            let from_ns = if self.next_walk_ns > now_ns {
                self.next_walk_ns
            } else {
                now_ns
            };
            self.next_walk_ns = from_ns + min_interval_ns;
            return true;
        }
        self.count_outside(now_ns, min_interval_ns);
        self.wait = wait::PASSED;
        let rate_shift = u32::from(self.rate_shift);
        if !is_drawn(rate_shift, random) {
            return false;
        }
        // Of those, in a second draw: most waits of a storm need not know what is afforded.
        let rest = MAX_RATE_SHIFT - rate_shift;
        let walk_shift = self.shift_by_age(walk_shift(), now_ns);
        let walk_shift = if walk_shift > rest { rest } else { walk_shift };
        if !is_drawn(walk_shift, random) {
            return false;
        }
        self.note_walked(now_ns);
        self.wait = wait::UNKEPT;
        self.wait_shift = (rate_shift + walk_shift) as u16;
        true
    }

    /// The end of a call, of which there will be no other walk. One of `1 << walk_shift` such walks
    /// is made; what it finds is to be taken so many times. False: this one is not made, and others
    /// stand for its marks.
    #[inline(always)]
    pub fn leaves_call(
        &mut self,
        clock: &ThreadClock,
        walk_shift: u32,
        min_interval_ns: u64,
        random: &mut impl FnMut() -> u32,
    ) -> bool {
        let drawn = is_drawn(walk_shift, random);
        if drawn {
            self.note_walked(clock.last_ns);
        } else {
            self.take_fallen(clock, min_interval_ns, random);
        }
        drawn
    }

    /// The walk of the switch-out has a row.
    #[inline(always)]
    pub fn keep(&mut self) {
        self.wait = if self.wait == wait::UNKEPT {
            wait::DRAWN
        } else {
            wait::EXACT
        };
    }

    /// The wait has ended, `waited` long; where its time goes. `inside`: if nothing else is known,
    /// it is divided by the marks of the call it was in.
    #[inline(always)]
    pub fn end_wait(
        &mut self,
        inside: bool,
        waited: WaitNs,
        min_interval_ns: u64,
        random: &mut impl FnMut() -> u32,
    ) -> Ended {
        let known = self.wait;
        self.wait = wait::UNSEEN;
        if known == wait::EXACT {
            return Ended::Walked(WaitSums::of_exact(waited));
        }
        if inside && known == wait::UNSEEN {
            self.divide_inside(waited, min_interval_ns, random);
            return Ended::Divided;
        }
        let is_long = waited[BLOCKED] + waited[RUNNABLE] >= LONG_WAIT_NS;
        if known == wait::UNSEEN || (is_long && known == wait::PASSED) {
            return Ended::NotSampled(waited);
        }
        let sums = if is_long {
            WaitSums::of_exact(waited)
        } else {
            let own = if known == wait::PASSED {
                [0; WAITS]
            } else {
                self.own_of_walk(waited)
            };
            self.outside[BLOCKED] += waited[BLOCKED] - own[BLOCKED];
            self.outside[RUNNABLE] += waited[RUNNABLE] - own[RUNNABLE];
            if known == wait::PASSED {
                return Ended::Divided;
            }
            WaitSums::of_drawn(waited, own, u32::from(self.wait_shift), random)
        };
        if known == wait::DRAWN {
            Ended::Walked(sums)
        } else {
            Ended::NotKept(sums)
        }
    }

    /// For how long a drawn wait went on only because its thread was walked: what came to end it
    /// had to wait for the walk, or the thread, woken before the walk was over, had to. The waits
    /// that it stands for had no walk.
    #[inline(always)]
    const fn own_of_walk(&self, waited: WaitNs) -> WaitNs {
        let late_ns = self.walk_ns.saturating_sub(waited[BLOCKED]);
        let mut own = [0, late_ns];
        if self.woken_behind != 0 {
            own[BLOCKED] = self.walk_ns - late_ns;
        }
        if own[RUNNABLE] > waited[RUNNABLE] {
            own[RUNNABLE] = waited[RUNNABLE];
        }
        own
    }

    /// The wait was drawn at `left_ns`, and its thread has been walked by `now_ns`, on a processor
    /// that had been idle for so long.
    #[inline(always)]
    pub fn walked(&mut self, left_ns: u64, now_ns: u64, cpu: u32, idle_ns: u64) {
        self.walk_ns = now_ns - left_ns;
        self.walk_cpu = cpu as u16;
        self.walk_idle = idle_ns as u32;
    }

    /// The thread is woken on this processor, which is at work and was idle for so long. Is what
    /// wakes it delayed by the walk? (An interrupt is not; whether it is one cannot be told.)
    #[must_use]
    #[inline(always)]
    pub const fn is_woken_behind(&self, cpu: u32, idle_ns: u64) -> bool {
        self.walk_ns != 0 && self.walk_cpu == cpu as u16 && self.walk_idle == idle_ns as u32
    }

    /// The thread comes, and counts as blocked until a run queue had it, which none does while it
    /// is walked. So what the walk delayed is blocked: all of it where what came to wake the thread
    /// had to wait for the walk, else what was left of it when that came, `after_ns` after the
    /// thread had left. `None`: that is not known.
    #[inline(always)]
    pub fn queued_late(&mut self, after_ns: Option<u64>) {
        if self.woken_behind == 0 {
            self.walk_ns = match after_ns {
                Some(after_ns) => self.walk_ns.saturating_sub(after_ns),
                None => 0,
            };
            self.woken_behind = 1;
        }
    }

    /// A stack that was walked cannot be given `sums` after all: inside a call the wait is one that
    /// was not walked. (Which waits are exactly a stack's and which are divided is free to choose.)
    /// Else the row of stacks without room has it.
    #[inline(always)]
    pub fn cannot_keep(
        &mut self,
        inside: bool,
        sums: &WaitSums,
        min_interval_ns: u64,
        random: &mut impl FnMut() -> u32,
    ) -> Ended {
        if inside && sums.weighted[BLOCKED] | sums.weighted[RUNNABLE] == 0 {
            self.divide_inside(sums.exact, min_interval_ns, random);
            Ended::Divided
        } else {
            Ended::NotKept(*sums)
        }
    }

    /// Is there a stack of the wait that is open, walked or found?
    #[must_use]
    pub const fn has_stack(&self) -> bool {
        self.wait == wait::EXACT || self.wait == wait::DRAWN
    }

    /// May the wait that is open become exactly its stack's by a stack found from outside? Also one
    /// that was drawn and walked, and stands for others: whether a wait is found must not depend on
    /// whether it was drawn. Else those that are drawn would stand for some that are found, too.
    #[must_use]
    #[inline(always)]
    pub const fn may_be_found(&self) -> bool {
        !(self.wait == wait::EXACT || self.wait == wait::DRAWN && self.wait_shift == 0)
    }

    /// Was the begin of the wait that is open not seen, as far as this tells?
    #[must_use]
    pub const fn is_unseen(&self, inside: bool) -> bool {
        self.wait == wait::UNSEEN && !inside
    }

    /// The stack of the wait that is open, or has just ended, was found from outside.
    #[inline(always)]
    pub fn find(&mut self) {
        self.wait = wait::EXACT;
    }

    /// Is a wait that has lasted `lasted_ns` so far exactly its stack's if it goes on?
    #[must_use]
    pub const fn is_open_exact(&self, lasted_ns: u64) -> bool {
        self.wait == wait::EXACT
            || self.wait == wait::DRAWN && (self.wait_shift == 0 || lasted_ns >= LONG_WAIT_NS)
    }

    /// Exact totals by kind, given the clock: running time as far as the clock goes, waits that
    /// have ended and that no stack has.
    #[must_use]
    pub const fn kinds(&self, clock: &ThreadClock) -> KindNs {
        let mut kinds = [0; KINDS];
        kinds[Kind::Untraced as usize] = clock.untraced_ns();
        kinds[Kind::User as usize] = clock.totals[Class::User as usize] - clock.untraced_ns();
        kinds[Kind::Kernel as usize] = clock.totals[Class::Kernel as usize];
        kinds[Kind::Call as usize] = clock.totals[Class::Syscall as usize];
        kinds[Kind::CallBlocked as usize] = self.unwalked[BLOCKED];
        kinds[Kind::CallRunnable as usize] = self.unwalked[RUNNABLE];
        kinds[Kind::OutsideBlocked as usize] = self.outside[BLOCKED];
        kinds[Kind::OutsideRunnable as usize] = self.outside[RUNNABLE];
        kinds
    }

    /// A wait inside a call that no stack has: its marks fall on the sum of all such waits, each in
    /// the class that is there.
    #[inline(always)]
    fn divide_inside(
        &mut self,
        waited: WaitNs,
        min_interval_ns: u64,
        random: &mut impl FnMut() -> u32,
    ) {
        let length_ns = waited[BLOCKED] + waited[RUNNABLE];
        let woken_ns = self.unwalked[BLOCKED] + self.unwalked[RUNNABLE] + waited[BLOCKED];
        self.unwalked[BLOCKED] += waited[BLOCKED];
        self.unwalked[RUNNABLE] += waited[RUNNABLE];
        let to_ns = self.unwalked[BLOCKED] + self.unwalked[RUNNABLE];
        if min_interval_ns == 0 {
            self.pending[BLOCKED] += waited[BLOCKED];
            self.pending[RUNNABLE] += waited[RUNNABLE];
        } else if to_ns < self.next_wait_ns {
        } else if length_ns > MAX_GAPS * min_interval_ns {
            cold_path();
            let draw = random();
            let blocked = share(waited[BLOCKED], min_interval_ns, draw);
            self.pending[BLOCKED] += blocked;
            self.pending[RUNNABLE] += share(length_ns, min_interval_ns, draw) - blocked;
            self.next_wait_ns = to_ns + residual(min_interval_ns, random);
        } else {
            cold_path();
            let mut points = 0;
            while points < MAX_POINTS && self.next_wait_ns <= to_ns {
                if self.next_wait_ns <= woken_ns {
                    self.pending[BLOCKED] += 1;
                } else {
                    self.pending[RUNNABLE] += 1;
                }
                self.next_wait_ns += gap(min_interval_ns, random());
                points += 1;
            }
        }
    }

    /// Chooses how many waits outside calls one walk stands for: by the count of the last whole
    /// stretch, or of the current one as soon as that is higher. Both are past when the draw is
    /// made.
    #[inline(always)]
    fn count_outside(&mut self, now_ns: u64, min_interval_ns: u64) {
        let since_ns = now_ns.saturating_sub(self.rate_since_ns);
        if since_ns >= RATE_NS {
            cold_path();
            let last = if since_ns < 2 * RATE_NS { self.rate } else { 0 };
            self.rate = 0;
            self.rate_since_ns = now_ns;
            self.rate_shift = 0;
            while u32::from(self.rate_shift) < MAX_RATE_SHIFT
                && last as u64 * min_interval_ns > RATE_NS << self.rate_shift
            {
                self.rate_shift += 1;
            }
        } else if u32::from(self.rate_shift) < MAX_RATE_SHIFT
            && self.rate as u64 * min_interval_ns > RATE_NS << self.rate_shift
        {
            cold_path();
            self.rate_shift += 1;
        }
        self.rate += 1;
    }
}

/// Is the thread inside a system call that is traced?
#[must_use]
#[inline(always)]
pub const fn is_inside(clock: &ThreadClock) -> bool {
    clock.call != NO_CALL
}

/// What a tick found: the processor in user mode or not; for a thread whose calls are not traced,
/// whether its saved registers are those of a call.
#[must_use]
#[inline(always)]
pub fn tick_kind(clock: &ThreadClock, user_mode: bool, saved_call: impl FnOnce() -> bool) -> Tick {
    if clock.flags & KERNEL_THREAD != 0 {
        Tick::Kernel
    } else if clock.flags & UNTRACED != 0 {
        if user_mode {
            Tick::UntracedUser
        } else if saved_call() {
            Tick::UntracedCall
        } else {
            Tick::UntracedFault
        }
    } else if user_mode {
        Tick::User
    } else if is_inside(clock) {
        Tick::Call
    } else {
        Tick::Fault
    }
}

#[cfg(test)]
#[path = "marks_tests.rs"]
mod tests;
