//! Every parameter, declared once: its name, what it may be, what is meant without it, what it is
//! for. The parser reads by these declarations (`query`), and the description of the interface is
//! made of them (`openapi`).

use super::value::{
    CommOf, Describe, Duration, NameList, OfEndpoint, OneOf, ParameterKind, Percentage,
    PointInTime, ProcessParameter, SessionName, SideValue, SpanValue, Text, WholeParameter,
};
use crate::report::Grouping;
use crate::report::query::{FrameScope, Order, SectionMode, StackValue};

/// The shortest time between two events of a stream.
pub(crate) const MIN_INTERVAL_NS: u64 = 500_000_000;
/// The longest time between two events of a stream.
const MAX_INTERVAL_NS: u64 = 3_600_000_000_000;

/// A parameter of the query.
#[derive(Debug)]
pub(crate) struct Parameter<K> {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it may be.
    pub(crate) kind: K,
    /// What is meant without it.
    pub(crate) without: Without,
    /// What it is for.
    pub(crate) about: &'static str,
}

/// What is meant when a parameter is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    /// The same as with this value.
    Default(&'static str),
    /// No bound, no choice: what the endpoint does by itself.
    Nothing,
    /// The request is refused.
    Refusal,
}

/// Parameters that go together.
pub(crate) type Declarations = &'static [&'static dyn Declared];

/// A parameter of any kind, as the description of the interface needs it.
pub(crate) trait Declared: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// What it may be.
    fn kind(&self) -> &dyn Describe;
    /// What is meant without it.
    fn without(&self) -> Without;
    /// What it is for.
    fn about(&self) -> &'static str;
    /// Whether the parser takes a value.
    #[cfg(test)]
    fn allows(&self, text: &str) -> bool;
}

impl<K: ParameterKind + Sync> Declared for Parameter<K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn kind(&self) -> &dyn Describe {
        &self.kind
    }

    fn without(&self) -> Without {
        self.without
    }

    fn about(&self) -> &'static str {
        self.about
    }

    #[cfg(test)]
    fn allows(&self, text: &str) -> bool {
        self.kind.read(text).is_ok()
    }
}

/// Declares parameters, and the list of all.
macro_rules! parameters {
    ($($constant:ident: $kind:ty = $name:literal, $value:expr, $without:expr, $about:literal;)*) => {
        $(
            #[doc = $about]
            pub(crate) const $constant: Parameter<$kind> = Parameter {
                name: $name,
                kind: $value,
                without: $without,
                about: $about,
            };
        )*

        /// Every parameter that an endpoint can take.
        pub(crate) const ALL: &[&dyn Declared] = &[$(&$constant),*];
    };
}

use Without::{Default, Nothing, Refusal};

