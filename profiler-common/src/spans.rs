//! USDT points and spans: places in programs at which hits are counted, argument values are read,
//! and the time from a start to an end is taken, whichever threads they are in.
//!
//! A program at each place does what its [`PlaceAction`] says. Rows are of one thread, which alone
//! writes them; the daemon adds them up. Nothing here knows how a place is probed.

pub mod argument;
pub mod histogram;
pub mod row;

use crate::measured::MeasuredThread;

pub use argument::{Argument, Operand};
pub use row::{SpanRow, UsdtRow};

/// What is done at a place: all that its bits say, an end before a start, so that where both are at
/// one place the time from each hit to the next is taken.
pub mod role {
    /// The hit is counted, and the value of the argument taken, if there is one.
    pub const HIT: u32 = 1;
    /// A span starts.
    pub const START: u32 = 2;
    /// A span ends.
    pub const END: u32 = 4;
}

/// A probed place: value of a map whose key is the number of the place, which the program gets with
/// each hit.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceAction {
    /// Number of the USDT point or span, never used again.
    pub item: u32,
    /// Of [`role`].
    pub roles: u32,
    /// The instrumentation that it belongs to, as in [`crate::measured::Cookie`].
    pub instrumentation: u32,
    /// Unused.
    pub padding: u32,
    /// The value of the hit, or the key of the span.
    pub argument: Argument,
}

/// Which row: of a thread's [`UsdtRow`]s and [`SpanRow`]s.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ItemKey {
    /// Whose hits.
    pub thread: MeasuredThread,
    /// Start of the process since boot, nanoseconds.
    pub process_start_boot_ns: u64,
    /// Number of the USDT point or span.
    pub item: u32,
    /// Unused.
    pub padding: u32,
}

/// A span under way.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpenKey {
    /// Start of the process since boot, nanoseconds: keys mean something within a process only.
    pub process_start_boot_ns: u64,
    /// What start and end have in common.
    pub key: u64,
    /// The process's id.
    pub pid: u32,
    /// Number of the span.
    pub span: u32,
}

const _: () = assert!(size_of::<PlaceAction>() == 40);
const _: () = assert!(size_of::<ItemKey>() == 32);
const _: () = assert!(size_of::<OpenKey>() == 24);
