//! Instrumentations whose number nobody was told yet. Whoever asked may leave while one begins: it
//! is ended then, since nobody else knows that there is one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of an instrumentation that has begun. Unless it is said that whoever asked was told
/// ([`Untold::told`]), the instrumentation ends and is forgotten once this is dropped.
#[derive(Debug)]
#[must_use = "the instrumentation ends if this is dropped"]
pub struct Untold {
    id: u32,
    is_told: bool,
    fate: Fate,
}

/// What became of an [`Untold`], for whoever has the instrumentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Fate(Arc<AtomicBool>);

impl Fate {
    /// Whether nobody will be told any more.
    pub(super) fn is_lost(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Untold {
    /// The number of one that has begun.
    pub(super) const fn new(id: u32, fate: Fate) -> Self {
        Self {
            id,
            is_told: false,
            fate,
        }
    }

    /// The number.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Whoever asked is told, or ends the instrumentation themselves: it goes on.
    pub fn told(mut self) -> u32 {
        self.is_told = true;
        self.id
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        if !self.is_told {
            self.fate.0.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::command::reply;
    use tokio::sync::oneshot;

    // Check that an instrumentation is lost wherever its number is on the way when whoever asked
    // leaves: while it begins, and once it was answered; and that it is not once they were told.
    #[test]
    fn who_leaves_loses_it() {
        let fate = Fate::default();
        let (answer, asker) = oneshot::channel();
        reply(answer, || {
            drop(asker);
            Untold::new(1, fate.clone())
        });
        assert!(fate.is_lost());

        let fate = Fate::default();
        let (answer, asker) = oneshot::channel();
        reply(answer, || Untold::new(2, fate.clone()));
        assert!(!fate.is_lost());
        drop(asker);
        assert!(fate.is_lost());

        let fate = Fate::default();
        let (answer, mut asker) = oneshot::channel();
        reply(answer, || Untold::new(3, fate.clone()));
        assert_eq!(asker.try_recv().map(Untold::told), Ok(3));
        assert!(!fate.is_lost());
    }
}
