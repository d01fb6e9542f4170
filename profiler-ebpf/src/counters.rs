//! Counting: one call per event counted, nothing else.

use profiler_common::Counter;

use crate::maps::{COUNTS, WALK_ENDS};

/// Adds one.
#[inline(always)]
pub fn count(counter: Counter) {
    if let Some(value) = COUNTS.get_ptr_mut(counter as u32) {
        // SAFETY: this processor's element; a nested tick may cost one count, never more.
        unsafe { *value += 1 };
    }
}

/// Adds one to the walks that ended so (a `StackEnd`).
#[inline(always)]
pub fn count_end(end: u32) {
    if let Some(value) = WALK_ENDS.get_ptr_mut(end) {
        // SAFETY: as above.
        unsafe { *value += 1 };
    }
}
