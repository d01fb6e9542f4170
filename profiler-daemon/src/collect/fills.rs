//! How full the tables are of which a process could take what others need: all that have no least
//! recent that could give way.

use profiler_common::Counter;
use profiler_common::limits::{CALLS_PER_THREAD, MAX_MAPPED_PROCESSES};

use crate::kernel::{Kernel, Pass};
use crate::processes::live::{MAX_PROCESSES, Processes};
use crate::processes::module::{MAX_MODULE_TEXT_BYTES, MAX_MODULES};
use crate::profile::frames::FrameTable;

use super::stacks::{MAX_STACKS, StackCache};
use super::tables::TableFill;
use super::unwinding_state::UnwindingState;

fn size(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// All of them as of a pass.
pub(super) fn of_pass(
    (kernel, pass): (&Kernel, &Pass),
    (processes, stacks, frames): (&Processes, &StackCache, &FrameTable),
    unwinding: Option<&UnwindingState>,
) -> Vec<TableFill> {
    let settings = kernel.settings();
    let counted = |counters: &[Counter]| -> u64 {
        let counts = counters.iter();
        let counts = counts.filter_map(|counter| pass.counters.get(*counter as usize));
        counts.sum()
    };
    let in_kernel = |name: &str| {
        let mut fill = pass.fill.iter().filter(|(of, _)| *of == name);
        fill.next().map_or(0, |(_, used)| *used)
    };
    let [user, of_kernel] = stacks.known().map(size);
    let [user_refused, kernel_refused] = stacks.refused_of_each().map(|refused| refused.total());
    let modules = processes.modules();
    let mut fills = vec![
        TableFill {
            table: "frames",
            holds: "frames",
            used: size(frames.len()),
            limit: size(frames.limit()),
            refused: frames.refused().total(),
            consequence: "functions of what finds none are [unknown] (frames_full, frames_over_share)",
        },
        TableFill {
            table: "user_stacks",
            holds: "user stacks",
            used: user,
            limit: size(MAX_STACKS),
            refused: user_refused,
            consequence: "time of what finds none is [unknown] (stacks_refused, stacks_over_share)",
        },
        TableFill {
            table: "kernel_stacks",
            holds: "kernel stacks",
            used: of_kernel,
            limit: size(MAX_STACKS),
            refused: kernel_refused,
            consequence: "time of what finds none is [unknown] (stacks_refused, stacks_over_share)",
        },
        TableFill {
            table: "modules",
            holds: "modules",
            used: size(modules.len()),
            limit: size(MAX_MODULES),
            refused: modules.refused().total(),
            consequence: "functions of what finds none are [unknown] (modules_full, modules_over_share)",
        },
        TableFill {
            table: "module_text",
            holds: "names of modules, in bytes",
            used: size(modules.text_bytes()),
            limit: size(MAX_MODULE_TEXT_BYTES),
            // Counted with the modules.
            refused: 0,
            consequence: "functions of what finds none are [unknown] (modules_full, modules_over_share)",
        },
        TableFill {
            table: "processes",
            holds: "processes",
            used: size(processes.len()),
            limit: size(MAX_PROCESSES),
            refused: processes.counts().refused,
            consequence: "functions of what finds none are [unknown] (processes_refused)",
        },
        TableFill {
            table: "threads",
            holds: "threads",
            used: in_kernel("threads"),
            limit: u64::from(settings.max_threads),
            refused: counted(&[Counter::ThreadsNoRecord]),
            consequence: "what finds none is not observed (threads_no_record); limits.max_threads makes more",
        },
        TableFill {
            table: "call_rows",
            holds: "rows of system calls",
            used: in_kernel("system_call_rows"),
            limit: u64::from(settings.max_threads) * u64::from(CALLS_PER_THREAD),
            refused: counted(&[Counter::CallRowsFull]),
            consequence: "calls without one are not told by name (call_rows_full); limits.max_threads makes more",
        },
        TableFill {
            table: "stack_rows",
            holds: "rows of stacks between two reads",
            used: in_kernel("stacks_per_drain"),
            limit: u64::from(settings.stacks_per_drain),
            refused: counted(&[
                Counter::SamplesMapFull,
                Counter::WalksMapFull,
                Counter::WaitsMapFull,
            ]),
            consequence: "time of what finds none is [unknown: not_kept] (samples_map_full, walks_map_full, waits_map_full); \
                limits.stack_entries makes more",
        },
    ];
    fills.extend(unwinding.into_iter().flat_map(|unwinding| {
        [
            TableFill {
                table: "mappings",
                holds: "mappings that stacks are followed by",
                used: u64::from(unwinding.fill.mappings),
                limit: u64::from(settings.mappings),
                refused: unwinding.mappings_full,
                consequence: "stacks of processes that find none end early (no_mapping); limits.mappings makes more",
            },
            TableFill {
                table: "mapped_processes",
                holds: "processes whose stacks are followed",
                used: size(unwinding.processes),
                limit: u64::from(MAX_MAPPED_PROCESSES),
                refused: counted(&[Counter::MappedProcessesFull]),
                consequence: "stacks of those that find none end early (mapped_processes_full)",
            },
        ]
    }));
    fills
}
