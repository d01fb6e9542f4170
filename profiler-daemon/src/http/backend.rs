//! What the server needs from the daemon.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use thiserror::Error;

use super::status::Status;
use crate::config::targets::Targets;
use crate::profile::frames::FrameId;
use crate::profile::sessions::{SessionChange, SessionChanged, SessionRefusal};
use crate::profile::snapshot::Snapshot;
use crate::report::names::Names;

/// An answer that comes later.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why there is no answer now, though there may be one soon.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Unavailable(
    /// A sentence for people.
    pub String,
);

/// Why the named sessions were not changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionFailure {
    /// The change cannot be made.
    #[error(transparent)]
    Refused(#[from] SessionRefusal),
    /// There is no answer now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

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

    /// Changes the named sessions right after a read of the kernel. Answers what was done, and the profile as of that read.
    fn change_session(
        &self,
        change: SessionChange,
    ) -> BoxFuture<'_, Result<(SessionChanged, Arc<Snapshot>), SessionFailure>>;

    /// The metrics in the Prometheus text format.
    fn metrics(&self) -> BoxFuture<'_, Result<String, Unavailable>>;
}
