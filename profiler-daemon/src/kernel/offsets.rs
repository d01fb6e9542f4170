//! Where the fields lie that the programs read, on the running kernel. Nothing is baked in at
//! compile time.

use tracing::warn;

use super::btf::{Btf, BtfError};
use super::variant::Variant;

/// One field: the program's setting that holds its offset, the struct, and the member's names,
/// newest first.
const FIELDS: &[(&str, &str, &[&str])] = &[
    ("TASK_TID", "task_struct", &["pid"]),
    ("TASK_PID", "task_struct", &["tgid"]),
    ("TASK_FLAGS", "task_struct", &["flags"]),
    ("TASK_STATE", "task_struct", &["__state", "state"]),
    ("TASK_ON_CPU", "task_struct", &["on_cpu"]),
    ("TASK_SWITCHES_GIVEN_UP", "task_struct", &["nvcsw"]),
    ("TASK_SWITCHES_PREEMPTED", "task_struct", &["nivcsw"]),
    ("TASK_COMM", "task_struct", &["comm"]),
    ("TASK_LEADER", "task_struct", &["group_leader"]),
    ("TASK_PARENT", "task_struct", &["real_parent"]),
    ("TASK_START", "task_struct", &["start_time"]),
    (
        "TASK_START_BOOT",
        "task_struct",
        &["start_boottime", "real_start_time"],
    ),
    ("TASK_SIGNAL", "task_struct", &["signal"]),
    ("SIGNAL_LIVE", "signal_struct", &["live"]),
    ("TASK_MIN_FLT", "task_struct", &["min_flt"]),
    ("TASK_MAJ_FLT", "task_struct", &["maj_flt"]),
    ("TASK_CGROUPS", "task_struct", &["cgroups"]),
    ("CSS_SET_CGROUP", "css_set", &["dfl_cgrp"]),
    ("CGROUP_NODE", "cgroup", &["kn"]),
    ("NODE_ID", "kernfs_node", &["id"]),
];

/// The same, of what the kernel remembers of user probes. Without them, stacks end at functions
/// with return probes.
const OF_PROBES: &[(&str, &str, &[&str])] = &[
    ("TASK_PROBES", "task_struct", &["utask"]),
    ("TASK_MEMORY", "task_struct", &["mm"]),
    ("PROBES_AREA_PAGE", "xol_area", &["vaddr"]),
    ("PROBES_RETURNS", "uprobe_task", &["return_instances"]),
    ("PROBES_BELONGS_AT", "uprobe_task", &["vaddr"]),
    ("PROBES_EXECUTED_AT", "uprobe_task", &["xol_vaddr"]),
    ("RETURN_SLOT", "return_instance", &["stack"]),
    ("RETURN_ADDRESS", "return_instance", &["orig_ret_vaddr"]),
    ("RETURN_NEXT", "return_instance", &["next"]),
];

/// The settings of where the scheduler keeps its account of waits in run queues: structs and
/// members, which lie one in the other.
const OF_QUEUES: &[(&str, &[(&str, &str)])] = &[
    (
        "TASK_QUEUED_SINCE",
        &[("task_struct", "sched_info"), ("sched_info", "last_queued")],
    ),
    (
        "TASK_QUEUE_WAITED",
        &[("task_struct", "sched_info"), ("sched_info", "run_delay")],
    ),
    (
        "TASK_QUEUE_PART",
        &[("task_struct", "se"), ("sched_entity", "cfs_rq")],
    ),
    ("PART_QUEUE", &[("cfs_rq", "rq")]),
    ("QUEUE_CLOCK", &[("rq", "clock")]),
];

/// Setting names and offsets in bytes; before 5.17 also where a task's kernel stack begins and how
/// long it is.
///
/// # Errors
/// If a field is missing: then this kernel is not supported, and the error names it.
pub(super) fn find(btf: &Btf<'_>, variant: Variant) -> Result<Vec<(&'static str, u32)>, BtfError> {
    let offset = |(setting, structure, members): &(_, &str, &[&str])| {
        Ok((*setting, btf.offset(structure, members)?))
    };
    let mut found: Vec<_> = FIELDS.iter().map(offset).collect::<Result<_, _>>()?;
    let of_thread = btf.offset("task_struct", &["thread_info"])?;
    found.push((
        "TASK_STATUS",
        of_thread + btf.offset("thread_info", &["status"])?,
    ));
    if variant == Variant::Since517 {
        match of_probes(btf) {
            Ok(of_probes) => found.extend(of_probes),
            Err(error) => warn!("stacks end at functions with return probes: {error}"),
        }
    }
    if variant == Variant::Before517 {
        found.push(("TASK_STACK", btf.offset("task_struct", &["stack"])?));
        // The types do not tell the size of a task's stack. Those of interrupts are made as large,
        // debugging kernels included.
        found.push(("KERNEL_STACK_BYTES", btf.size("irq_stack")?));
    }
    Ok(found)
}

/// Where the scheduler keeps its account of waits in run queues; all of them, or none.
///
/// # Errors
/// If a field is missing.
pub(super) fn of_queues(btf: &Btf<'_>) -> Result<Vec<(&'static str, u32)>, BtfError> {
    let offset = |(setting, path): &(&'static str, &[(&str, &str)])| {
        let steps = path
            .iter()
            .map(|(structure, member)| btf.offset(structure, &[member]));
        Ok((*setting, steps.sum::<Result<u32, BtfError>>()?))
    };
    OF_QUEUES.iter().map(offset).collect()
}

/// All of them, or none.
fn of_probes(btf: &Btf<'_>) -> Result<Vec<(&'static str, u32)>, BtfError> {
    let mut found = Vec::new();
    for (setting, structure, members) in OF_PROBES {
        found.push((*setting, btf.offset(structure, members)?));
    }
    let state = btf.offset("mm_struct", &["uprobes_state"])?;
    let area = btf.offset("uprobes_state", &["xol_area"])?;
    found.push(("MEMORY_PROBES_AREA", state + area));
    Ok(found)
}
