//! Who is profiled. Evaluated once per thread and per change of targets, not per event.

use profiler_common::Counter;
use profiler_common::limits::COMM_BYTES;
use profiler_common::records::{Control, REF_CALLS, REF_TARGET, system_calls};

use crate::counters::count;
use crate::maps::{TARGET_CGROUPS, TARGET_COMMS, TARGET_PIDS};
use crate::task::Task;

/// The flags of the thread under the current targets.
#[inline(always)]
pub fn evaluate(task: Task, control: &Control) -> u32 {
    let calls = control.system_calls;
    let named = (control.all == 0 || calls == system_calls::NAMED) && is_named(task);
    if control.all == 0 && !named {
        return 0;
    }
    if calls == system_calls::ALL
        || calls == system_calls::SAMPLED
        || (calls == system_calls::NAMED && named)
    {
        REF_TARGET | REF_CALLS
    } else {
        REF_TARGET
    }
}

/// Is the thread's process a target by its id, its name or its control group?
#[inline(always)]
fn is_named(task: Task) -> bool {
    // SAFETY: lookups by value; the values are not read.
    unsafe {
        TARGET_PIDS.get(task.pid()).is_some()
            || TARGET_COMMS.get(task.process_comm()).is_some()
            || TARGET_CGROUPS.get(task.cgroup_id()).is_some()
    }
}

/// Are processes of that name targets?
#[inline(always)]
pub fn is_named_comm(comm: &[u8; COMM_BYTES]) -> bool {
    // SAFETY: a lookup by value; the value is not read.
    unsafe { TARGET_COMMS.get(comm).is_some() }
}

/// A process was made: under `children`, the child of a named target becomes one.
#[inline(always)]
pub fn inherit(parent: Task, child: Task, control: &Control) {
    if control.children != 0
        && parent.pid() != child.pid()
        && is_named(parent)
        && TARGET_PIDS.insert(child.pid(), 0, 0).is_err()
    {
        count(Counter::TargetsFull);
    }
}

/// A process is gone: its id must not make its next owner a target.
#[inline(always)]
pub fn forget(pid: u32) {
    // Not there in most cases: nothing to count.
    TARGET_PIDS.remove(pid).ok();
}
