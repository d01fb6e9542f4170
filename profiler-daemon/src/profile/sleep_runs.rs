//! Sleep runs: whole passes that a thread spent asleep. Most threads of a machine do nothing but
//! sleep, so the recent past would be made of little else; a sleep run holds any number of passes
//! in one entry, as the time from which to which it lasted.

use std::{collections::BTreeMap, sync::Arc};

use profiler_common::Class;
use serde::{Deserialize, Serialize};

use super::{
    budget::leaves_bytes,
    calls::{CallTime, CallTotals},
    tree::NodeId,
};
use crate::units::MonoNs;

/// Time of one thread in one class without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SleepRun {
    pub(super) thread: u32,
    pub(super) from_ns: MonoNs,
    pub(super) to_ns: MonoNs,
    pub(super) class: usize,
    /// What has it.
    pub(super) holder: Option<Holder>,
    /// The system call that it passed in; `None` where that is not told here.
    pub(super) call: Option<u32>,
}

/// What time has been found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Holder {
    /// Exactly that of a stack.
    Stack(NodeId),
    /// Of a kind that is divided by marks: an index of [`KindNs`](profiler_common::kinds::KindNs).
    Kind(u8),
}

impl Holder {
    /// The stack that has it.
    pub(super) fn leaf(self) -> Option<NodeId> {
        match self {
            Self::Stack(leaf) => Some(leaf),
            Self::Kind(_) => None,
        }
    }

    /// The same under the new numbers of nodes.
    pub(super) fn renumbered(self, map: &[NodeId]) -> Self {
        match self {
            Self::Stack(leaf) => Self::Stack(map[leaf.index()]),
            kind @ Self::Kind(_) => kind,
        }
    }
}

impl SleepRun {
    /// How much of it lies in a span, nanoseconds.
    pub(super) fn within(&self, from_ns: MonoNs, to_ns: MonoNs) -> u64 {
        let (from_ns, to_ns) = (self.from_ns.max(from_ns), self.to_ns.min(to_ns));
        to_ns.saturating_since(from_ns)
    }

    /// The same as time of another class. What is neither running in a call nor waiting is no part
    /// of one.
    pub(super) fn of_class(self, class: usize) -> Self {
        let in_call = [Class::Syscall, Class::Blocked, Class::Runnable];
        let keeps = in_call.iter().any(|of| *of as usize == class);
        Self {
            class,
            call: self.call.filter(|_| keeps),
            ..self
        }
    }

    /// So much of it as time of its call.
    pub(super) fn call_time(&self, ns: u64) -> CallTotals {
        let of = |class: Class| if self.class == class as usize { ns } else { 0 };
        CallTotals::under_way(CallTime {
            total_ns: ns,
            running_ns: of(Class::Syscall),
            blocked_ns: of(Class::Blocked),
        })
    }

    fn is_inside(&self, from_ns: MonoNs, to_ns: MonoNs) -> bool {
        from_ns <= self.from_ns && self.to_ns <= to_ns
    }
}

/// All but the key (thread, from).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Rest {
    to_ns: MonoNs,
    class: u8,
    holder: Option<Holder>,
    call: Option<u32>,
}

/// The sleep runs of one process. Those of a thread do not overlap.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct SleepRuns(Arc<BTreeMap<(u32, MonoNs), Rest>>);

fn whole((&(thread, from_ns), rest): (&(u32, MonoNs), &Rest)) -> SleepRun {
    SleepRun {
        thread,
        from_ns,
        to_ns: rest.to_ns,
        class: usize::from(rest.class),
        holder: rest.holder,
        call: rest.call,
    }
}

impl SleepRuns {
    pub(super) fn bytes(&self) -> usize {
        leaves_bytes::<(u32, u64), Rest>(self.0.len())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = SleepRun> {
        self.0.iter().map(whole)
    }

    /// Those of a thread and class that nothing has, newest first.
    pub(super) fn pending(&self, thread: u32, class: usize) -> impl Iterator<Item = SleepRun> {
        self.pending_since(thread, class, MonoNs::ZERO)
    }

    /// Those of them that began then or later.
    pub(super) fn pending_since(
        &self,
        thread: u32,
        class: usize,
        from_ns: MonoNs,
    ) -> impl Iterator<Item = SleepRun> {
        let of_thread = self
            .0
            .range((thread, from_ns)..=(thread, MonoNs::MAX))
            .rev();
        of_thread
            .map(whole)
            .filter(move |sleep_run| sleep_run.class == class && sleep_run.holder.is_none())
    }

    /// Adds one, as part of the thread's last one where it goes on.
    pub(super) fn add(&mut self, new: SleepRun) {
        let all = Arc::make_mut(&mut self.0);
        let mut of_thread = all.range_mut((new.thread, MonoNs::ZERO)..=(new.thread, MonoNs::MAX));
        if let Some((_, last)) = of_thread.next_back()
            && last.to_ns == new.from_ns
            && usize::from(last.class) == new.class
            && last.holder == new.holder
            && last.call == new.call
        {
            last.to_ns = new.to_ns;
            return;
        }
        let rest = Rest {
            to_ns: new.to_ns,
            class: new.class as u8,
            holder: new.holder,
            call: new.call,
        };
        all.insert((new.thread, new.from_ns), rest);
    }

    /// Takes the newest `amount_ns` off one. Answers from when to when that was.
    pub(super) fn shorten(
        &mut self,
        thread: u32,
        from_ns: MonoNs,
        amount_ns: u64,
    ) -> (MonoNs, MonoNs) {
        let all = Arc::make_mut(&mut self.0);
        let Some(rest) = all.get_mut(&(thread, from_ns)) else {
            return (from_ns, from_ns);
        };
        let to_ns = rest.to_ns;
        rest.to_ns = to_ns.saturating_sub(amount_ns).max(from_ns);
        let cut = (rest.to_ns, to_ns);
        if rest.to_ns == from_ns {
            all.remove(&(thread, from_ns));
        }
        cut
    }

    /// Removes and answers those that lie wholly in a span.
    pub(super) fn take_inside(&mut self, from_ns: MonoNs, to_ns: MonoNs) -> Vec<SleepRun> {
        let inside: Vec<SleepRun> = self
            .iter()
            .filter(|sleep_run| sleep_run.is_inside(from_ns, to_ns))
            .collect();
        if !inside.is_empty() {
            let all = Arc::make_mut(&mut self.0);
            for sleep_run in &inside {
                all.remove(&(sleep_run.thread, sleep_run.from_ns));
            }
        }
        inside
    }

    /// The call tree's nodes have new numbers.
    pub(super) fn renumber(&mut self, map: &[NodeId]) {
        if self.0.is_empty() {
            return;
        }
        for rest in Arc::make_mut(&mut self.0).values_mut() {
            rest.holder = rest.holder.map(|holder| holder.renumbered(map));
        }
    }
}
