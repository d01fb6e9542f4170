//! Counting: one call per event counted, nothing else.

use profiler_common::Counter;

use crate::maps::COUNTS;

/// Adds one.
#[inline(always)]
pub fn count(counter: Counter) {
    if let Some(value) = COUNTS.get_ptr_mut(counter as u32) {
        // SAFETY: this processor's element; a nested tick may cost one count, never more.
        unsafe { *value += 1 };
    }
}
