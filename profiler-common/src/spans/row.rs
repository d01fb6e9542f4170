//! What one thread has seen of a USDT point or of a span.

use core::hint::black_box;
use core::sync::atomic::{Ordering, compiler_fence};

use super::histogram::{BUCKETS, bucket, lower_bound_ns};

/// Buckets of values: negative ones, zero, and one for each power of two up to the next. The last
/// one has everything from 2^61 on.
pub const VALUE_BUCKETS: usize = 64;

/// The bucket of a value.
#[must_use]
#[inline(always)]
pub const fn value_bucket(value: i64) -> usize {
    if value < 0 {
        return 0;
    }
    // 1 for zero, 2 for one, 3 for two and three, ...
    let bucket = 1 + (64 - (value as u64).leading_zeros() as usize);
    if bucket < VALUE_BUCKETS {
        bucket
    } else {
        VALUE_BUCKETS - 1
    }
}

/// The least value of a bucket.
#[must_use]
pub const fn least_value(bucket: usize) -> i64 {
    match bucket {
        0 => i64::MIN,
        1 => 0,
        _ => 1 << (bucket - 2),
    }
}

/// Hits of a USDT point in one thread. Grows only.
///
/// Written by the thread itself, under [`UsdtRow::sequence`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsdtRow {
    /// Odd while it is being changed.
    pub sequence: u32,
    /// Unused.
    pub padding: u32,
    /// Hits.
    pub hits: u64,
    /// Hits whose value was read.
    pub values: u64,
    /// Hits whose value could not be read.
    pub unreadable: u64,
    /// The sum of the values, 128 bits with a sign: the lower word. The kernel's programs have no
    /// numbers of more than 64.
    pub sum_low: u64,
    /// The upper word.
    pub sum_high: i64,
    /// The least; of none [`i64::MAX`].
    pub min: i64,
    /// The greatest; of none [`i64::MIN`].
    pub max: i64,
    /// How many there are in each bucket ([`value_bucket`]).
    pub buckets: [u32; VALUE_BUCKETS],
}

impl UsdtRow {
    /// No hits.
    pub const EMPTY: Self = Self {
        sequence: 0,
        padding: 0,
        hits: 0,
        values: 0,
        unreadable: 0,
        sum_low: 0,
        sum_high: 0,
        min: i64::MAX,
        max: i64::MIN,
        buckets: [0; VALUE_BUCKETS],
    };

    /// One hit; `value`: `None` without an argument, and within `None` if it could not be read.
    #[inline(always)]
    pub fn hit(&mut self, value: Option<Option<i64>>) {
        begin(&mut self.sequence);
        self.hits += 1;
        match value {
            Some(Some(value)) => {
                self.values += 1;
                self.add(value as u64, value >> 63);
                if value < self.min {
                    self.min = value;
                }
                if value > self.max {
                    self.max = value;
                }
                // The compiler proves that it is one of them, and leaves the kernel's verifier, who
                // knows nothing of leading zeroes, without a check.
                let bucket = black_box(value_bucket(value));
                if let Some(count) = self.buckets.get_mut(bucket) {
                    *count = count.wrapping_add(1);
                }
            }
            Some(None) => self.unreadable += 1,
            None => {}
        }
        end(&mut self.sequence);
    }

    /// Adds to the sum, a number of two words.
    #[inline(always)]
    fn add(&mut self, low: u64, high: i64) {
        let (sum, carries) = self.sum_low.overflowing_add(low);
        self.sum_low = sum;
        self.sum_high = self
            .sum_high
            .wrapping_add(high)
            .wrapping_add(carries as i64);
    }

    /// The sum of the values. Fewer than 2^63 of them are within its bounds, whatever they are.
    #[cfg(feature = "user")]
    #[must_use]
    pub fn sum(&self) -> i128 {
        i128::from(self.sum_high) << 64 | i128::from(self.sum_low)
    }

    /// Adds the hits of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.hits += other.hits;
        self.values += other.values;
        self.unreadable += other.unreadable;
        self.add(other.sum_low, other.sum_high);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        for (to, from) in self.buckets.iter_mut().zip(other.buckets) {
            *to = to.saturating_add(from);
        }
    }
}

