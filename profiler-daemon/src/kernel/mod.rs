//! The kernel stage: loads the programs, attaches them, and drains what they keep. The only stage that knows aya.
//!
//! `offsets` (from the running kernel's BTF) -> `load` -> `attach` -> `drain` (once a second) -> [`Pass`]. Beside it `ticks`, which change
//! all the time.

mod attach;
mod batch;
mod btf;
mod call_rows;
mod calls;
mod cost;
mod drain;
mod extents;
mod load;
mod log;
mod looks;
mod offsets;
mod phantoms;
mod readmission;
mod records;
mod refusal;
mod row_finder;
mod targets;
mod thread_snapshot;
mod tick_account;
mod tick_schedule;
mod ticks;
mod unwind_maps;
mod variant;

pub use attach::Attached;
pub use calls::Work;
pub use cost::{MapCost, ProgramCost};
pub use drain::{Missing, Pass, RawStack, StackSum};
pub use load::{Kernel, KernelSettings, SystemCalls};
pub use looks::OutsideLook;
pub use refusal::StartError;
pub use row_finder::RowFinder;
pub use targets::{NamedTargets, TargetError, control_groups};
pub use thread_snapshot::{AwaitedStack, AwayStack, CallUnderWay, ThreadSnapshot, UnwalkedWait};
pub use ticks::TickCounts;
pub use unwind_maps::{MappingRange, Published, UnwindFill};
pub use variant::has_loops;
