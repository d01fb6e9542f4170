//! The functions that call another, and those that it calls.

use crate::api::answer::AnswerTable;
use crate::api::described::Described;
use crate::api::endpoint::{Does, Get};
use crate::api::query::NEIGHBOURS;
use crate::api::question::{Known, NeededFrames, Question};
use crate::profile::snapshot::Snapshot;
use crate::report::error::ReportError;
use crate::report::query::{NeighbourQuery, Scope};
use crate::report::{self, FunctionRow, Neighbours};

/// A row per caller.
struct CallersQuestion(Scope, NeighbourQuery);

/// `…/callers`.
pub(crate) const CALLERS: Get = Get {
    handler: "callers",
    parameters: NEIGHBOURS,
    does: Does::Report(
        |params, context| Box::new(CallersQuestion(context.scope, params.neighbours())),
        Described::table::<Neighbours, FunctionRow>(),
    ),
};

impl Question for CallersQuestion {
    type Answer = AnswerTable<Neighbours>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::frames_needed(snapshot, &self.0)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::callers(snapshot, &self.0, &self.1, known.names).map(AnswerTable)
    }
}

/// A row per function that is called.
struct CalleesQuestion(Scope, NeighbourQuery);

/// `…/callees`.
pub(crate) const CALLEES: Get = Get {
    handler: "callees",
    parameters: NEIGHBOURS,
    does: Does::Report(
        |params, context| Box::new(CalleesQuestion(context.scope, params.neighbours())),
        Described::table::<Neighbours, FunctionRow>(),
    ),
};

impl Question for CalleesQuestion {
    type Answer = AnswerTable<Neighbours>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::frames_needed(snapshot, &self.0)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::callees(snapshot, &self.0, &self.1, known.names).map(AnswerTable)
    }
}
