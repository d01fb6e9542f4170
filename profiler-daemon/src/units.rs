//! Numbers whose meaning a `u64` does not tell: the instants of the three clocks. What comes from
//! the kernel, from a file or from a request is a plain number until it is read; from there on it
//! has its type, and two of different types are neither compared nor subtracted.
//!
//! Durations are plain nanoseconds, and end in `_ns`. Nothing here reads a clock: `sys::clock`
//! does, and alone leads from one clock to another.

mod instants;

pub use instants::{BootNs, MonoNs, UnixNs};
