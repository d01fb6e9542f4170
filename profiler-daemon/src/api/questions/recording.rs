//! Everything that a recording says at once. It has no path: `record` asks it.

use crate::api::answer::Report;
use crate::api::question::{Known, NeededFrames, Question};
use crate::profile::snapshot::Snapshot;
use crate::report::error::ReportError;
use crate::report::query::{Scope, StackValue, ViewQuery};
use crate::report::{self, Measured, Recording};

/// See the module.
pub(crate) struct WholeRecording {
    pub(crate) scope: Scope,
    /// What functions are sorted by.
    pub(crate) value: StackValue,
    pub(crate) view: ViewQuery,
    /// What was measured exactly beside it.
    pub(crate) measured: Option<Measured>,
}

impl Question for WholeRecording {
    type Answer = Report<Recording>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::frames_needed(snapshot, &self.scope)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        let Self {
            scope,
            value,
            view,
            measured,
        } = self;
        let measured = measured.as_ref();
        report::recording(snapshot, scope, *value, view, known.names, measured).map(Report)
    }
}
