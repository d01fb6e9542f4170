//! Profiles of the next seconds, which is what Grafana Alloy, Pyroscope and Parca fetch again and
//! again.
//!
//! Such a profile is what two snapshots differ by. The first is kept while the client waits.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::Frame;

use super::reports::Turn;
use super::respond::respond;
use super::shared::{ServerState, in_time};
use crate::api::format::Format;
use crate::api::problem::Problem;
use crate::api::query::RecordingQuery;
use crate::api::questions::AllValuesBetween;
use crate::export::pprof::Content;
use crate::profile::snapshot::Snapshot;
use crate::report::{self, StackValue};

/// Waits, and answers with what came meanwhile. Without a body (`HEAD`) there is nothing to wait
/// for: only what would be refused is told.
pub(super) async fn record(
    shared: &Arc<ServerState>,
    recording: RecordingQuery,
    content: Content,
    has_body: bool,
) -> Result<Response, Problem> {
    shared.needs_kernel("there are no next seconds")?;
    let Ok(_place) = shared.recordings.try_acquire() else {
        return Err(Problem::overloaded(format!(
            "{} profiles of the next seconds are being waited for already",
            shared.options.max_recordings
        )));
    };
    let earlier = in_time(shared, shared.source.snapshot()).await??;
    let RecordingQuery {
        seconds,
        scope,
        stacks: mut query,
    } = recording;
    // A process that is not there is told at once, and so is a module.
    report::frames_needed(&earlier, &scope)?;
    report::check_fold(&earlier, &query.tree.fold)?;
    if !has_body {
        return Ok(respond(Format::Pprof, Body::new(UnmadeBody)));
    }
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    if content == Content::Cpu {
        query.tree.value = Some(StackValue::Samples);
    }
    let question = |earlier| AllValuesBetween {
        earlier,
        scope,
        query: query.clone(),
        content,
        sampling_period_ns: shared.options.sampling_period_ns,
    };
    let made = async {
        let mut output = shared.room.output();
        loop {
            let earlier = Arc::clone(&earlier);
            let turn = Turn::wait(shared, &question(Arc::clone(&earlier))).await?;
            let later = shared.source.snapshot().await?;
            let beside = move || Snapshot::with_one_numbering(earlier, later);
            let (turn, (earlier, later)) = turn.aside(beside).await?;
            let asked = Arc::new(question(earlier));
            let made = turn.answer(shared, later, asked, Format::Pprof, output);
            match made.await? {
                Ok(written) => return Ok::<_, Problem>(written),
                Err(lacking) => output = shared.room.wait(lacking).await?,
            }
        }
    };
    Ok(respond(Format::Pprof, in_time(shared, made).await??))
}

/// A profile that is not made: nothing, of a length that nobody knows, so that none is told.
struct UnmadeBody;

impl HttpBody for UnmadeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }
}
