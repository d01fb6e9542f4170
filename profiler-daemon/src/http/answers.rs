//! What each handler answers: in which formats, and what the JSON holds. Content is negotiated by it (`ask`), and the description
//! of the interface is made of it (`openapi`).

use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema as _, ToSchema};

use super::format::{Format, REPORT, SCREEN, TABLE, TREE};
use super::pprof;
use super::sessions::Marked;
use crate::api::Status;
use crate::api::problem::ProblemBody;
use crate::config::targets::Targets;
use crate::metrics;
use crate::report::{
    CallTree, Columns, Diff, DiffRow, FunctionRow, InstructionRow, Line, LineRow, List, ModuleRow,
    Neighbours, OsEvents, Overview, ProcessDiff, ProcessDiffRow, ProcessReport, ProcessRow,
    ProcessWho, SessionList, SessionReport, SessionTotals, ThreadRow, ThreadWho, Timeline, Who,
};

/// What a handler answers when the question is right.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    /// A report, in the format that is asked for.
    Report {
        /// Its formats.
        formats: &'static [Format],
        /// What the JSON holds.
        json: fn(&mut Schemas) -> String,
        /// The columns that `sort` takes.
        columns: &'static [&'static str],
    },
    /// Always the same: media types, and what comes as each. The first is that of clients that want nothing else.
    Fixed(&'static [(&'static str, &'static str)]),
}

/// Schemas by name. Of one name the first counts.
pub(super) type Schemas = Vec<(String, RefOr<Schema>)>;

/// What a handler answers.
///
/// # Panics
///
/// For a handler that is not listed here. The server describes every endpoint when it starts.
pub(super) fn of(handler: &str) -> Answer {
    match handler {
        "index" => Answer::Fixed(&[
            (TEXT, "who is busy and who waits, as at /top"),
            ("text/html", "the page over these reports"),
        ]),
        "listing" => Answer::Fixed(&[(TEXT, "every endpoint, a line each")]),
        "top" => report::<Overview>(SCREEN),
        "healthy" | "ready" => Answer::Fixed(&[(TEXT, "one word")]),
        "metrics" => Answer::Fixed(&[(metrics::CONTENT_TYPE, "metrics in the Prometheus format")]),
        "openapi" => Answer::Fixed(&[("application/json", "this description")]),
        "status" => report::<Status>(REPORT),
        "targets" => report::<Targets>(REPORT),
        "session" => report::<SessionReport>(REPORT),
        "processes" => table::<List<ProcessRow>, ProcessRow>(),
        "process" => report::<ProcessReport>(REPORT),
        "functions" => table::<List<FunctionRow>, FunctionRow>(),
        "modules" => table::<List<ModuleRow>, ModuleRow>(),
        "threads" => table::<List<ThreadRow>, ThreadRow>(),
        "callers" | "callees" => table::<Neighbours, FunctionRow>(),
        "calltree" => report::<CallTree>(TREE),
        "diff" => table::<Diff, DiffRow>(),
        "process_diff" => table::<ProcessDiff, ProcessDiffRow>(),
        "os_events" => report::<OsEvents>(TABLE),
        "pprof" | "pprof_profile" | "pprof_wall" => {
            Answer::Fixed(&[(pprof::CONTENT_TYPE, "a profile for pprof, in gzip")])
        }
        "lines" => table::<List<LineRow>, LineRow>(),
        "instructions" => table::<List<InstructionRow>, InstructionRow>(),
        "process_timeline" => timeline::<ProcessWho>(),
        "thread_timeline" => timeline::<ThreadWho>(),
        "sessions" => report::<SessionList>(REPORT),
        "named_session" => report::<SessionTotals>(REPORT),
        "marks" => report::<Marked>(REPORT),
        "profile" => Answer::Fixed(&[(pprof::CONTENT_TYPE, "a file for --replay")]),
        unknown => unreachable!("nothing says what the handler {unknown} answers"),
    }
}

const TEXT: &str = "text/plain";

const fn report<T: ToSchema>(formats: &'static [Format]) -> Answer {
    Answer::Report {
        formats,
        json: describe::<T>,
        columns: &[],
    }
}

const fn table<T: ToSchema, Row: ToSchema + Columns>() -> Answer {
    Answer::Report {
        formats: TABLE,
        // utoipa does not see what a generic list holds.
        json: |schemas| {
            describe::<Row>(schemas);
            describe::<T>(schemas)
        },
        columns: Row::COLUMNS,
    }
}

const fn timeline<W: ToSchema + Who>() -> Answer {
    Answer::Report {
        formats: TABLE,
        json: |schemas| {
            describe::<W>(schemas);
            describe::<Line<W>>(schemas);
            describe::<Timeline<W>>(schemas)
        },
        columns: <Line<W> as Columns>::COLUMNS,
    }
}

impl Answer {
    /// The formats that can be asked for.
    pub(super) const fn formats(self) -> &'static [Format] {
        match self {
            Self::Report { formats, .. } => formats,
            Self::Fixed(_) => &[],
        }
    }
}

/// Adds the schema of a type and of all it holds; answers with its name.
fn describe<T: ToSchema>(schemas: &mut Schemas) -> String {
    let name = name_of(std::any::type_name::<T>());
    schemas.push((name.clone(), T::schema()));
    T::schemas(schemas);
    name
}

/// Adds the schema of a problem; answers with its name.
pub(super) fn describe_problem(schemas: &mut Schemas) -> String {
    let name = "Problem".to_owned();
    schemas.push((name.clone(), ProblemBody::schema()));
    ProblemBody::schemas(schemas);
    name
}

/// The name of a type without its path, as utoipa's derive names it where another type holds it: `List_ProcessRow`.
fn name_of(path: &str) -> String {
    let words = path.split(['<', '>', ',', ' ']);
    let names = words.filter_map(|word| word.rsplit("::").next().filter(|name| !name.is_empty()));
    names.collect::<Vec<_>>().join("_")
}
