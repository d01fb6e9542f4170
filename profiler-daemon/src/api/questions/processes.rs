//! A row per process, and the totals of one process or image.

use crate::api::answer::{AnswerTable, Report};
use crate::api::described::{Described, REPORT};
use crate::api::endpoint::{Does, Get};
use crate::api::format::Format;
use crate::api::query::{TABLE, VIEW};
use crate::api::question::{Known, NeededFrames, Question};
use crate::profile::snapshot::Snapshot;
use crate::report::error::ReportError;
use crate::report::query::{Scope, TableQuery, ViewQuery};
use crate::report::{self, List, ProcessReport, ProcessRow};

/// A row per process.
pub(crate) struct ProcessesQuestion(pub(crate) TableQuery);

/// `/api/v1/processes`.
pub(crate) const PROCESSES: Get = Get {
    handler: "processes",
    parameters: TABLE,
    does: Does::Report(
        |params, _| Box::new(ProcessesQuestion(params.table())),
        Described::table::<List<ProcessRow>, ProcessRow>(),
    ),
};

impl Question for ProcessesQuestion {
    type Answer = AnswerTable<List<ProcessRow>>;

    fn in_format(&mut self, format: Format) {
        self.0.busiest_first = format == Format::Text;
    }

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::outermost_frames(snapshot, &Scope::Session)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::processes(snapshot, &self.0, known.names).map(AnswerTable)
    }
}

/// The totals of one.
pub(crate) struct ProcessQuestion(pub(crate) Scope, pub(crate) ViewQuery);

/// `/api/v1/processes/{pid}`.
pub(crate) const PROCESS: Get = Get {
    handler: "process",
    parameters: VIEW,
    does: Does::Report(
        |params, context| Box::new(ProcessQuestion(context.scope, params.view())),
        Described::report::<ProcessReport>(REPORT),
    ),
};

impl Question for ProcessQuestion {
    type Answer = Report<ProcessReport>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::outermost_frames(snapshot, &self.0)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::process(snapshot, &self.0, &self.1, known.names).map(Report)
    }
}
