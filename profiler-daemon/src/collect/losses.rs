//! What the collector counts, declared once: name and meaning.

use crate::processes::live::ProcessCounts;
use crate::profile::losses::Loss;
use crate::sys::perf_event::SideBandCounts;

/// Where the collector's counts come from.
#[derive(Clone, Copy, Debug)]
pub struct Sources {
    pub(super) side_band: SideBandCounts,
    pub(super) processes: ProcessCounts,
    pub(super) stacks_refused: u64,
    pub(super) skipped_runs: u64,
}

/// Every counter of the collector.
pub const COLLECTOR_LOSSES: &[Loss<Sources>] = &[
    Loss {
        name: "process_records_lost",
        help: "Records of forks, execs, mappings and exits that found no room in the kernel's ring; /proc is read again.",
        read: |from| from.side_band.lost,
    },
    Loss {
        name: "process_records_malformed",
        help: "Records of these that made no sense.",
        read: |from| from.side_band.malformed,
    },
    Loss {
        name: "processes_vanished",
        help: "Processes that were gone before anything was known of them.",
        read: |from| from.processes.vanished,
    },
    Loss {
        name: "processes_refused",
        help: "Processes that are not followed because too many are.",
        read: |from| from.processes.refused,
    },
    Loss {
        name: "mappings_full",
        help: "Mappings that are not known because their process has too many.",
        read: |from| from.processes.mappings_full,
    },
    Loss {
        name: "addresses_unmapped",
        help: "Addresses on stacks that lay in no known mapping.",
        read: |from| from.processes.unmapped,
    },
    Loss {
        name: "stacks_refused",
        help: "Stacks that were not kept because too many are.",
        read: |from| from.stacks_refused,
    },
    Loss {
        name: "program_runs_skipped",
        help: "Runs of kernel programs that the kernel left out because the same one was preempted on that processor (seen from Linux 7.2 on): system calls that are not counted.",
        read: |from| from.skipped_runs,
    },
];
