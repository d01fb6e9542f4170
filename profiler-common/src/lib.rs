//! What both sides of the kernel boundary know, and nothing else: the thread clock, the records kept in maps,
//! the limits, the counters and the step of the stack walker. No I/O, no allocation, no time source: time is an argument.
//!
//! Words, once for the whole project: `pid` is a process (what the kernel calls tgid), `tid` a thread (what the kernel
//! calls pid). `*_ns` are nanoseconds of CLOCK_MONOTONIC unless a name says `boot`.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod attribution;
pub mod clock;
pub mod counter;
pub mod limits;
pub mod records;
pub mod unwind;

pub use clock::{CLASS_COUNT, Class, ClassNs, Phase, ThreadClock};
pub use counter::Counter;
pub use unwind::StackEnd;
