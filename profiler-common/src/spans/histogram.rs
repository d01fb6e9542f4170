//! Buckets of spans' durations: 64 in each octave, so that a quantile read from the middle of one
//! is off by less than a hundredth.

/// Buckets of an octave; and as many below the first one.
const STEPS: usize = 64;
/// Octaves.
const OCTAVES: usize = 27;
/// How many buckets there are. The last one has everything from 136 s on.
pub const BUCKETS: usize = STEPS * (1 + OCTAVES);
/// Nothing closer is told apart: 2^4 ns, of 2^10, below which no two probes are.
const UNIT: u32 = 4;

/// The bucket of a duration.
#[must_use]
#[inline(always)]
pub const fn bucket(ns: u64) -> usize {
    let units = ns >> UNIT;
    if units < STEPS as u64 {
        return units as usize;
    }
    let shift = 63 - units.leading_zeros() - STEPS.ilog2();
    let bucket = STEPS * (shift as usize + 1) + ((units >> shift) as usize - STEPS);
    if bucket < BUCKETS {
        bucket
    } else {
        BUCKETS - 1
    }
}

/// The least duration of a bucket, nanoseconds.
#[must_use]
pub const fn lower_bound_ns(bucket: usize) -> u64 {
    if bucket < STEPS {
        return (bucket as u64) << UNIT;
    }
    let shift = bucket / STEPS - 1;
    ((STEPS + bucket % STEPS) as u64) << shift << UNIT
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that each duration lies in the bucket whose bounds are around it, and that no bucket is
    // wider than a sixty-fourth.
    #[test]
    fn each_duration_is_in_its_bucket() {
        for bucket in 1..BUCKETS {
            let least = lower_bound_ns(bucket);
            assert_eq!(super::bucket(least), bucket);
            assert_eq!(super::bucket(least - 1), bucket - 1);
            let width = lower_bound_ns(bucket + 1) - least;
            assert!(width == 16 || 64 * width <= least, "{width} from {least}");
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!(lower_bound_ns(BUCKETS - 1) > 130_000_000_000);
    }
}
