//! What each process, or each thread of one, did when.

use crate::api::answer::AnswerTable;
use crate::api::described::{Described, TABLE, describe};
use crate::api::endpoint::{Context, Does, Get};
use crate::api::format::Format;
use crate::api::query::TIMELINE;
use crate::api::query_string::Params;
use crate::api::question::{Known, NeededFrames, Question};

use crate::profile::snapshot::Snapshot;
use crate::report::error::ReportError;
use crate::report::query::{Scope, TimelineQuery};
use crate::report::timeline::MAX_SPANS;
use crate::report::{self, Columns, Line, ProcessWho, ThreadWho, Timeline, Who};

/// Most spans of a timeline for people, a letter each, unless more are asked for.
const TEXT_SPANS: usize = 60;

/// Which time, in how many spans.
struct SpanQuestion {
    query: TimelineQuery,
    /// Whether so many spans were asked for.
    spans_given: bool,
}

impl SpanQuestion {
    fn read(params: &mut Params) -> Self {
        let (table, spans) = params.timeline();
        Self {
            query: TimelineQuery {
                table,
                max_spans: spans.unwrap_or(MAX_SPANS),
            },
            spans_given: spans.is_some(),
        }
    }

    fn in_format(&mut self, format: Format) {
        self.query.table.busiest_first = format == Format::Text;
        if format == Format::Text && !self.spans_given {
            self.query.max_spans = TEXT_SPANS;
        }
    }
}

const fn described<W: utoipa::ToSchema + Who>() -> Described {
    Described {
        formats: TABLE,
        json: |schemas| {
            describe::<W>(schemas);
            describe::<Line<W>>(schemas);
            describe::<Timeline<W>>(schemas)
        },
        columns: <Line<W> as Columns>::COLUMNS,
    }
}

/// A row per process.
struct OfProcesses(SpanQuestion);

/// `/api/v1/timeline`.
pub(crate) const PROCESS_TIMELINE: Get = Get {
    handler: "process_timeline",
    parameters: TIMELINE,
    does: Does::Report(
        |params, _| Box::new(OfProcesses(SpanQuestion::read(params))),
        described::<ProcessWho>(),
    ),
};

impl Question for OfProcesses {
    type Answer = AnswerTable<Timeline<ProcessWho>>;

    fn in_format(&mut self, format: Format) {
        self.0.in_format(format);
    }

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::outermost_frames(snapshot, &Scope::Session)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::process_timeline(snapshot, &self.0.query, known.names).map(AnswerTable)
    }
}

/// A row per thread of a process.
struct OfThreads(Scope, SpanQuestion);

/// `…/timeline` of one process.
pub(crate) const THREAD_TIMELINE: Get = Get {
    handler: "thread_timeline",
    parameters: TIMELINE,
    does: Does::Report(
        |params, context: &Context| Box::new(OfThreads(context.scope, SpanQuestion::read(params))),
        described::<ThreadWho>(),
    ),
};

impl Question for OfThreads {
    type Answer = AnswerTable<Timeline<ThreadWho>>;

    fn in_format(&mut self, format: Format) {
        self.1.in_format(format);
    }

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::outermost_frames(snapshot, &self.0)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        report::thread_timeline(snapshot, &self.0, &self.1.query, known.names).map(AnswerTable)
    }
}

#[cfg(test)]
mod tests {
    use super::SpanQuestion;
    use crate::api::format::Format;
    use crate::api::query::TIMELINE;
    use crate::api::query_string::Params;

    // Check that who ran most comes first in texts alone, where fewer spans are shown.
    #[test]
    fn texts_are_for_people() {
        let asked = |format| {
            let mut question = SpanQuestion::read(&mut Params::parse(None, TIMELINE));
            question.in_format(format);
            let query = question.query;
            (query.table.busiest_first, query.max_spans)
        };
        assert_eq!(asked(Format::Text), (true, 60));
        assert_eq!(asked(Format::Json), (false, 600));
        assert_eq!(asked(Format::Csv), (false, 600));
    }
}
