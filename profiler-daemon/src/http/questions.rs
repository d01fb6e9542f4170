//! What each kind of endpoint may be asked: the names of its parameters, their bounds, and the question they make.

use super::params::Params;
use super::problem::Fault;
use crate::args::duration;
use crate::report::query::{
    CodeQuery, DiffQuery, DiffSide, Fold, Frames, NeighbourQuery, Order, Scope, Sections,
    StackQuery, StackValue, TableQuery, TreeQuery, ViewQuery, Window,
};

/// The longest text to look for, in bytes.
const MAX_SEARCH_BYTES: usize = 256;
/// Rows of a table unless more are asked for.
const DEFAULT_LIMIT: usize = 100;
/// The most rows that can be asked for by number; 0 asks for all.
const MAX_LIMIT: usize = 1_000_000;
/// The most modules that can be named in one parameter.
const MAX_MODULES: usize = 32;
/// The longest name of a function or module, in bytes.
const MAX_NAME_BYTES: usize = 2_048;
/// The longest profile of the next seconds.
const MAX_SECONDS: usize = 300;
/// How long a profile of the next seconds is unless asked otherwise, as in other programs with this path.
const DEFAULT_SECONDS: usize = 30;
/// The deepest call tree that can be asked for.
const MAX_DEPTH: usize = 10_000;

/// What an answer without a profile takes.
pub(super) const FORMAT: &[&str] = &["format"];
/// What every report takes.
pub(super) const VIEW: &[&str] = &["format", "frames", "window"];
/// What a table takes.
pub(super) const TABLE: &[&str] = &["format", "frames", "window", "sort", "order", "limit", "q"];
/// What a table of functions takes.
pub(super) const FUNCTIONS: &[&str] = &[
    "format", "frames", "window", "sort", "order", "limit", "q", "modules", "hide", "inlines",
];
/// What a table of lines takes.
pub(super) const LINES: &[&str] = &[
    "function", "module", "inlines", "format", "frames", "window", "sort", "order", "limit", "q",
    "modules", "hide",
];
/// What a table of instructions takes.
pub(super) const INSTRUCTIONS: &[&str] = NEIGHBOURS;
/// What a table of callers or callees takes.
pub(super) const NEIGHBOURS: &[&str] = &[
    "function", "module", "format", "frames", "window", "sort", "order", "limit", "q", "modules",
    "hide",
];
/// What a comparison takes.
pub(super) const DIFF: &[&str] = &[
    "base",
    "other",
    "threshold",
    "format",
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
            frames: self.frames(),
            window: self.window(),
        }
    }

    /// Takes what a table takes.
    pub(super) fn table(&mut self) -> TableQuery {
        let order = self.take("order", |value| match value {
            "desc" => Ok(Order::Desc),
            "asc" => Ok(Order::Asc),
            _ => Err("must be desc or asc".to_owned()),
        });
        TableQuery {
            sort: self.take("sort", |value| Ok(value.to_owned())),
            order: order.unwrap_or(Order::Desc),
            limit: self
                .take("limit", |value| whole(value, 0, MAX_LIMIT))
                .unwrap_or(DEFAULT_LIMIT),
            q: self.take("q", |value| text(value, MAX_SEARCH_BYTES)),
            frames: self.frames(),
            window: self.window(),
            fold: self.fold(),
        }
    }

    /// Takes what a call tree takes.
    pub(super) fn tree(&mut self) -> TreeQuery {
        let min_percent = self.take("min_percent", percentage);
        TreeQuery {
            depth: self.take("depth", |value| whole(value, 1, MAX_DEPTH)),
            min_percent: min_percent.unwrap_or(0.0),
            frames: self.frames(),
            window: self.window(),
            fold: self.fold(),
        }
    }

    /// Takes which value of stacks is wanted, if any.
    pub(super) fn value(&mut self) -> Option<StackValue> {
        self.take("value", |value| {
            let mut known = StackValue::ALL.into_iter();
            known
                .find(|known| known.name() == value)
                .ok_or_else(|| "must be samples, elapsed, application or off_processor".to_owned())
        })
    }

    /// Takes what a profile of one process takes.
    pub(super) fn pprof(&mut self) -> StackQuery {
        StackQuery {
            tree: TreeQuery {
                frames: self.frames(),
                window: self.window(),
                fold: self.fold(),
                ..TreeQuery::default()
            },
            places: true,
            sections: Sections::None,
            value: StackValue::Elapsed,
        }
    }

    /// Takes what a profile of the next seconds takes.
    pub(super) fn recording(&mut self) -> Recording {
        let seconds = self.take("seconds", |value| whole(value, 1, MAX_SECONDS));
        let labels = self.take("labels", |value| match value {
            "group" => Ok(Sections::Group),
            "process" => Ok(Sections::Process),
            "none" => Ok(Sections::None),
            _ => Err("must be group, process or none".to_owned()),
        });
        let process = self.take("pid", |value| {
            value.parse().map_err(|error| format!("is wrong: {error}"))
        });
        Recording {
            seconds: seconds.unwrap_or(DEFAULT_SECONDS) as u64,
            scope: process.map_or(Scope::Session, Scope::Process),
            stacks: StackQuery {
                sections: labels.unwrap_or(Sections::Group),
                ..self.pprof()
            },
        }
    }

    /// Takes what a table of callers or callees takes.
    pub(super) fn neighbours(&mut self) -> NeighbourQuery {
        NeighbourQuery {
            function: self.required("function", "the whole name of a function", |value| {
                text(value, MAX_NAME_BYTES)
            }),
            module: self.take("module", |value| text(value, MAX_NAME_BYTES)),
            table: self.table(),
        }
    }

    /// Takes what a table of lines or instructions takes.
    pub(super) fn code(&mut self) -> CodeQuery {
        CodeQuery {
            function: self.take("function", |value| text(value, MAX_NAME_BYTES)),
            module: self.take("module", |value| text(value, MAX_NAME_BYTES)),
            inlines: self.inlines(),
            table: self.table(),
        }
    }

    /// Takes whether inlined functions count.
    pub(super) fn inlines(&mut self) -> bool {
        let inlines = self.take("inlines", |value| match value {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("must be true or false".to_owned()),
        });
        inlines.unwrap_or_default()
    }

    /// Takes what a comparison takes.
    pub(super) fn diff(&mut self) -> DiffQuery {
        let what = "a process, as in 1234, or a length of time, as in 30s, or session";
        let base = self.required("base", what, side);
        let other = self.required("other", what, side);
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
            threshold_percent: self.take("threshold", percentage).unwrap_or(0.0),
            table: self.table(),
        }
    }

    fn fold(&mut self) -> Fold {
        let mut names = |parameter| self.take(parameter, module_names).unwrap_or_default();
        Fold {
            modules: names("modules"),
            hide: names("hide"),
        }
    }

    fn frames(&mut self) -> Frames {
        let frames = self.take("frames", |value| match value {
            "user" => Ok(Frames::User),
            "all" => Ok(Frames::All),
            _ => Err("must be user or all".to_owned()),
        });
        frames.unwrap_or(Frames::User)
    }

    fn window(&mut self) -> Window {
        let window = self.take("window", |value| {
            window(value)
                .ok_or_else(|| "must be session or a length of time like 30s or 5m".to_owned())
        });
        window.unwrap_or(Window::Session)
    }
}

