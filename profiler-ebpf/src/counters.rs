//! Counting: one call per event counted, nothing else.

use profiler_common::Counter;

use crate::maps::{COUNTS, WALK_ENDS};

/// Adds one.
#[inline(always)]
pub fn count(counter: Counter) {
    if let Some(counts) = COUNTS.get_ptr_mut(0) {
        // SAFETY: this processor's element; a nested tick may cost one count, never more.
        unsafe { (*counts)[counter as usize] += 1 };
    }
}

/// Adds one to the walks that ended so (a `StackEnd`).
#[inline(always)]
pub fn count_end(end: u32) {
    if let Some(ends) = WALK_ENDS.get_ptr_mut(0)
        // SAFETY: as above.
        && let Some(count) = unsafe { (*ends).get_mut(end as usize) }
    {
        *count += 1;
    }
}
