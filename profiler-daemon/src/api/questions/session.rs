//! The totals of the session.

use crate::api::answer::Report;
use crate::api::described::{Described, REPORT};
use crate::api::endpoint::{Does, Get};
use crate::api::query::VIEW;
use crate::api::question::{Known, NeededFrames, Question};
use crate::profile::snapshot::Snapshot;
use crate::report::error::ReportError;
use crate::report::query::{Scope, ViewQuery};
use crate::report::{self, SessionReport};

/// See the module.
pub(crate) struct SessionQuestion(pub(crate) ViewQuery);

/// `/api/v1/session`.
pub(crate) const SESSION: Get = Get {
    handler: "session",
    parameters: VIEW,
    does: Does::Report(
        |params, _| Box::new(SessionQuestion(params.view())),
        Described::report::<SessionReport>(REPORT),
    ),
};

impl Question for SessionQuestion {
    type Answer = Report<SessionReport>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::outermost_frames(snapshot, &Scope::Session)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::session(snapshot, &self.0, known.names).map(Report)
    }
}
