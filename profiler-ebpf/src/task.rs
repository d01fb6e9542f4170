//! Reading a task, and making and changing its record. The only file that knows the fields of
//! tasks. (Whose record may be changed when says `evaluate`.)

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::{
    bpf_probe_read_kernel, bpf_probe_read_kernel_buf, bpf_probe_read_kernel_str_bytes,
};
use core::ffi::c_void;
use core::hint::cold_path;
use core::mem::offset_of;
use core::sync::atomic::{Ordering, compiler_fence};
use profiler_common::Counter;
use profiler_common::call_numbers;
use profiler_common::clock::{KERNEL_THREAD, NO_CALL, Phase, UNTRACED};
use profiler_common::limits::{COMM_BYTES, COMPAT_CALL, MAX_CALL_NUMBER, UNTRACED_CALL};
use profiler_common::marks::{is_inside, wait};
use profiler_common::records::{
    Control, GONE_SLOT, NO_SLOT, OnProcessor, REF_CALLS, TaskRef, ThreadRecord,
};
use profiler_common::walk_budget::ProcessWalks;

use crate::attribute;
use crate::counters::count;
use crate::maps::{CONTROL, CURRENT, FREE_SLOTS, PROCESS_WALKS, THREADS};
use crate::{kernel, queue, settings};

/// `PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER`: tasks without a user mode.
const NO_USER_MODE: u32 = 0x0020_0000 | 0x0000_0010 | kernel::PF_USER_WORKER;
/// `PF_EXITING`: a task that has begun to exit.
const PF_EXITING: u32 = 0x0000_0004;
/// `TS_COMPAT`: the task is in a system call of the 32-bit kind, be it 32-bit code or not.
const TS_COMPAT: u32 = 0x0002;
/// `TASK_WAKING`: a waker has claimed the task.
const TASK_WAKING: u32 = 0x0200;

/// A task that lives as long as the program runs: a tracepoint's argument, or the current task.
#[derive(Clone, Copy)]
pub struct Task(*const c_void);

impl Task {
    /// From a tracepoint argument.
    #[inline(always)]
    pub const fn new(task: *const c_void) -> Self {
        Self(task)
    }

    /// The task this program interrupts or runs for.
    #[inline(always)]
    pub fn current() -> Self {
        Self(kernel::current_task())
    }

    /// Reads a field: an integer or an address.
    #[inline(always)]
    pub fn field<T: Copy>(self, offset: u32) -> T {
        kernel::field(self, offset)
    }

    /// Where it lies.
    #[inline(always)]
    pub fn pointer(self) -> *const c_void {
        self.0
    }

    /// Its address: tells one living task from another.
    #[inline(always)]
    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// The thread's id.
    #[inline(always)]
    pub fn tid(self) -> u32 {
        self.field(settings::task_tid())
    }

    /// The process's id.
    #[inline(always)]
    pub fn pid(self) -> u32 {
        self.field(settings::task_pid())
    }

    /// Where the task's name lies.
    #[inline(always)]
    pub fn comm_ptr(self) -> *const u8 {
        self.0
            .wrapping_byte_add(settings::task_comm() as usize)
            .cast()
    }

    /// Has it no user mode?
    #[inline(always)]
    fn is_kernel_thread(self) -> bool {
        self.field::<u32>(settings::task_flags()) & NO_USER_MODE != 0
    }

    /// Its clock flags: has it a user mode, and are its system calls traced (`flags` of its
    /// [`TaskRef`])?
    #[inline(always)]
    pub fn clock_flags(self, flags: u32) -> u32 {
        if self.is_kernel_thread() {
            KERNEL_THREAD
        } else if flags & REF_CALLS == 0 {
            UNTRACED
        } else {
            0
        }
    }

    /// Its page faults so far: minor, major.
    #[inline(always)]
    pub fn faults(self) -> [u64; 2] {
        [
            self.field(settings::task_min_faults()),
            self.field(settings::task_maj_faults()),
        ]
    }