fn window(value: &str) -> Option<Window> {
    if value == "session" {
        return Some(Window::Session);
    }
    let duration_ns = duration::parse(value).ok().filter(|ns| *ns > 0)?;
    Some(Window::Last { duration_ns })
}

fn side(value: &str) -> Result<DiffSide, String> {
    if let Ok(selector) = value.parse() {
        return Ok(DiffSide::Process(selector));
    }
    match window(value) {
        Some(window) => Ok(DiffSide::Window {
            window,
            name: value.to_owned(),
        }),
        None => Err(
            "must be a process, as in 1234 or 1234.5678, or session, or a length of time like 30s or 5m"
                .to_owned(),
        ),
    }
}

fn percentage(value: &str) -> Result<f64, String> {
    let number = value
        .parse::<f64>()
        .ok()
        .filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "must be a number from 0 to 100".to_owned())
}

fn text(value: &str, max_bytes: usize) -> Result<String, String> {
    if value.is_empty() || value.len() > max_bytes {
        Err(format!("must be text of 1 to {max_bytes} bytes"))
    } else {
        Ok(value.to_owned())
    }
}

fn module_names(value: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = value.split(',').map(str::to_owned).collect();
    if names.len() > MAX_MODULES || names.iter().any(String::is_empty) {
        Err(format!(
            "must be 1 to {MAX_MODULES} names of modules, separated by commas"
        ))
    } else {
        Ok(names)
    }
}

fn whole(value: &str, min: usize, max: usize) -> Result<usize, String> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value
        .parse::<usize>()
        .ok()
        .filter(|number| digits && (min..=max).contains(number));
    number.ok_or_else(|| format!("must be a whole number from {min} to {max}"))
}
