//! Into which buckets the session is cut, and how these become fewer as they age: short ones for
//! the last minutes, longer ones before, and none of what is too old, unless a named session needs
//! it.
//!
//! The buckets follow each other without a gap from the beginning of the session; those that are
//! forgotten stay as gaps, and neighbouring gaps become one. What a bucket holds is in each
//! process's [window history](super::window_history).

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{input::NamedCounts, limits::Grade, measured::Counted};
use crate::units::{MonoNs, UnixNs};

/// The session's own counters at a moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Losses by cause.
    pub(super) losses: NamedCounts,
    /// Samples lost.
    pub(super) samples_lost: u64,
    /// Samples discarded, by reason.
    pub(super) discarded: NamedCounts,
    /// For how long control groups were throttled, nanoseconds by path.
    pub(super) throttled: NamedCounts,
}

/// Where a bucket begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BucketStart {
    /// When, monotonic nanoseconds: what the bucket is known by.
    pub(super) from_ns: MonoNs,
    /// When, nanoseconds since 1970.
    pub(super) from_unix_ns: UnixNs,
    /// The session's own counters then.
    pub(super) counters: Arc<Counters>,
    /// What had been counted of measured functions by then; `None`: that is forgotten.
    pub(super) measured: Option<Arc<Counted>>,
    /// Whether what passed in it is still known.
    pub(super) kept: bool,
}

/// What is needed of buckets that are too old for windows.
pub(super) trait Needs {
    /// Whether the bucket between these two borders is needed.
    fn needs(&self, from_ns: MonoNs, to_ns: MonoNs) -> bool;
    /// Whether this border is needed.
    fn is_border(&self, at_ns: MonoNs) -> bool;
}

/// A change to what the rings hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingChange {
    /// The buckets between become one.
    Merge { from_ns: MonoNs, to_ns: MonoNs },
    /// The buckets between are forgotten.
    Forget { from_ns: MonoNs, to_ns: MonoNs },
}

/// See the module. The last bucket is still growing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TimelineRings {
    pub(super) starts: Arc<VecDeque<BucketStart>>,
}

/// What becomes of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BucketFate {
    /// It stays as it is.
    Stays,
    /// It is merged with its neighbours of the same number, by the width of a bucket.
    Widens(u64, u64),
    /// It is merged as far as the borders that are needed allow.
    Old,
    /// It is forgotten.
    Gone,
}

impl TimelineRings {
    /// When the growing bucket began.
    pub(super) fn current_ns(&self) -> MonoNs {
        self.starts
            .back()
            .map_or(MonoNs::ZERO, |start| start.from_ns)
    }

    /// Begins a bucket. It must begin later than the last one.
    pub(super) fn open(&mut self, start: BucketStart) {
        debug_assert!(self.starts.is_empty() || start.from_ns > self.current_ns());
        Arc::make_mut(&mut self.starts).push_back(start);
    }

