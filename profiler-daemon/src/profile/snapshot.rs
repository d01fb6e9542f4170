//! The profile as of one drain pass, for readers. Immutable; it shares with the profile what has not changed since.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    account::{Account, AccountView},
    frames::{Frame, FrameId, FrameList},
    groups::GroupsView,
    input::{Counts, ProcessInfo},
    over::Span,
    segments::Timeline,
};
use crate::processes::{
    ids::ProcessKey,
    module::{Module, ModuleId, ModuleTable},
};

/// One process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessView {
    /// What is known of it.
    pub info: Arc<ProcessInfo>,
    /// What it did.
    pub account: AccountView,
}

/// The dropped processes together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RetiredView {
    /// What user processes were.
    pub user: AccountView,
    /// What kernel threads were.
    pub kernel: AccountView,
    /// How many processes were dropped.
    pub processes: u64,
}

/// What part of the session an answer covers.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// Where the weights come from.
    pub span: Span,
    /// Its beginning, monotonic nanoseconds.
    pub from_ns: u64,
    /// Its beginning, nanoseconds since 1970.
    pub from_unix_ns: u64,
    /// What was lost in it, by cause; what did not grow is missing.
    pub losses: Counts,
    /// Samples lost in it.
    pub samples_lost: u64,
    /// Samples discarded in it, by reason.
    pub discarded: Counts,
}

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    pub(super) started_ns: u64,
    pub(super) started_unix_ns: u64,
    pub(super) now_ns: u64,
    pub(super) now_unix_ns: u64,
    pub(super) boot_unix_ns: u64,
    pub(super) passes: u64,
    pub(super) frames: FrameList,
    pub(super) modules: ModuleTable,
    pub(super) processes: BTreeMap<ProcessKey, ProcessView>,
    pub(super) retired: RetiredView,
    pub(super) dropped: Arc<BTreeMap<ProcessKey, bool>>,
    pub(super) groups: GroupsView,
    pub(super) timeline: Timeline,
    pub(super) losses: Counts,
    pub(super) samples_lost: u64,
    pub(super) discarded: Counts,
    pub(super) stack_bytes: u64,
}

impl Snapshot {
    /// The same as if only these processes had been profiled: all others, and what dropped processes were, are left out.
    /// Losses stay, as nobody knows whose they were.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(&ProcessInfo) -> bool) -> Self {
        let mut only = self.clone();
        only.processes.retain(|_, process| wanted(&process.info));
        only.retired = RetiredView {
            user: Account::default().view(),
            kernel: Account::default().view(),
            processes: 0,
        };
        only
    }

    /// Bytes that all call trees take.
    #[must_use]
    pub fn stack_bytes(&self) -> u64 {
        self.stack_bytes
    }

    /// Time of the pass, nanoseconds since 1970.
    #[must_use]
    pub fn as_of_unix_ns(&self) -> u64 {
        self.now_unix_ns
    }

    /// Time of the pass, monotonic nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Begin of the session, nanoseconds since 1970.
    #[must_use]
    pub fn started_unix_ns(&self) -> u64 {
        self.started_unix_ns
    }

    /// When something started that is known by nanoseconds since boot, nanoseconds since 1970.
    #[must_use]
    pub fn unix_ns_of_boot_ns(&self, boot_ns: u64) -> u64 {
        self.boot_unix_ns.saturating_add(boot_ns)
    }

    /// Passes so far.
    #[must_use]
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// The frame of this number.
    #[must_use]
    pub fn frame(&self, id: FrameId) -> Frame {
        self.frames.get(id)
    }

    /// The module of this number.
    #[must_use]
    pub fn module(&self, id: ModuleId) -> &Module {
        self.modules.get(id)
    }

    /// All modules as of this pass.
    #[must_use]
    pub fn modules(&self) -> &ModuleTable {
        &self.modules
    }

    /// The groups' counters.
    #[must_use]
    pub fn groups(&self) -> &GroupsView {
        &self.groups
    }

    /// The kept processes by (pid, start).
    #[must_use]
    pub fn processes(&self) -> &BTreeMap<ProcessKey, ProcessView> {
        &self.processes
    }

    /// The dropped ones together.
    #[must_use]
    pub fn retired(&self) -> &RetiredView {
        &self.retired
    }

    /// Whether a process of this number (and start, in 10 ms ticks since boot) was kept once and is dropped.
    #[must_use]
    pub fn was_dropped(&self, pid: u32, start_ticks: Option<u64>) -> bool {
        let first = ProcessKey { pid, start_ns: 0 };
        let last = ProcessKey {
            pid,
            start_ns: u64::MAX,
        };
        self.dropped
            .range(first..=last)
            .any(|(key, _)| start_ticks.is_none_or(|ticks| key.start_ticks() == ticks))
    }

    /// Counters of losses since the session began: the kernel's and the profile's own.
    #[must_use]
    pub fn losses(&self) -> &Counts {
        &self.losses
    }

    /// Samples that could not be stored since the session began.
    #[must_use]
    pub fn samples_lost(&self) -> u64 {
        self.samples_lost
    }

    /// Samples discarded on purpose since the session began, by reason.
    #[must_use]
    pub fn discarded(&self) -> &Counts {
        &self.discarded
    }

    /// The whole session.
    #[must_use]
    pub fn whole(&self) -> Coverage {
        Coverage {
            span: Span::Session,
            from_ns: self.started_ns,
            from_unix_ns: self.started_unix_ns,
            losses: grown(&self.losses, &Vec::new()),
            samples_lost: self.samples_lost,
            discarded: self.discarded.clone(),
        }
    }

    /// The last `duration_ns`, rounded outward to segments; the whole of a younger session. `Err` tells the longest
    /// window still kept, nanoseconds.
    pub fn last(&self, duration_ns: u64) -> Result<Coverage, u64> {
        let Some(start) = self.timeline.covering(self.now_ns, duration_ns) else {
            let oldest_ns = self
                .timeline
                .starts
                .front()
                .map_or(self.now_ns, |start| start.from_ns);
            return Err(self.now_ns - oldest_ns);
        };
        let mut discarded = self.discarded.clone();
        for (reason, count) in &mut discarded {
            *count = count.saturating_sub(lookup(&start.discarded, reason));
        }
        Ok(Coverage {
            span: Span::Since(start.seq),
            from_ns: start.from_ns,
            from_unix_ns: start.from_unix_ns,
            losses: grown(&self.losses, &start.losses),
            samples_lost: self.samples_lost.saturating_sub(start.samples_lost),
            discarded,
        })
    }
}

fn lookup(counts: &Counts, name: &str) -> u64 {
    counts
        .iter()
        .find(|(known, _)| known == name)
        .map_or(0, |(_, count)| *count)
}

/// What grew since `earlier`.
fn grown(now: &Counts, earlier: &Counts) -> Counts {
    now.iter()
        .map(|(name, count)| (name.clone(), count.saturating_sub(lookup(earlier, name))))
        .filter(|(_, count)| *count > 0)
        .collect()
}
