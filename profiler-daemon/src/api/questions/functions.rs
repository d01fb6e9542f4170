//! A row per function; with those that were inlined, where that is asked for.

use crate::api::answer::AnswerTable;
use crate::api::described::Described;
use crate::api::endpoint::{Does, Get};
use crate::api::query;
use crate::api::question::{CodeSelection, Known, NeededFrames, Question};
use crate::profile::snapshot::Snapshot;
use crate::report::error::ReportError;
use crate::report::query::{Scope, TableQuery};
use crate::report::{self, FunctionRow, List};

/// See the module.
pub(crate) struct Functions {
    pub(crate) scope: Scope,
    pub(crate) table: TableQuery,
    /// Whether inlined functions have rows of their own.
    pub(crate) inlines: bool,
}

/// `…/functions`.
pub(crate) const FUNCTIONS: Get = Get {
    handler: "functions",
    parameters: query::FUNCTIONS,
    does: Does::Report(
        |params, context| {
            Box::new(Functions {
                scope: context.scope,
                table: params.table(),
                inlines: params.inlines(),
            })
        },
        Described::table::<List<FunctionRow>, FunctionRow>(),
    ),
};

impl Question for Functions {
    type Answer = AnswerTable<List<FunctionRow>>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::frames_needed(snapshot, &self.scope)
    }

    fn code(&self) -> Option<CodeSelection<'_>> {
        self.inlines.then_some(CodeSelection {
            scope: &self.scope,
            window: self.table.window,
            function: None,
            module: None,
        })
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        let Known { names, lines } = known;
        let list = if self.inlines {
            report::functions_with_inlines(snapshot, &self.scope, &self.table, names, lines)
        } else {
            report::functions(snapshot, &self.scope, &self.table, names)
        };
        list.map(AnswerTable)
    }
}
