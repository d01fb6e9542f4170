//! How the collector is, for whoever asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_common::limits::CALLS_PER_THREAD;
use profiler_common::{Counter, StackEnd};

#[cfg(test)]
use crate::kernel::TracedSystemCalls;
use crate::kernel::{Attached, KernelSettings, MapCost};
use crate::processes::files::FileCounts;
use crate::processes::live::ProcessCounts;
use crate::profile::input::NamedCounts;
use crate::sys::perf_event::SideBandCounts;
use crate::units::MonoNs;

use super::cost::EstimatedCost;
use super::coverage::WalkCounts;
use super::files_without::FilesWithout;
use super::measuring::MeasuringCounts;
use super::memory::MemoryPart;
use super::outside::OutsideCounts;
use super::spending::SpendingState;
use super::tables::{TableFill, TableReported};
use super::unwinding_state::UnwindingState;

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
    /// Since when a pass waits for programs that were running to end, where one does.
    pub pass_waits_since_ns: Option<MonoNs>,
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
    /// How long threads have lived in this session, all together, nanoseconds, about.
    pub thread_time_ns: u64,
    /// How full the tables are that all processes share.
    pub tables: Vec<TableFill>,
    /// Those that are nearly full, or had no room for something of late.
    pub tables_reported: Vec<TableReported>,
    /// How much memory the collector's parts took at the last pass.
    pub memory: Vec<MemoryPart>,
    /// Bytes that the call trees take.
    pub stack_bytes: u64,
    /// Bytes that the recent past takes.
    pub recent_past_bytes: u64,
    /// What the profile itself counts, by name.
    pub losses: NamedCounts,
    /// Records of threads that could not be read.
    pub unreadable: TornRecords,
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

impl CollectorState {
    /// A counter of the programs.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter as usize).copied().unwrap_or(0)
    }

    /// How many walks of user stacks ended so.
    #[must_use]
    pub fn walks_ended(&self, end: StackEnd) -> u64 {
        let end = end.to_u32() as usize;
        self.walk_ends.get(end).copied().unwrap_or(0)
    }

    /// Elements of a map in use at the last pass; of those that nobody counts 0.
    #[must_use]
    pub fn map_entries(&self, map: &MapCost) -> u64 {
        let fill = |what: &str| {
            let mut fills = self.fill.iter();
            fills
                .find(|(name, _)| *name == what)
                .map_or(0, |(_, count)| *count)
        };
        let free = |elements: u32, used: u64| u64::from(elements).saturating_sub(used + 1);
        let max_threads = self.settings.max_threads;
        let unwinding = self.unwinding.unwrap_or_default();
        match &*map.name {
            "THREADS" => fill("threads"),
            "FREE_SLOTS" => free(max_threads, fill("threads")),
            "SUMS_0" | "SUMS_1" => fill("stacks_per_drain"),
            "CALL_ROWS_BY_INDEX" | "CALL_ROW_INDEX" => fill("system_call_rows"),
            "FREE_CALL_ROWS" => free(
                max_threads.saturating_mul(CALLS_PER_THREAD),
                fill("system_call_rows"),
            ),
            "PROCESSES" => unwinding.processes as u64,
            "MAPPINGS" => u64::from(unwinding.fill.mappings),
            "PAGES" => u64::from(unwinding.fill.pages),
            "TABLES" => u64::from(unwinding.fill.tables),
            _ => 0,
        }
    }

    /// Kernel memory that a map takes, with what it points to, bytes.
    #[must_use]
    pub fn map_bytes(&self, map: &MapCost) -> u64 {
        match (&*map.name, self.unwinding) {
            ("ROW_CHUNKS", Some(unwinding)) => map.bytes + unwinding.fill.allocated_bytes,
            _ => map.bytes,
        }
    }
}

/// Records of threads that were being changed whenever they were looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TornRecords {
    /// Since the start, each once in each pass.
    pub total: u64,
    /// In the last pass that had any.
    pub last: usize,
    /// When that was, monotonic nanoseconds.
    pub last_ns: MonoNs,
}

#[cfg(test)]
impl CollectorState {
    /// That of a collector after so many passes, on whose machine little happens.
    pub(crate) fn made_up(passes: u64) -> Self {
        Self {
            attached: Attached::default(),
            without_ticks: vec![(3, "it came online".to_owned())],
            settings: KernelSettings {
                frequency_hz: 99,
                min_interval_ns: 0,
                system_calls: TracedSystemCalls::All,
                max_threads: 1,
                stacks_per_drain: 1,
                ring_bytes: 4096,
                user_frames: 1,
                mappings: 1,
                unwind_chunks: 1,
            },
            passes,
            failures: 0,
            pass_waits_since_ns: None,
            busy_ns: 0,
            counters: vec![7; Counter::ALL.len()],
            fill: Vec::new(),
            maps: Vec::new(),
            programs: BTreeMap::default(),
            side_band: None,
            processes: ProcessCounts::default(),
            files: FileCounts::default(),
            threads: 1,
            thread_time_ns: 0,
            tables: Vec::new(),
            tables_reported: Vec::new(),
            memory: vec![("frames", 100)],
            stack_bytes: 0,
            recent_past_bytes: 0,
            losses: NamedCounts::default(),
            unreadable: TornRecords::default(),
            walk_ends: Vec::new(),
            coverage: Vec::new(),
            unwinding: None,
            outside: OutsideCounts::default(),
            spending: SpendingState::default(),
            measuring: MeasuringCounts::default(),
            files_without: FilesWithout::default(),
        }
    }
}
