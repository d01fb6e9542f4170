//! What the kernel remembers of the user probes that a thread has met, be they whose they may:
//! where functions with return probes return to. What it means for a stack says
//! `profiler_common::unwind::leave_probes`.

use aya_ebpf::helpers::bpf_probe_read_kernel;
use profiler_common::outside::Look;
use profiler_common::unwind::{MAX_PENDING_RETURNS, OutOfLine, PendingReturn, Probes};

use crate::settings;
use crate::task::Task;

/// What is remembered of a thread's probes.
#[derive(Clone)]
pub struct TaskProbes {
    /// Kernel address of it (`uprobe_task`), 0 = nothing.
    pub of_task: u64,
    /// Kernel address of the next return address that was replaced (`return_instance`), 0 = none.
    pub next: u64,
}

/// Reads a word of the kernel's; 0 where it cannot be read.
#[inline(always)]
fn word(base: u64, offset: u32) -> u64 {
    let place = base.wrapping_add(u64::from(offset)) as *const u64;
    // SAFETY: reads kernel memory with a fault-safe helper.
    unsafe { bpf_probe_read_kernel(place) }.unwrap_or(0)
}

impl TaskProbes {
    /// Those of a thread, and the address of its process's `[uprobes]` page; `None` for nearly all
    /// threads: they have met no probe.
    #[inline(always)]
    pub fn of(task: Task) -> Option<(Self, u64)> {
        if settings::task_probes() == 0 {
            return None;
        }
        let of_task: u64 = task.field(settings::task_probes());
        if of_task == 0 {
            return None;
        }
        let memory: u64 = task.field(settings::task_memory());
        let area = word(memory, settings::memory_probes_area());
        let page = word(area, settings::probes_area_page());
        let next = word(of_task, settings::probes_returns());
        (area != 0 && page != 0).then_some((Self { of_task, next }, page))
    }
}

impl Probes for TaskProbes {
    #[inline(always)]
    fn next_return(&mut self) -> Option<PendingReturn> {
        let pending = self.next;
        if pending == 0 {
            return None;
        }
        self.next = word(pending, settings::return_next());
        Some(PendingReturn {
            slot: word(pending, settings::return_slot()),
            returns_to: word(pending, settings::return_address()),
        })
    }

    #[inline(always)]
    fn out_of_line(&mut self) -> OutOfLine {
        OutOfLine {
            at: word(self.of_task, settings::probes_executed_at()),
            belongs_at: word(self.of_task, settings::probes_belongs_at()),
        }
    }
}

/// Notes in a look what is remembered of the thread's probes.
#[inline(always)]
pub fn remembered(task: Task, look: &mut Look) {
    let Some((mut probes, page)) = TaskProbes::of(task) else {
        return;
    };
    look.head.probes_page = page;
    look.head.out_of_line = probes.out_of_line();
    let mut count = 0;
    while count < MAX_PENDING_RETURNS {
        let Some(pending) = probes.next_return() else {
            break;
        };
        look.returns[count] = pending;
        count += 1;
    }
    look.head.returns_len = count as u32;
}
