//! Calls of a measured function by where they were made from.

use super::row::CompleteCall;
use super::{PROBE_KINDS, elapsed_ns};
use crate::clock::Class;

/// Places of one process that a function's calls are told apart by; calls from further ones are in
/// the row of [`OTHER_CALLERS`].
pub const MAX_CALLERS: u32 = 64;
/// [`CallerKey::return_address`] of calls from all further places, and of those whose return
/// address could not be read.
pub const OTHER_CALLERS: u64 = 0;

/// Key of a [`CallerRow`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallerKey {
    /// Start of the process since boot, nanoseconds.
    pub process_start_boot_ns: u64,
    /// Where the calls return to.
    pub return_address: u64,
    /// The process's id.
    pub pid: u32,
    /// Of which function.
    pub function: u32,
    /// How often the calling thread had executed a program.
    pub exec_count: u32,
    /// Unused.
    pub padding: u32,
}

/// Calls of one function from one place, of all threads of a process. Grows only; its parts may be
/// read while others are still to be added.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallerRow {
    /// Entries.
    pub calls: u64,
    /// Complete calls during which no other call of the function was open in the thread.
    pub outermost: u64,
    /// Nanoseconds from entry to exit of these.
    pub elapsed_ns: u64,
    /// The part of it in user mode outside system calls.
    pub application_ns: u64,
    /// The same calls, by kind.
    pub probes_outermost: [u64; PROBE_KINDS],
    /// Probed calls that were made during them, at any depth, by kind.
    pub probes_below: [u64; PROBE_KINDS],
    /// In the row of [`OTHER_CALLERS`]: rows of other places that there are.
    pub known: u64,
    /// When the first call began, monotonic nanoseconds; 0: it is about to be written. What was
    /// mapped then says what the place is.
    pub first_ns: u64,
}

impl CallerRow {
    /// Of no calls.
    pub const EMPTY: Self = Self {
        calls: 0,
        outermost: 0,
        elapsed_ns: 0,
        application_ns: 0,
        probes_outermost: [0; PROBE_KINDS],
        probes_below: [0; PROBE_KINDS],
        known: 0,
        first_ns: 0,
    };

    /// One more outermost call is complete. `add` adds to a number: several threads may do so at
    /// once.
    #[inline(always)]
    pub fn complete(&mut self, call: &CompleteCall<'_>, add: impl Fn(&mut u64, u64)) {
        add(&mut self.outermost, 1);
        add(&mut self.elapsed_ns, elapsed_ns(call.inclusive));
        add(
            &mut self.application_ns,
            call.inclusive[Class::User as usize],
        );
        if let Some(own) = self.probes_outermost.get_mut(call.kind) {
            add(own, 1);
        }
        let mut kind = 0;
        while kind < PROBE_KINDS {
            if call.probes_below[kind] != 0 {
                add(&mut self.probes_below[kind], call.probes_below[kind] as u64);
            }
            kind += 1;
        }
    }

    /// Adds the calls of another place.
    pub fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.outermost += other.outermost;
        self.elapsed_ns += other.elapsed_ns;
        self.application_ns += other.application_ns;
        for (to, from) in self.probes_outermost.iter_mut().zip(other.probes_outermost) {
            *to += from;
        }
        for (to, from) in self.probes_below.iter_mut().zip(other.probes_below) {
            *to += from;
        }
    }
}

const _: () = assert!(size_of::<CallerKey>() == 32 && size_of::<CallerRow>() == 176);
