//! What waits give to a stack.

use crate::kinds::{WAITS, WaitNs};

/// What waits give to a stack. All of it is additive.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitSums {
    /// Waits that are exactly the stack's, nanoseconds.
    pub exact: WaitNs,
    /// Drawn waits, nanoseconds times their weight.
    pub weighted: WaitNs,
    /// Sums of the squares of these products, in square milliseconds; saturating. Each is rounded
    /// up or down by chance, so that many small ones have their sum: waits are of microseconds, and
    /// what a wait of minutes stands for has a place too.
    pub squares_ms2: WaitNs,
}

impl WaitSums {
    /// Adds `other`.
    #[inline(always)]
    pub fn add(&mut self, other: &Self) {
        let mut class = 0;
        while class < WAITS {
            self.exact[class] += other.exact[class];
            self.weighted[class] += other.weighted[class];
            self.squares_ms2[class] =
                self.squares_ms2[class].saturating_add(other.squares_ms2[class]);
            class += 1;
        }
    }

    pub(super) fn of_exact(waited: WaitNs) -> Self {
        Self {
            exact: waited,
            ..Self::default()
        }
    }

    /// `own` of it is not weighted: only this wait had that.
    #[inline(always)]
    pub(super) fn of_drawn(
        waited: WaitNs,
        own: WaitNs,
        shift: u32,
        random: &mut impl FnMut() -> u32,
    ) -> Self {
        let mut sums = Self::of_exact(own);
        let mut class = 0;
        while class < WAITS {
            let weighted_ns = (waited[class] - own[class]) << shift;
            sums.weighted[class] = weighted_ns;
            sums.squares_ms2[class] = square_ms2(weighted_ns, random);
            class += 1;
        }
        sums
    }
}

/// The square of `ns` in square milliseconds, rounded by chance: what is below one is one as often
/// as it is a part of it. Saturating.
#[inline(always)]
fn square_ms2(ns: u64, random: &mut impl FnMut() -> u32) -> u64 {
    const US2_PER_MS2: u64 = 1_000_000;
    const ROUNDED_NS: u64 = 1_000_000_000;
    if ns == 0 {
        0
    } else if ns < ROUNDED_NS {
        let us = ns / 1000;
        (us * us + random() as u64 % US2_PER_MS2) / US2_PER_MS2
    } else {
        let ms = ns / 1_000_000;
        if ms > u32::MAX as u64 {
            u64::MAX
        } else {
            ms * ms
        }
    }
}
