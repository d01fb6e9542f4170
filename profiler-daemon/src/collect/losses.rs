//! What the collector counts, declared once: name and meaning.

use super::convert::Unowned;
use crate::kernel::TickCounts;
use crate::processes::live::ProcessCounts;
use crate::processes::shares::RefusedCounts;
use crate::profile::losses::Loss;
use crate::sys::perf_event::SideBandCounts;

use super::outside::OutsideCounts;

/// Where the collector's counts come from.
#[derive(Clone, Copy, Debug)]
pub struct Sources {
    pub(super) side_band: SideBandCounts,
    pub(super) processes: ProcessCounts,
    pub(super) stacks_refused: RefusedCounts,
    pub(super) skipped_runs: u64,
    pub(super) outside: OutsideCounts,
    pub(super) ticks: TickCounts,
    pub(super) malformed_stacks: u64,
    pub(super) unowned: Unowned,
    pub(super) unreadable: u64,
    pub(super) missed_ends: u64,
    pub(super) untraced_ns: u64,
    pub(super) quota_groups_refused: u64,
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
        read: |from| from.stacks_refused.full,
    },
    Loss {
        name: "stacks_over_share",
        help: "Stacks that were not kept because their process, or all of its user, has its share of those that are known.",
        read: |from| from.stacks_refused.over_share,
    },
    Loss {
        name: "outside_stacks_torn",
        help: "Stacks of waits, found from outside, that were thrown away because the thread ran meanwhile.",
        read: |from| from.outside.torn,
    },
    Loss {
        name: "outside_stacks_late",
        help: "Times that a thread in a long wait was left alone, or its stack is not whole, because memory of its process keeps readers waiting.",
        read: |from| from.outside.late,
    },
    Loss {
        name: "outside_stacks_unreadable",
        help: "Times that the memory of a thread in a long wait could not be read: its stack is not whole.",
        read: |from| from.outside.unreadable,
    },
    Loss {
        name: "program_runs_skipped",
        help: "Runs of kernel programs that the kernel left out because the same one was preempted on that processor (seen from Linux 7.2 on): system calls that are not counted.",
        read: |from| from.skipped_runs,
    },
    Loss {
        name: "ticks_skipped",
        help: "Timer ticks that were due and did not run the program: the kernel leaves it out while another program of its kind runs, or a map is read or written, on that processor, and a virtual processor that is not run has none. Counted while the processor was not idle for about a tenth of a second.",
        read: |from| from.ticks.skipped,
    },
    Loss {
        name: "ticks_restarted",
        help: "Times that a processor was given ticks after the start: it came online, or those that it had stood still because it had been offline, as in a suspended machine. For up to a second it had none.",
        read: |from| from.ticks.restarted,
    },
    Loss {
        name: "ticks_refused",
        help: "Times that the kernel refused to give ticks, or another rate, to a processor that is online; it is asked again a second later.",
        read: |from| from.ticks.refused,
    },
    Loss {
        name: "process_events_refused",
        help: "Times that the kernel refused to tell of process events on a processor that is online; it is asked again a second later.",
        read: |from| from.side_band.refused,
    },
    Loss {
        name: "records_unreadable",
        help: "Times that a thread is in a pass as it was at an earlier one, because its record was being changed all the time (by a program that was preempted, on kernels that do that). `/api/v1/status` says it too, for a minute.",
        read: |from| from.unreadable,
    },
    Loss {
        name: "calls_untraced_ns",
        help: "Nanoseconds in which system calls were not traced: by the configuration, or between samples of them because to trace all would have cost more than the budget. Calls in it are not counted, and running time is divided into user mode and system calls by ticks.",
        read: |from| from.untraced_ns,
    },
    Loss {
        name: "thread_ends_missed",
        help: "Threads whose end was not seen: they were found to be gone, some seconds later on an idle machine, and their time until then counts as if they had lived.",
        read: |from| from.missed_ends,
    },
    Loss {
        name: "stack_records_malformed",
        help: "Records of stacks from the kernel programs that made no sense: their time is under [unknown].",
        read: |from| from.malformed_stacks,
    },
    Loss {
        name: "stack_rows_unowned",
        help: "Rows of time per stack of threads that nobody knows: left out. The time is in the totals of its thread.",
        read: |from| from.unowned.stack_rows,
    },
    Loss {
        name: "call_rows_unowned",
        help: "Rows of system calls, once in each pass, of threads that nobody knows: left out.",
        read: |from| from.unowned.call_rows,
    },
    Loss {
        name: "quota_groups_refused",
        help: "Times that a control group around a process that waited for a processor was not read because too many are known: whether its quota was used up is not told.",
        read: |from| from.quota_groups_refused,
    },
];
