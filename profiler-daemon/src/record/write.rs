//! From the profile to the bytes of the report.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::args::RecordFormat;
use crate::backends::Live;
use crate::export::pprof::{self, Content};
use crate::export::{csv, firefox, flamegraph, folded, speedscope, text};
use crate::http::{self, Backend};
use crate::profile::snapshot::Snapshot;
use crate::report::names::Names;
use crate::report::recording::all_functions;
use crate::report::{self, Scope, Sections, SessionReport, StackQuery, TreeQuery, ViewQuery};

use super::wanted::Wanted;

/// A report that is ready to be written.
pub(super) struct Report {
    /// All of it.
    pub(super) bytes: Vec<u8>,
    totals: SessionReport,
}

/// Makes the report of what was recorded until now.
///
/// # Errors
/// The collector does not answer, or the process that was asked for was never seen.
pub(super) async fn report(
    live: &Arc<Live>,
    wanted: Wanted,
    scope: Scope,
) -> anyhow::Result<Report> {
    // A pass of its own, so that nothing of the end is missing.
    let access = live.access();
    let snapshot = access.snapshot(0).await.context("there is no report")?;
    let named = if wanted.format == RecordFormat::Profile {
        Scope::Session
    } else {
        scope
    };
    let frames = report::frames_needed(&snapshot, &named)?;
    let names = access.names(Arc::clone(&snapshot), frames).await;
    live.look().await;
    let live = Arc::clone(live);
    let made = tokio::task::spawn_blocking(move || {
        let totals = report::session(&snapshot, &ViewQuery::default())?;
        let bytes = bytes(&*live, &snapshot, &scope, &wanted, &*names)?;
        anyhow::Ok(Report { bytes, totals })
    });
    made.await.context("making the report failed")?
}

fn bytes(
    backend: &dyn Backend,
    snapshot: &Snapshot,
    scope: &Scope,
    wanted: &Wanted,
    names: &dyn Names,
) -> anyhow::Result<Vec<u8>> {
    let &Wanted {
        format,
        value,
        frames,
        sampling_period_ns,
    } = wanted;
    let recording = || report::recording(snapshot, scope, value, frames, names);
    let stacks = |places| {
        let query = StackQuery {
            tree: TreeQuery {
                frames,
                value: Some(value),
                ..TreeQuery::default()
            },
            places,
            sections: match scope {
                Scope::Session => Sections::Process,
                Scope::Process(_) => Sections::None,
            },
        };
        report::stacks(snapshot, scope, &query, names)
    };
    let mut out = Vec::new();
    match format {
        RecordFormat::Text => text::write(&recording()?, &mut out),
        RecordFormat::Json => serde_json::to_writer(&mut out, &recording()?)
            .map_err(io::Error::from)
            .map(|()| out.push(b'\n')),
        RecordFormat::Csv => {
            let query = all_functions(value, frames);
            csv::write(
                &report::functions(snapshot, scope, &query, names)?,
                &mut out,
            )
        }
        RecordFormat::Folded => folded::write(&stacks(false)?, value, &mut out),
        RecordFormat::Svg => flamegraph::write(&stacks(false)?, value, &mut out),
        RecordFormat::Speedscope => speedscope::write(&stacks(false)?, value, &mut out),
        RecordFormat::Firefox => firefox::write(&stacks(false)?, value, &mut out),
        RecordFormat::Pprof => {
            pprof::write(&stacks(true)?, Content::All, sampling_period_ns, &mut out)
        }
        RecordFormat::Profile => http::save(backend, snapshot, names, sampling_period_ns, &mut out),
    }
    .context("cannot make the report")?;
    Ok(out)
}

impl Report {
    /// One sentence about the recording.
    pub(super) fn summary(&self, recorded_for: Duration, written: Option<&Path>) -> String {
        let lacks = &self.totals.completeness;
        let place = written.map_or_else(String::new, |path| format!("; see {}", path.display()));
        format!(
            "recorded {:.1} s: {} samples, {} lost, {} of {} stacks incomplete{place}",
            recorded_for.as_secs_f64(),
            self.totals.samples,
            lacks.samples_lost,
            self.totals.stacks.walked - self.totals.stacks.complete,
            self.totals.stacks.walked,
        )
    }
}
