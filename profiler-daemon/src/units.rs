//! Numbers whose meaning a `u64` does not tell: instants of the three clocks, places in files and
//! in memory. What comes from the kernel, from a file or from a request is a plain number until it
//! is read; from there on it has its type, and two of different types are neither compared nor
//! subtracted.
//!
//! Durations are plain nanoseconds, sizes plain bytes. Nothing here reads a clock: `sys::clock`
//! does, and alone leads from one clock to another.

mod instants;
mod number;
mod positions;

pub use instants::{BootNs, MonoNs, UnixNs};
pub use positions::{FileOffset, ModuleAddress, ModuleOffset, VirtualAddress};
