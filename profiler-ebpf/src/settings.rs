//! Values frozen before load: the daemon overrides them (kernel/load.rs), the kernel makes the
//! section read-only, and the verifier then treats each as a constant. Offsets come from the
//! running kernel's BTF; none is baked in.

macro_rules! frozen {
    ($($(#[doc = $doc:literal])+ $reader:ident, $name:ident: $type:ty = $default:expr;)+) => {
        $(
            $(#[doc = $doc])+
            #[unsafe(no_mangle)]
            static $name: $type = $default;

            $(#[doc = $doc])+
            #[inline(always)]
            pub fn $reader() -> $type {
                // SAFETY: a static of this program. Volatile, because the compiler would otherwise
                // use the default.
                unsafe { core::ptr::read_volatile(&raw const $name) }
            }
        )+
    };
}

frozen! {
    /// The mean gap between two marks, nanoseconds (configuration `min_interval`).
    min_interval_ns, MIN_INTERVAL_NS: u64 = 1_000_000;

    /// Where the budget is short, one of `1 << max_tick_shift` ticks is walked at least.
    max_tick_shift, MAX_TICK_SHIFT: u32 = 0;

    /// Not 0: something may be kept with a task at a switch too, where there was nothing.
    create_at_switch, CREATE_AT_SWITCH: u32 = 1;

    /// Offset of `task_struct.pid`: the thread's id.
    task_tid, TASK_TID: u32 = 0;
    /// Offset of `task_struct.tgid`: the process's id.
    task_pid, TASK_PID: u32 = 0;
    /// Offset of `task_struct.flags`.
    task_flags, TASK_FLAGS: u32 = 0;
    /// Offset of `task_struct.thread_info.status`.
    task_status, TASK_STATUS: u32 = 0;
    /// Offset of `task_struct.__state` (`state` before 5.14).
    task_state, TASK_STATE: u32 = 0;
    /// Offset of `task_struct.on_cpu`.
    task_on_cpu, TASK_ON_CPU: u32 = 0;
    /// Offset of `task_struct.nvcsw`: how often it gave its processor up.
    task_switches_given_up, TASK_SWITCHES_GIVEN_UP: u32 = 0;
    /// Offset of `task_struct.nivcsw`: how often it was preempted.
    task_switches_preempted, TASK_SWITCHES_PREEMPTED: u32 = 0;
    /// Offset of `task_struct.comm`.
    task_comm, TASK_COMM: u32 = 0;
    /// Offset of `task_struct.group_leader`.
    task_leader, TASK_LEADER: u32 = 0;
    /// Offset of `task_struct.real_parent`.
    task_parent, TASK_PARENT: u32 = 0;
    /// Offset of `task_struct.start_time`: monotonic.
    task_start, TASK_START: u32 = 0;
    /// Offset of `task_struct.start_boottime` (`real_start_time` before 5.5).
    task_start_boot, TASK_START_BOOT: u32 = 0;
    /// Offset of `task_struct.signal`.
    task_signal, TASK_SIGNAL: u32 = 0;
    /// Offset of `signal_struct.live`: threads that have not begun to exit.
    signal_live, SIGNAL_LIVE: u32 = 0;
    /// Offset of `task_struct.min_flt`: page faults without a wait for a device.
    task_min_faults, TASK_MIN_FLT: u32 = 0;
    /// Offset of `task_struct.maj_flt`: those with one.
    task_maj_faults, TASK_MAJ_FLT: u32 = 0;
    /// Offset of `task_struct.cgroups`.
    task_cgroups, TASK_CGROUPS: u32 = 0;
    /// Offset of `css_set.dfl_cgrp`.
    css_set_cgroup, CSS_SET_CGROUP: u32 = 0;
    /// Offset of `cgroup.kn`.
    cgroup_node, CGROUP_NODE: u32 = 0;
    /// Offset of `kernfs_node.id`.
    node_id, NODE_ID: u32 = 0;
}

#[cfg(not(feature = "before_5_17"))]
frozen! {
    /// Offset of `task_struct.utask`: what the kernel remembers of the thread's user probes. 0, as
    /// all of these are then: not known, and stacks end at return probes.
    task_probes, TASK_PROBES: u32 = 0;
    /// Offset of `mm_struct.uprobes_state.xol_area`.
    memory_probes_area, MEMORY_PROBES_AREA: u32 = 0;
    /// Offset of `xol_area.vaddr`: where the page of that area is.
    probes_area_page, PROBES_AREA_PAGE: u32 = 0;
    /// Offset of `uprobe_task.return_instances`: return addresses that were replaced.
    probes_returns, PROBES_RETURNS: u32 = 0;
    /// Offset of `uprobe_task.vaddr`: where an instruction belongs that is executed elsewhere.
    probes_belongs_at, PROBES_BELONGS_AT: u32 = 0;
    /// Offset of `uprobe_task.xol_vaddr`: where it is executed.
    probes_executed_at, PROBES_EXECUTED_AT: u32 = 0;
    /// Offset of `return_instance.stack`.
    return_slot, RETURN_SLOT: u32 = 0;
    /// Offset of `return_instance.orig_ret_vaddr`.
    return_address, RETURN_ADDRESS: u32 = 0;
    /// Offset of `return_instance.next`.
    return_next, RETURN_NEXT: u32 = 0;
}

#[cfg(not(feature = "before_5_17"))]
frozen! {
    /// Offset of `task_struct.sched_info.last_queued`: since when it is in a run queue without a
    /// processor, by the queue's clock. 0, as all of these are then: the scheduler keeps no such
    /// account, and wakes are traced instead.
    task_queued_since, TASK_QUEUED_SINCE: u32 = 0;
    /// Offset of `task_struct.sched_info.run_delay`: how long it was, in all, up to its last
    /// arrival on a processor or move to another queue.
    task_queue_waited, TASK_QUEUE_WAITED: u32 = 0;
    /// Offset of `task_struct.se.cfs_rq`: the part of a run queue of its processor, whatever its
    /// scheduling class.
    task_queue_part, TASK_QUEUE_PART: u32 = 0;
    /// Offset of `cfs_rq.rq`: the run queue.
    part_queue, PART_QUEUE: u32 = 0;
    /// Offset of `rq.clock`: what the scheduler reads for switches and wakes.
    queue_clock, QUEUE_CLOCK: u32 = 0;
}

#[cfg(not(feature = "before_5_17"))]
frozen! {
    /// Offset of `task_struct.mm`.
    task_memory, TASK_MEMORY: u32 = 0;
    /// Offset of `mm_struct.mm_mt.ma_root`: the root of the tree of a process's areas. 0, as all of
    /// these are then: the tree is another one (before Linux 6.1), and is not read.
    memory_areas, MEMORY_AREAS: u32 = 0;
    /// Offset of `vm_area_struct.vm_start`.
    area_start, AREA_START: u32 = 0;
    /// Offset of `vm_area_struct.vm_end`.
    area_end, AREA_END: u32 = 0;
    /// Offset of `vm_area_struct.vm_pgoff`: where in the file it begins, in pages.
    area_offset, AREA_OFFSET: u32 = 0;
    /// Offset of `vm_area_struct.vm_flags`.
    area_flags, AREA_FLAGS: u32 = 0;
    /// Offset of `vm_area_struct.vm_ops`: 0 in areas of no file and no driver.
    area_operations, AREA_OPERATIONS: u32 = 0;
    /// Offset of `vm_area_struct.vm_file`.
    area_file, AREA_FILE: u32 = 0;
    /// Offset of `file.f_inode`.
    file_inode, FILE_INODE: u32 = 0;
    /// Offset of `backing_file.user_path.dentry`: the file of an overlay that this one lies behind.
    /// 0: it is not known (before 6.8).
    backing_entry, BACKING_ENTRY: u32 = 0;
    /// Offset of `dentry.d_inode`.
    entry_inode, ENTRY_INODE: u32 = 0;
    /// Offset of `inode.i_sb`.
    inode_file_system, INODE_FILE_SYSTEM: u32 = 0;
    /// Offset of `super_block.s_dev`.
    file_system_device, FILE_SYSTEM_DEVICE: u32 = 0;
    /// Offset of `inode.i_ino`.
    inode_number, INODE_NUMBER: u32 = 0;
    /// Offset of `inode.i_size`.
    inode_size, INODE_SIZE: u32 = 0;
    /// Offset of the seconds of `inode.i_mtime`.
    inode_modified_s, INODE_MODIFIED_S: u32 = 0;
    /// Offset of the nanoseconds beside them.
    inode_modified_ns, INODE_MODIFIED_NS: u32 = 0;
}

#[cfg(not(feature = "before_5_17"))]
frozen! {
    /// User frames of one walk by tables (configuration `limits.user_frames`).
    user_frames, USER_FRAMES: u32 = 127;
}

#[cfg(feature = "before_5_17")]
frozen! {
    /// Offset of `task_struct.stack`: where the task's kernel stack begins.
    task_stack, TASK_STACK: u32 = 0;
    /// Bytes of a kernel stack.
    kernel_stack_bytes, KERNEL_STACK_BYTES: u32 = 0;
}
