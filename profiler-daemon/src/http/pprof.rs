//! Profiles for pprof: of one process since the session began, and of the next seconds, which is what Grafana Alloy, Pyroscope
//! and Parca fetch again and again.
//!
//! A profile of the next seconds is what two snapshots differ by. The first is kept while the client waits.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::Shared;
use super::ask::Ask;
use super::format::written;
use super::guard::in_time;
use super::reports::{all_frames, aside, body, body_of, permit};
use crate::api::problem::Problem;
use crate::api::query_string::Params;
use crate::export::pprof::{self, Content};
use crate::profile::snapshot::Snapshot;
use crate::report::names::Names;
use crate::report::{self, StackValue};

/// What profiles are sent as. The compression is part of the format.
pub(super) const CONTENT_TYPE: &str = "application/octet-stream";

type Answer = Result<Response, Problem>;
type App = State<Arc<Shared>>;

/// `GET /api/v1/processes/{pid}/pprof`.
pub(super) async fn process(State(shared): App, ask: Ask) -> Answer {
    let query = ask.read_only(Params::pprof)?;
    let scope = ask.scope();
    let period_ns = shared.options.sampling_period_ns;
    let body = body(&shared, all_frames(&scope), move |snapshot, names| {
        let stacks = report::stacks(snapshot, &scope, &query, names)?;
        written(|out| pprof::write(&stacks, Content::All, period_ns, out))
    })
    .await?;
    Ok(respond(body))
}

/// `GET /debug/pprof/profile`.
pub(super) async fn profile(State(shared): App, ask: Ask) -> Answer {
    record(&shared, &ask, Content::Cpu).await
}

/// `GET /debug/pprof/wall`.
pub(super) async fn wall(State(shared): App, ask: Ask) -> Answer {
    record(&shared, &ask, Content::Wall).await
}

async fn record(shared: &Arc<Shared>, ask: &Ask, content: Content) -> Answer {
    let recording = ask.read_only(Params::recording)?;
    shared.needs_kernel("there are no next seconds")?;
    let Ok(_place) = shared.recordings.try_acquire() else {
        return Err(Problem::overloaded(format!(
            "{} profiles of the next seconds are being waited for already",
            shared.options.max_recordings
        )));
    };
    let earlier = in_time(shared, shared.backend.snapshot()).await??;
    // A process that is not there is told at once.
    report::frames_needed(&earlier, &recording.scope)?;
    tokio::time::sleep(Duration::from_secs(recording.seconds)).await;
    let (scope, mut query) = (recording.scope, recording.stacks);
    if content == Content::Cpu {
        query.tree.value = Some(StackValue::Samples);
    }
    let period_ns = shared.options.sampling_period_ns;
    let made = async {
        let permit = permit(shared).await?;
        let later = shared.backend.snapshot().await?;
        let beside = move || Snapshot::with_one_numbering(earlier, later);
        let (permit, (earlier, later)) = aside(permit, beside).await?;
        let seen = Arc::clone(&earlier);
        let frames = move |later: &_| {
            // What has its time from before is taken away under the same names.
            let mut frames = report::frames_needed(later, &scope)?;
            frames.extend(report::frames_needed(&seen, &scope).unwrap_or_default());
            frames.sort_unstable();
            frames.dedup();
            Ok(frames)
        };
        let write = move |later: &Snapshot, names: &dyn Names| {
            let stacks = report::stacks_between(&earlier, later, &scope, &query, names)?;
            written(|out| pprof::write(&stacks, content, period_ns, out))
        };
        body_of(shared, permit, later, frames, write).await
    };
    Ok(respond(in_time(shared, made).await??))
}

fn respond(body: Vec<u8>) -> Response {
    let mut response = (StatusCode::OK, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    headers.insert(
        header::CONTENT_DISPOSITION,
        HeaderValue::from_static("attachment; filename=\"profile.pb.gz\""),
    );
    response
}