    /// Did the task give its processor up? Asked at its switch-out. (While the switch is under way
    /// the state can be running again only by a pending signal, and `TASK_WAKING` only by a waker
    /// who has seen it leave.)
    #[inline(always)]
    pub fn has_given_up(self) -> bool {
        let state: u32 = self.field(settings::task_state());
        state != 0 && state & TASK_WAKING == 0
    }

    /// Is it on a processor, seen from outside?
    #[inline(always)]
    pub fn is_on_processor(self) -> bool {
        // One byte of it: an int until it became a byte. Never more than 1, lowest byte first.
        self.field::<u8>(settings::task_on_cpu()) != 0
    }

    /// How often it has been switched out. Counted before it leaves its processor.
    #[inline(always)]
    pub fn switches(self) -> u64 {
        let given_up: u64 = self.field(settings::task_switches_given_up());
        let preempted: u64 = self.field(settings::task_switches_preempted());
        given_up.wrapping_add(preempted)
    }

    /// Where the task is, seen from outside.
    #[inline(always)]
    pub fn phase(self) -> Phase {
        if self.is_on_processor() {
            Phase::Running
        } else if self.has_given_up() {
            Phase::Blocked
        } else {
            Phase::Runnable
        }
    }

    /// Has it begun to exit? True from before its last event (`sched_process_exit`) on.
    #[inline(always)]
    pub fn is_exiting(self) -> bool {
        self.field::<u32>(settings::task_flags()) & PF_EXITING != 0
    }

    /// Is it, in its exit, the last thread of its process?
    #[inline(always)]
    pub fn is_last_of_process(self) -> bool {
        let signal: u64 = self.field(settings::task_signal());
        let live = (signal + u64::from(settings::signal_live())) as *const u32;
        // SAFETY: reads kernel memory with a fault-safe helper.
        let live = unsafe { bpf_probe_read_kernel(live) };
        live == Ok(0)
    }

    /// Its saved user registers.
    #[inline(always)]
    pub fn user_registers(self) -> *const pt_regs {
        kernel::user_registers(self)
    }

    /// The number under which the system call is counted that the task is in: those of the 32-bit
    /// table apart, those that are not real as one, and so those that probes make.
    #[inline(always)]
    pub fn call_number(self, number: u32) -> u32 {
        let number = if number > MAX_CALL_NUMBER {
            MAX_CALL_NUMBER
        } else {
            number
        };
        if self.field::<u32>(settings::task_status()) & TS_COMPAT == 0 {
            call_numbers::counted_as(number)
        } else {
            number | COMPAT_CALL
        }
    }

    /// The system call it is in, judged by its saved registers: an interrupt or a fault leaves -1
    /// there.
    #[inline(always)]
    pub fn call(self) -> u32 {
        let registers = self.user_registers();
        if registers.is_null() {
            return NO_CALL;
        }
        // SAFETY: reads kernel memory with a fault-safe helper: a thread seen from outside may have
        // no stack any more.
        self.saved_call(unsafe { bpf_probe_read_kernel(&raw const (*registers).orig_rax) }.ok())
    }

    /// The system call that is meant by a saved `orig_ax`.
    #[inline(always)]
    fn saved_call(self, number: Option<u64>) -> u32 {
        match number {
            Some(number) if number <= 0xffff => self.call_number(number as u32),
            _ => NO_CALL,
        }
    }

    /// As it leaves its processor: the call it waits in, for [`ThreadRecord::wait_call`]. 0 = none.
    #[inline(always)]
    pub fn untraced_call(self) -> u32 {
        let registers = self.user_registers();
        let number = kernel::saved_register(registers, offset_of!(pt_regs, orig_rax));
        match self.saved_call(number) {
            NO_CALL => 0,
            number => number | UNTRACED_CALL,
        }
    }

    /// The system call its clock begins in, where its system calls are traced (`flags` of its
    /// [`TaskRef`]): nobody would see it leave one otherwise.
    #[inline(always)]
    pub fn traced_call(self, flags: u32) -> u32 {
        if flags & REF_CALLS == 0 || self.is_kernel_thread() {
            NO_CALL
        } else {
            self.call()
        }
    }

