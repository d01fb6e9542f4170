//! When what nothing names any more leaves the tables that all processes share, so that it takes no
//! more than its part of the collector's time.

use crate::units::MonoNs;

/// What a sweep took is not spent again for so many times as long.
const REST: u64 = 20;
/// What was left is looked at again after this time, nanoseconds: stacks leave later than whoever
/// brought them.
const AGAIN_NS: u64 = 30_000_000_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    next_ns: MonoNs,
    again_ns: MonoNs,
}

impl Sweeps {
    /// Whether another one may begin at this moment, monotonic nanoseconds.
    pub(super) fn may_begin(&self, now_ns: MonoNs) -> bool {
        now_ns >= self.next_ns
    }

    /// Whether the last one is so long ago that what it left should be looked at again.
    pub(super) fn is_due(&self, now_ns: MonoNs) -> bool {
        now_ns >= self.again_ns
    }

    /// One was done between these moments.
    pub(super) fn done(&mut self, began_ns: MonoNs, ended_ns: MonoNs) {
        let took_ns = ended_ns.saturating_since(began_ns);
        self.next_ns = ended_ns.saturating_add(took_ns.saturating_mul(REST));
        self.again_ns = ended_ns.saturating_add(AGAIN_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that sweeps that take long rest long, so that all of them take a twentieth of the time
    // at most.
    #[test]
    fn sweeps_rest() {
        let mut sweeps = Sweeps::default();
        assert!(sweeps.may_begin(MonoNs::ZERO));
        sweeps.done(MonoNs::new(100), MonoNs::new(150));
        assert!(!sweeps.may_begin(MonoNs::new(1_149)) && sweeps.may_begin(MonoNs::new(1_150)));
        assert!(
            !sweeps.is_due(MonoNs::new(150 + AGAIN_NS - 1))
                && sweeps.is_due(MonoNs::new(150 + AGAIN_NS))
        );
    }
}
