//! Counting: one call per event counted, nothing else.

use profiler_common::Counter;

use crate::maps::{COUNTS, WALK_FAILURES};

/// Adds one.
#[inline(always)]
pub fn count(counter: Counter) {
    if let Some(value) = COUNTS.get_ptr_mut(counter as u32) {
        // SAFETY: this processor's element; a nested tick may cost one count, never more.
        unsafe { *value += 1 };
    }
}

/// Adds one to a way in which walks fail (an `UnwindFailure`).
#[inline(always)]
pub fn count_failure(failure: u32) {
    if let Some(value) = WALK_FAILURES.get_ptr_mut(failure) {
        // SAFETY: as above.
        unsafe { *value += 1 };
    }
}