    /// The id of its control group (version 2), 0 where it cannot be read.
    #[inline(always)]
    pub fn cgroup_id(self) -> u64 {
        let set: u64 = self.field(settings::task_cgroups());
        let read = |base: u64, offset: u32| {
            // SAFETY: reads kernel memory with a fault-safe helper.
            unsafe { bpf_probe_read_kernel((base + u64::from(offset)) as *const u64) }
        };
        read(set, settings::css_set_cgroup())
            .and_then(|group| read(group, settings::cgroup_node()))
            .and_then(|node| read(node, settings::node_id()))
            .unwrap_or(0)
    }

    /// The leader's name: the name of the process.
    #[inline(always)]
    pub fn process_comm(self) -> [u8; COMM_BYTES] {
        let leader: u64 = self.field(settings::task_leader());
        read_comm((leader + u64::from(settings::task_comm())) as *const u8)
    }

    /// What is kept with it; with `create`, made where there was none. `None`: none, or no room
    /// (counted).
    #[inline(always)]
    pub fn storage(self, create: bool) -> Option<&'static mut TaskRef> {
        kernel::task_ref(self, create)
    }
}

/// Reads a thread name.
#[inline(always)]
pub fn read_comm(from: *const u8) -> [u8; COMM_BYTES] {
    let mut comm = [0; COMM_BYTES];
    // SAFETY: reads kernel memory with a fault-safe helper; a failure leaves zeroes: an empty name.
    if unsafe { bpf_probe_read_kernel_buf(from, &mut comm) }.is_err() {
        comm = [0; COMM_BYTES];
    }
    comm
}

/// Reads a name that ends at its zero: what lies behind that is not the name's.
#[inline(always)]
pub fn read_name(from: *const u8) -> [u8; COMM_BYTES] {
    let mut name = [0; COMM_BYTES];
    // SAFETY: reads kernel memory with a fault-safe helper, up to the zero; a failure leaves an
    // empty name.
    if unsafe { bpf_probe_read_kernel_str_bytes(from, &mut name) }.is_err() {
        name = [0; COMM_BYTES];
    }
    name
}

/// The control element. `None` while the programs are to do nothing.
#[inline(always)]
pub fn control() -> Option<&'static mut Control> {
    let control = CONTROL.get_ptr_mut(0)?;
    // SAFETY: the one element of an array map; fields are words, each read and written alone.
    let control = unsafe { &mut *control };
    if control.enabled == 0 {
        None
    } else {
        Some(control)
    }
}

/// The record in `slot`.
#[inline(always)]
pub fn record(slot: u32) -> Option<&'static mut ThreadRecord> {
    let record = THREADS.get_ptr_mut(slot)?;
    // SAFETY: an element of an array map; see `ThreadRecord` for who writes when.
    Some(unsafe { &mut *record })
}

/// The thread on this processor, as the last switch left it.
#[inline(always)]
pub fn on_processor() -> Option<&'static mut OnProcessor> {
    let current = CURRENT.get_ptr_mut(0)?;
    // SAFETY: this processor's element; fields are words, each read and written alone. A tick may
    // interrupt the others.
    Some(unsafe { &mut *current })
}

/// One of `1 << shift` walks of the process `pid` is afforded on this processor, and by what the
/// process may cost.
#[inline(always)]
pub fn walk_shift(pid: u32, current: &mut OnProcessor, control: &Control, now_ns: u64) -> u32 {
    current.walks.refresh(now_ns, control.walks);
    if let Some(walks) = process_walks(pid) {
        current.walks.shift = current.walks.shift.max(walks.shift(now_ns));
    }
    // Read back: the verifier forgets how it came to be, and checks the walk once instead of once
    // for each way. SAFETY: a word of this processor's element.
    unsafe { core::ptr::read_volatile(&raw const current.walks.shift) as u32 & 31 }
}

