//! What questions have in common: the parameters that each kind of them takes, and how these are
//! read together. What each parameter may be by itself is in `parameter`.

use super::parameter::{
    BASE, BY, COMM, DEPTH, Declarations, FORMAT, FRAMES, FROM, FUNCTION, HIDE, IDLE, INLINES,
    INTERVAL, LABELS, LIMIT, MIN_PERCENT, MODULE, MODULES, NEEDED_FUNCTION, ORDER, OTHER, PID, Q,
    SECONDS, SESSION, SORT, SPAN, SPANS, THRESHOLD, TO, VALUE, WINDOW,
};
use super::problem::Fault;
use super::query_string::Params;
use crate::profile::sessions::is_reserved;
use crate::report::query::{
    CodeQuery, Fold, NeighbourQuery, Scope, SectionMode, StackQuery, StackValue, TableQuery,
    TreeQuery, ViewQuery, Window,
};
use crate::report::{ComparedWindow, DiffQuery, DiffSide, ProcessDiffQuery};

/// What an answer without a profile takes.
pub(crate) const PLAIN: Declarations = &[&FORMAT, &INTERVAL];
/// What every report takes.
pub(crate) const VIEW: Declarations = &[
    &FORMAT, &INTERVAL, &FRAMES, &WINDOW, &FROM, &TO, &SESSION, &SPAN,
];
/// What the first screen takes.
pub(crate) const SCREEN: Declarations = &[&FORMAT, &INTERVAL, &WINDOW, &FROM, &TO, &SESSION, &SPAN];
/// What a table takes.
pub(crate) const TABLE: Declarations = &[
    &FORMAT, &INTERVAL, &FRAMES, &WINDOW, &FROM, &TO, &SESSION, &SPAN, &SORT, &ORDER, &LIMIT, &Q,
];
/// What a table of functions takes.
pub(crate) const FUNCTIONS: Declarations = &[
    &FORMAT, &INTERVAL, &FRAMES, &WINDOW, &FROM, &TO, &SESSION, &SPAN, &SORT, &ORDER, &LIMIT, &Q,
    &MODULES, &HIDE, &INLINES,
];
/// What a table of lines takes.
pub(crate) const LINES: Declarations = &[
    &FUNCTION, &MODULE, &INLINES, &FORMAT, &INTERVAL, &FRAMES, &WINDOW, &FROM, &TO, &SESSION,
    &SPAN, &SORT, &ORDER, &LIMIT, &Q, &MODULES, &HIDE,
];
/// What a table of instructions takes.
pub(crate) const INSTRUCTIONS: Declarations = &[
    &FUNCTION, &MODULE, &FORMAT, &INTERVAL, &FRAMES, &WINDOW, &FROM, &TO, &SESSION, &SPAN, &SORT,
    &ORDER, &LIMIT, &Q, &MODULES, &HIDE,
];
/// What a table of callers or callees takes.
pub(crate) const NEIGHBOURS: Declarations = &[
    &NEEDED_FUNCTION,
    &MODULE,
    &FORMAT,
    &INTERVAL,
    &FRAMES,
    &WINDOW,
    &FROM,
    &TO,
    &SESSION,
    &SPAN,
    &SORT,
    &ORDER,
    &LIMIT,
    &Q,
    &MODULES,
    &HIDE,
];
/// What a timeline takes.
pub(crate) const TIMELINE: Declarations = &[
    &FORMAT, &INTERVAL, &WINDOW, &FROM, &TO, &SESSION, &SPAN, &SPANS, &SORT, &ORDER, &LIMIT, &Q,
];
/// What a comparison of functions takes.
pub(crate) const DIFF: Declarations = &[
    &BASE, &OTHER, &PID, &COMM, &VALUE, &THRESHOLD, &FORMAT, &INTERVAL, &FRAMES, &WINDOW, &FROM,
    &TO, &SESSION, &SPAN, &SORT, &ORDER, &LIMIT, &Q, &MODULES, &HIDE,
];
/// What a comparison of processes takes.
pub(crate) const PROCESS_DIFF: Declarations = &[
    &BASE, &OTHER, &BY, &VALUE, &THRESHOLD, &FORMAT, &INTERVAL, &SORT, &ORDER, &LIMIT, &Q,
];
/// What a profile of one process takes.
pub(crate) const PPROF: Declarations = &[
    &FRAMES, &WINDOW, &FROM, &TO, &SESSION, &SPAN, &MODULES, &HIDE,
];
/// What a profile of the next seconds takes.
pub(crate) const RECORDING: Declarations = &[&SECONDS, &PID, &LABELS, &FRAMES, &MODULES, &HIDE];
/// What a call tree takes.
pub(crate) const TREE: Declarations = &[
    &FORMAT,
    &FRAMES,
    &WINDOW,
    &FROM,
    &TO,
    &SESSION,
    &SPAN,
    &DEPTH,
    &MIN_PERCENT,
    &MODULES,
    &HIDE,
    &VALUE,
    &IDLE,
];

