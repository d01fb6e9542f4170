//! One pass of the kernel stage as the profile takes it: slots become threads, ids become frames.

use std::collections::HashMap;
use std::sync::Arc;

use profiler_common::counter::CounterKind;
use profiler_common::{ClassNs, Counter, Phase, StackEnd};

use crate::kernel::{MissingStack, OffCpuStack, Pass, StackSum, ThreadSnapshot};
use crate::processes::ids::{ProcessKey, ThreadKey};
use crate::profile::calls::CallTime;
use crate::profile::frames::FrameId;
use crate::profile::input::{
    CommName, DrainPass, LossCause, NamedCounts, OpenCall, OpenStack, StackDelta, SyscallUpdate,
    ThreadState, ThreadUpdate,
};

use super::stacks::StackCache;

/// Who a slot was at the last pass or is at this one.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotOwner {
    pub(super) thread: ThreadKey,
    pub(super) process: ProcessKey,
    pub(super) kernel_thread: bool,
}

impl SlotOwner {
    pub(super) const fn of(thread: &ThreadSnapshot) -> Self {
        Self {
            thread: ThreadKey {
                tid: thread.tid,
                start_ns: thread.start_boot_ns,
            },
            process: ProcessKey {
                pid: thread.pid,
                start_ns: thread.process_start_boot_ns,
            },
            kernel_thread: thread.kernel_thread,
        }
    }
}

/// The frames of a pair of ids.
struct Resolved {
    user: Vec<FrameId>,
    kernel: Vec<FrameId>,
    end: StackEnd,
    lost: Option<LossCause>,
}

impl Resolved {
    const fn missing(missing: MissingStack) -> Self {
        Self {
            user: Vec::new(),
            kernel: Vec::new(),
            end: StackEnd::None,
            lost: Some(match missing {
                MissingStack::NotSampled => LossCause::NotSampled,
                MissingStack::NotKept => LossCause::NotKept,
            }),
        }
    }
}

/// What names a stack of a thread.
struct StackId {
    user: u64,
    kernel: u64,
    image: u16,
    end: StackEnd,
}

impl StackId {
    const fn of_sum(sum: &StackSum) -> Self {
        Self {
            user: sum.user,
            kernel: sum.kernel,
            image: sum.image,
            end: sum.end,
        }
    }

    const fn of_wait(off_cpu: &OffCpuStack) -> Self {
        Self {
            user: off_cpu.user,
            kernel: off_cpu.kernel,
            image: off_cpu.image,
            end: off_cpu.end,
        }
    }
}

fn resolve(stacks: &mut StackCache, owner: SlotOwner, id: &StackId) -> Resolved {
    let &StackId {
        user,
        kernel,
        image,
        end,
    } = id;
    let kernel_frames = if kernel == 0 {
        Some(Arc::default())
    } else {
        stacks.kernel(kernel)
    };
    let user_stack = if user == 0 {
        None
    } else {
        stacks.user(owner.process, image, user)
    };
    let is_lost = (user != 0 && user_stack.is_none()) || kernel_frames.is_none();
    // Without frames of either kind there is no place for the time: it is shown under the reason.
    let lost = if is_lost {
        Some(LossCause::Other)
    } else if user == 0 && kernel == 0 {
        Some(LossCause::NoFrames)
    } else {
        None
    };
    let end = user_stack
        .as_ref()
        .and_then(|stack| stack.end)
        .unwrap_or(end);
    Resolved {
        user: user_stack
            .map(|stack| stack.frames.to_vec())
            .unwrap_or_default(),
        kernel: kernel_frames
            .map(|frames| frames.to_vec())
            .unwrap_or_default(),
        end: if owner.kernel_thread {
            StackEnd::None
        } else {
            end
        },
        lost,
    }
}

/// Rows of threads that nobody knows. There should be none: a slot is given back only after the
/// pass that read the last of its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unowned {
    /// Rows of time per stack.
    pub(super) stack_rows: u64,
    /// Rows of system calls.
    pub(super) call_rows: u64,
}

/// Whose the slots are.
#[derive(Debug, Default)]
pub(super) struct Owners {
    of: HashMap<u32, SlotOwner>,
    /// Of slots of threads that the last pass told to have ended: their places are given back.
    ended: HashMap<u32, SlotOwner>,
}

impl Owners {
    pub(super) fn get(&self, slot: u32) -> Option<SlotOwner> {
        self.of.get(&slot).copied()
    }

    /// Whose the time is that stacks have received: the last of one that has ended comes with the
    /// pass in which its place is given back, and perhaps has another owner.
    fn of_sum(&self, slot: u32) -> Option<SlotOwner> {
        self.ended.get(&slot).copied().or_else(|| self.get(slot))
    }