    /// The buckets, oldest first, each with its end: the beginning of the next; of the growing one
    /// the end of time.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (&BucketStart, MonoNs)> {
        let ends = self.starts.iter().skip(1).map(|start| start.from_ns);
        self.starts.iter().zip(ends.chain([MonoNs::MAX]))
    }

    /// The buckets that overlap a span and are not forgotten, as beginning and end.
    pub(super) fn kept_buckets(
        &self,
        from_ns: MonoNs,
        to_ns: MonoNs,
    ) -> impl Iterator<Item = (MonoNs, MonoNs)> {
        let buckets = self.buckets().filter(|(start, _)| start.kept);
        let buckets = buckets.map(|(start, end_ns)| (start.from_ns, end_ns));
        buckets.filter(move |(bucket_ns, end_ns)| *bucket_ns < to_ns && from_ns < *end_ns)
    }

    /// The last border that is not after a moment; the first one for what lies before the session.
    pub(super) fn border_before(&self, at_ns: MonoNs) -> Option<&BucketStart> {
        let after = self.starts.partition_point(|start| start.from_ns <= at_ns);
        self.starts.get(after.saturating_sub(1))
    }

    /// The first border that is not before a moment; none in the growing bucket.
    pub(super) fn border_after(&self, at_ns: MonoNs) -> Option<&BucketStart> {
        let first = self.starts.partition_point(|start| start.from_ns < at_ns);
        self.starts.get(first)
    }

    /// Whether all that passed between two borders is still known.
    pub(super) fn is_kept(&self, from_ns: MonoNs, to_ns: MonoNs) -> bool {
        let mut buckets = self.buckets();
        buckets.all(|(start, end_ns)| start.kept || end_ns <= from_ns || to_ns <= start.from_ns)
    }

    /// Since when everything is known without a gap, monotonic nanoseconds.
    pub(super) fn kept_since_ns(&self) -> MonoNs {
        let kept = self.starts.iter().rev().take_while(|start| start.kept);
        kept.last().map_or(MonoNs::ZERO, |start| start.from_ns)
    }

    /// Lets the buckets age: merges what the grades want merged, and what ended before `horizon_ns`
    /// is merged as far as it is needed and else forgotten. Answers what is to be done to the
    /// rings.
    pub(super) fn age(
        &mut self,
        now_ns: MonoNs,
        grades: &[Grade],
        horizon_ns: MonoNs,
        needs: &impl Needs,
    ) -> Vec<RingChange> {
        let fates: Vec<BucketFate> = self
            .buckets()
            .map(|(start, end_ns)| match () {
                () if end_ns == MonoNs::MAX => BucketFate::Stays,
                () if !start.kept => BucketFate::Gone,
                () if end_ns > horizon_ns => widened(start.from_ns, now_ns, grades),
                () if needs.needs(start.from_ns, end_ns) => BucketFate::Old,
                () => BucketFate::Gone,
            })
            .collect();
        let mut changes = Vec::new();
        let mut joined = vec![false; fates.len()];
        let mut index = 0;
        while index < fates.len() {
            let mut end = index + 1;
            while end < fates.len()
                && fates[index] != BucketFate::Stays
                && fates[end] == fates[index]
                && (fates[end] == BucketFate::Gone || !needs.is_border(self.starts[end].from_ns))
            {
                joined[end] = true;
                end += 1;
            }
            let to_ns = self
                .starts
                .get(end)
                .map_or(MonoNs::MAX, |start| start.from_ns);
            let from_ns = self.starts[index].from_ns;
            if fates[index] == BucketFate::Gone {
                if (index..end).any(|at| self.starts[at].kept) {
                    changes.push(RingChange::Forget { from_ns, to_ns });
                }
            } else if end > index + 1 {
                changes.push(RingChange::Merge { from_ns, to_ns });
            }
            index = end;
        }
        if joined.contains(&true) || !changes.is_empty() {
            let starts = Arc::make_mut(&mut self.starts);
            for (start, fate) in starts.iter_mut().zip(&fates) {
                start.kept &= *fate != BucketFate::Gone;
            }
            let mut joined = joined.into_iter();
            starts.retain(|_| !joined.next().unwrap_or_default());
        }
        changes
    }

    /// Has the oldest borders forget what had been counted of measured functions, until all hold no
    /// more than so many together. Answers how many forgot any.
    pub(super) fn forget_counted(&mut self, most: usize) -> u64 {
        let of = |start: &BucketStart| start.measured.as_ref().map_or(0, |counted| counted.len());
        let mut held: usize = self.starts.iter().map(of).sum();
        let mut forgot = 0;
        let oldest = self.starts.len().saturating_sub(1);
        let mut index = 0;
        while held > most && index < oldest {
            let count = of(&self.starts[index]);
            if count > 0 {
                Arc::make_mut(&mut self.starts)[index].measured = None;
                held -= count;
                forgot += 1;
            }
            index += 1;
        }
        forgot
    }

    /// The next border after a moment that is not the growing bucket's own.
    pub(super) fn next_horizon(&self, horizon_ns: MonoNs) -> Option<MonoNs> {
        let mut borders = self.starts.iter().map(|start| start.from_ns);
        borders.find(|at_ns| *at_ns > horizon_ns)
    }
}

