//! What the profile itself counts, declared once.

use super::{Profile, input::NamedCounts};

/// A counter, and how it is read from what has it.
#[derive(Clone, Copy, Debug)]
pub struct Loss<S> {
    /// Its name in reports and metrics.
    pub name: &'static str,
    /// What is counted, as a sentence.
    pub help: &'static str,
    /// Its value.
    pub read: fn(&S) -> u64,
}

/// The values of these counters, by name, in their order.
pub fn counts<S>(losses: &[Loss<S>], source: &S) -> NamedCounts {
    losses
        .iter()
        .map(|loss| (loss.name.into(), (loss.read)(source)))
        .collect()
}

/// Every counter of the profile. Those that end in `_ns` are nanoseconds.
pub const OWN_LOSSES: &[Loss<Profile>] = &[
    Loss {
        name: "frames_full",
        help: "Frames that are [unknown] because the table of frames is full.",
        read: |profile| profile.frames.refused().full,
    },
    Loss {
        name: "frames_over_share",
        help: "Frames that are [unknown] because their process, or all of its user, has its share of the table of frames.",
        read: |profile| profile.frames.refused().over_share,
    },
    Loss {
        name: "modules_full",
        help: "Modules that are [unknown] because the table of modules is full.",
        read: |profile| profile.modules.refused().full,
    },
    Loss {
        name: "modules_over_share",
        help: "Modules that are [unknown] because their process, or all of its user, has its share of the table of modules, or because there are too many versions of their file.",
        read: |profile| profile.modules.refused().over_share,
    },
    Loss {
        name: "tree_full",
        help: "Stacks that lost their innermost frames, or all, because no room could be made for them in the call trees.",
        read: |profile| profile.budget.cut(),
    },
    Loss {
        name: "folded_retired_nodes",
        help: "Places in the call tree of processes dropped from the reports that were folded to make room.",
        read: |profile| profile.folded.retired.nodes,
    },
    Loss {
        name: "folded_retired_ns",
        help: "Time that these had, roughly: it is under [folded] or [unknown: folded] now.",
        read: |profile| profile.folded.retired.ns,
    },
    Loss {
        name: "folded_exited_nodes",
        help: "Places in the call trees of exited processes that were folded to make room.",
        read: |profile| profile.folded.exited.nodes,
    },
    Loss {
        name: "folded_exited_ns",
        help: "Time that these had, roughly: it is under [folded] or [unknown: folded] now; or, of a process that was dropped from the reports since, where there was no room for it even so, [dropped] or [unknown: tree_full].",
        read: |profile| profile.folded.exited.ns,
    },
    Loss {
        name: "folded_living_nodes",
        help: "Places in the call trees of living processes that were folded to make room.",
        read: |profile| profile.folded.living.nodes,
    },
    Loss {
        name: "folded_living_ns",
        help: "Time that these had, roughly: it is under [folded] or [unknown: folded] now; or, of a process that was dropped from the reports since, where there was no room for it even so, [dropped] or [unknown: tree_full].",
        read: |profile| profile.folded.living.ns,
    },
    Loss {
        name: "sessions_given_up",
        help: "Named sessions that are no longer kept, because newer ones or newer time took their room.",
        read: |profile| profile.sessions.given_up(),
    },
    Loss {
        name: "measured_windows_forgotten",
        help: "Borders of the recent past at which it is forgotten what had been counted of measured functions: windows that begin or end there are without it.",
        read: |profile| profile.measured_forgotten,
    },
    Loss {
        name: "thread_regressed",
        help: "Updates of threads that would have taken time back from stacks: left out.",
        read: |profile| profile.refusals.regressed_threads,
    },
    Loss {
        name: "thread_unbalanced",
        help: "Updates of threads whose classes do not add up to the time they were observed.",
        read: |profile| profile.refusals.unbalanced_threads,
    },
    Loss {
        name: "late_updates",
        help: "Updates of threads or processes that were gone.",
        read: |profile| profile.refusals.late_updates,
    },
    Loss {
        name: "excess_stack_ns",
        help: "Time of stacks beyond the totals of their threads, given up.",
        read: |profile| profile.refusals.excess_ns,
    },
];

impl Profile {
    /// The profile's own counters, by name, in the order of [`OWN_LOSSES`].
    pub fn own_losses(&self) -> NamedCounts {
        counts(OWN_LOSSES, self)
    }

    /// The kernel's counters and the profile's own, by name.
    pub(super) fn own_and_kernel_losses(&self) -> NamedCounts {
        let mut losses = self.losses.clone();
        losses.extend(self.own_losses());
        losses
    }
}
