//! The named sessions, and the totals of one.

use crate::api::answer::{Report, Shown};
use crate::api::described::{Described, REPORT};
use crate::api::endpoint::{Does, Get};
use crate::api::query::PLAIN;
use crate::api::question::{Known, NeededFrames, Question};
use crate::export::sessions;
use crate::profile::name::Name;
use crate::profile::sessions::is_reserved;
use crate::profile::snapshot::Snapshot;
use crate::report::error::ReportError;
use crate::report::query::Scope;
use crate::report::{self, SessionList, SessionTotals};

/// All of them.
struct AllSessions;

/// `/api/v1/sessions`.
pub(crate) const SESSIONS: Get = Get {
    handler: "sessions",
    parameters: PLAIN,
    does: Does::Report(
        |_, _| Box::new(AllSessions),
        Described::report::<SessionList>(REPORT),
    ),
};

impl Question for AllSessions {
    type Answer = Shown<SessionList>;

    fn needs(&self, _: &Snapshot) -> NeededFrames {
        Ok(Vec::new())
    }

    fn answer(&self, snapshot: &Snapshot, _: Known<'_>) -> Result<Self::Answer, ReportError> {
        Ok(Shown(report::sessions(snapshot), |list, out| {
            out.write_all(sessions::to_text(list).as_bytes())
        }))
    }
}

/// One of them; the whole session where it names none.
pub(crate) struct NamedSession(pub(crate) Option<Name>);

/// `/api/v1/sessions/{name}`.
pub(crate) const NAMED_SESSION: Get = Get {
    handler: "named_session",
    parameters: PLAIN,
    does: Does::Report(
        |_, context| {
            Box::new(NamedSession(
                context.session.filter(|name| !is_reserved(*name)),
            ))
        },
        Described::report::<SessionTotals>(REPORT),
    ),
};

impl Question for NamedSession {
    type Answer = Report<SessionTotals>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::outermost_frames(snapshot, &Scope::Session)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::session_totals(snapshot, self.0, known.names).map(Report)
    }
}
