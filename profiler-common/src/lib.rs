//! What both sides of the kernel boundary know, and nothing else: the thread clock, the records
//! kept in maps, the limits, the counters and the step of the stack walker. No I/O, no allocation,
//! no time source: time is an argument.
//!
//! Words, once for the whole project: `pid` is a process (what the kernel calls tgid), `tid` a
//! thread (what the kernel calls pid). `*_ns` are nanoseconds of CLOCK_MONOTONIC unless a name says
//! `boot`.
#![no_std]

#[cfg(any(test, feature = "user"))]
extern crate std;

pub mod call_numbers;
pub mod clock;
pub mod counter;
#[cfg(any(test, feature = "user"))]
pub mod division;
mod gaps;
pub mod kinds;
pub mod limits;
pub mod marks;
pub mod measured;
mod named;
pub mod outside;
pub mod queue_clock;
pub mod records;
pub mod spans;
pub mod unwind;
pub mod walk_budget;

pub use clock::{CLASS_COUNT, Class, ClassNs, Phase, ThreadClock};
pub use counter::Counter;
pub use unwind::StackEnd;

#[cfg(test)]
mod simulation;