/// Starts and ends of a span in one thread. Grows only.
///
/// Written by the thread itself, under [`SpanRow::sequence`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanRow {
    /// Odd while it is being changed.
    pub sequence: u32,
    /// Unused.
    pub padding: u32,
    /// Starts.
    pub starts: u64,
    /// Starts with the key of a span under way, which they replace.
    pub replaced: u64,
    /// Starts that were not kept because too many spans were under way.
    pub not_kept: u64,
    /// Starts and ends whose key could not be read.
    pub unreadable: u64,
    /// Ends of spans under way, wherever they started.
    pub complete: u64,
    /// Ends without a start.
    pub unmatched: u64,
    /// The shortest, nanoseconds; of none [`u64::MAX`].
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// How long all complete ones took, nanoseconds.
    pub elapsed_ns: u64,
    /// How many there are in each bucket ([`super::histogram`]).
    pub buckets: [u32; BUCKETS],
}

impl SpanRow {
    /// No starts and no ends.
    pub const EMPTY: Self = Self {
        sequence: 0,
        padding: 0,
        starts: 0,
        replaced: 0,
        not_kept: 0,
        unreadable: 0,
        complete: 0,
        unmatched: 0,
        min_ns: u64::MAX,
        max_ns: 0,
        elapsed_ns: 0,
        buckets: [0; BUCKETS],
    };

    /// A start, and what became of it.
    #[inline(always)]
    pub fn start(&mut self, start: Start) {
        begin(&mut self.sequence);
        self.starts += 1;
        match start {
            Start::Kept => {}
            Start::Replaced => self.replaced += 1,
            Start::NotKept => self.not_kept += 1,
        }
        end(&mut self.sequence);
    }

    /// An end; of a span that took so long, or without a start.
    #[inline(always)]
    pub fn end(&mut self, elapsed_ns: Option<u64>) {
        begin(&mut self.sequence);
        match elapsed_ns {
            Some(ns) => {
                self.complete += 1;
                if ns < self.min_ns {
                    self.min_ns = ns;
                }
                if ns > self.max_ns {
                    self.max_ns = ns;
                }
                self.elapsed_ns += ns;
                // As above.
                let bucket = black_box(bucket(ns));
                if let Some(count) = self.buckets.get_mut(bucket) {
                    *count = count.wrapping_add(1);
                }
            }
            None => self.unmatched += 1,
        }
        end(&mut self.sequence);
    }

    /// A start or an end whose key could not be read.
    #[inline(always)]
    pub fn unreadable(&mut self) {
        begin(&mut self.sequence);
        self.unreadable += 1;
        end(&mut self.sequence);
    }

    /// How often its probes were hit.
    #[must_use]
    pub const fn hits(&self) -> u64 {
        self.starts + self.complete + self.unmatched + self.unreadable
    }

    /// So much of what is complete took no longer than this, nanoseconds: the middle of the bucket
    /// that has it; within the last one, which ends with the longest, by its place there. `None`:
    /// none is.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let all: u64 = self.buckets.iter().map(|count| u64::from(*count)).sum();
        let wanted = share * all as f64;
        let mut below = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            let before = below;
            below += u64::from(*count);
            if *count > 0 && below as f64 >= wanted {
                if bucket == BUCKETS - 1 {
                    let from_ns = lower_bound_ns(bucket).max(self.min_ns) as f64;
                    let share = (wanted - before as f64) / f64::from(*count);
                    return Some((from_ns + (self.max_ns as f64 - from_ns) * share) as u64);
                }
                let middle_ns = lower_bound_ns(bucket).midpoint(lower_bound_ns(bucket + 1));
                return Some(middle_ns.clamp(self.min_ns, self.max_ns));
            }
        }
        None
    }

    /// Adds the starts and ends of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.starts += other.starts;
        self.replaced += other.replaced;
        self.not_kept += other.not_kept;
        self.unreadable += other.unreadable;
        self.complete += other.complete;
        self.unmatched += other.unmatched;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.elapsed_ns += other.elapsed_ns;
        for (to, from) in self.buckets.iter_mut().zip(other.buckets) {
            *to = to.saturating_add(from);
        }
    }
}

/// What became of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The span is under way.
    Kept,
    /// It is, instead of one with the same key.
    Replaced,
    /// Too many are under way.
    NotKept,
}

/// Before a change of a row.
#[inline(always)]
fn begin(sequence: &mut u32) {
    *sequence = sequence.wrapping_add(1);
    compiler_fence(Ordering::SeqCst);
}

/// After it.
#[inline(always)]
fn end(sequence: &mut u32) {
    compiler_fence(Ordering::SeqCst);
    *sequence = sequence.wrapping_add(1);
}

const _: () = assert!(size_of::<UsdtRow>() == 320);
const _: () = assert!(size_of::<SpanRow>() == 80 + 4 * BUCKETS);

#[cfg(test)]
mod tests {
    use super::*;

