//! What the programs count, processor by processor, since they were loaded.

use aya::maps::{MapData, PerCpuArray};
use profiler_common::counter::COUNTERS;
use profiler_common::records::OnProcessor;
use profiler_common::unwind::WALK_ENDS;
use tracing::warn;

use super::maps::Maps;
use super::refusal::{StartError, tick_refused};
use super::tick_account::ProcessorCounts;
use crate::sys::proc_fs;
use crate::units::MonoNs;

/// The maps of counts. What cannot be read of them counts as 0, and is said in the log.
pub struct Counts {
    counters: PerCpuArray<MapData, [u64; COUNTERS as usize]>,
    current: PerCpuArray<MapData, Current>,
    walk_ends: PerCpuArray<MapData, [u64; WALK_ENDS as usize]>,
    /// The processors that there can be, ascending: the order of the values of a map by processor.
    possible: Vec<u32>,
}

/// What the programs have done since they were loaded, on all processors together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Runs of the two programs at system calls.
    pub call_hooks: u64,
    /// What walks in these have cost, nanoseconds.
    pub call_walks_ns: u64,
    /// Runs of the program at switches.
    pub switches: u64,
    /// What all walks have cost, nanoseconds.
    pub walks_ns: u64,
    /// Of this, those of ticks.
    pub tick_walks_ns: u64,
    /// How long processors were idle, nanoseconds.
    pub idle_ns: u64,
}

impl Work {
    /// What has been done since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            call_hooks: self.call_hooks.saturating_sub(earlier.call_hooks),
            call_walks_ns: self.call_walks_ns.saturating_sub(earlier.call_walks_ns),
            switches: self.switches.saturating_sub(earlier.switches),
            walks_ns: self.walks_ns.saturating_sub(earlier.walks_ns),
            tick_walks_ns: self.tick_walks_ns.saturating_sub(earlier.tick_walks_ns),
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
        }
    }
}

impl Counts {
    /// # Errors
    /// [`StartError`] if a map is missing, or the machine does not tell its processors.
    pub(super) fn new(maps: &mut Maps<'_>) -> Result<Self, StartError> {
        Ok(Self {
            counters: maps.typed("COUNTS")?,
            current: maps.typed("CURRENT")?,
            walk_ends: maps.typed("WALK_ENDS")?,
            possible: proc_fs::possible_cpus().map_err(tick_refused)?,
        })
    }

    /// Counters since the start, in the order of `Counter::ALL`.
    pub(super) fn counters(&self) -> Vec<u64> {
        sums(&self.counters, "the counters")
    }

    /// How walks of user stacks have ended so far, by the number of a `StackEnd`.
    #[must_use]
    pub fn walk_ends(&self) -> Vec<u64> {
        sums(&self.walk_ends, "the counts of how walks ended")
    }

    /// What the programs have done by `now_ns`, monotonic nanoseconds.
    #[must_use]
    pub fn work(&self, now_ns: MonoNs) -> Work {
        let mut work = Work::default();
        match self.current.get(&0, 0) {
            Ok(values) => {
                for value in values.iter().map(|current| &current.0) {
                    work.call_hooks += value.call_hooks;
                    work.call_walks_ns += value.call_walks_ns;
                    work.switches += value.switches;
                    work.walks_ns += value.walks.spent_ns;
                    work.tick_walks_ns += value.walks.ticks_spent_ns;
                    work.idle_ns += value.idle_by(now_ns.ns()).unwrap_or(0);
                }
            }
            Err(error) => warn!("what the programs have done cannot be read: {error}"),
        }
        work
    }

    /// What they know of each processor now.
    pub(super) fn processors(&self) -> Processors<'_> {
        let current = self.current.get(&0, 0);
        if let Err(error) = &current {
            warn!("the ticks cannot be counted: {error}");
        }
        Processors {
            possible: &self.possible,
            current: current.map(|values| values.to_vec()).unwrap_or_default(),
        }
    }
}

/// The counts of a map, processors together. `what`: what they are, for the log.
fn sums<const N: usize>(map: &PerCpuArray<MapData, [u64; N]>, what: &str) -> Vec<u64> {
    let mut sums = vec![0; N];
    match map.get(&0, 0) {
        Ok(values) => {
            for counts in values.iter() {
                for (sum, count) in sums.iter_mut().zip(counts) {
                    *sum += count;
                }
            }
        }
        Err(error) => warn!("{what} cannot be read: {error}"),
    }
    sums
}

/// What the programs know of each processor, read at one moment.
pub(super) struct Processors<'a> {
    /// Those that there can be, ascending: the order of the values.
    possible: &'a [u32],
    /// What they are at, and were. Empty where that cannot be read.
    current: Vec<Current>,
}

impl Processors<'_> {
    /// What is known of the ticks of `cpu`. `now_ns` is when they were read, or earlier.
    pub(super) fn seen(&self, cpu: u32, now_ns: MonoNs) -> Option<ProcessorCounts> {
        let position = self.possible.binary_search(&cpu).ok()?;
        let Current(current) = self.current.get(position)?;
        Some(ProcessorCounts {
            ticks: current.ticks,
            idle_ns: current.idle_by(now_ns.ns()),
        })
    }
}

/// A value of `CURRENT`.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
struct Current(OnProcessor);

// SAFETY: transparent over plain data.
unsafe impl aya::Pod for Current {}
