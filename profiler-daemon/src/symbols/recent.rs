//! What was asked for lately, by key, within a budget of bytes. Two halves: the older one is
//! dropped whole when the younger is full, and a hit moves an entry to the younger. So nothing is
//! sorted, and what nobody asks for goes.

use std::{collections::HashMap, hash::Hash, mem};

/// The entries of one half, and what they weigh together.
#[derive(Debug)]
struct Half<K, V> {
    entries: HashMap<K, V>,
    bytes: usize,
}

impl<K, V> Default for Half<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            bytes: 0,
        }
    }
}

/// How entries of a [`Recent`] count.
#[derive(Debug)]
pub(super) struct Weight<K, V> {
    /// What an entry weighs, bytes; the same for as long as it is kept.
    pub(super) bytes: fn(&K, &V) -> usize,
    /// Whether [`Recent::evicted`] counts an entry.
    pub(super) counts: fn(&K) -> bool,
}

/// The cache.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    young: Half<K, V>,
    old: Half<K, V>,
    limit_bytes: usize,
    weight: Weight<K, V>,
    evicted: u64,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// Holds no more than `limit_bytes` and two entries.
    pub(super) fn new(limit_bytes: usize, weight: Weight<K, V>) -> Self {
        Self {
            young: Half::default(),
            old: Half::default(),
            limit_bytes,
            weight,
            evicted: 0,
        }
    }

    /// Bytes held, by the weights of the entries.
    pub(super) const fn held_bytes(&self) -> usize {
        self.young.bytes + self.old.bytes
    }

    /// Entries that count and were dropped for room so far.
    pub(super) const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The value of a key, which stays longer for it.
    pub(super) fn get(&mut self, key: &K) -> Option<&V> {
        if let Some((key, value)) = self.old.entries.remove_entry(key) {
            self.old.bytes -= (self.weight.bytes)(&key, &value);
            self.insert(key, value);
        }
        self.young.entries.get(key)
    }

    /// Remembers the value of a key, in place of the one before.
    pub(super) fn insert(&mut self, key: K, value: V) {
        let Self { young, old, .. } = self;
        let bytes = self.weight.bytes;
        for half in [&mut *young, &mut *old] {
            if let Some((key, value)) = half.entries.remove_entry(&key) {
                half.bytes -= bytes(&key, &value);
            }
        }
        if young.bytes >= self.limit_bytes / 2 {
            let dropped = mem::replace(old, mem::take(young));
            let counts = self.weight.counts;
            self.evicted += dropped.entries.keys().filter(|key| counts(key)).count() as u64;
        }
        young.bytes += bytes(&key, &value);
        young.entries.insert(key, value);
    }

    /// Forgets the entries of which `forget` says so.
    pub(super) fn forget(&mut self, forget: impl Fn(&K, &V) -> bool) {
        for half in [&mut self.young, &mut self.old] {
            let forgotten = half.entries.extract_if(|key, value| forget(key, value));
            let bytes = forgotten.map(|(key, value)| (self.weight.bytes)(&key, &value));
            half.bytes -= bytes.sum::<usize>();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A cache of numbers that weigh what they are; keys below 100 count.
    fn cache(limit_bytes: usize) -> Recent<u32, usize> {
        let weight = Weight {
            bytes: |_, value| *value,
            counts: |key| *key < 100,
        };
        Recent::new(limit_bytes, weight)
    }

    impl Recent<u32, usize> {
        fn really_held(&self) -> usize {
            let halves = [&self.young, &self.old];
            halves.iter().flat_map(|half| half.entries.values()).sum()
        }
    }

    proptest! {
        // Check that the bytes are those of the entries and within the budget, and that a key is
        // never answered with anything but what it was given last, whatever is done.
        #[test]
        fn is_within_its_budget(steps in prop::collection::vec((0..4_u8, 0..30_u32, 0..20_usize), 0..300)) {
            let mut cache = cache(100);
            let mut given = HashMap::new();
            for (what, key, bytes) in steps {
                match what {
                    0 => cache.forget(|found, _| *found == key),
                    1 => {
                        if let Some(found) = cache.get(&key) {
                            prop_assert_eq!(Some(found), given.get(&key));
                        }
                    }
                    _ => {
                        cache.insert(key, bytes);
                        given.insert(key, bytes);
                        prop_assert_eq!(cache.get(&key), Some(&bytes));
                    }
                }
                prop_assert_eq!(cache.held_bytes(), cache.really_held());
                prop_assert!(cache.held_bytes() < 100 + 2 * 20);
            }
        }
    }

    // Check that an entry that is asked for all the time stays, and that others go and are counted
    // if they count.
    #[test]
    fn keeps_what_is_asked_for() {
        let mut cache = cache(100);
        cache.insert(0, 10);
        for key in 90..110 {
            cache.insert(key, 10);
            assert_eq!(cache.get(&0), Some(&10));
        }
        assert!(cache.get(&90).is_none() && cache.get(&109).is_some());
        assert_eq!(cache.evicted(), 10, "from 90 to 99");
    }

    // Check that an entry larger than the budget is held alone, and goes.
    #[test]
    fn has_room_for_a_large_entry_once() {
        let mut cache = cache(100);
        cache.insert(1, 1_000);
        cache.insert(2, 10);
        assert_eq!(cache.held_bytes(), 1_010);
        for key in 3..9 {
            cache.insert(key, 10);
        }
        assert!(cache.get(&1).is_none());
        assert_eq!(cache.evicted(), 1);
    }
}
