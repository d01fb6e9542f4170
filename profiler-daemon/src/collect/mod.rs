//! The middle of the daemon: turns what the kernel stage drains into the profile, once a second and
//! when asked.
//!
//! `kernel::Pass` + side-band events -> stacks as module + offset while the process is known ->
//! `profile::DrainPass`. One thread owns all of it, so nothing here is locked; others send it
//! [`Command`]s.

mod asking;
mod backoff;
mod budget;
mod callers;
mod collector;
mod command;
mod convert;
mod cost;
mod coverage;
mod descendants;
mod descriptions;
mod files_without;
mod fills;
mod losses;
mod measuring;
mod memory;
mod nameless_code;
mod naming;
mod options;
mod outside;
mod own_frames;
mod pass_quota;
mod prices;
mod process_walks;
mod processors;
mod quotas;
mod retries;
mod row_reservations;
mod spanning;
mod spending;
mod stacks;
mod state;
mod sweep;
mod table_queue;
mod table_state;
mod tables;
mod targets;
mod unwinding;
mod unwinding_state;
mod walk_parts;
mod walked_files;

pub use budget::{Budget, Tracing};
pub use callers::Callers;
pub use collector::Collector;
pub use command::{Command, Commander, Gone, Reply, SessionUnchanged, TargetsRefused};
pub use cost::EstimatedCost;
pub use coverage::{WalkCounts, WalksByExecutable};
pub use files_without::{FileWithout, FilesWithout, FollowedBy};
pub use losses::{COLLECTOR_LOSSES, Sources};
pub use measuring::{
    End, InstrumentationCommand, InstrumentationError, InstrumentationState, MAX_KEPT,
    MeasuredFunction, MeasuredFunctions, MeasuringCounts, MoreFunctions, Plan, PlannedFunction,
    PlannedPoint, RefusedFunction, Stage, Untold,
};
pub use memory::MemoryPart;
pub use options::{CollectorOptions, heartbeat};
pub use outside::OutsideCounts;
pub use prices::Prices;
pub use spanning::{PlannedItem, PlannedPlace, Traced, TracedItem, TracedPlace, planned};
pub use spending::SpendingState;
pub use state::{CollectorState, TornRecords};
pub use tables::{TableFill, TableReported};
pub use unwinding_state::UnwindingState;
