//! One thread of a process, and the remainder that stands for threads whose rows are gone.

use serde::{Deserialize, Serialize};

use super::{
    input::{CommName, OpenCall, ThreadState, ThreadUpdate},
    now::Now,
    values::Totals,
};
use crate::processes::ids::{ProcessKey, ThreadKey};
use crate::units::MonoNs;
use profiler_common::{Class, limits::UNTRACED_CALL};

/// What is kept of one thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Thread {
    /// Number within its process, never reused; what segments call it.
    pub(super) index: u32,
    /// Its place in the kernel's records, its own while it lives.
    pub(super) slot: u32,
    /// Its name.
    pub comm: CommName,
    /// What it does now.
    pub state: ThreadState,
    /// When it was first observed, monotonic nanoseconds.
    pub first_ns: MonoNs,
    /// Its last event or the time of the last pass, monotonic nanoseconds.
    pub last_ns: MonoNs,
    /// Its exact totals.
    pub totals: Totals,
    /// The system call it is inside.
    pub in_syscall: Option<u32>,
    /// Since when, or since when it was seen there, monotonic nanoseconds.
    pub in_syscall_since_ns: MonoNs,
    /// The pass that told it has exited.
    pub(super) exited_pass: Option<u64>,
    /// It was observed to be blocked when it was told last, and sleeps on unless it is told
    /// otherwise.
    #[serde(skip)]
    pub(super) sleeps_on: bool,
}

impl Thread {
    /// A thread seen for the first time, its totals still empty.
    pub(super) fn new(index: u32, update: &ThreadUpdate) -> Self {
        Self {
            index,
            slot: update.slot,
            comm: update.comm,
            state: ThreadState::Running,
            first_ns: update.first_event_ns,
            last_ns: update.first_event_ns,
            totals: Totals::default(),
            in_syscall: None,
            in_syscall_since_ns: MonoNs::ZERO,
            exited_pass: None,
            sleeps_on: false,
        }
    }

    /// What would have been told of it if it was looked at while it sleeps on, at `to_ns`.
    pub(super) fn asleep_until(
        &self,
        (thread, process): (ThreadKey, ProcessKey),
        call: Option<OpenCall>,
        to_ns: MonoNs,
    ) -> ThreadUpdate {
        let slept_ns = to_ns.saturating_since(self.last_ns);
        let mut classes = self.totals.classes;
        classes[Class::Blocked as usize] += slept_ns;
        ThreadUpdate {
            thread,
            process,
            comm: self.comm,
            state: self.state,
            first_event_ns: self.first_ns,
            last_event_ns: self.last_ns + slept_ns,
            unobserved_ns: self.totals.unobserved_ns,
            classes,
            kinds: self.totals.kinds,
            minor_faults: self.totals.minor_faults,
            major_faults: self.totals.major_faults,
            switches_missed: self.totals.switches_missed,
            profiler_cost_ns: self.totals.profiler_cost_ns,
            call: call.map(|call| call.slept(slept_ns)),
            slot: self.slot,
        }
    }

    /// Takes the update's values over but for its kinds, which are to be placed; true when the
    /// thread exited with it.
    pub(super) fn update(&mut self, now: Now, update: &ThreadUpdate) -> bool {
        self.comm = update.comm;
        self.first_ns = update.first_event_ns;
        self.last_ns = update.last_event_ns;
        self.totals.classes = update.classes;
        self.totals.unobserved_ns = update.unobserved_ns;
        self.totals.minor_faults = self.totals.minor_faults.max(update.minor_faults);
        self.totals.major_faults = self.totals.major_faults.max(update.major_faults);
        self.totals.switches_missed = self.totals.switches_missed.max(update.switches_missed);
        self.totals.profiler_cost_ns = self.totals.profiler_cost_ns.max(update.profiler_cost_ns);
        self.in_syscall = update.call.map(|call| call.number & !UNTRACED_CALL);
        self.in_syscall_since_ns = update.call.map_or(MonoNs::ZERO, |call| call.since_ns);
        // The clock of one that is not observed stands still.
        let is_observed = update.last_event_ns >= now.now_ns;
        self.sleeps_on = is_observed && update.state == ThreadState::Blocked;
        self.set_state(update.state, now.pass)
    }

    /// The system call it is inside, unless it is gone.
    #[must_use]
    pub fn in_syscall_now(&self) -> Option<u32> {
        self.in_syscall
            .filter(|_| self.state != ThreadState::Exited)
    }

    /// Takes the state over; true when the thread exited with it. Nobody comes back from an exit.
    pub(super) fn set_state(&mut self, state: ThreadState, pass: u64) -> bool {
        if self.exited_pass.is_some() {
            return false;
        }
        self.state = state;
        let exited = state == ThreadState::Exited;
        self.exited_pass = exited.then_some(pass);
        exited
    }
}

/// Threads without a row of their own.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Folded {
    /// How many.
    pub count: u64,
    /// Their totals together.
    pub totals: Totals,
}
