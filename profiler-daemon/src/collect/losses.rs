//! What the collector counts, declared once: name and meaning.

use crate::kernel::Kernel;
use crate::processes::live::ProcessCounts;
use crate::profile::input::Counts;
use crate::sys::perf_event::SideBandCounts;

/// Where the collector's counts come from.
pub(super) struct Sources<'a> {
    pub(super) side_band: SideBandCounts,
    pub(super) processes: ProcessCounts,
    pub(super) stacks_refused: u64,
    pub(super) kernel: &'a Kernel,
}

/// A counter of the collector.
pub struct CollectorLoss {
    /// Its name in reports and metrics.
    pub name: &'static str,
    /// What is counted, as a sentence.
    pub help: &'static str,
    read: fn(&Sources<'_>) -> u64,
}

/// Every counter of the collector.
pub const COLLECTOR_LOSSES: &[CollectorLoss] = &[
    CollectorLoss {
        name: "process_records_lost",
        help: "Records of forks, execs, mappings and exits that found no room in the kernel's ring; /proc is read again.",
        read: |from| from.side_band.lost,
    },
    CollectorLoss {
        name: "process_records_malformed",
        help: "Records of these that made no sense.",
        read: |from| from.side_band.malformed,
    },
    CollectorLoss {
        name: "processes_vanished",
        help: "Processes that were gone before anything was known of them.",
        read: |from| from.processes.vanished,
    },
    CollectorLoss {
        name: "processes_refused",
        help: "Processes that are not followed because too many are.",
        read: |from| from.processes.refused,
    },
    CollectorLoss {
        name: "mappings_full",
        help: "Mappings that are not known because their process has too many.",
        read: |from| from.processes.mappings_full,
    },
    CollectorLoss {
        name: "addresses_unmapped",
        help: "Addresses on stacks that lay in no known mapping.",
        read: |from| from.processes.unmapped,
    },
    CollectorLoss {
        name: "stacks_refused",
        help: "Stacks that were not kept because too many are.",
        read: |from| from.stacks_refused,
    },
    CollectorLoss {
        name: "program_runs_skipped",
        help: "Runs of kernel programs that the kernel left out because the same one was preempted on that processor (seen from Linux 7.2 on): system calls that are not counted.",
        read: |from| from.kernel.skipped_runs(),
    },
];

/// The counts, by name.
pub(super) fn losses(from: &Sources<'_>) -> Counts {
    COLLECTOR_LOSSES
        .iter()
        .map(|loss| (loss.name, (loss.read)(from)))
        .collect()
}