    // Check that each value lies in the bucket whose bounds are around it.
    #[test]
    fn each_value_is_in_its_bucket() {
        assert_eq!(value_bucket(i64::MIN), 0);
        assert_eq!(value_bucket(-1), 0);
        assert_eq!(value_bucket(0), 1);
        assert_eq!(value_bucket(i64::MAX), VALUE_BUCKETS - 1);
        for bucket in 2..VALUE_BUCKETS {
            let least = least_value(bucket);
            assert_eq!(value_bucket(least), bucket);
            assert_eq!(value_bucket(least - 1), bucket - 1);
        }
    }

    // Check that hits with values, without any, and with unreadable ones are told apart, and that
    // rows of several threads add up.
    #[test]
    fn hits_add_up() {
        let mut row = UsdtRow::EMPTY;
        let mut other = UsdtRow::EMPTY;
        for value in [3, -5, 0] {
            row.hit(Some(Some(value)));
        }
        row.hit(Some(None));
        row.hit(None);
        other.hit(Some(Some(100)));
        row.merge(&other);
        assert_eq!((row.hits, row.values, row.unreadable), (6, 4, 1));
        #[cfg(feature = "user")]
        assert_eq!(row.sum(), 98);
        assert_eq!((row.min, row.max), (-5, 100));
        assert_eq!(row.buckets.iter().sum::<u32>(), 4);
        assert_eq!(row.sequence % 2, 0);
    }

    // Check that sums of values are exact beyond what 64 bits hold, in either direction, of one
    // thread and of several.
    #[test]
    #[cfg(feature = "user")]
    fn sums_do_not_wrap() {
        let mut sum = 0_i128;
        let mut all = UsdtRow::EMPTY;
        for value in [i64::MAX, i64::MAX, -1, i64::MIN, i64::MIN, i64::MIN, 7] {
            let mut row = UsdtRow::EMPTY;
            for _ in 0..5 {
                row.hit(Some(Some(value)));
            }
            assert_eq!(row.sum(), 5 * i128::from(value));
            all.merge(&row);
            sum += row.sum();
            assert_eq!(all.sum(), sum);
        }
    }

    // Check that quantiles of spans are those of the sorted durations, to a hundredth, and exact
    // where all are alike.
    #[test]
    fn quantiles_are_near_those_of_the_durations() {
        let mut row = SpanRow::EMPTY;
        assert_eq!(row.quantile_ns(0.5), None);
        for _ in 0..1000 {
            row.end(Some(10_060_000));
        }
        assert_eq!(row.quantile_ns(0.5), Some(10_060_000));
        assert_eq!(row.quantile_ns(0.99), Some(10_060_000));
        let mut durations: std::vec::Vec<u64> = (1..=1000_u64).map(|n| n * n * 997).collect();
        let mut row = SpanRow::EMPTY;
        for ns in &durations {
            row.end(Some(*ns));
        }
        durations.sort_unstable();
        for (share, at) in [(0.5, 499), (0.9, 899), (0.99, 989)] {
            let found = row.quantile_ns(share).expect("some are complete") as f64;
            let ratio = found / durations[at] as f64;
            assert!((0.99..1.01).contains(&ratio), "{share}: {ratio}");
        }
        assert_eq!(row.elapsed_ns, durations.iter().sum::<u64>());
    }

    // Check that quantiles of spans that are all in the last bucket lie between the shortest and
    // the longest by their share.
    #[test]
    fn quantiles_of_the_longest_spans() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut row = SpanRow::EMPTY;
        for seconds in (1_000..=3_000).step_by(20) {
            row.end(Some(seconds * SECOND_NS));
        }
        for (share, seconds) in [(0.5, 2_000), (0.9, 2_800), (0.99, 2_980)] {
            let found = row.quantile_ns(share).expect("some are complete");
            let off = found.abs_diff(seconds * SECOND_NS);
            assert!(off <= 20 * SECOND_NS, "{share}: {found}");
        }
    }

    // Check that every start and end is counted once, by what became of it.
    #[test]
    fn starts_and_ends_are_counted() {
        let mut row = SpanRow::EMPTY;
        row.start(Start::Kept);
        row.start(Start::Replaced);
        row.start(Start::NotKept);
        row.end(Some(5));
        row.end(None);
        row.unreadable();
        let mut sum = SpanRow::EMPTY;
        sum.merge(&row);
        sum.merge(&row);
        assert_eq!((sum.starts, sum.replaced, sum.not_kept), (6, 2, 2));
        assert_eq!((sum.complete, sum.unmatched, sum.unreadable), (2, 2, 2));
        assert_eq!(sum.hits(), 12);
        assert_eq!((sum.min_ns, sum.max_ns), (5, 5));
    }
}
