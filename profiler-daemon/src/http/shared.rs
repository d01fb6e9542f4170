//! What every handler shares: whom it asks, what clients may, and how many of them at a time.

use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::Semaphore;

use super::options::HttpOptions;
use super::report_memory::REPORTS_MEMORY_MIB;
use super::room::Room;
use super::streams::Streams;
use crate::api::problem::Problem;
use crate::api::{Source, openapi_document};

/// See the module.
pub(super) struct ServerState {
    pub(super) source: Arc<dyn Source>,
    pub(super) options: HttpOptions,
    /// Permits for reports that are made at the same time.
    pub(super) reports: Arc<Semaphore>,
    /// Permits for a MiB each of the memory that these take together.
    pub(super) reports_memory: Arc<Semaphore>,
    /// Permits to wait for one of these.
    pub(super) waiting_reports: Semaphore,
    /// Permits for those that wait for debug information.
    pub(super) line_reports: Semaphore,
    /// Permits for profiles of the next seconds.
    pub(super) recordings: Semaphore,
    /// Room for answers until clients have taken them.
    pub(super) room: Room,
    /// What streams of events share.
    pub(super) streams: Streams,
    /// The description of the interface.
    pub(super) openapi: Bytes,
}

impl ServerState {
    pub(super) fn new(source: Arc<dyn Source>, options: HttpOptions) -> Self {
        Self {
            source,
            reports: Arc::new(Semaphore::new(options.max_reports)),
            reports_memory: Arc::new(Semaphore::new(REPORTS_MEMORY_MIB as usize)),
            waiting_reports: Semaphore::new((options.max_connections / 4).max(1)),
            line_reports: Semaphore::new(options.max_line_reports),
            recordings: Semaphore::new(options.max_recordings),
            room: Room::new(&options),
            streams: Streams::new(options.max_streams),
            openapi: openapi_document().into(),
            options,
        }
    }

    /// Nothing where a kernel is behind the answers.
    ///
    /// # Errors
    /// That `what` is not to be had from a saved profile.
    pub(super) fn needs_kernel(&self, what: &str) -> Result<(), Problem> {
        match self.source.replay() {
            None => Ok(()),
            Some(replay) => Err(Problem::replayed(format!("{what}: this is a {replay}"))),
        }
    }
}

/// Waits for `work` as long as a request may take.
///
/// # Errors
///
/// When it takes longer.
pub(super) async fn in_time<T>(
    shared: &ServerState,
    work: impl Future<Output = T>,
) -> Result<T, Problem> {
    let patience = shared.options.request_timeout;
    tokio::time::timeout(patience, work).await.map_err(|_| {
        Problem::overloaded(format!(
            "the answer was not ready within {} ms (setting http.request_timeout)",
            patience.as_millis()
        ))
    })
}
