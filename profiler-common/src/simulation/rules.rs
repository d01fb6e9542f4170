//! The rule, the one it replaced, and near misses: each leaves one part of the rule out, to show
//! what that part is for.

/// How time is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DivisionRule {
    /// docs/semantics.md section 4.
    Marks,
    /// The first design: all pending time goes to the stack of the next walk.
    NextWalk,
    /// Ticks at one period for ever.
    FixedComb,
    /// The first gap follows the law of the others.
    FirstGapWhole,
    /// Each process is a stratum, however small.
    PerProcess,
    /// Processes that have ticks are strata.
    StrataByTicks,
    /// A mark that no walk takes is forgotten.
    DropUntaken,
    /// Marks of a call are looked for at the next call's exit, ticks apart.
    NextCallsExit,
    /// A walk takes one mark, however many have fallen.
    OneMarkPerWalk,
    /// The next gap begins at the walk, not at the mark.
    GapFromWalk,
    /// What a drawn wait stands for is chosen when it ends.
    WeightAfterWait,
    /// Of waits outside calls, the first of each 100 ms up to the rate are walked, and stand for
    /// the others.
    FirstWaits,
    /// Waits outside calls that are not walked are looked for at the next call's exit.
    OutsideAtExit,
    /// Unwalked waits are divided as the walked ones are: by the waits that found a token.
    WalkedStandForAll,
    /// What a drawn wait stands for is as long as it was, its own walk included.
    WalksAreWaited,
    /// Only waits that were not walked are found from outside.
    FoundIfUnwalked,
    /// Who was not walked for long is walked sooner, and stands for as many as others.
    AgeNotWeighted,
    /// All marks of a wait are marks of its blocked part.
    WaitsAreBlocked,
    /// A walk at which no mark has fallen leaves no trace: the next one takes all since an earlier
    /// one for one stretch.
    TakeOnlyWhenDue,
}
