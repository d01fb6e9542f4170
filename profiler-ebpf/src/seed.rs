//! The scan of all tasks, at start and when targets change: threads that exist already, and perhaps
//! never run again, get their records, and stand still or go on.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use core::ffi::c_void;

use crate::evaluate;
use crate::task::{Task, control};

/// The context of a task iterator (`struct bpf_iter__task`).
#[repr(C)]
pub struct TaskIteration {
    /// What it writes to.
    pub meta: *const IterationMeta,
    /// The task; null at the end.
    pub task: *const c_void,
}

/// The beginning of `struct bpf_iter_meta`.
#[repr(C)]
pub struct IterationMeta {
    /// The file that the daemon reads (a `seq_file`).
    pub file: *const c_void,
}

/// Called once per task when the daemon reads the iterator.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn seed(ctx: *const TaskIteration) -> i32 {
    // SAFETY: the iterator's context.
    let task = unsafe { (*ctx).task };
    let thread = Task::new(task);
    // One that has begun to exit is no thread to make known, and soon none to evaluate. (A task
    // that has not yet will not be freed while this program runs.)
    if !task.is_null()
        && !thread.is_exiting()
        && let Some(control) = control()
    {
        // SAFETY: takes nothing.
        evaluate::scan(thread, control, unsafe { bpf_ktime_get_ns() });
    }
    0
}