parameters! {
    FORMAT: OfEndpoint = "format", OfEndpoint, Nothing,
        "The format of the answer. Without it, what the Accept header wants, else JSON.";
    INTERVAL: Duration = "interval",
        Duration { min_ns: MIN_INTERVAL_NS, max_ns: MAX_INTERVAL_NS },
        Default("2s"),
        "Only with format=events: how often the answer is sent, rounded up to half seconds.";
    FRAMES: OneOf<FrameScope> = "frames",
        OneOf(&[("user", FrameScope::User), ("all", FrameScope::All)]),
        Default("user"),
        "Whose functions count: with user, time in the kernel belongs to the user function that called it.";
    WINDOW: SpanValue = "window", SpanValue, Default("session"),
        "The time that the answer covers: the session, or the most recent time, rounded up to what is kept. One that is longer than the session is the session; where less than the session is kept, more than that is refused. With recent it is the last 30 s of a session that is older than 5 minutes, else the session: what /top covers without a window.";
    FROM: PointInTime = "from", PointInTime, Nothing,
        "In place of a window: when the time begins that the answer covers, in UTC; rounded outward to what is kept in buckets. Before the session began it is when that was; where less than the session is kept, what begins before that is refused.";
    TO: PointInTime = "to", PointInTime, Nothing,
        "With from: when that time ends. Now without it, and where it is later.";
    SESSION: SessionName = "session", SessionName, Nothing,
        "In place of a window: a named session. One that is not there is refused.";
    SPAN: SessionName = "span", SessionName, Nothing,
        "With session: only this span of it.";
    SPANS: WholeParameter = "spans", WholeParameter { min: 1, max: 600 }, Nothing,
        "The most spans of a timeline, neighbours put together: 600, and 60 in text, without it.";
    SORT: OfEndpoint = "sort", OfEndpoint, Nothing,
        "The column that rows are sorted by, a dotted name as in the JSON.";
    ORDER: OneOf<Order> = "order",
        OneOf(&[("desc", Order::Desc), ("asc", Order::Asc)]),
        Default("desc"),
        "The direction of the sort.";
    LIMIT: WholeParameter = "limit", WholeParameter { min: 0, max: 1_000_000 }, Default("100"),
        "The most rows that are answered; 0 for all.";
    Q: Text = "q", Text { max_chars: 256 }, Nothing,
        "Only rows whose name contains this text, in any case.";
    MODULES: NameList = "modules", NameList { max: 32 }, Nothing,
        "Only functions of these modules are shown, the others folded into their callers: names separated by commas, each a path, the last part of one, or a name in brackets; * stands for any text. A name that no module has is refused.";
    HIDE: NameList = "hide", NameList { max: 32 }, Nothing,
        "Functions of these modules are folded into their callers; names as with modules.";
    FUNCTION: Text = "function", Text { max_chars: 2_048 }, Nothing,
        "The whole name of a function. One that is not there is refused.";
    NEEDED_FUNCTION: Text = "function", Text { max_chars: 2_048 }, Refusal,
        "The whole name of a function. One that is not there is refused.";
    INLINES: OneOf<bool> = "inlines", OneOf(&[("true", true), ("false", false)]), Default("false"),
        "Whether functions that were inlined have rows of their own. Takes debug information.";
    MODULE: Text = "module", Text { max_chars: 2_048 }, Nothing,
        "The function's module, where several have one of that name.";
    DEPTH: WholeParameter = "depth", WholeParameter { min: 1, max: 10_000 }, Nothing,
        "The most levels of the tree.";
    MIN_PERCENT: Percentage = "min_percent", Percentage, Default("0"),
        "Nodes with a smaller share of the root are cut.";
    VALUE: OneOf<StackValue> = "value",
        OneOf(&[
            (StackValue::Samples.name(), StackValue::Samples),
            (StackValue::Elapsed.name(), StackValue::Elapsed),
            (StackValue::Application.name(), StackValue::Application),
            (StackValue::Running.name(), StackValue::Running),
            (StackValue::OffProcessor.name(), StackValue::OffProcessor),
            (StackValue::Blocked.name(), StackValue::Blocked),
            (StackValue::Runnable.name(), StackValue::Runnable),
            (StackValue::Syscall.name(), StackValue::Syscall),
        ]),
        Nothing,
        "The one value of the formats folded, svg, speedscope and firefox, samples without it; in the others what the tree is cut by, and its children are put in order by, all values and time without it; in comparisons what rows are sorted and left out by: elapsed without it, of processes running.";
    IDLE: OneOf<bool> = "idle", OneOf(&[("apart", true), ("among", false)]), Nothing,
        "Where the waits of threads that idle are, that ran or were runnable for less than 0.1 % of the time covered: apart, below a node [idle threads] of their own, or among all others. Without it apart in trees of the session, and among the others in those of one process.";
    BASE: SideValue = "base", SideValue, Refusal,
        "What is compared: a process, or a part of the session. Both sides must be of one kind.";
    OTHER: SideValue = "other", SideValue, Refusal,
        "With what it is compared.";
    THRESHOLD: Percentage = "threshold", Percentage, Default("0"),
        "Rows whose largest change of a share of the value compared is smaller are left out, percentage points.";
    BY: OneOf<Grouping> = "by",
        OneOf(&[
            (Grouping::Name.name(), Grouping::Name),
            (Grouping::Process.name(), Grouping::Process),
        ]),
        Default("name"),
        "What a row is: all processes of one name, which are the same on both sides also where they began anew, or one process.";
    COMM: CommOf = "comm", CommOf, Nothing,
        "Only processes of this name, all of them; on each side those that were there.";
    SECONDS: WholeParameter = "seconds", WholeParameter { min: 1, max: 300 }, Default("30"),
        "How long is profiled; the answer comes after that.";
    PID: ProcessParameter = "pid", ProcessParameter, Nothing,
        "Only this process.";
    LABELS: OneOf<SectionMode> = "labels",
        OneOf(&[("group", SectionMode::Group), ("process", SectionMode::Process), ("none", SectionMode::None)]),
        Default("group"),
        "What samples are labelled with: the systemd unit, else container, else program; name and number of the process; or nothing.";
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use utoipa::openapi::Schema;

    use super::{ALL, Declared, FORMAT, INTERVAL, SORT, Without};

    /// Whether the described schema takes a value of the query.
    fn describes(parameter: &dyn Declared, text: &str) -> bool {
        let schema = serde_json::to_value(Schema::from(parameter.kind().schema())).unwrap();
        let is_text = schema["type"] == "string";
        let number = serde_json::from_str::<Value>(text).ok();
        let number = number.filter(|_| !is_text && !text.contains(' '));
        let value = number.unwrap_or_else(|| text.into());
        jsonschema::validator_for(&schema).unwrap().is_valid(&value)
    }

    #[test]
    fn the_parser_takes_what_is_described() {
        // Check on values at and beyond every bound that parser and description agree, and that
        // defaults are allowed.
        let names = |count| vec!["a"; count].join(",");
        let mut texts: Vec<String> = [
            "",
            " ",
            "0",
            "1",
            "2",
            "-1",
            "+1",
            " 1",
            "1 ",
            "1.5",
            ".5",
            "1.",
            "100",
            "100.5",
            "101",
            "300",
            "301",
            "10000",
            "10001",
            "1000000",
            "1000001",
            "99999999999",
            "NaN",
            "inf",
            "true",
            "null",
            "a",
            "A b",
            ",",
            "a,",
            ",a",
            "a,,b",
            "user",
            "all",
            "User",
            "desc",
            "asc",
            "samples",
            "elapsed",
            "application",
            "off_processor",
            "cpu",
            "group",
            "process",
            "none",
            "session",
            "sessions",
            "recent",
            "30s",
            "0s",
            "00s",
            "007ms",
            "5m",
            "2h",
            "1us",
            "1ns",
            "500ms",
            "499ms",
            "5",
            "5x",
            "s",
            "1s1s",
            "-1s",
            "42.7",
            "42.",
            ".7",
            "42.7.1",
            "42.x",
            "x.42",
            "[kernel]",
            "*",
            "-60s..-30s",
            "1769860800.5..2026-01-31T12:00:00Z",
            "-60s..",
            "..",
            "1..2..3",
            "sixteen bytes ok",
            "seventeen are not",
        ]
        .map(str::to_owned)
        .to_vec();
        texts.extend([256, 257, 2_048, 2_049].map(|length| "é".repeat(length)));
        texts.extend([names(32), names(33)]);
        for parameter in ALL
            .iter()
            .filter(|p| ![FORMAT.name, SORT.name].contains(&p.name()))
        {
            for text in &texts {
                let (allowed, described) = (parameter.allows(text), describes(*parameter, text));
                // A pattern cannot say how long a length of time may be.
                let bounded = parameter.name() == INTERVAL.name && !allowed;
                assert!(
                    allowed == described || bounded,
                    "{}={text:?}: parsed {allowed}, described {described}",
                    parameter.name()
                );
            }
            if let Without::Default(text) = parameter.without() {
                assert!(parameter.allows(text), "{}={text}", parameter.name());
            }
        }
    }
}