/// What may be spent on walks of the process, where that is bounded.
#[inline(always)]
pub fn process_walks(pid: u32) -> Option<&'static mut ProcessWalks> {
    let walks = PROCESS_WALKS.get_ptr_mut(pid)?;
    // SAFETY: an element of a map; fields are words, each read and written alone.
    Some(unsafe { &mut *walks })
}

/// Notes that `task`, which was evaluated, is on this processor.
#[inline(always)]
pub fn set_on_processor(current: &mut OnProcessor, task: Task, reference: &TaskRef) {
    let has_record = reference.slot != NO_SLOT && reference.slot != GONE_SLOT;
    // Whose it is, last: where programs are preempted, a switch may come in between.
    clear_on_processor(current);
    compiler_fence(Ordering::SeqCst);
    current.slot = reference.slot;
    current.flags = if has_record { reference.flags } else { 0 };
    current.generation = reference.generation;
    compiler_fence(Ordering::SeqCst);
    current.task = task.address();
}

/// Notes that nothing is known of the thread on this processor: its next event asks its task.
#[inline(always)]
pub fn clear_on_processor(current: &mut OnProcessor) {
    current.task = 0;
    current.registers = 0;
    current.flags = 0;
}

/// If `task` is noted to be on this processor, it no longer is: what was noted of it has changed.
#[inline(always)]
pub fn forget_on_processor(task: Task) {
    if let Some(current) = on_processor()
        && current.task == task.address()
    {
        clear_on_processor(current);
    }
}

/// `task` is on this processor, but another thread is noted to be: that one has left unseen, and
/// `task` has come unseen. (The kernel runs no program while it runs another one of the same kind,
/// and some run none on behalf of some tasks.)
#[inline(always)]
pub fn notice_unseen_switch(current: &mut OnProcessor, task: Task, now_ns: u64) {
    // With none noted there is none to have left: a tick may have interrupted who is just noting
    // this one.
    if current.task == task.address() || current.task == 0 {
        return;
    }
    cold_path();
    if current.flags != 0
        && let Some(gone) = record(current.slot)
    {
        let at = |offset: u32| current.task + u64::from(offset);
        // SAFETY: reads kernel memory with a fault-safe helper: the task may be no more.
        let tid = unsafe { bpf_probe_read_kernel(at(settings::task_tid()) as *const u32) };
        // SAFETY: as above. One byte, as in `Task::phase`.
        let on_cpu = unsafe { bpf_probe_read_kernel(at(settings::task_on_cpu()) as *const u8) };
        // It may be at work on another processor by now.
        if tid == Ok(gone.tid) && on_cpu == Ok(0) {
            note_gone(gone, now_ns);
            count(Counter::SwitchesMissed);
        }
    }
    clear_on_processor(current);
}

/// Notes that the thread of `record` has left its processor, without an update of the record.
#[inline(always)]
pub fn note_gone(record: &mut ThreadRecord, now_ns: u64) {
    // SAFETY: one aligned word.
    unsafe { core::ptr::write_volatile(&raw mut record.clock.gone_ns, now_ns) };
}

/// Within an update that began at `now_ns` or later: if the thread was preempted since, the time
/// that it waited is its own (the last time, if it was several times).
#[inline(always)]
pub fn account_preemption(
    record: &mut ThreadRecord,
    slot: u32,
    current: &OnProcessor,
    control: &Control,
    now_ns: u64,
) {
    // SAFETY: one aligned word; volatile, because a switch in the middle of this program writes it.
    let gone_ns = unsafe { core::ptr::read_volatile(&raw const record.clock.gone_ns) };
    if gone_ns > now_ns {
        cold_path();
        // SAFETY: the same.
        let since_ns = unsafe { core::ptr::read_volatile(&raw const current.since_ns) };
        if since_ns >= gone_ns {
            record.clock.switch_out(gone_ns, false);
            record.marks.wait = wait::UNSEEN;
            let inside = is_inside(&record.clock);
            let off_cpu = record.clock.switch_in(since_ns, None);
            attribute::end_wait(record, slot, inside, off_cpu.waited(), control);
        }
    }
}

