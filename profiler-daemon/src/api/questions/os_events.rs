//! Time by class and by system call.

use crate::api::answer::AnswerTable;
use crate::api::described::{Described, TABLE};
use crate::api::endpoint::{Does, Get};
use crate::api::query::VIEW;
use crate::api::question::{Known, NeededFrames, Question};
use crate::profile::snapshot::Snapshot;
use crate::report::error::ReportError;
use crate::report::query::{Scope, ViewQuery};
use crate::report::{self, OsEvents};

/// See the module.
struct OsEventsQuestion(Scope, ViewQuery);

/// `…/os-events`.
pub(crate) const OS_EVENTS: Get = Get {
    handler: "os_events",
    parameters: VIEW,
    does: Does::Report(
        |params, context| Box::new(OsEventsQuestion(context.scope, params.view())),
        Described::report::<OsEvents>(TABLE),
    ),
};

impl Question for OsEventsQuestion {
    type Answer = AnswerTable<OsEvents>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::outermost_frames(snapshot, &self.0)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::os_events(snapshot, &self.0, &self.1, known.names).map(AnswerTable)
    }
}
