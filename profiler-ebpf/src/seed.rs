//! The scan of all tasks at start: threads that exist already, and perhaps never run again, get their records.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use core::ffi::c_void;

use crate::task::{self, Task, control};

/// The context of a task iterator (`struct bpf_iter__task`).
#[repr(C)]
pub struct TaskIteration {
    /// Not used.
    meta: *const c_void,
    /// The task; null at the end.
    task: *const c_void,
}

/// Called once per task when the daemon reads the iterator.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn seed(ctx: *const TaskIteration) -> i32 {
    // SAFETY: the iterator's context.
    let task = unsafe { (*ctx).task };
    let thread = Task::new(task);
    // One that is past its end is no thread to make known. (A task that is not yet will not be freed while this program runs.)
    if !task.is_null()
        && !thread.is_exiting()
        && let Some(control) = control()
    {
        // SAFETY: takes nothing.
        task::thread(thread, control, unsafe { bpf_ktime_get_ns() }, None);
    }
    0
}
