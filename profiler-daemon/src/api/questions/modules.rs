//! A row per module.

use crate::api::answer::AnswerTable;
use crate::api::described::Described;
use crate::api::endpoint::{Does, Get};
use crate::api::query::TABLE;
use crate::api::question::{Known, NeededFrames, Question};
use crate::profile::snapshot::Snapshot;
use crate::report::error::ReportError;
use crate::report::query::{Scope, TableQuery};
use crate::report::{self, List, ModuleRow};

/// See the module.
struct Modules(Scope, TableQuery);

/// `…/modules`.
pub(crate) const MODULES: Get = Get {
    handler: "modules",
    parameters: TABLE,
    does: Does::Report(
        |params, context| Box::new(Modules(context.scope, params.table())),
        Described::table::<List<ModuleRow>, ModuleRow>(),
    ),
};

impl Question for Modules {
    type Answer = AnswerTable<List<ModuleRow>>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::outermost_frames(snapshot, &self.0)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::modules(snapshot, &self.0, &self.1, known.names).map(AnswerTable)
    }
}