/// The widest bucket of which all has come to its age.
fn widened(from_ns: MonoNs, now_ns: MonoNs, grades: &[Grade]) -> BucketFate {
    for grade in grades.iter().rev() {
        let number = from_ns.ns() / grade.width_ns;
        let complete_ns = MonoNs::new((number + 1) * grade.width_ns);
        if complete_ns.saturating_add(grade.older_than_ns) <= now_ns {
            return BucketFate::Widens(grade.width_ns, number);
        }
    }
    BucketFate::Stays
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const GRADES: [Grade; 2] = [
        Grade {
            older_than_ns: 20 * SECOND_NS,
            width_ns: 10 * SECOND_NS,
        },
        Grade {
            older_than_ns: 60 * SECOND_NS,
            width_ns: 30 * SECOND_NS,
        },
    ];

    /// Needs what lies between the first and the last of these borders.
    struct Between(Vec<MonoNs>);

    impl Needs for Between {
        fn needs(&self, from_ns: MonoNs, to_ns: MonoNs) -> bool {
            let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else {
                return false;
            };
            *first <= from_ns && to_ns <= *last
        }

        fn is_border(&self, at_ns: MonoNs) -> bool {
            self.0.contains(&at_ns)
        }
    }

    fn aged(seconds: u64, keep_s: u64, needs: &Between) -> TimelineRings {
        let mut timeline = TimelineRings::default();
        for now in 0..seconds {
            timeline.open(BucketStart {
                from_ns: MonoNs::new(now * SECOND_NS),
                from_unix_ns: UnixNs::ZERO,
                counters: Arc::default(),
                measured: None,
                kept: true,
            });
            let horizon_ns = (now * SECOND_NS).saturating_sub(keep_s * SECOND_NS);
            timeline.age(
                MonoNs::new(now * SECOND_NS),
                &GRADES,
                MonoNs::new(horizon_ns),
                needs,
            );
        }
        timeline
    }

    fn shown(timeline: &TimelineRings) -> Vec<(u64, bool)> {
        let starts = timeline.starts.iter();
        starts
            .map(|start| (start.from_ns.ns() / SECOND_NS, start.kept))
            .collect()
    }

    // Check that buckets become coarser with age, by whole widths, and that what is too old
    // is one gap.
    #[test]
    fn grades() {
        let timeline = aged(131, 90, &Between(Vec::new()));
        let mut expected = vec![
            (0, false),
            (30, true),
            (60, true),
            (70, true),
            (80, true),
            (90, true),
            (100, true),
        ];
        expected.extend((110..131).map(|second| (second, true)));
        assert_eq!(shown(&timeline), expected);
        assert_eq!(timeline.kept_since_ns(), MonoNs::new(30 * SECOND_NS));
    }

    // Check that what is needed is kept between gaps, as few buckets as its borders allow.
    #[test]
    fn needs_are_kept() {
        let borders = [5, 17, 41]
            .map(|second| MonoNs::new(second * SECOND_NS))
            .to_vec();
        let timeline = aged(400, 90, &Between(borders));
        let starts = shown(&timeline);
        assert_eq!(
            starts[..4],
            [(0, false), (5, true), (17, true), (41, false)]
        );
        assert!(starts[4].0 >= 270 && starts[4].1);
        let is_kept = |from: u64, to: u64| {
            timeline.is_kept(MonoNs::new(from * SECOND_NS), MonoNs::new(to * SECOND_NS))
        };
        assert!(is_kept(5, 41) && is_kept(5, 17) && is_kept(330, 399));
        assert!(!is_kept(0, 17) && !is_kept(17, 330));
    }
}
