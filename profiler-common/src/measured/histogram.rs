//! Buckets of half an octave: each bound is the one before times the square root of two, so that a
//! quantile read from them is off by less than a fifth; but for the last one, which has no end: in
//! it a quantile lies anywhere up to the longest call.

/// How many buckets there are. The last one has everything from 8.6 s on.
pub const BUCKETS: usize = 56;

/// Nothing shorter is told apart: 2^6 ns is less than any probe takes.
const FIRST_OCTAVE: u32 = 6;

/// The bucket of a duration.
#[must_use]
#[inline(always)]
pub const fn bucket(ns: u64) -> usize {
    if ns < 1 << FIRST_OCTAVE {
        return 0;
    }
    let octave = 63 - ns.leading_zeros();
    // The upper half of an octave, by ratio: from 2^(octave + 1/2) on. 181 / 128 is the square root
    // of two to one in 10 000.
    let upper = (ns >> (octave - FIRST_OCTAVE)) >= 91;
    let bucket = 1 + 2 * (octave - FIRST_OCTAVE) as usize + upper as usize;
    if bucket < BUCKETS {
        bucket
    } else {
        BUCKETS - 1
    }
}

/// The least duration of a bucket, nanoseconds.
#[must_use]
pub const fn lower_bound_ns(bucket: usize) -> u64 {
    if bucket == 0 {
        return 0;
    }
    let octave = (bucket as u32 - 1) / 2;
    let least = if (bucket - 1).is_multiple_of(2) {
        64
    } else {
        91
    };
    least << octave
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_is_in_its_bucket() {
        for bucket in 1..BUCKETS {
            let least = lower_bound_ns(bucket);
            assert_eq!(super::bucket(least), bucket);
            assert_eq!(super::bucket(least - 1), bucket - 1);
            let ratio = lower_bound_ns(bucket + 1) as f64 / least as f64;
            assert!((1.40..1.43).contains(&ratio), "{ratio} from {least}");
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        // The last bound: beyond an hour nothing needs to be told apart from a quarter of one.
        assert!(lower_bound_ns(BUCKETS - 1) > 8_000_000_000);
    }
}