/// The thread of `record` is on this processor: if it was not seen to come, it is taken to have
/// come after the last switch.
#[inline(always)]
pub fn arrive_unseen(
    task: Task,
    record: &mut ThreadRecord,
    slot: u32,
    current: &OnProcessor,
    control: &Control,
    now_ns: u64,
) {
    let inside = is_inside(&record.clock);
    let base_ns = Some(record.queued_base_ns);
    let queued_ns = || queue::queued_ns(task, base_ns, current, now_ns);
    let off_cpu = record
        .clock
        .arrive_unseen(now_ns, current.since_ns, queued_ns);
    if let Some(off_cpu) = off_cpu {
        count(Counter::SwitchesMissed);
        attribute::end_wait(record, slot, inside, off_cpu.waited(), control);
    }
}

/// Gives the task a record, in `phase`. It is filled before it is published, so that nobody sees
/// half of one.
#[inline(always)]
pub fn make_record(
    task: Task,
    reference: &mut TaskRef,
    flags: u32,
    now_ns: u64,
    phase: Phase,
    call: u32,
) {
    if task.is_exiting() {
        // Its last event may be over, and no other would end the record.
        reference.slot = GONE_SLOT;
        return;
    }
    let Ok(Some(slot)) = FREE_SLOTS.pop() else {
        count(Counter::ThreadsNoRecord);
        return;
    };
    let Some(record) = record(slot) else {
        count(Counter::ThreadsNoRecord);
        return;
    };
    record
        .clock
        .start(now_ns, phase, call, task.clock_flags(flags));
    record
        .marks
        .start(now_ns, settings::min_interval_ns(), &mut attribute::random);
    record.first_faults = task.faults();
    record.faults = record.first_faults;
    record.queued_base_ns = queue::waited_ns(task);
    record.pid = task.pid();
    record.start_boot_ns = task.field(settings::task_start_boot());
    let leader: u64 = task.field(settings::task_leader());
    let of = |base: u64, offset: u32| {
        // SAFETY: reads kernel memory with a fault-safe helper.
        unsafe { bpf_probe_read_kernel((base + u64::from(offset)) as *const u64) }.unwrap_or(0)
    };
    record.process_start_boot_ns = of(leader, settings::task_start_boot());
    record.process_start_ns = of(leader, settings::task_start());
    let parent: u64 = task.field(settings::task_parent());
    record.parent_pid = of(parent, settings::task_pid()) as u32;
    record.comm = read_comm(task.comm_ptr());
    compiler_fence(Ordering::SeqCst);
    record.tid = task.tid();
    compiler_fence(Ordering::SeqCst);
    reference.slot = slot;
}

/// Changes a record under its sequence number, so that the daemon never takes half a change for a
/// whole one.
#[inline(always)]
pub fn update<R>(record: &mut ThreadRecord, change: impl FnOnce(&mut ThreadRecord) -> R) -> R {
    let sequence = &raw mut record.sequence;
    // SAFETY: a word of the record; volatile and fenced, so that the change stays between the two
    // writes.
    unsafe {
        core::ptr::write_volatile(sequence, core::ptr::read_volatile(sequence).wrapping_add(1))
    };
    compiler_fence(Ordering::SeqCst);
    let result = change(record);
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as above.
    unsafe {
        core::ptr::write_volatile(sequence, core::ptr::read_volatile(sequence).wrapping_add(1))
    };
    result
}

/// Was the wait that begins drawn? Read anew: what it was before the walk, kept over it, would have
/// the verifier check that twice.
#[inline(always)]
pub fn is_drawn_now(record: &ThreadRecord) -> bool {
    // SAFETY: a word of the record.
    let known = unsafe { core::ptr::read_volatile(&raw const record.marks.wait) };
    known == wait::DRAWN || known == wait::UNKEPT
}

/// Is an update of the record under way? Asked by the tick, which may have interrupted one.
#[inline(always)]
pub fn is_in_update(record: &ThreadRecord) -> bool {
    // SAFETY: a word of the record.
    unsafe { core::ptr::read_volatile(&raw const record.sequence) & 1 != 0 }
}