    /// Takes in who is told.
    fn begin(&mut self, pass: &Pass) {
        for slot in self.ended.keys() {
            self.of.remove(slot);
        }
        let told = pass.threads.iter();
        self.of
            .extend(told.map(|thread| (thread.slot, SlotOwner::of(thread))));
    }

    /// The rows of this pass have their owners.
    fn end(&mut self, pass: &Pass) {
        let told = pass.threads.iter();
        let ended = told.filter(|thread| thread.phase == Phase::Exited);
        self.ended = ended
            .map(|thread| (thread.slot, SlotOwner::of(thread)))
            .collect();
    }
}

/// Fills all of `to` that comes from the kernel stage, and adds to `unowned` what is left out.
pub(super) fn convert(
    pass: &Pass,
    owners: &mut Owners,
    stacks: &mut StackCache,
    to: &mut DrainPass,
    unowned: &mut Unowned,
) {
    owners.begin(pass);
    let owner = |slot: u32| owners.get(slot);
    to.is_partial = pass.is_partial;
    to.threads = pass.threads.iter().map(thread_update).collect();
    let unread = pass.unreadable.iter().filter_map(|slot| owner(*slot));
    to.unread = unread.map(|owner| (owner.process, owner.thread)).collect();
    for sum in &pass.sums {
        let Some(owner) = owners.of_sum(sum.slot) else {
            unowned.stack_rows += 1;
            tracing::debug!("a row of a thread that is not known (slot {})", sum.slot);
            continue;
        };
        let Resolved {
            user,
            kernel,
            end,
            lost,
        } = match sum.missing {
            Some(missing) => Resolved::missing(missing),
            None => resolve(stacks, owner, &StackId::of_sum(sum)),
        };
        to.stacks.push(StackDelta {
            process: owner.process,
            thread: owner.thread,
            user,
            kernel,
            end,
            lost,
            primary: sum.primary,
        });
    }
    for thread in &pass.threads {
        for awaited in [&thread.entry, &thread.drawn].into_iter().flatten() {
            // Rows of later passes refer to it: it is kept as long as the call or the wait goes on.
            stacks.user(SlotOwner::of(thread).process, awaited.image, awaited.user);
            stacks.kernel(awaited.kernel);
        }
        if let Some(off_cpu) = &thread.off_cpu
            && !pass.is_partial
            && off_cpu.classes != ClassNs::default()
        {
            let owner = SlotOwner::of(thread);
            let Resolved {
                user,
                kernel,
                end,
                lost,
            } = resolve(stacks, owner, &StackId::of_wait(off_cpu));
            to.open.push(OpenStack {
                process: owner.process,
                thread: owner.thread,
                user,
                kernel,
                end,
                lost,
                classes: off_cpu.classes,
            });
        }
    }
    for call in &pass.calls {
        let Some(owner) = owner(call.slot) else {
            unowned.call_rows += 1;
            continue;
        };
        to.syscalls.push(SyscallUpdate {
            process: owner.process,
            thread: owner.thread,
            number: call.number,
            count: call.count,
            total_ns: call.total_ns,
            running_ns: call.running_ns,
            blocked_ns: call.blocked_ns,
            max_ns: call.max_ns,
        });
    }
    let of_kind = |wanted: &[CounterKind]| -> NamedCounts {
        let counted = Counter::ALL.iter().zip(&pass.counters);
        counted
            .filter(|(counter, _)| wanted.contains(&counter.kind()))
            .map(|(counter, count)| (counter.name().into(), *count))
            .collect()
    };
    to.discarded = of_kind(&[CounterKind::Discarded]);
    to.samples_lost = of_kind(&[CounterKind::SampleLost])
        .iter()
        .map(|(_, count)| count)
        .sum();
    to.losses = of_kind(&[
        CounterKind::SampleLost,
        CounterKind::Loss,
        CounterKind::Race,
    ]);
    owners.end(pass);
}

fn thread_update(thread: &ThreadSnapshot) -> ThreadUpdate {
    let owner = SlotOwner::of(thread);
    ThreadUpdate {
        thread: owner.thread,
        process: owner.process,
        comm: CommName(thread.comm),
        state: match thread.phase {
            Phase::Running => ThreadState::Running,
            Phase::Runnable => ThreadState::Runnable,
            Phase::Exited => ThreadState::Exited,
            Phase::Blocked | Phase::Unobserved | Phase::Empty => ThreadState::Blocked,
        },
        first_event_ns: thread.first_event_ns,
        last_event_ns: thread.last_event_ns,
        unobserved_ns: thread.unobserved_ns,
        classes: thread.classes,
        kinds: thread.kinds,
        minor_faults: thread.minor_faults,
        major_faults: thread.major_faults,
        switches_missed: thread.switches_missed.into(),
        profiler_cost_ns: 0,
        call: thread.call.map(|call| OpenCall {
            number: call.number,
            since_ns: call.since_ns,
            entry_seen: call.entry_seen,
            time: CallTime {
                total_ns: thread.last_event_ns.saturating_since(call.since_ns),
                running_ns: call.running_ns,
                blocked_ns: call.blocked_ns,
            },
        }),
        slot: thread.slot,
    }
}

