//! From the profile to the bytes of the report.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::api;
use crate::api::question::{Known, no_lines};
use crate::backends::Live;
use crate::export::human::profiler_cost;
use crate::export::saved::{Saved, SavedNames};
use crate::report::{self, Measured, Scope, SessionReport, ViewQuery, Window};

use super::wanted::OutputRequest;

/// How long names are waited for: there is one chance to have them.
const NAMES_PATIENCE: Duration = Duration::from_secs(60);

/// A report that is ready to be written.
pub(super) struct WrittenReport {
    /// All of it.
    pub(super) bytes: Vec<u8>,
    /// The totals of all that was recorded.
    pub(super) totals: SessionReport,
}

/// What stages recorded until now, with the names that the report needs.
///
/// # Errors
/// The collector does not answer, or the process that was asked for was never seen.
pub(super) async fn take(
    live: &Live,
    wanted: &OutputRequest,
    scope: Scope,
) -> anyhow::Result<Saved> {
    // A pass of its own, so that nothing of the end is missing.
    let snapshot = live.access().snapshot(0).await;
    let snapshot = snapshot.context("there is no report")?;
    let mut frames = match wanted.question(scope, ViewQuery::default(), None) {
        Some(question) => question.needs(&snapshot)?,
        None => report::frames_needed(&snapshot, &Scope::Session)?,
    };
    // The totals are those of the session whoever was asked for.
    frames.extend(report::outermost_frames(&snapshot, &Scope::Session)?);
    frames.sort_unstable();
    frames.dedup();
    let names = live
        .access()
        .names(Arc::clone(&snapshot), frames.clone(), NAMES_PATIENCE)
        .await;
    live.refresh().await;
    let names = SavedNames::new(&frames, &*names);
    api::saved(live, snapshot, names, wanted.sampling_period_ns)
        .context("how the profiler is cannot be written down")
}

/// Makes the report.
///
/// # Errors
/// The process that was asked for was never seen, or the window is longer than what is kept.
pub(super) async fn report(
    saved: Saved,
    wanted: OutputRequest,
    scope: Scope,
    window: Window,
    measured: Option<Measured>,
) -> anyhow::Result<WrittenReport> {
    let made = tokio::task::spawn_blocking(move || {
        let view = ViewQuery {
            frames: wanted.frames,
            window,
        };
        let totals = report::session(&saved.snapshot, &view, &saved.names)?;
        let bytes = bytes(&saved, scope, &wanted, view, measured)?;
        anyhow::Ok(WrittenReport { bytes, totals })
    });
    made.await.context("making the report failed")?
}

/// The whole profile, or what it is asked.
fn bytes(
    saved: &Saved,
    scope: Scope,
    wanted: &OutputRequest,
    view: ViewQuery,
    measured: Option<Measured>,
) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    let written = match wanted.question(scope, view, measured) {
        None => saved.write(&mut out),
        Some(question) => {
            let known = Known {
                names: &saved.names,
                lines: &no_lines(),
            };
            let answer = question.answer(&saved.snapshot, known)?;
            answer.write(wanted.format, &mut out)
        }
    };
    written.context("cannot make the report")?;
    Ok(out)
}

impl WrittenReport {
    /// One sentence about the recording.
    pub(super) fn summary(&self, recorded_for: Duration, written: Option<&Path>) -> String {
        let lacks = &self.totals.completeness;
        let place = written.map_or_else(String::new, |path| format!("; see {}", path.display()));
        format!(
            "recorded {:.1} s: {} samples, {} lost, {} of {} stacks incomplete; profiling took {}{place}",
            recorded_for.as_secs_f64(),
            self.totals.totals.samples,
            lacks.samples_lost,
            self.totals.stacks.walked - self.totals.stacks.complete,
            self.totals.stacks.walked,
            profiler_cost(&self.totals.totals),
        )
    }
}
