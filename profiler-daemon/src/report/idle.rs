//! Threads that idle: pools that wait for work, services that nobody calls. They are most of a
//! machine's threads, so their waits are most of its blocked time, and say nothing of what holds
//! anybody up.

use std::collections::{BTreeMap, HashMap};

use profiler_common::{Class, ClassNs};

use crate::{
    processes::ids::ThreadKey,
    profile::{aggregate::AggregateView, over::Span, tree::NodeId},
};

/// A thread idles that ran, or waited for a processor, for less than this part of the time covered.
const IDLE_PART: u64 = 1_000;

/// Whether a thread with these totals idles in a report over so long.
pub(super) fn is_idle(classes: &ClassNs, span_ns: u64) -> bool {
    let active = [Class::User, Class::Syscall, Class::Kernel, Class::Runnable];
    let active_ns = active.into_iter().fold(0, |sum, class| {
        u64::saturating_add(sum, classes[class as usize])
    });
    active_ns < (span_ns / IDLE_PART).max(1)
}

/// How long the threads of an aggregate that idle were blocked at each place, nanoseconds.
///
/// A place's time is not kept by thread, but for the waits of whole passes and those under way.
/// What else a thread was blocked is divided as these are: who idles waits in one place, or in few.
pub(super) fn idle_waits(
    aggregate: &AggregateView,
    span: Span,
    span_ns: u64,
) -> BTreeMap<NodeId, u64> {
    let over = aggregate.threads_over(span);
    let idle: HashMap<ThreadKey, u64> = over
        .rows
        .iter()
        .filter(|(.., totals)| is_idle(&totals.classes, span_ns))
        .map(|(key, _, totals)| (*key, totals.attributed[Class::Blocked as usize]))
        .collect();
    let mut seen: BTreeMap<ThreadKey, BTreeMap<NodeId, u64>> = BTreeMap::new();
    aggregate.blocked_at(span, |thread, place, ns| {
        if idle.contains_key(&thread) {
            let of_place = seen.entry(thread).or_default().entry(place).or_default();
            *of_place = of_place.saturating_add(ns);
        }
    });
    let mut waits: BTreeMap<NodeId, u64> = BTreeMap::new();
    for (thread, places) in &seen {
        for (place, ns) in divided(idle[thread], places) {
            let of_place = waits.entry(place).or_default();
            *of_place = of_place.saturating_add(ns);
        }
    }
    waits
}

/// Divides `total_ns` in proportion, to the nanosecond: the last place has the rest.
fn divided(total_ns: u64, places: &BTreeMap<NodeId, u64>) -> Vec<(NodeId, u64)> {
    let all: u128 = places.values().map(|ns| u128::from(*ns)).sum();
    // So that products fit, whatever a file says.
    let shift = 64u32.saturating_sub(all.leading_zeros());
    let (mut given, mut upto) = (0, 0u128);
    let parts = places.iter().filter(|_| all > 0).map(|(place, ns)| {
        upto += u128::from(*ns);
        let before = given;
        given = u64::try_from(u128::from(total_ns) * (upto >> shift) / (all >> shift))
            .unwrap_or(total_ns);
        (*place, given - before)
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that the threshold counts every class but blocked, and that a thread that did nothing
    // at all idles in any span.
    #[test]
    fn threshold() {
        for class in [0, 1, 3, 4] {
            let mut classes = ClassNs::default();
            classes[class] = 999;
            assert!(is_idle(&classes, 1_000_000), "class {class}");
            classes[class] = 1_000;
            assert!(!is_idle(&classes, 1_000_000), "class {class}");
        }
        assert!(is_idle(&[0, 0, u64::MAX, 0, 0], 0));
        assert!(!is_idle(&[u64::MAX, 1, 0, 0, 0], u64::MAX));
    }

    // Check that what is divided keeps its sum and its proportions, the largest numbers included.
    #[test]
    fn proportions() {
        let places = |ns: &[u64]| (0..).map(NodeId).zip(ns.iter().copied()).collect();
        let parts = |total_ns, ns: &[u64]| -> Vec<u64> {
            let parts = divided(total_ns, &places(ns));
            parts.into_iter().map(|(_, ns)| ns).collect()
        };
        assert_eq!(parts(10, &[1, 1, 1]), [3, 3, 4]);
        assert_eq!(parts(7, &[0, 5]), [0, 7]);
        assert_eq!(parts(7, &[]), [0u64; 0]);
        assert_eq!(parts(7, &[0]), [0u64; 0]);
        let most = parts(u64::MAX, &[u64::MAX, u64::MAX]);
        assert_eq!(
            most.iter().map(|ns| u128::from(*ns)).sum::<u128>(),
            u128::from(u64::MAX)
        );
    }
}
