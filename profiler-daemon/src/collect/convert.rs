//! One pass of the kernel stage as the profile takes it: slots become threads, ids become frames.

use std::collections::HashMap;
use std::sync::Arc;

use profiler_common::counter::CounterKind;
use profiler_common::{ClassNs, Counter, Phase, StackEnd};

use crate::kernel::{Pass, ThreadSnapshot};
use crate::processes::ids::{ProcessKey, ThreadKey};
use crate::profile::frames::FrameId;
use crate::profile::input::{
    CommName, Counts, DrainPass, LossCause, OpenStack, StackDelta, SyscallUpdate, ThreadState,
    ThreadUpdate,
};

use super::stacks::Stacks;

/// Who a slot was at the last pass or is at this one.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    pub(super) thread: ThreadKey,
    pub(super) process: ProcessKey,
    pub(super) kernel_thread: bool,
}

impl Owner {
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

fn resolve(stacks: &mut Stacks, owner: Owner, user: u64, kernel: u64, end: StackEnd) -> Resolved {
    let kernel_frames = if kernel == 0 {
        Some(Arc::default())
    } else {
        stacks.kernel(kernel)
    };
    let user_stack = if user == 0 {
        None
    } else {
        stacks.user(owner.process, user)
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

/// Fills all of `to` that comes from the kernel stage. `before`: the owners of slots at the last pass, for what was
/// attributed before a thread's end.
pub(super) fn convert(
    pass: &Pass,
    before: &HashMap<u32, Owner>,
    stacks: &mut Stacks,
    to: &mut DrainPass,
) -> HashMap<u32, Owner> {
    let owners: HashMap<u32, Owner> = pass
        .threads
        .iter()
        .map(|thread| (thread.slot, Owner::of(thread)))
        .collect();
    let owner = |slot: u32| owners.get(&slot).or_else(|| before.get(&slot)).copied();
    to.threads = pass.threads.iter().map(thread_update).collect();
    for sum in &pass.sums {
        let Some(owner) = owner(sum.slot) else {
            // Cannot be: a slot is given back only after the pass that read the last of its sums.
            tracing::warn!(
                "time of a thread that is not known was dropped (slot {})",
                sum.slot
            );
            continue;
        };
        let Resolved {
            user,
            kernel,
            end,
            lost,
        } = resolve(stacks, owner, sum.user, sum.kernel, sum.end);
        to.stacks.push(StackDelta {
            process: owner.process,
            thread: owner.thread,
            user,
            kernel,
            end,
            lost,
            samples: sum.samples,
            walks: sum.walks,
            classes: sum.classes,
        });
    }
    for thread in &pass.threads {
        if let Some(away) = &thread.away
            && away.classes != ClassNs::default()
        {
            let owner = Owner::of(thread);
            let Resolved {
                user,
                kernel,
                end,
                lost,
            } = resolve(stacks, owner, away.user, away.kernel, away.end);
            to.open.push(OpenStack {
                process: owner.process,
                thread: owner.thread,
                user,
                kernel,
                end,
                lost,
                classes: away.classes,
            });
        }
    }
    for call in &pass.calls {
        if let Some(owner) = owner(call.slot) {
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
    }
    let of_kind = |wanted: &[CounterKind]| -> Counts {
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
        CounterKind::Deferred,
        CounterKind::Loss,
        CounterKind::Race,
    ]);
    to.losses
        .push(("records_unreadable".into(), pass.unreadable));
    owners
}

fn thread_update(thread: &ThreadSnapshot) -> ThreadUpdate {
    let owner = Owner::of(thread);
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
        in_syscall: thread.call.map(|(number, _)| number),
        in_syscall_since_ns: thread.call.map_or(0, |(_, since_ns)| since_ns),
        slot: thread.slot,
    }
}