#[cfg(test)]
mod tests {
    use profiler_common::StackEnd;

    use profiler_common::kinds::Primary;
    use profiler_common::records::SyscallRecord;

    use super::*;
    use crate::kernel::{StackSum, made_up};
    use crate::units::BootNs;

    const KNOWN: u32 = 5;
    const NOBODY: u32 = 6;

    fn owner(tid: u32) -> SlotOwner {
        SlotOwner {
            thread: ThreadKey {
                tid,
                start_ns: BootNs::new(1),
            },
            process: ProcessKey {
                pid: tid,
                start_ns: BootNs::new(1),
            },
            kernel_thread: false,
        }
    }

    /// A pass with a row of each kind for each of these slots.
    fn pass(slots: &[u32]) -> Pass {
        let sum = |slot: &u32| StackSum {
            slot: *slot,
            user: 0,
            kernel: 0,
            end: StackEnd::None,
            image: 0,
            missing: None,
            primary: Primary {
                walks: 1,
                ..Primary::default()
            },
        };
        let call = |slot: &u32| SyscallRecord {
            slot: *slot,
            number: 0,
            count: 1,
            total_ns: 1,
            running_ns: 1,
            blocked_ns: 0,
            max_ns: 1,
        };
        Pass {
            sums: slots.iter().map(sum).collect(),
            calls: slots.iter().map(call).collect(),
            ..Pass::default()
        }
    }

    fn owners() -> Owners {
        Owners {
            of: HashMap::from([(KNOWN, owner(9))]),
            ended: HashMap::new(),
        }
    }

    #[test]
    fn rows_of_nobody_are_counted() {
        // Check that rows of a slot that has no owner, in this pass or the one before, are left out
        // and counted by kind.
        let (mut to, mut unowned) = (DrainPass::default(), Unowned::default());
        let pass = pass(&[KNOWN, NOBODY, NOBODY]);
        let mut stacks = StackCache::default();
        convert(&pass, &mut owners(), &mut stacks, &mut to, &mut unowned);
        assert_eq!((to.stacks.len(), to.syscalls.len()), (1, 1));
        let counted = Unowned {
            stack_rows: 2,
            call_rows: 2,
        };
        assert_eq!(unowned, counted);
    }

    #[test]
    fn who_is_not_told_stays_the_owner() {
        // Check that a thread whose record could not be read, or that sleeps on, stays the owner of
        // its slot, pass after pass, so its rows are never those of nobody.
        let mut owners = owners();
        let (mut to, mut unowned) = (DrainPass::default(), Unowned::default());
        let mut pass = pass(&[KNOWN]);
        for unreadable in [vec![KNOWN, NOBODY], vec![KNOWN], vec![]] {
            pass.unreadable = unreadable;
            let mut stacks = StackCache::default();
            convert(&pass, &mut owners, &mut stacks, &mut to, &mut unowned);
            let unread: Vec<u32> = to.unread.iter().map(|(_, thread)| thread.tid).collect();
            assert_eq!(unread.len(), pass.unreadable.len().min(1));
        }
        assert_eq!(to.stacks.len(), 3);
        assert_eq!(unowned, Unowned::default());
    }

    #[test]
    fn the_last_rows_of_who_has_ended_are_its_own() {
        // Check that time that stacks received of a thread that was told to have ended is its own
        // in the next pass, also where another has its place by then, and nobody's after that.
        let told = |tid: u32, phase: Phase| made_up(KNOWN, tid, phase);
        let (mut owners, mut unowned) = (Owners::default(), Unowned::default());
        let mut convert = |thread: Option<ThreadSnapshot>| {
            let mut to = DrainPass::default();
            let mut pass = pass(&[KNOWN]);
            pass.threads = thread.into_iter().collect();
            pass.calls.clear();
            convert(
                &pass,
                &mut owners,
                &mut StackCache::default(),
                &mut to,
                &mut unowned,
            );
            let stacks = to.stacks.iter().map(|stack| stack.thread.tid).next();
            (stacks, unowned.stack_rows)
        };
        assert_eq!(convert(Some(told(7, Phase::Exited))), (Some(7), 0));
        assert_eq!(convert(Some(told(8, Phase::Exited))), (Some(7), 0));
        assert_eq!(convert(None), (Some(8), 0));
        assert_eq!(convert(None), (None, 1));
    }
}
