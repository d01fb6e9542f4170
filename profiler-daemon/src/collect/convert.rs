//! One pass of the kernel stage as the profile takes it: slots become threads, ids become frames.

use std::collections::HashMap;
use std::sync::Arc;

use profiler_common::counter::CounterKind;
use profiler_common::{ClassNs, Counter, Phase, StackEnd};

use crate::kernel::{AwayStack, Missing, Pass, StackSum, ThreadSnapshot};
use crate::processes::ids::{ProcessKey, ThreadKey};
use crate::profile::calls::CallTime;
use crate::profile::frames::FrameId;
use crate::profile::input::{
    CommName, Counts, DrainPass, LossCause, OpenCall, OpenStack, StackDelta, SyscallUpdate,
    ThreadState, ThreadUpdate,
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

impl Resolved {
    const fn missing(missing: Missing) -> Self {
        Self {
            user: Vec::new(),
            kernel: Vec::new(),
            end: StackEnd::None,
            lost: Some(match missing {
                Missing::NotSampled => LossCause::NotSampled,
                Missing::NotKept => LossCause::NotKept,
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

    const fn of_wait(away: &AwayStack) -> Self {
        Self {
            user: away.user,
            kernel: away.kernel,
            image: away.image,
            end: away.end,
        }
    }
}

fn resolve(stacks: &mut Stacks, owner: Owner, id: &StackId) -> Resolved {
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

/// Fills all of `to` that comes from the kernel stage. `before`: the owners of slots at the last
/// pass, for what was attributed before a thread's end, and for threads that could not be read in
/// this pass. Returns the owners as of this one, and adds to `unowned` what is left out.
pub(super) fn convert(
    pass: &Pass,
    before: &HashMap<u32, Owner>,
    stacks: &mut Stacks,
    to: &mut DrainPass,
    unowned: &mut Unowned,
) -> HashMap<u32, Owner> {
    let mut owners: HashMap<u32, Owner> = pass
        .threads
        .iter()
        .map(|thread| (thread.slot, Owner::of(thread)))
        .collect();
    for slot in &pass.unreadable {
        if let Some(owner) = before.get(slot) {
            owners.insert(*slot, *owner);
        }
    }
    let owner = |slot: u32| owners.get(&slot).or_else(|| before.get(&slot)).copied();
    to.threads = pass.threads.iter().map(thread_update).collect();
    for sum in &pass.sums {
        let Some(owner) = owner(sum.slot) else {
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
            stacks.user(Owner::of(thread).process, awaited.image, awaited.user);
            stacks.kernel(awaited.kernel);
        }
        if let Some(away) = &thread.away
            && away.classes != ClassNs::default()
        {
            let owner = Owner::of(thread);
            let Resolved {
                user,
                kernel,
                end,
                lost,
            } = resolve(stacks, owner, &StackId::of_wait(away));
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
        CounterKind::Loss,
        CounterKind::Race,
    ]);
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
                total_ns: thread.last_event_ns.saturating_sub(call.since_ns),
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
    use profiler_common::records::SyscallRow;

    use super::*;
    use crate::kernel::StackSum;

    const KNOWN: u32 = 5;
    const NOBODY: u32 = 6;

    fn owner(tid: u32) -> Owner {
        Owner {
            thread: ThreadKey { tid, start_ns: 1 },
            process: ProcessKey {
                pid: tid,
                start_ns: 1,
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
        let call = |slot: &u32| SyscallRow {
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

    #[test]
    fn rows_of_nobody_are_counted() {
        // Check that rows of a slot that has no owner, in this pass or the one before, are left out
        // and counted by kind.
        let before = HashMap::from([(KNOWN, owner(9))]);
        let (mut to, mut unowned) = (DrainPass::default(), Unowned::default());
        let pass = pass(&[KNOWN, NOBODY, NOBODY]);
        let mut stacks = Stacks::default();
        let owners = convert(&pass, &before, &mut stacks, &mut to, &mut unowned);
        assert_eq!((to.stacks.len(), to.syscalls.len()), (1, 1));
        let counted = Unowned {
            stack_rows: 2,
            call_rows: 2,
        };
        assert_eq!(unowned, counted);
        assert!(owners.is_empty(), "no thread was read");
    }

    #[test]
    fn threads_that_cannot_be_read_keep_their_place() {
        // Check that a thread whose record could not be read stays the owner of its slot, pass
        // after pass, so its rows are never those of nobody.
        let mut owners = HashMap::from([(KNOWN, owner(9))]);
        let (mut to, mut unowned) = (DrainPass::default(), Unowned::default());
        let mut pass = pass(&[KNOWN]);
        pass.unreadable = vec![KNOWN, NOBODY];
        for _ in 0..3 {
            let mut stacks = Stacks::default();
            owners = convert(&pass, &owners, &mut stacks, &mut to, &mut unowned);
            assert_eq!(owners.len(), 1, "nobody knows who the other one is");
        }
        assert_eq!(to.stacks.len(), 3);
        assert_eq!(unowned, Unowned::default());
    }
}
