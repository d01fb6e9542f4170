//! Random numbers from a seed, and the timer ticks of one processor.

use super::rules::DivisionRule;

pub(super) const US: u64 = 1_000;
pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;

/// Mean period of the ticks: 99 a second.
pub(super) const TICK_NS: u64 = SECOND / 99;

/// A generator of random numbers (splitmix64): fast, and the same everywhere.
#[derive(Clone)]
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1))
    }

    pub(super) fn bits(&mut self) -> u32 {
        (self.word() >> 32) as u32
    }

    /// From 0 to 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Evenly between `low` and `high` times `mean_ns`.
    pub(super) fn even(&mut self, mean_ns: u64, low: f64, high: f64) -> u64 {
        (mean_ns as f64 * (low + (high - low) * self.unit())) as u64
    }

    /// 2 % around `mean_ns`: real programs are never exactly periodic.
    pub(super) fn wiggle(&mut self, mean_ns: u64) -> u64 {
        self.even(mean_ns, 0.98, 1.02)
    }

    /// Without memory.
    pub(super) fn exponential(&mut self, mean_ns: u64) -> u64 {
        (-(1.0 - self.unit()).ln() * mean_ns as f64) as u64
    }

    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

/// The ticks of one processor: a drawn phase, and about once a second a drawn period within 10 % of
/// the mean.
pub(super) struct DrawnTicks {
    draw: Draw,
    next_ns: u64,
    period_ns: u64,
    /// Until then the period stays. Never, for ticks that form an even comb.
    until_ns: u64,
}

impl DrawnTicks {
    pub(super) fn new(seed: u64, rule: DivisionRule, now_ns: u64) -> Self {
        let mut draw = Draw::new(seed);
        Self {
            next_ns: now_ns + draw.even(TICK_NS, 0.0, 1.0),
            period_ns: TICK_NS,
            until_ns: if rule == DivisionRule::FixedComb {
                u64::MAX
            } else {
                0
            },
            draw,
        }
    }

    /// The next tick, if it comes before `end_ns`.
    pub(super) fn next_before(&mut self, end_ns: u64) -> Option<u64> {
        let tick_ns = self.next_ns;
        if tick_ns >= end_ns {
            return None;
        }
        if tick_ns > self.until_ns {
            self.period_ns = self.draw.even(TICK_NS, 0.9, 1.1);
            self.until_ns = tick_ns + self.draw.even(SECOND, 0.8, 1.2);
        }
        self.next_ns += self.period_ns;
        Some(tick_ns)
    }
}
