//! What of a stratum's totals is told without its stacks.

use super::{Product, Stratum, parts_of, places_of};
use crate::kinds::{Kind, KindNs};

impl Stratum {
    /// The stratum's time of one kind, as its marks say; without a mark, what the clock takes it
    /// for.
    #[must_use]
    pub fn total_of(&self, kind: Kind) -> Product {
        let mut product = Product::default();
        product.add_not_sampled(kind, self.not_sampled[kind as usize]);
        for (part, quota_ns) in parts_of(kind).iter().zip(&self.quotas[places_of(kind)]) {
            product.add_part(part, *quota_ns);
        }
        product
    }

    /// Nanoseconds by kind of which there is no mark, or for which those that there are cannot
    /// stand.
    #[must_use]
    pub const fn not_sampled_kinds(&self) -> &KindNs {
        &self.not_sampled
    }
}
