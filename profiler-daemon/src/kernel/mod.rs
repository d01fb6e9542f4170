//! The kernel stage: loads the programs, attaches them, and drains what they keep. The only stage that knows aya.
//!
//! `offsets` (from the running kernel's BTF) -> `load` -> `attach` -> `drain` (once a second) -> [`Pass`].

mod attach;
mod batch;
mod btf;
mod cost;
mod drain;
mod extents;
mod load;
mod log;
mod offsets;
mod records;
mod refusal;
mod targets;
mod unwind_maps;
mod variant;

pub use attach::{Attached, online_processors};
pub use cost::{MapCost, ProgramCost};
pub use drain::{AwayStack, Pass, RawStack, StackSum, SyscallSnapshot, ThreadSnapshot};
pub use load::{Kernel, KernelSettings, SystemCalls};
pub use refusal::StartError;
pub use targets::{NamedTargets, TargetError};
pub use unwind_maps::{MappingRange, Published, UnwindFill};
pub use variant::has_loops;
