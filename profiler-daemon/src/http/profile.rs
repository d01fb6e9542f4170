//! The whole profile as a file, for `--replay`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::Shared;
use super::ask::Ask;
use super::format::written;
use super::pprof::CONTENT_TYPE;
use super::reports::{all_frames, body};
use crate::api::Source;
use crate::api::Status;
use crate::api::problem::Problem;
use crate::export::saved::{Saved, SavedNames};
use crate::profile::snapshot::Snapshot;
use crate::report::{self, Scope};

/// `GET /api/v1/profile`.
pub(super) async fn profile(
    State(shared): State<Arc<Shared>>,
    ask: Ask,
) -> Result<Response, Problem> {
    ask.read_only(|_| ())?;
    let period_ns = shared.options.sampling_period_ns;
    let backend = Arc::clone(&shared.backend);
    let body = body(
        &shared,
        all_frames(&Scope::Session),
        move |snapshot, names| {
            let frames = report::frames_needed(snapshot, &Scope::Session)?;
            let names = SavedNames::new(&frames, names);
            let snapshot = Arc::new(snapshot.clone());
            written(|out| saved(&*backend, snapshot, names, period_ns)?.write(out))
        },
    )
    .await?;
    let mut response = (StatusCode::OK, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    headers.insert(
        header::CONTENT_DISPOSITION,
        HeaderValue::from_static("attachment; filename=\"recorded.profile\""),
    );
    Ok(response)
}

/// A snapshot with its names, and how the daemon was. `names` knows every frame that a report on the session needs;
/// `sampling_period_ns` is the time between two samples of one processor.
///
/// # Errors
/// How the daemon was cannot be written as JSON.
pub fn saved(
    backend: &dyn Source,
    snapshot: Arc<Snapshot>,
    names: SavedNames,
    sampling_period_ns: u64,
) -> serde_json::Result<Saved> {
    let status = Status {
        replay: None,
        ..backend.status()
    };
    Ok(Saved {
        sampling_period_ns,
        status: serde_json::to_string(&status)?,
        targets: serde_json::to_string(&backend.targets())?,
        snapshot,
        names,
    })
}
