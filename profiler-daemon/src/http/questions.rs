//! What each kind of endpoint may be asked: the names of its parameters, and the question they make. What
//! each parameter may be is in `parameters`.

use super::parameters::{
    BASE, DEPTH, FRAMES, FUNCTION, HIDE, LABELS, LIMIT, MIN_PERCENT, MODULE, MODULES, ORDER, OTHER,
    PID, Q, SECONDS, SORT, THRESHOLD, VALUE, WINDOW,
};
use super::params::Params;
use super::problem::Fault;
use crate::report::query::{
    DiffQuery, DiffSide, Fold, NeighbourQuery, Scope, Sections, StackQuery, StackValue, TableQuery,
    TreeQuery, ViewQuery,
};

/// What an answer without a profile takes.
pub(super) const FORMAT: &[&str] = &["format", "interval"];
/// What every report takes.
pub(super) const VIEW: &[&str] = &["format", "interval", "frames", "window"];
/// What a table takes.
pub(super) const TABLE: &[&str] = &[
    "format", "interval", "frames", "window", "sort", "order", "limit", "q",
];
/// What a table of functions takes.
pub(super) const FUNCTIONS: &[&str] = &[
    "format", "interval", "frames", "window", "sort", "order", "limit", "q", "modules", "hide",
];
/// What a table of callers or callees takes.
pub(super) const NEIGHBOURS: &[&str] = &[
    "function", "module", "format", "interval", "frames", "window", "sort", "order", "limit", "q",
    "modules", "hide",
];
/// What a comparison takes.
pub(super) const DIFF: &[&str] = &[
    "base",
    "other",
    "threshold",
    "format",
    "interval",
    "frames",
    "window",
    "sort",
    "order",
    "limit",
    "q",
    "modules",
    "hide",
];
/// What a profile of one process takes.
pub(super) const PPROF: &[&str] = &["frames", "window", "modules", "hide"];
/// What a profile of the next seconds takes.
pub(super) const RECORDING: &[&str] = &["seconds", "pid", "labels", "frames", "modules", "hide"];
/// What a call tree takes.
pub(super) const TREE: &[&str] = &[
    "format",
    "frames",
    "window",
    "depth",
    "min_percent",
    "modules",
    "hide",
    "value",
];

/// A question for a profile of the next seconds.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    /// How long.
    pub(super) seconds: u64,
    /// Of whom.
    pub(super) scope: Scope,
    /// Of what.
    pub(super) stacks: StackQuery,
}

impl Params {
    /// Takes what every report takes.
    pub(super) fn view(&mut self) -> ViewQuery {
        ViewQuery {
            frames: self.or_default(&FRAMES),
            window: self.or_default(&WINDOW),
        }
    }

    /// Takes what a table takes.
    pub(super) fn table(&mut self) -> TableQuery {
        TableQuery {
            sort: self.given(&SORT),
            order: self.or_default(&ORDER),
            limit: self.or_default(&LIMIT) as usize,
            q: self.given(&Q),
            frames: self.or_default(&FRAMES),
            window: self.or_default(&WINDOW),
            fold: self.fold(),
        }
    }

    /// Takes what a call tree takes.
    pub(super) fn tree(&mut self) -> TreeQuery {
        TreeQuery {
            value: self.given(&VALUE),
            depth: self.given(&DEPTH).map(|levels| levels as usize),
            min_percent: self.or_default(&MIN_PERCENT),
            frames: self.or_default(&FRAMES),
            window: self.or_default(&WINDOW),
            fold: self.fold(),
        }
    }

    /// Takes what a profile of one process takes.
    pub(super) fn pprof(&mut self) -> StackQuery {
        StackQuery {
            tree: TreeQuery {
                frames: self.or_default(&FRAMES),
                window: self.or_default(&WINDOW),
                fold: self.fold(),
                value: Some(StackValue::Elapsed),
                ..TreeQuery::default()
            },
            places: true,
            sections: Sections::None,
        }
    }

    /// Takes what a profile of the next seconds takes.
    pub(super) fn recording(&mut self) -> Recording {
        Recording {
            seconds: self.or_default(&SECONDS).into(),
            scope: self.given(&PID).map_or(Scope::Session, Scope::Process),
            stacks: StackQuery {
                sections: self.or_default(&LABELS),
                ..self.pprof()
            },
        }
    }

    /// Takes what a table of callers or callees takes.
    pub(super) fn neighbours(&mut self) -> NeighbourQuery {
        NeighbourQuery {
            function: self.required(&FUNCTION),
            module: self.given(&MODULE),
            table: self.table(),
        }
    }

    /// Takes what a comparison takes.
    pub(super) fn diff(&mut self) -> DiffQuery {
        let base = self.required(&BASE);
        let other = self.required(&OTHER);
        let of_windows = matches!(base, DiffSide::Window { .. });
        if of_windows != matches!(other, DiffSide::Window { .. }) {
            self.fault(Fault::plain(
                "base and other must both be processes, or both be lengths of time",
            ));
        } else if of_windows && self.is_given("window") {
            self.fault(Fault {
                parameter: Some("window".to_owned()),
                given: None,
                detail: "window is for processes: base and other are windows already".to_owned(),
            });
        }
        DiffQuery {
            base,
            other,
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
}
