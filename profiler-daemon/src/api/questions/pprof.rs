//! Stacks with all their values, for pprof: since the session began, and of the next seconds, which
//! are what two profiles differ by.

use std::sync::Arc;

use crate::api::answer::AllValues;
use crate::api::endpoint::{Does, Get};
use crate::api::format::Format;
use crate::api::query;
use crate::api::question::{Known, NeededFrames, Question};
use crate::export::pprof::Content;
use crate::profile::snapshot::Snapshot;
use crate::report;
use crate::report::error::ReportError;
use crate::report::query::{Scope, StackQuery};

/// All stacks of a window.
pub(crate) struct AllValuesOf {
    pub(crate) scope: Scope,
    pub(crate) query: StackQuery,
    /// Time between two samples of one processor, nanoseconds.
    pub(crate) sampling_period_ns: u64,
}

/// `/api/v1/processes/{pid}/pprof`.
pub(crate) const PPROF: Get = Get {
    handler: "pprof",
    parameters: query::PPROF,
    does: Does::File(
        |params, context| {
            Box::new(AllValuesOf {
                scope: context.scope,
                query: params.pprof(),
                sampling_period_ns: context.sampling_period_ns,
            })
        },
        Format::Pprof,
        "a profile for pprof, in gzip",
    ),
};

/// `/debug/pprof/profile`.
pub(crate) const RECORD_CPU: Get = Get {
    handler: "pprof_profile",
    parameters: query::RECORDING,
    does: Does::Record(Content::Cpu),
};

/// `/debug/pprof/wall`.
pub(crate) const RECORD_WALL: Get = Get {
    handler: "pprof_wall",
    parameters: query::RECORDING,
    does: Does::Record(Content::Wall),
};

impl Question for AllValuesOf {
    type Answer = AllValues;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::frames_needed(snapshot, &self.scope)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        let stacks = report::stacks(snapshot, &self.scope, &self.query, known.names)?;
        Ok(AllValues {
            stacks,
            content: Content::All,
            sampling_period_ns: self.sampling_period_ns,
        })
    }
}

/// What came to the stacks since an earlier profile, which has the same numbers.
pub(crate) struct AllValuesBetween {
    pub(crate) earlier: Arc<Snapshot>,
    pub(crate) scope: Scope,
    pub(crate) query: StackQuery,
    pub(crate) content: Content,
    /// Time between two samples of one processor, nanoseconds.
    pub(crate) sampling_period_ns: u64,
}

impl Question for AllValuesBetween {
    type Answer = AllValues;

    fn needs(&self, later: &Snapshot) -> NeededFrames {
        // What has its time from before is taken away under the same names.
        let mut frames = report::frames_needed(later, &self.scope)?;
        frames.extend(report::frames_needed(&self.earlier, &self.scope).unwrap_or_default());
        frames.sort_unstable();
        frames.dedup();
        Ok(frames)
    }

    fn answer(&self, later: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        let Self { scope, query, .. } = self;
        let stacks = report::stacks_between(&self.earlier, later, scope, query, known.names)?;
        Ok(AllValues {
            stacks,
            content: self.content,
            sampling_period_ns: self.sampling_period_ns,
        })
    }
}
