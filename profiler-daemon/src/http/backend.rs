//! What the server needs from the daemon.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::status::Status;
use crate::config::targets::Targets;
use crate::profile::frames::FrameId;
use crate::profile::snapshot::Snapshot;
use crate::report::names::{Lines, Names};

/// An answer that comes later.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why there is no answer now, though there may be one soon.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Unavailable(
    /// A sentence for people.
    pub String,
);

/// What the server needs from the daemon. Nothing here may block the thread that calls it.
pub trait Backend: Send + Sync + 'static {
    /// The profile as it is now: the kernel is read first if it was not within the last 100 ms.
    fn snapshot(&self) -> BoxFuture<'_, Result<Arc<Snapshot>, Unavailable>>;

    /// The names of these frames.
    fn names(
        &self,
        snapshot: Arc<Snapshot>,
        frames: Vec<FrameId>,
    ) -> BoxFuture<'_, Arc<dyn Names + Send + Sync>>;

    /// What debug information says of these frames, those that matter most first. What is not known after `patience` says so.
    fn lines(
        &self,
        snapshot: Arc<Snapshot>,
        frames: Vec<FrameId>,
        patience: Duration,
    ) -> BoxFuture<'_, Arc<dyn Lines + Send + Sync>>;

    /// How the daemon is.
    fn status(&self) -> Status;

    /// Whether every program is attached and one read of the kernel has ended; else a sentence for each that is missing.
    ///
    /// # Errors
    ///
    /// What is missing, a sentence each.
    fn readiness(&self) -> Result<(), Vec<String>>;

    /// What is profiled.
    fn targets(&self) -> Targets;

    /// Changes what is profiled and answers with what is profiled now; a sentence when it cannot be.
    fn set_targets(&self, targets: Targets) -> BoxFuture<'_, Result<Targets, String>>;

    /// The metrics in the Prometheus text format.
    fn metrics(&self) -> BoxFuture<'_, Result<String, Unavailable>>;
}
