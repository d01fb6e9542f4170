//! A row per thread.

use crate::api::answer::AnswerTable;
use crate::api::described::Described;
use crate::api::endpoint::{Does, Get};
use crate::api::format::Format;
use crate::api::query::TABLE;
use crate::api::question::{Known, NeededFrames, Question};
use crate::profile::snapshot::Snapshot;
use crate::report::error::ReportError;
use crate::report::query::{Scope, TableQuery};
use crate::report::{self, List, ThreadRow};

/// See the module.
pub(crate) struct Threads(pub(crate) Scope, pub(crate) TableQuery);

/// `…/threads`.
pub(crate) const THREADS: Get = Get {
    handler: "threads",
    parameters: TABLE,
    does: Does::Report(
        |params, context| Box::new(Threads(context.scope, params.table())),
        Described::table::<List<ThreadRow>, ThreadRow>(),
    ),
};

impl Question for Threads {
    type Answer = AnswerTable<List<ThreadRow>>;

    fn in_format(&mut self, format: Format) {
        self.1.busiest_first = format == Format::Text;
    }

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::outermost_frames(snapshot, &self.0)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::threads(snapshot, &self.0, &self.1, known.names).map(AnswerTable)
    }
}