/// What says which time is meant.
const WHEN: &[&str] = &["window", "from", "to", "session", "span"];

/// A question for a profile of the next seconds.
#[derive(Clone, Debug)]
pub(crate) struct RecordingQuery {
    /// How long.
    pub(crate) seconds: u64,
    /// Of whom.
    pub(crate) scope: Scope,
    /// Of what.
    pub(crate) stacks: StackQuery,
}

impl Params {
    /// Takes what every report takes.
    pub(crate) fn view(&mut self) -> ViewQuery {
        ViewQuery {
            frames: self.or_default(&FRAMES),
            window: self.window(),
        }
    }

    /// Takes what a table takes.
    pub(crate) fn table(&mut self) -> TableQuery {
        TableQuery {
            busiest_first: false,
            sort: self.given(&SORT),
            order: self.or_default(&ORDER),
            limit: self.or_default(&LIMIT) as usize,
            q: self.given(&Q),
            frames: self.or_default(&FRAMES),
            window: self.window(),
            fold: self.fold(),
        }
    }

    /// Takes what a timeline takes. How many spans it has unless asked otherwise depends on its
    /// format.
    pub(crate) fn timeline(&mut self) -> (TableQuery, Option<usize>) {
        let over_a_part = self.says_when();
        let spans = self.given(&SPANS).map(|spans| spans as usize);
        let mut table = self.table();
        if !over_a_part {
            table.window = Window::Kept;
        }
        (table, spans)
    }

    /// Takes what a call tree takes.
    pub(crate) fn tree(&mut self) -> TreeQuery {
        TreeQuery {
            value: self.given(&VALUE),
            depth: self.given(&DEPTH).map(|levels| levels as usize),
            min_percent: self.or_default(&MIN_PERCENT),
            frames: self.or_default(&FRAMES),
            window: self.window(),
            fold: self.fold(),
            idle_apart: false,
        }
    }

    /// Takes whether waits of threads that idle are apart; without a word they are in reports of
    /// the whole session.
    pub(crate) fn idle_apart(&mut self, scope: &Scope) -> bool {
        self.given(&IDLE).unwrap_or(matches!(scope, Scope::Session))
    }

    /// Takes what a profile of one process takes.
    pub(crate) fn pprof(&mut self) -> StackQuery {
        StackQuery {
            tree: TreeQuery {
                frames: self.or_default(&FRAMES),
                window: self.window(),
                fold: self.fold(),
                value: Some(StackValue::Elapsed),
                ..TreeQuery::default()
            },
            places: true,
            sections: SectionMode::None,
        }
    }

    /// Takes what a profile of the next seconds takes.
    pub(crate) fn recording(&mut self) -> RecordingQuery {
        RecordingQuery {
            seconds: self.or_default(&SECONDS).into(),
            scope: self.given(&PID).map_or(Scope::Session, Scope::Process),
            stacks: StackQuery {
                sections: self.or_default(&LABELS),
                ..self.pprof()
            },
        }
    }

    /// Takes what a table of callers or callees takes.
    pub(crate) fn neighbours(&mut self) -> NeighbourQuery {
        NeighbourQuery {
            function: self.required(&NEEDED_FUNCTION),
            module: self.given(&MODULE),
            table: self.table(),
        }
    }

    /// Takes what a table of lines or instructions takes.
    pub(crate) fn code(&mut self) -> CodeQuery {
        CodeQuery {
            function: self.given(&FUNCTION),
            module: self.given(&MODULE),
            inlines: self.inlines(),
            table: self.table(),
        }
    }

    /// Takes whether inlined functions count.
    pub(crate) fn inlines(&mut self) -> bool {
        self.or_default(&INLINES)
    }

