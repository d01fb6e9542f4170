//! Free stretches of an array: hands out the smallest that fits, and joins what comes back with its
//! neighbours. Pure.

use std::collections::BTreeMap;

/// The free stretches: first element -> how many.
#[derive(Debug)]
pub(super) struct Extents {
    free: BTreeMap<u32, u32>,
    free_len: u32,
}

impl Extents {
    /// An array of so many elements, all free.
    pub(super) fn new(len: u32) -> Self {
        Self {
            free: (len > 0).then_some((0, len)).into_iter().collect(),
            free_len: len,
        }
    }

    /// How many elements are free.
    pub(super) const fn free_len(&self) -> u32 {
        self.free_len
    }

    /// How many lie in the largest stretch.
    pub(super) fn largest(&self) -> u32 {
        self.free.values().copied().max().unwrap_or(0)
    }

    /// The smallest stretch of at least `len` elements, by its length; `None` if there is none.
    pub(super) fn fit(&self, len: u32) -> Option<u32> {
        let lens = self.free.values().copied();
        lens.filter(|free| *free >= len).min()
    }

    /// Takes `len` elements (not 0) out of the smallest stretch that has them; returns the first.
    pub(super) fn take(&mut self, len: u32) -> Option<u32> {
        let fits = self.free.iter().filter(|(_, free)| **free >= len);
        let (start, free) = fits
            .min_by_key(|(_, free)| **free)
            .map(|(start, free)| (*start, *free))?;
        self.free.remove(&start);
        if free > len {
            self.free.insert(start + len, free - len);
        }
        self.free_len -= len;
        Some(start)
    }

    /// Takes back `len` elements that were handed out.
    pub(super) fn give(&mut self, start: u32, len: u32) {
        self.free_len += len;
        let (mut start, mut len) = (start, len);
        if let Some((before, before_len)) = self.free.range(..start).next_back()
            && before + before_len == start
        {
            (start, len) = (*before, before_len + len);
        }
        if let Some(behind_len) = self.free.remove(&(start + len)) {
            len += behind_len;
        }
        self.free.insert(start, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_smallest_fit_is_taken_and_neighbours_join() {
        // Check that a hole is used before the rest, and that all that comes back is one stretch
        // again.
        let mut extents = Extents::new(100);
        let starts: Vec<u32> = [10, 20, 30].map(|len| extents.take(len).unwrap()).into();
        assert_eq!(starts, [0, 10, 30]);
        extents.give(10, 20);
        assert_eq!((extents.fit(15), extents.largest()), (Some(20), 40));
        assert_eq!(extents.take(15), Some(10));
        assert_eq!(extents.take(41), None);
        extents.give(10, 15);
        extents.give(0, 10);
        extents.give(30, 30);
        assert_eq!((extents.largest(), extents.free_len()), (100, 100));
        assert_eq!(Extents::new(0).take(1), None);
    }

    proptest! {
        // Check that no element is ever handed out twice, and that none gets lost.
        #[test]
        fn nothing_twice_and_nothing_lost(steps in prop::collection::vec((any::<bool>(), 1..40_u32, any::<prop::sample::Index>()), 1..200)) {
            let mut extents = Extents::new(300);
            let mut taken: Vec<(u32, u32)> = Vec::new();
            for (take, len, which) in steps {
                if take || taken.is_empty() {
                    let fits = extents.largest() >= len;
                    let start = extents.take(len);
                    prop_assert_eq!(start.is_some(), fits);
                    if let Some(start) = start {
                        prop_assert!(start + len <= 300);
                        prop_assert!(taken.iter().all(|(other, other_len)| start + len <= *other || other + other_len <= start));
                        taken.push((start, len));
                    }
                } else {
                    let (start, len) = taken.swap_remove(which.index(taken.len()));
                    extents.give(start, len);
                }
                prop_assert_eq!(extents.free_len() + taken.iter().map(|(_, len)| len).sum::<u32>(), 300);
            }
        }
    }
}
