//! What probes cost, as the program at probes knows it: shortest and longest calls are told
//! without what their own probes took, which cannot be subtracted later.

use super::PROBE_KINDS;

/// What the probes of one call take, nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCost {
    /// In the call's own time.
    pub inside_ns: u32,
    /// In that of its caller besides.
    pub outside_ns: u32,
}

/// By kind of probed call ([`super::probe_kind`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCosts {
    /// Of one call each.
    pub of_kind: [CallCost; PROBE_KINDS],
}

impl CallCosts {
    /// In the time of a call of this kind, during which such calls were made.
    #[must_use]
    #[inline(always)]
    pub fn within(&self, kind: usize, below: &[u32; PROBE_KINDS]) -> u64 {
        let mut ns = match self.of_kind.get(kind) {
            Some(own) => own.inside_ns as u64,
            None => 0,
        };
        let mut of = 0;
        while of < PROBE_KINDS {
            let cost = &self.of_kind[of];
            ns += below[of] as u64 * (cost.inside_ns as u64 + cost.outside_ns as u64);
            of += 1;
        }
        ns
    }
}

const _: () = assert!(size_of::<CallCosts>() == 8 * PROBE_KINDS);
