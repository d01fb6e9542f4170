//! How the collector is, for whoever asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kernel::{Attached, KernelSettings, MapCost};
use crate::processes::files::FileCounts;
use crate::processes::live::ProcessCounts;
use crate::profile::input::Counts;
use crate::sys::perf_event::SideBandCounts;
use crate::units::MonoNs;

use super::cost::EstimatedCost;
use super::coverage::WalkCounts;
use super::files_without::FilesWithout;
use super::measuring::MeasuringCounts;
use super::memory::MemoryPart;
use super::outside::OutsideCounts;
use super::spending::SpendingState;
use super::tables::{TableFill, TableTold};
use super::unwinding::UnwindingState;

/// How the collector is.
#[derive(Clone, Debug)]
pub struct CollectorState {
    /// What is attached.
    pub attached: Attached,
    /// Processors that are online and have no ticks, and why.
    pub without_ticks: Vec<(u32, String)>,
    /// The settings of the programs.
    pub settings: KernelSettings,
    /// Passes that ended.
    pub passes: u64,
    /// Passes that failed.
    pub failures: u64,
    /// Time spent on passes, nanoseconds.
    pub busy_ns: u64,
    /// Counters of the programs as of the last pass, in the order of `Counter::ALL`.
    pub counters: Vec<u64>,
    /// Elements in use at the last pass, by what.
    pub fill: Vec<(&'static str, u64)>,
    /// The maps.
    pub maps: Vec<MapCost>,
    /// Estimated cost of the programs.
    pub programs: BTreeMap<String, EstimatedCost>,
    /// How the side-band went; `None` without one.
    pub side_band: Option<SideBandCounts>,
    /// How following processes went.
    pub processes: ProcessCounts,
    /// How opening their files went.
    pub files: FileCounts,
    /// Living threads at the last pass.
    pub threads: usize,
    /// How full the tables are that all processes share.
    pub tables: Vec<TableFill>,
    /// Those that are nearly full, or had no room for something of late.
    pub tables_told: Vec<TableTold>,
    /// How much memory the collector's parts took at the last pass.
    pub memory: Vec<MemoryPart>,
    /// Bytes that the call trees take.
    pub stack_bytes: u64,
    /// Bytes that the recent past takes.
    pub recent_past_bytes: u64,
    /// What the profile itself counts, by name.
    pub losses: Counts,
    /// Records of threads that could not be read.
    pub unreadable: Unreadable,
    /// How walks of user stacks ended, by the number of a `StackEnd`, as of the last pass.
    pub walk_ends: Vec<u64>,
    /// The same by executable, most walked first.
    pub coverage: Vec<(Arc<str>, WalkCounts)>,
    /// Unwind tables; `None` where the kernel cannot use them.
    pub unwinding: Option<UnwindingState>,
    /// Stacks found from outside.
    pub outside: OutsideCounts,
    /// What profiling costs.
    pub spending: SpendingState,
    /// How measuring functions goes.
    pub measuring: MeasuringCounts,
    /// Files whose unwind information could not be used.
    pub files_without: FilesWithout,
}

/// Records of threads that were being changed whenever they were looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// Since the start, each once in each pass.
    pub total: u64,
    /// In the last pass that had any.
    pub last: usize,
    /// When that was, monotonic nanoseconds.
    pub last_ns: MonoNs,
}
