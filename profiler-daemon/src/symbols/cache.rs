//! Names already found, by place, within a budget of bytes. What was not asked for lately goes: two
//! halves, where the older one is dropped whole when the younger is full, and a hit moves a name to
//! the younger.

use std::{collections::HashMap, mem, sync::Arc};

use super::names::{FunctionName, Named};
use crate::processes::{mappings::Place, module::ModuleId};

/// What one entry costs beside its text: key, value, and the free slots of the table.
const ENTRY_BYTES: usize = 80;
/// What one function costs beside its text.
const FUNCTION_BYTES: usize = 160;

#[derive(Debug, Default)]
struct NameGeneration {
    names: HashMap<Place, Named>,
    /// One name a function, however many places are in it.
    functions: HashMap<(ModuleId, u64), Arc<FunctionName>>,
    bytes: usize,
}

/// The cache.
#[derive(Debug)]
pub(super) struct NameCache {
    young: NameGeneration,
    old: NameGeneration,
    limit_bytes: usize,
    evicted: u64,
}

impl NameCache {
    /// Holds about `limit_bytes` at most.
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self {
            young: NameGeneration::default(),
            old: NameGeneration::default(),
            limit_bytes,
            evicted: 0,
        }
    }

    /// Bytes held, estimated.
    pub(super) fn held_bytes(&self) -> usize {
        self.young.bytes + self.old.bytes
    }

    /// Names dropped for room so far.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The name at a place, if it is known.
    pub(super) fn get(&mut self, place: Place) -> Option<Named> {
        if let Some(named) = self.young.names.get(&place) {
            return Some(named.clone());
        }
        let named = self.old.names.get(&place)?.clone();
        self.keep(place, named.clone());
        Some(named)
    }

    /// Remembers the name at a place, and answers it sharing its text with the other places of the
    /// function.
    pub(super) fn insert(&mut self, place: Place, named: Named) -> Named {
        let named = match named
            .function
            .address
            .map(|address| (place.module, address))
        {
            None => named,
            Some(key) => {
                let known = self
                    .young
                    .functions
                    .get(&key)
                    .or_else(|| self.old.functions.get(&key));
                let function = known
                    .filter(|known| known.name == named.function.name)
                    .cloned();
                Named {
                    function: function.unwrap_or(named.function),
                    ..named
                }
            }
        };
        self.keep(place, named.clone());
        named
    }

    fn keep(&mut self, place: Place, named: Named) {
        if self.young.bytes >= self.limit_bytes / 2 {
            self.evicted += self.old.names.len() as u64;
            self.old = mem::take(&mut self.young);
        }
        let text_bytes = named.function.name.len() + FUNCTION_BYTES;
        match named.function.address {
            None => self.young.bytes += text_bytes,
            Some(address) => {
                let shared = Arc::clone(&named.function);
                if self
                    .young
                    .functions
                    .insert((place.module, address), shared)
                    .is_none()
                {
                    self.young.bytes += text_bytes;
                }
            }
        }
        if self.young.names.insert(place, named).is_none() {
            self.young.bytes += ENTRY_BYTES;
        }
    }

    /// Forgets names that may have changed.
    pub(super) fn forget(&mut self, forget: impl Fn(Place, &Named) -> bool) {
        for half in [&mut self.young, &mut self.old] {
            half.names.retain(|place, named| !forget(*place, named));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::names::FunctionKind;

    fn place(offset: u64) -> Place {
        Place {
            module: ModuleId(4),
            offset,
        }
    }

    fn named(name: &str, address: Option<u64>) -> Named {
        Named {
            function: Arc::new(FunctionName {
                name: name.into(),
                address,
                kind: FunctionKind::User,
                known: address.is_some(),
            }),
            reason: None,
        }
    }

    // Check that two places of one function share one name.
    #[test]
    fn shares_functions() {
        let mut cache = NameCache::new(1 << 20);
        let first = cache.insert(place(1), named("f", Some(0)));
        let second = cache.insert(place(2), named("f", Some(0)));
        assert!(Arc::ptr_eq(&first.function, &second.function));
        assert!(Arc::ptr_eq(
            &cache.get(place(1)).unwrap().function,
            &first.function
        ));
    }

    // Check that the budget holds however many names come, and that names asked for all the time
    // stay.
    #[test]
    fn stays_within_its_budget() {
        let limit = 100_000;
        let mut cache = NameCache::new(limit);
        cache.insert(place(0), named("kept", Some(0)));
        for offset in 1..20_000 {
            cache.insert(place(offset), named("some function", Some(offset)));
            assert_eq!(&*cache.get(place(0)).unwrap().function.name, "kept");
            assert!(cache.held_bytes() < limit + 1000);
        }
        assert!(cache.get(place(1)).is_none());
        assert!(cache.get(place(19_999)).is_some());
    }

    // Check that names can be forgotten by what they are.
    #[test]
    fn forgets() {
        let mut cache = NameCache::new(1 << 20);
        cache.insert(place(1), named("a", Some(1)));
        cache.insert(place(2), named("b", Some(2)));
        cache.forget(|_, named| &*named.function.name == "a");
        assert!(cache.get(place(1)).is_none() && cache.get(place(2)).is_some());
    }
}
