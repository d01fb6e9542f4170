//! What the metrics are made from: what each part of the daemon says of itself, as it is.

use profiler_common::Counter;

use super::requests::RequestCounts;
use crate::{
    collect::{CollectorState, MemoryPart, UnwindingState},
    config::Config,
    profile::{groups::GroupsView, snapshot::Snapshot},
    symbols::{lines::finder::LineCounts, symbolizer::SymbolCounts},
    sys::{heartbeat::Pulse, own_cost::ResourceUsage},
    units::UnixNs,
};

/// Everything that one scrape tells.
#[derive(Debug, Clone, Copy)]
pub struct MetricsInput<'a> {
    /// The daemon's version.
    pub version: &'a str,
    /// The kernel's release.
    pub kernel_release: &'a str,
    /// The settings in force.
    pub config: &'a Config,
    /// How many features work less well than they should.
    pub degraded_features: usize,
    /// How the threads are.
    pub pulses: &'a [Pulse],
    /// The collector; `None` before the first pass.
    pub state: Option<&'a CollectorState>,
    /// The profile, likewise.
    pub snapshot: Option<&'a Snapshot>,
    /// Groups of processes in it.
    pub groups: Option<&'a GroupsView>,
    /// Names of functions.
    pub symbols: SymbolCounts,
    /// Lines of source.
    pub lines: LineCounts,
    /// What the daemon's own process has used.
    pub own: ResourceUsage,
    /// Files that it holds open, and how many it may.
    pub open_files: (u64, u64),
    /// When it started, nanoseconds since 1970.
    pub started_unix_ns: UnixNs,
    /// Where its resident memory is.
    pub memory: &'a [MemoryPart],
    /// What the server has answered.
    pub requests: &'a RequestCounts,
}

impl MetricsInput<'_> {
    /// What the collector says; nothing where it is not there yet.
    pub(super) fn state<T: Default>(&self, read: impl FnOnce(&CollectorState) -> T) -> T {
        self.state.map(read).unwrap_or_default()
    }

    /// What the profile says, likewise.
    pub(super) fn snapshot<T: Default>(&self, read: impl FnOnce(&Snapshot) -> T) -> T {
        self.snapshot.map(read).unwrap_or_default()
    }

    /// What the groups say, likewise.
    pub(super) fn groups<T: Default>(&self, read: impl FnOnce(&GroupsView) -> T) -> T {
        self.groups.map(read).unwrap_or_default()
    }

    /// A counter of the programs.
    pub(super) fn counter(&self, counter: Counter) -> u64 {
        self.state(|state| state.counter(counter))
    }

    /// What is known of unwinding; nothing where the kernel cannot use tables.
    pub(super) fn unwinding(&self) -> UnwindingState {
        self.state(|state| state.unwinding.unwrap_or_default())
    }

    /// Processes that run, and those that exited and are still reported.
    pub(super) fn processes(&self) -> (usize, usize) {
        self.snapshot(|snapshot| {
            let processes = snapshot.processes().values();
            let has_exited = processes.map(|process| process.info.exited_at_unix_ns.is_some());
            let exited = has_exited.filter(|exited| *exited).count();
            (snapshot.processes().len() - exited, exited)
        })
    }
}
