//! Names already found, by place, within a budget of bytes ([`Recent`]). What was not asked for
//! lately goes.

use std::sync::Arc;

use super::{
    names::Named,
    recent::{Recent, Weight},
};
use crate::processes::{mappings::Place, module::ModuleId};
use crate::units::ModuleAddress;

/// What one entry costs beside its text: key, value, and the free slots of the table.
const ENTRY_BYTES: usize = 96;
/// What one function costs beside its text.
const FUNCTION_BYTES: usize = 160;

/// What a name is known for.
#[derive(Debug, PartialEq, Eq, Hash)]
enum NameKey {
    Place(Place),
    /// The function at an address of a module: one name, however many places are in it. It is as
    /// young as the youngest of them.
    Function(ModuleId, ModuleAddress),
}

/// The cache.
#[derive(Debug)]
pub(super) struct NameCache {
    known: Recent<NameKey, Named>,
}

impl NameCache {
    /// Holds about `limit_bytes` at most.
    pub(super) fn new(limit_bytes: usize) -> Self {
        let weight = Weight {
            bytes: bytes_of,
            counts: |key| matches!(key, NameKey::Place(_)),
        };
        Self {
            known: Recent::new(limit_bytes, weight),
        }
    }

    /// Bytes held, estimated.
    pub(super) const fn held_bytes(&self) -> usize {
        self.known.held_bytes()
    }

    /// Places whose names were dropped for room so far.
    pub(super) const fn evicted(&self) -> u64 {
        self.known.evicted()
    }

    /// The name at a place, if it is known.
    pub(super) fn get(&mut self, place: Place) -> Option<Named> {
        let named = self.known.get(&NameKey::Place(place))?.clone();
        self.keep_function(place.module, &named);
        Some(named)
    }

    /// Remembers the name at a place, and answers it sharing its text with the other places of the
    /// function.
    pub(super) fn insert(&mut self, place: Place, mut named: Named) -> Named {
        if let Some(address) = named.function.address
            && let Some(known) = self.known.get(&NameKey::Function(place.module, address))
            && known.function.name == named.function.name
        {
            named.function = Arc::clone(&known.function);
        }
        self.known.insert(NameKey::Place(place), named.clone());
        self.keep_function(place.module, &named);
        named
    }

    /// Has the text of a name count for as long as the name is kept: after it, so that it does not
    /// go before it.
    fn keep_function(&mut self, module: ModuleId, named: &Named) {
        let Some(address) = named.function.address else {
            return;
        };
        let key = NameKey::Function(module, address);
        let is_kept = self
            .known
            .get(&key)
            .is_some_and(|known| Arc::ptr_eq(&known.function, &named.function));
        if !is_kept {
            self.known.insert(key, named.clone());
        }
    }

    /// Forgets names that may have changed.
    pub(super) fn forget(&mut self, forget: impl Fn(Place, &Named) -> bool) {
        self.known.forget(|key, named| match key {
            NameKey::Place(place) => forget(*place, named),
            NameKey::Function(..) => false,
        });
    }
}

/// What an entry weighs, bytes. The text is with the function, where one is known.
fn bytes_of(key: &NameKey, named: &Named) -> usize {
    let text_bytes = named.function.name.len() + FUNCTION_BYTES;
    match (key, named.function.address) {
        (NameKey::Place(_), Some(_)) => ENTRY_BYTES,
        (NameKey::Place(_), None) => ENTRY_BYTES + text_bytes,
        (NameKey::Function(..), _) => text_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::names::{FunctionKind, FunctionName};
    use crate::units::ModuleOffset;

    fn place(offset: u64) -> Place {
        Place {
            module: ModuleId(4),
            offset: ModuleOffset::new(offset),
        }
    }

    fn named(name: &str, address: Option<u64>) -> Named {
        Named {
            function: Arc::new(FunctionName {
                name: name.into(),
                address: address.map(ModuleAddress::new),
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
