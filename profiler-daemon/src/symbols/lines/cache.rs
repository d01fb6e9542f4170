//! Lines already found, by place, within a budget of bytes ([`Recent`]). What was not asked for
//! lately goes.

use super::Code;
use crate::processes::mappings::Place;
use crate::symbols::recent::{Recent, Weight};
use crate::units::MonoNs;

/// What one place costs beside its steps: key, value, and the free slots of the table.
const PLACE_BYTES: usize = 120;
/// What one step costs beside its texts.
const STEP_BYTES: usize = 48;

#[derive(Debug)]
struct CachedCode {
    code: Code,
    /// When it is to be found out anew; `u64::MAX`: never.
    until_ns: MonoNs,
}

/// The cache.
#[derive(Debug)]
pub(super) struct LineCache {
    known: Recent<Place, CachedCode>,
}

impl LineCache {
    /// Holds about `limit_bytes` at most.
    pub(super) fn new(limit_bytes: usize) -> Self {
        let weight = Weight {
            bytes: |_, kept: &CachedCode| bytes_of(&kept.code),
            counts: |_| true,
        };
        Self {
            known: Recent::new(limit_bytes, weight),
        }
    }

    /// Bytes held, estimated: a text counts as often as it is named.
    pub(super) const fn held_bytes(&self) -> usize {
        self.known.held_bytes()
    }

    /// What is at a place, if it is known and still holds.
    pub(super) fn get(&mut self, place: Place, now_ns: MonoNs) -> Option<Code> {
        let kept = self.known.get(&place)?;
        (kept.until_ns > now_ns).then(|| kept.code.clone())
    }

    /// Remembers what is at a place, until that moment.
    pub(super) fn insert(&mut self, place: Place, code: Code, until_ns: MonoNs) {
        self.known.insert(place, CachedCode { code, until_ns });
    }
}

fn bytes_of(code: &Code) -> usize {
    let steps = code.steps.iter().flat_map(|steps| steps.iter());
    let of_steps = steps.map(|step| {
        let name = step.function.as_ref().map_or(0, |name| name.len());
        let file = step.source.as_ref().map_or(0, |source| source.file.len());
        STEP_BYTES + name + file
    });
    PLACE_BYTES + of_steps.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        processes::module::ModuleId,
        symbols::lines::{NoLine, SourceLine, Step},
        units::{ModuleAddress, ModuleOffset},
    };

    fn place(offset: u64) -> Place {
        Place {
            module: ModuleId(4),
            offset: ModuleOffset::new(offset),
        }
    }

    fn code(line: u32) -> Code {
        let step = Step {
            function: Some("function".into()),
            source: Some(SourceLine {
                file: "/src/file.c".into(),
                line: Some(line),
            }),
        };
        Code {
            address: Some(ModuleAddress::new(1)),
            steps: Ok([step].into()),
        }
    }

    // Check that the budget holds however many places come, and that one asked for all the time
    // stays.
    #[test]
    fn stays_within_its_budget() {
        let limit = 100_000;
        let mut cache = LineCache::new(limit);
        cache.insert(place(0), code(0), MonoNs::MAX);
        for line in 1..5_000 {
            cache.insert(place(line.into()), code(line), MonoNs::MAX);
            assert_eq!(cache.get(place(0), MonoNs::ZERO), Some(code(0)));
            assert!(cache.held_bytes() < limit + 1000);
        }
        assert!(cache.get(place(1), MonoNs::ZERO).is_none());
        assert_eq!(cache.get(place(4_999), MonoNs::ZERO), Some(code(4_999)));
    }

    // Check that what holds for a time is forgotten after it, and that a place counts once.
    #[test]
    fn expires() {
        let mut cache = LineCache::new(1 << 20);
        let none = Code {
            address: None,
            steps: Err(NoLine::NoDebugInformation),
        };
        cache.insert(place(1), none.clone(), MonoNs::new(10));
        assert_eq!(cache.get(place(1), MonoNs::new(9)), Some(none.clone()));
        assert_eq!(cache.get(place(1), MonoNs::new(10)), None);
        cache.insert(place(1), none, MonoNs::new(10));
        cache.insert(place(1), code(7), MonoNs::MAX);
        assert_eq!(cache.held_bytes(), bytes_of(&code(7)));
    }
}
