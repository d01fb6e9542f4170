//! Where the fields lie that the programs read, on the running kernel. Nothing is baked in at
//! compile time.

use profiler_common::unwind::{
    GAP_RANGE_META, GAP_RANGE_SLOTS, NODE_WORDS, PIVOTS, RANGE_META, RANGE_SLOTS,
};
use tracing::{debug, warn};

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
    ("PROBES_AREA_PAGE", "xol_area", &["vaddr"]),
    ("PROBES_RETURNS", "uprobe_task", &["return_instances"]),
    ("PROBES_BELONGS_AT", "uprobe_task", &["vaddr"]),
    ("PROBES_EXECUTED_AT", "uprobe_task", &["xol_vaddr"]),
    ("RETURN_SLOT", "return_instance", &["stack"]),
    ("RETURN_ADDRESS", "return_instance", &["orig_ret_vaddr"]),
    ("RETURN_NEXT", "return_instance", &["next"]),
];

/// The same, of a process's memory. Without them, the walker knows of a mapping what the daemon has
/// told it.
const OF_AREAS: &[(&str, &str, &[&str])] = &[
    ("AREA_START", "vm_area_struct", &["vm_start"]),
    ("AREA_END", "vm_area_struct", &["vm_end"]),
    ("AREA_OFFSET", "vm_area_struct", &["vm_pgoff"]),
    ("AREA_FLAGS", "vm_area_struct", &["vm_flags"]),
    ("AREA_OPERATIONS", "vm_area_struct", &["vm_ops"]),
    ("AREA_FILE", "vm_area_struct", &["vm_file"]),
    ("FILE_INODE", "file", &["f_inode"]),
    ("ENTRY_INODE", "dentry", &["d_inode"]),
    ("INODE_FILE_SYSTEM", "inode", &["i_sb"]),
    ("FILE_SYSTEM_DEVICE", "super_block", &["s_dev"]),
    ("INODE_NUMBER", "inode", &["i_ino"]),
    ("INODE_SIZE", "inode", &["i_size"]),
];

/// The setting by which the programs know whether the others of them are there.
const ROOT_OF_AREAS: &str = "MEMORY_AREAS";

/// What a node of the tree of areas must look like for `profiler_common::unwind::NodeRef` to find
/// its slots: struct, member, word.
const NODES: &[(&str, &str, usize)] = &[
    ("maple_range_64", "pivot", PIVOTS),
    ("maple_range_64", "slot", RANGE_SLOTS),
    ("maple_range_64", "meta", RANGE_META),
    ("maple_arange_64", "pivot", PIVOTS),
    ("maple_arange_64", "slot", GAP_RANGE_SLOTS),
    ("maple_arange_64", "meta", GAP_RANGE_META),
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
        found.push(("TASK_MEMORY", btf.offset("task_struct", &["mm"])?));
        match of_areas(btf) {
            Ok(of_areas) => found.extend(of_areas),
            // Before Linux 6.1 they are kept in another way.
            Err(error) => debug!("what processes map is heard of only: {error}"),
        }
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

/// Whether the walker can read what a process has mapped.
pub(super) fn has_areas(found: &[(&'static str, u32)]) -> bool {
    found.iter().any(|(setting, _)| *setting == ROOT_OF_AREAS)
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

/// Where the kernel keeps what a process has mapped; all of it, or nothing.
fn of_areas(btf: &Btf<'_>) -> Result<Vec<(&'static str, u32)>, BtfError> {
    let word = |word: usize| (word * size_of::<u64>()) as u32;
    for (structure, member, at) in NODES {
        if btf.offset(structure, &[member])? != word(*at) {
            return Err(BtfError::OtherLayout((*structure).to_owned()));
        }
    }
    if btf.size("maple_node")? != word(NODE_WORDS) {
        return Err(BtfError::OtherLayout("maple_node".to_owned()));
    }
    let mut found = Vec::new();
    for (setting, structure, members) in OF_AREAS {
        found.push((*setting, btf.offset(structure, members)?));
    }
    let (seconds, nanoseconds) = match btf.offset("inode", &["i_mtime_sec"]) {
        Ok(seconds) => (seconds, btf.offset("inode", &["i_mtime_nsec"])?),
        // Before 6.11.
        Err(_) => {
            let time = btf.offset("inode", &["__i_mtime", "i_mtime"])?;
            let part = |member| Ok(time + btf.offset("timespec64", &[member])?);
            (part("tv_sec")?, part("tv_nsec")?)
        }
    };
    found.push(("INODE_MODIFIED_S", seconds));
    found.push(("INODE_MODIFIED_NS", nanoseconds));
    if let Ok(path) = btf.offset("backing_file", &["user_path"]) {
        let entry = path + btf.offset("path", &["dentry"])?;
        found.push(("BACKING_ENTRY", entry));
    }
    let root = btf.offset("mm_struct", &["mm_mt"])? + btf.offset("maple_tree", &["ma_root"])?;
    found.push((ROOT_OF_AREAS, root));
    Ok(found)
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
