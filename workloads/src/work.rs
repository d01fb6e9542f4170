//! Counted work: the same loop behind every function with a known share, so that shares hold by
//! construction.
//!
//! The loop is one dependency chain (multiply, add, shift, xor), so its speed does not depend on
//! where the linker put it.

use std::hint::black_box;

use crate::sys;

/// Runs `rounds` of the loop. Inlined into each worker, so that the worker is the leaf.
#[inline(always)]
pub(crate) fn burn(rounds: u64, seed: u64) -> u64 {
    // Through memory: the worker uses its stack from its first instruction on, so that the
    // optimiser cannot put off setting up its frame until after the loop. Without a frame its
    // caller would be missing from the stack.
    let rounds = black_box(rounds);
    let mut x = seed;
    for _ in 0..rounds {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        x ^= x >> 29;
    }
    black_box(x)
}

/// Declares functions that do nothing but counted work, each with its own code (the seed keeps them
/// from being merged).
macro_rules! workers {
    ($($(#[$doc:meta])* $name:ident = $seed:literal;)*) => {
        $($(#[$doc])*
        #[inline(never)]
        pub(crate) fn $name(rounds: u64) -> u64 {
            $crate::work::burn(rounds, $seed)
        })*
    };
}
pub(crate) use workers;

/// How many rounds take a millisecond on this machine, by the fastest of several trials.
#[inline(never)]
pub(crate) fn rounds_per_ms() -> u64 {
    const TRIAL_ROUNDS: u64 = 1_000_000;
    let fastest_ns = (0..7)
        .map(|seed| {
            let start_ns = sys::monotonic_ns();
            black_box(burn(TRIAL_ROUNDS, seed));
            sys::monotonic_ns() - start_ns
        })
        .min()
        .unwrap_or(1)
        .max(1);
    (TRIAL_ROUNDS * 1_000_000 / fastest_ns).max(1)
}

/// A small generator of numbers for jitter: lengths of phases must not fall into step with the
/// sampling timer.
#[derive(Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    /// Always the same sequence: a run can be repeated.
    pub(crate) fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        low + self.0 % (high - low + 1)
    }

    /// A number of an exponential distribution with this mean.
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        let share = (self.between(1, 1 << 32) as f64) / (1u64 << 32) as f64;
        (-share.ln() * mean as f64) as u64
    }
}
