//! Which processes of a report are strata of their own, kind by kind, and which share one with the
//! rest of their image.
//!
//! With one stratum each, processes of 3 ms would lose half of their user time: most have no tick.
//! Chosen by exact time, never by marks, which would select those that were seen.

use crate::kinds::{KINDS, Kind, KindNs, MARKS, Primary, Tick, WAITS};

/// So many mark periods make a process a stratum of its own.
pub const PERIODS: u64 = 10;

/// A set of [`Kind`]s, by index.
pub type KindSet = [bool; KINDS];

/// The time for which one mark stands, on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkPeriods {
    /// Of ticks, nanoseconds: 1 / `frequency_hz`.
    pub tick_ns: u64,
    /// Of marks at drawn gaps and of walked waits outside calls, nanoseconds: `min_interval`. 0:
    /// such time is exactly its stack's.
    pub gap_ns: u64,
}

impl MarkPeriods {
    /// The period of `kind`, nanoseconds.
    #[must_use]
    pub fn of(self, kind: Kind) -> u64 {
        match kind {
            Kind::User | Kind::Untraced | Kind::Kernel => self.tick_ns,
            Kind::Call
            | Kind::CallBlocked
            | Kind::CallRunnable
            | Kind::OutsideBlocked
            | Kind::OutsideRunnable => self.gap_ns,
        }
    }
}

/// The kinds of which a process with the exact totals `kinds` in the window of the report is a
/// stratum of its own; of the others it is a part of its image's. In the report of one process,
/// that process is the stratum of all.
#[must_use]
pub fn own_kinds(kinds: &KindNs, periods: MarkPeriods) -> KindSet {
    Kind::ALL.map(|kind| kinds[kind as usize] >= periods.of(kind).saturating_mul(PERIODS))
}

/// The totals of the kinds in `set`; 0 for the others.
#[must_use]
pub fn totals_of(set: &KindSet, kinds: &KindNs) -> KindNs {
    Kind::ALL.map(|kind| {
        if set[kind as usize] {
            kinds[kind as usize]
        } else {
            0
        }
    })
}

/// The complement of `set`.
#[must_use]
pub fn others(set: &KindSet) -> KindSet {
    set.map(|is_in| !is_in)
}

/// What of a stack belongs to the kinds in `set`: their marks, among them the ticks that found
/// calls with [`Kind::Call`]. `cell` = the part of `set` + that of [`others`], exact waits and
/// walks apart, which belong to no kind: they are in the part for which `with_exact` is true.
#[must_use]
pub fn part_of(set: &KindSet, with_exact: bool, cell: &Primary) -> Primary {
    let mut part = Primary::default();
    for tick in Tick::ALL {
        if set[kind_of_tick(tick) as usize] {
            part.ticks[tick as usize] = cell.ticks[tick as usize];
        }
    }
    // How much each stands for is known of all ticks together.
    let (ticks, all) = (u128::from(part.samples()), u128::from(cell.samples()));
    if let Some(excess) = (u128::from(cell.tick_excess) * ticks).checked_div(all) {
        part.tick_excess = u64::try_from(excess).unwrap_or(u64::MAX);
    }
    let gaps: [Kind; MARKS] = [Kind::Call, Kind::CallBlocked, Kind::CallRunnable];
    for (index, kind) in gaps.into_iter().enumerate() {
        if set[kind as usize] {
            part.marks[index] = cell.marks[index];
            part.excess[index] = cell.excess[index];
        }
    }
    let outside: [Kind; WAITS] = [Kind::OutsideBlocked, Kind::OutsideRunnable];
    for (index, kind) in outside.into_iter().enumerate() {
        if set[kind as usize] {
            part.weighted[index] = cell.weighted[index];
            part.squares_ms2[index] = cell.squares_ms2[index];
        }
    }
    if with_exact {
        part.exact = cell.exact;
        part.walks = cell.walks;
    }
    part
}

/// The kind that a tick marks; of a tick inside a traced call, the kind whose kernel functions it
/// tells.
fn kind_of_tick(tick: Tick) -> Kind {
    match tick {
        Tick::User | Tick::Fault => Kind::User,
        Tick::Call => Kind::Call,
        Tick::UntracedUser | Tick::UntracedFault | Tick::UntracedCall => Kind::Untraced,
        Tick::Kernel => Kind::Kernel,
    }
}