    /// Takes what a comparison of functions takes.
    pub(crate) fn diff(&mut self) -> DiffQuery {
        let base = self.required(&BASE);
        let other = self.required(&OTHER);
        let of_windows = matches!(base, DiffSide::Window { .. });
        if of_windows != matches!(other, DiffSide::Window { .. }) {
            self.fault(Fault::plain(
                "base and other must both be processes, or neither: parts of the session",
            ));
        }
        let (pid, comm) = (self.given(&PID), self.given(&COMM));
        for (name, given) in [("pid", pid.is_some()), ("comm", comm.is_some())] {
            if given && !of_windows {
                self.fault(Fault {
                    parameter: Some(name.to_owned()),
                    given: None,
                    detail: format!("{name} is for windows: base and other are processes already"),
                });
            }
        }
        let of = match (pid, comm) {
            (Some(_), Some(_)) => {
                self.fault(Fault::plain(
                    "give one of pid and comm: each says who is meant",
                ));
                Scope::Session
            }
            (Some(pid), None) => Scope::Process(pid),
            (None, Some(comm)) => Scope::Named(comm),
            (None, None) => Scope::Session,
        };
        for name in WHEN {
            if of_windows && self.is_given(name) {
                self.fault(Fault {
                    parameter: Some((*name).to_owned()),
                    given: None,
                    detail: format!("{name} is for processes: base and other are windows already"),
                });
            }
        }
        DiffQuery {
            base,
            other,
            of,
            value: self.given(&VALUE),
            threshold_percent: self.or_default(&THRESHOLD),
            table: self.table(),
        }
    }

    /// Takes what a comparison of processes takes.
    pub(crate) fn process_diff(&mut self) -> ProcessDiffQuery {
        let [base, other] = [self.required(&BASE), self.required(&OTHER)];
        let mut window = |name: &str, side| match side {
            DiffSide::Window { window, name } => ComparedWindow { window, name },
            DiffSide::Process(selector) => {
                self.fault(Fault {
                    parameter: Some(name.to_owned()),
                    given: Some(selector.to_string()),
                    detail: format!(
                        "{name} must be a part of the session here; two processes are compared by /api/v1/diff"
                    ),
                });
                ComparedWindow::default()
            }
        };
        let (base, other) = (window(BASE.name, base), window(OTHER.name, other));
        ProcessDiffQuery {
            base,
            other,
            by: self.or_default(&BY),
            value: self.given(&VALUE),
            threshold_percent: self.or_default(&THRESHOLD),
            table: self.table(),
        }
    }

    fn fold(&mut self) -> Fold {
        Fold {
            modules: self.given(&MODULES).unwrap_or_default(),
            hide: self.given(&HIDE).unwrap_or_default(),
        }
    }

    /// Takes which time is meant; without a word the recent one.
    pub(crate) fn recent(&mut self) -> Window {
        let says_when = self.says_when();
        let window = self.window();
        if says_when { window } else { Window::Recent }
    }

    fn says_when(&self) -> bool {
        WHEN.iter().any(|name| self.is_given(name))
    }

    /// Takes what says which time is meant: a length of time, moments, or a session.
    fn window(&mut self) -> Window {
        let given = |params: &Self, names: &[&str]| names.iter().any(|name| params.is_given(name));
        let ways = [&["window"][..], &["from", "to"], &["session", "span"]];
        if ways.iter().filter(|names| given(self, names)).count() > 1 {
            self.fault(Fault::plain(
                "give one of window, from (with to) and session (with span): each says which time is meant",
            ));
        }
        for (name, needed) in [("to", "from"), ("span", "session")] {
            if self.is_given(name) && !self.is_given(needed) {
                self.fault(Fault {
                    parameter: Some(needed.to_owned()),
                    given: None,
                    detail: format!("{needed} must be given where {name} is"),
                });
            }
        }
        let window = self.or_default(&WINDOW);
        let (from, to) = (self.given(&FROM), self.given(&TO));
        let (session, span) = (self.given(&SESSION), self.given(&SPAN));
        match (from, session) {
            (Some(from), _) => Window::Between { from, to },
            (None, Some(session)) if is_reserved(session) => {
                if span.is_some() {
                    let detail = format!("the session {session} has no spans");
                    self.fault(Fault::plain(detail));
                }
                Window::Session
            }
            (None, Some(session)) => Window::Named { session, span },
            (None, None) => window,
        }
    }
}
