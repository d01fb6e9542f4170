//! In which buckets of the recent past the marks of a wait lie that was not walked: in those in
//! which it passed, in proportion. The time of such waits comes with the totals of their thread,
//! the marks with a stack, in the same pass or the one after it.

use std::collections::HashMap;

use super::timeline::TimelineRings;
use crate::units::MonoNs;

/// Time of a thread and a kind that was found together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpreadPart {
    /// When it began; of time in a segment, when that began.
    pub(super) from_ns: MonoNs,
    /// How much.
    pub(super) ns: u64,
    /// It passed without a break: it may lie in several buckets.
    pub(super) slept: bool,
}

/// By thread and kind.
type Parts = HashMap<(u32, u8), Vec<SpreadPart>>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// The pass of the newest parts.
    pass: u64,
    newest: Parts,
    /// Those of the pass before.
    before: Parts,
    /// The last draw.
    drawn: u32,
}

impl Spread {
    /// Notes where time of a thread and a kind was found to have passed. What is all in the growing
    /// segment needs no note.
    pub(super) fn note(
        &mut self,
        pass: u64,
        of: (u32, u8),
        parts: Vec<SpreadPart>,
        segment_ns: MonoNs,
    ) {
        if pass != self.pass {
            let last = std::mem::take(&mut self.newest);
            self.before = if pass == self.pass + 1 {
                last
            } else {
                Parts::new()
            };
            self.pass = pass;
        }
        let is_now = |part: &SpreadPart| part.from_ns == segment_ns && !part.slept;
        if parts.iter().all(is_now) {
            self.before.remove(&of);
            self.newest.remove(&of);
        } else {
            self.newest.insert(of, parts);
        }
    }

    /// Where a wait of a thread and a kind passed whose marks come in this pass: when each bucket
    /// began (`None`: it is forgotten) and how much of the wait is in it. Nothing: in the growing
    /// one.
    pub(super) fn buckets(
        &self,
        pass: u64,
        of: (u32, u8),
        timeline: &TimelineRings,
    ) -> Vec<(Option<MonoNs>, u64)> {
        let newest = self.newest.get(&of);
        let parts = match pass - self.pass {
            0 => newest.or_else(|| self.before.get(&of)),
            1 => newest,
            _ => None,
        };
        let mut buckets = Vec::new();
        for part in parts.into_iter().flatten() {
            if !part.slept {
                buckets.push((Some(part.from_ns), part.ns));
                continue;
            }
            let (from_ns, to_ns) = (part.from_ns, part.from_ns + part.ns);
            let mut left_ns = part.ns;
            for (began_ns, ended_ns) in timeline.kept_buckets(from_ns, to_ns) {
                let ns = to_ns.min(ended_ns) - from_ns.max(began_ns);
                buckets.push((Some(began_ns), ns));
                left_ns -= ns;
            }
            if left_ns > 0 {
                buckets.push((None, left_ns));
            }
        }
        buckets
    }

    /// Spreads so many marks: at even steps from a drawn place on, so that each bucket has its part
    /// of them on average.
    pub(super) fn marks(
        &mut self,
        buckets: &[(Option<MonoNs>, u64)],
        count: u64,
    ) -> Vec<(Option<MonoNs>, u64)> {
        // Steps by the golden ratio: as even as draws can be.
        self.drawn = self.drawn.wrapping_add(0x9e37_79b9);
        let drawn = u128::from(self.drawn);
        let up_to = |reached: u128, total: u128| {
            let steps = ((reached * u128::from(count)) << 32) / total;
            (steps + u128::from(u32::MAX)).saturating_sub(drawn) >> 32
        };
        split(buckets, up_to)
    }

    /// Spreads an amount.
    pub(super) fn amount(
        buckets: &[(Option<MonoNs>, u64)],
        amount: u64,
    ) -> Vec<(Option<MonoNs>, u64)> {
        split(buckets, |reached, total| {
            reached * u128::from(amount) / total
        })
    }
}

/// What each bucket has, by how much of it all buckets up to some time have.
fn split(
    buckets: &[(Option<MonoNs>, u64)],
    up_to: impl Fn(u128, u128) -> u128,
) -> Vec<(Option<MonoNs>, u64)> {
    let total: u128 = buckets.iter().map(|(_, ns)| u128::from(*ns)).sum();
    let (mut reached, mut given) = (0, 0);
    let shares = buckets.iter().map(|(bucket, ns)| {
        reached += u128::from(*ns);
        let now = up_to(reached, total.max(1));
        let share = now - given;
        given = now;
        (*bucket, u64::try_from(share).unwrap_or(u64::MAX))
    });
    shares.filter(|(_, share)| *share > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::UnixNs;

    // Check that every mark and all of an amount find a bucket, and that over many waits each
    // bucket has its part of the marks.
    #[test]
    fn parts_of_marks() {
        let mut spread = Spread::default();
        let [first, last] = [1, 2].map(MonoNs::new);
        let buckets = [(Some(first), 700), (None, 200), (Some(last), 100)];
        for count in [1, 3, 1_000] {
            let mut sums = [0u64; 3];
            for _ in 0..10_000 {
                let shares = spread.marks(&buckets, count);
                assert_eq!(shares.iter().map(|share| share.1).sum::<u64>(), count);
                for (bucket, share) in shares {
                    let index = buckets.iter().position(|known| known.0 == bucket);
                    sums[index.unwrap()] += share;
                }
            }
            for (sum, (_, ns)) in sums.iter().zip(buckets) {
                let expected = 10 * count * ns;
                assert!(sum.abs_diff(expected) <= 2, "{sum} of {expected}");
            }
        }
        let shares = Spread::amount(&buckets, 12_345);
        assert_eq!(
            shares,
            [(Some(first), 8_641), (None, 2_469), (Some(last), 1_235)]
        );
    }

    // Check that time that was slept through is cut at the borders of buckets, and that notes hold
    // for two passes.
    #[test]
    fn notes() {
        let mut timeline = TimelineRings::default();
        for from_ns in [0, 10, 20] {
            timeline.open(super::super::timeline::BucketStart {
                from_ns: MonoNs::new(from_ns),
                from_unix_ns: UnixNs::ZERO,
                measured: None,
                counters: std::sync::Arc::default(),
                kept: from_ns > 0,
            });
        }
        let mut spread = Spread::default();
        let slept = SpreadPart {
            from_ns: MonoNs::new(5),
            ns: 17,
            slept: true,
        };
        spread.note(7, (1, 4), vec![slept], MonoNs::new(20));
        let at = |ns| Some(MonoNs::new(ns));
        let cut = [(at(10), 10), (at(20), 2), (None, 5)];
        assert_eq!(spread.buckets(7, (1, 4), &timeline), cut);
        assert_eq!(spread.buckets(8, (1, 4), &timeline), cut);
        assert_eq!(spread.buckets(9, (1, 4), &timeline), []);
        assert_eq!(spread.buckets(7, (2, 4), &timeline), []);
        // What came since is all in the growing bucket.
        let now = SpreadPart {
            from_ns: MonoNs::new(20),
            ns: 3,
            slept: false,
        };
        spread.note(8, (1, 4), vec![now], MonoNs::new(20));
        assert_eq!(spread.buckets(8, (1, 4), &timeline), []);
    }
}
