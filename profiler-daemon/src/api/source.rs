//! Where answers come from: what whoever asks needs from the daemon.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::status::{ReplayOf, Status};
use crate::config::targets::Targets;
use crate::error_chain::{AnyError, ErrorChain};
use crate::profile::frames::FrameId;
use crate::profile::sessions::{SessionChange, SessionChanged, SessionRefusal};
use crate::profile::snapshot::Snapshot;
use crate::report::Instrumentation;
use crate::report::names::{Lines, Names};
use crate::stages::instrumenting::InstrumentationRequest;

/// An answer that comes later.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why there is no answer now, though there may be one soon.
#[derive(Debug, Error)]
#[error("{}", ErrorChain(.0.as_ref()))]
pub struct Unavailable(
    /// The cause, which people are told.
    #[source]
    pub AnyError,
);

/// Why the named sessions were not changed.
#[derive(Debug, Error)]
pub enum SessionFailure {
    /// The change cannot be made.
    #[error(transparent)]
    Refused(#[from] SessionRefusal),
    /// There is no answer now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Why the targets were not changed.
#[derive(Debug, Error)]
pub enum TargetsFailure {
    /// These cannot be set, for this reason, which people are told.
    #[error("{}", ErrorChain(.0.as_ref()))]
    Refused(#[source] AnyError),
    /// They could be set, but the system failed at it.
    #[error("{}", ErrorChain(.0.as_ref()))]
    Failed(#[source] AnyError),
    /// There is no answer now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Why functions are not measured.
#[derive(Debug, Error)]
pub enum InstrumentationFailure {
    /// It cannot be: people are told what, why, and what instead.
    #[error("{}", ErrorChain(.0.as_ref()))]
    Refused(#[source] AnyError),
    /// There is no answer now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Where answers come from: running stages, or a saved profile. Nothing here may block the thread
/// that calls it.
pub trait Source: Send + Sync + 'static {
    /// The profile as it is now: the kernel is read first if it was not within the last 100 ms.
    fn snapshot(&self) -> BoxFuture<'_, Result<Arc<Snapshot>, Unavailable>>;

    /// The names of these frames.
    fn names(
        &self,
        snapshot: Arc<Snapshot>,
        frames: Vec<FrameId>,
    ) -> BoxFuture<'_, Arc<dyn Names + Send + Sync>>;

    /// What debug information says of these frames, those that matter most first. What is not known
    /// after `patience` says so.
    fn lines(
        &self,
        snapshot: Arc<Snapshot>,
        frames: Vec<FrameId>,
        patience: Duration,
    ) -> BoxFuture<'_, Arc<dyn Lines + Send + Sync>>;

    /// How the daemon is, as far as is known.
    fn status(&self) -> Status;

    /// Has [`Self::status`] tell of now, unless that takes long.
    fn renew_status(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Whether every program is attached, one read of the kernel has ended, and the collector
    /// answers; else a sentence for each that is missing.
    ///
    /// # Errors
    ///
    /// What is missing, a sentence each.
    fn readiness(&self) -> Result<(), Vec<String>>;

    /// What is profiled.
    fn targets(&self) -> Targets;

    /// Changes what is profiled and answers with what is profiled now.
    fn set_targets(&self, targets: Targets) -> BoxFuture<'_, Result<Targets, TargetsFailure>>;

    /// Changes the named sessions right after a read of the kernel. Answers what was done, and the
    /// profile as of that read.
    fn change_session(
        &self,
        change: SessionChange,
    ) -> BoxFuture<'_, Result<(SessionChanged, Arc<Snapshot>), SessionFailure>>;

    /// Has functions measured from now on; with `dry_run` only says what that would be.
    fn instrument(
        &self,
        _wanted: InstrumentationRequest,
        _dry_run: bool,
    ) -> BoxFuture<'_, Result<Instrumentation, InstrumentationFailure>> {
        let none = InstrumentationFailure::Refused("there is no kernel behind this".into());
        Box::pin(std::future::ready(Err(none)))
    }

    /// All instrumentations that are kept.
    fn instrumentations(&self) -> BoxFuture<'_, Result<Vec<Instrumentation>, Unavailable>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// One of them, with what it has measured up to now.
    fn instrumentation(
        &self,
        _id: u32,
    ) -> BoxFuture<'_, Result<Option<Instrumentation>, Unavailable>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Ends one that runs, and answers how it was then; forgets one that has ended, and answers
    /// nothing within. `None`: there is none.
    fn end_instrumentation(
        &self,
        _id: u32,
    ) -> BoxFuture<'_, Result<Option<Option<Instrumentation>>, Unavailable>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The metrics in the Prometheus text format: all of them, or none, so that no counter ever
    /// falls.
    fn metrics(&self) -> BoxFuture<'_, Result<String, Unavailable>>;

    /// The saved profile that the answers come from; none where they come from a kernel.
    fn replay(&self) -> Option<&ReplayOf> {
        None
    }
}
