//! A row per line of source, or per instruction.

use crate::api::answer::AnswerTable;
use crate::api::described::Described;
use crate::api::endpoint::{Does, Get};
use crate::api::query;
use crate::api::question::{CodeSelection, Known, NeededFrames, Question};
use crate::profile::snapshot::Snapshot;
use crate::report::error::ReportError;
use crate::report::query::{CodeQuery, Scope};
use crate::report::{self, InstructionRow, LineRow, List};

/// A row per line.
struct LinesQuestion(Scope, CodeQuery);

/// `…/lines`.
pub(crate) const LINES: Get = Get {
    handler: "lines",
    parameters: query::LINES,
    does: Does::Report(
        |params, context| Box::new(LinesQuestion(context.scope, params.code())),
        Described::table::<List<LineRow>, LineRow>(),
    ),
};

impl Question for LinesQuestion {
    type Answer = AnswerTable<List<LineRow>>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::frames_needed(snapshot, &self.0)
    }

    fn code(&self) -> Option<CodeSelection<'_>> {
        Some(code(&self.0, &self.1))
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::lines(snapshot, &self.0, &self.1, known.names, known.lines).map(AnswerTable)
    }
}

/// A row per instruction.
struct Instructions(Scope, CodeQuery);

/// `…/instructions`.
pub(crate) const INSTRUCTIONS: Get = Get {
    handler: "instructions",
    parameters: query::INSTRUCTIONS,
    does: Does::Report(
        |params, context| Box::new(Instructions(context.scope, params.code())),
        Described::table::<List<InstructionRow>, InstructionRow>(),
    ),
};

impl Question for Instructions {
    type Answer = AnswerTable<List<InstructionRow>>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::frames_needed(snapshot, &self.0)
    }

    fn code(&self) -> Option<CodeSelection<'_>> {
        Some(code(&self.0, &self.1))
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::instructions(snapshot, &self.0, &self.1, known.names, known.lines).map(AnswerTable)
    }
}

fn code<'a>(scope: &'a Scope, query: &'a CodeQuery) -> CodeSelection<'a> {
    CodeSelection {
        scope,
        window: query.table.window,
        // An inlined function is in frames of any other.
        function: query.function.as_deref().filter(|_| !query.inlines),
        module: query.module.as_deref(),
    }
}
