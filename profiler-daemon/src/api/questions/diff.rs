//! Two windows, named sessions or processes, compared by function or by process.

use crate::api::answer::AnswerTable;
use crate::api::described::Described;
use crate::api::endpoint::{Does, Get};
use crate::api::query;
use crate::api::question::{Known, NeededFrames, Question};
use crate::profile::snapshot::Snapshot;
use crate::report::error::ReportError;
use crate::report::query::Scope;
use crate::report::{
    self, Diff, DiffQuery, DiffRow, ProcessDiff, ProcessDiffQuery, ProcessDiffRow,
};

/// By function.
struct ByFunction(DiffQuery);

/// `/api/v1/diff`.
pub(crate) const DIFF: Get = Get {
    handler: "diff",
    parameters: query::DIFF,
    does: Does::Report(
        |params, _| Box::new(ByFunction(params.diff())),
        Described::table::<Diff, DiffRow>(),
    ),
};

impl Question for ByFunction {
    type Answer = AnswerTable<Diff>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        let mut frames = Vec::new();
        for side in [&self.0.base, &self.0.other] {
            let (scope, _) = self.0.scope(side);
            frames.extend(report::frames_needed(snapshot, &scope)?);
        }
        frames.sort_unstable();
        frames.dedup();
        Ok(frames)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::diff(snapshot, &self.0, known.names).map(AnswerTable)
    }
}

/// By process.
struct ByProcess(ProcessDiffQuery);

/// `/api/v1/diff/processes`.
pub(crate) const PROCESS_DIFF: Get = Get {
    handler: "process_diff",
    parameters: query::PROCESS_DIFF,
    does: Does::Report(
        |params, _| Box::new(ByProcess(params.process_diff())),
        Described::table::<ProcessDiff, ProcessDiffRow>(),
    ),
};

impl Question for ByProcess {
    type Answer = AnswerTable<ProcessDiff>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::outermost_frames(snapshot, &Scope::Session)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::process_diff(snapshot, &self.0, known.names).map(AnswerTable)
    }
}
