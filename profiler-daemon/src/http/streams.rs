//! What all streams of events share: places, beats, and one reading of the profile for each beat.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::api::{Source, Unavailable};
use crate::profile::snapshot::Snapshot;

/// Streams send at multiples of this since the server began.
pub(super) const BEAT: Duration = Duration::from_millis(500);

/// What all streams share.
pub(super) struct Streams {
    places: Arc<Semaphore>,
    max: usize,
    begun: Instant,
    /// The profile at the newest beat that was asked for; nothing while no stream is open.
    newest: Mutex<Option<(u64, Arc<Snapshot>)>>,
}

impl Streams {
    /// Room for `max` streams.
    pub(super) fn new(max: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(max)),
            max,
            begun: Instant::now(),
            newest: Mutex::new(None),
        }
    }

    /// The beat that was last.
    pub(super) fn beat(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos() / BEAT.as_nanos()).unwrap_or(u64::MAX)
    }

    /// When a beat is.
    pub(super) fn at(&self, beat: u64) -> Instant {
        self.begun + BEAT * u32::try_from(beat).unwrap_or(u32::MAX)
    }

    /// The profile at a beat, read once for all streams.
    pub(super) async fn snapshot(
        &self,
        source: &dyn Source,
        beat: u64,
    ) -> Result<Arc<Snapshot>, Unavailable> {
        let mut newest = self.newest.lock().await;
        if let Some((known, snapshot)) = &*newest
            && *known >= beat
        {
            return Ok(Arc::clone(snapshot));
        }
        let snapshot = source.snapshot().await?;
        *newest = Some((beat, Arc::clone(&snapshot)));
        Ok(snapshot)
    }

    /// A place for one more stream; none where all are taken.
    pub(super) fn take_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// How many streams there may be.
    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Forgets the profile where the stream that ends, which still has its place, is the last.
    /// Where another one is reading, it is not.
    pub(super) fn leave(&self) {
        if self.places.available_permits() + 1 == self.max
            && let Ok(mut newest) = self.newest.try_lock()
        {
            *newest = None;
        }
    }
}
