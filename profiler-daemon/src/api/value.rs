//! What a parameter may be: each kind reads a value strictly, and describes the same bounds as a
//! JSON schema.
//!
//! A kind knows no name of a parameter: those are in `parameter`.

use serde_json::{Value, json};
use utoipa::openapi::schema::{ObjectBuilder, Type};

use crate::config::duration;
use crate::profile::name::{Name, NotAName};
use crate::profile::sessions::is_reserved;
use crate::report::DiffSide;
use crate::report::query::{Comm, MAX_COMM_CHARS, Moment, NotAComm, ProcessSelector, Window};
use crate::units::UnixNs;

/// A length of time as text: a whole number that is not zero, and a unit.
const LENGTH: &str = "[0-9]*[1-9][0-9]*(ns|us|ms|s|m|h)";
/// The name of a session or span as text.
pub(crate) const NAME: &str = "[A-Za-z]([A-Za-z0-9._ -]{0,62}[A-Za-z0-9._-])?";
/// A moment as text: RFC 3339 in UTC, seconds since 1970, or a time before now.
const MOMENT: &str = r"(-(0|LENGTH)|[0-9]{1,10}(\.[0-9]{1,9})?|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z)";
/// A process as text: its number, and its start where the number was used again.
pub(crate) const PROCESS: &str = r"[0-9]{1,7}(\.[0-9]{1,19})?";

/// What a parameter may be, for the description of the interface.
pub(crate) trait Describe {
    /// The values as a JSON schema.
    fn schema(&self) -> ObjectBuilder;

    /// A value as JSON; of those in [`Without::Default`](super::parameter::Without).
    fn json(&self, text: &str) -> Value {
        json!(text)
    }

    /// Whether the value may name a process that is not there.
    fn names_process(&self) -> bool {
        false
    }

    /// Whether the value may name a session that is not there.
    fn names_session(&self) -> bool {
        false
    }
}

/// What a parameter may be, for the parser.
pub(crate) trait ParameterKind: Describe {
    /// A value that was read.
    type Value;

    /// Reads a value.
    ///
    /// # Errors
    ///
    /// What is allowed, to follow the parameter's name in a sentence.
    fn read(&self, text: &str) -> Result<Self::Value, String>;
}

/// A whole number.
#[derive(Debug)]
pub(crate) struct WholeParameter {
    /// The least.
    pub(crate) min: u32,
    /// The most.
    pub(crate) max: u32,
}

impl ParameterKind for WholeParameter {
    type Value = u32;

    fn read(&self, text: &str) -> Result<u32, String> {
        let Self { min, max } = *self;
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text
            .parse()
            .ok()
            .filter(|number| digits && (min..=max).contains(number));
        number.ok_or_else(|| format!("must be a whole number from {min} to {max}"))
    }
}

impl Describe for WholeParameter {
    fn schema(&self) -> ObjectBuilder {
        of_type(Type::Integer)
            .minimum(Some(self.min))
            .maximum(Some(self.max))
    }

    fn json(&self, text: &str) -> Value {
        self.read(text).map_or(Value::Null, Value::from)
    }
}

/// A share of 100.
#[derive(Debug)]
pub(crate) struct Percentage;

impl ParameterKind for Percentage {
    type Value = f64;

    fn read(&self, text: &str) -> Result<f64, String> {
        // As JSON writes a number: without a leading plus, without a lone point.
        let number = serde_json::from_str(text)
            .ok()
            .filter(|number| !text.contains(char::is_whitespace) && (0.0..=100.0).contains(number));
        number.ok_or_else(|| "must be a number from 0 to 100".to_owned())
    }
}

impl Describe for Percentage {
    fn schema(&self) -> ObjectBuilder {
        of_type(Type::Number).minimum(Some(0)).maximum(Some(100))
    }

    fn json(&self, text: &str) -> Value {
        self.read(text).map_or(Value::Null, Value::from)
    }
}

/// Text to look for, or a name.
#[derive(Debug)]
pub(crate) struct Text {
    /// The most characters.
    pub(crate) max_chars: usize,
}

impl ParameterKind for Text {
    type Value = String;

    fn read(&self, text: &str) -> Result<String, String> {
        if text.is_empty() || text.chars().count() > self.max_chars {
            Err(format!(
                "must be text of 1 to {} characters",
                self.max_chars
            ))
        } else {
            Ok(text.to_owned())
        }
    }
}

impl Describe for Text {
    fn schema(&self) -> ObjectBuilder {
        of_type(Type::String)
            .min_length(Some(1))
            .max_length(Some(self.max_chars))
    }
}

/// Names, separated by commas.
#[derive(Debug)]
pub(crate) struct NameList {
    /// The most names.
    pub(crate) max: usize,
}

impl ParameterKind for NameList {
    type Value = Vec<String>;

    fn read(&self, text: &str) -> Result<Vec<String>, String> {
        let names: Vec<String> = text.split(',').map(str::to_owned).collect();
        if names.len() > self.max || names.iter().any(String::is_empty) {
            Err(format!(
                "must be 1 to {} names of modules, separated by commas",
                self.max
            ))
        } else {
            Ok(names)
        }
    }
}

impl Describe for NameList {
    fn schema(&self) -> ObjectBuilder {
        of_type(Type::String).pattern(Some(format!("^[^,]+(,[^,]+){{0,{}}}$", self.max - 1)))
    }
}

/// One of a few words, each with what it means.
#[derive(Debug)]
pub(crate) struct OneOf<T: 'static>(pub(crate) &'static [(&'static str, T)]);

impl<T: Copy> ParameterKind for OneOf<T> {
    type Value = T;

    fn read(&self, text: &str) -> Result<T, String> {
        let found = self.0.iter().find(|(word, _)| *word == text);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words: Vec<_> = self.0.iter().map(|(word, _)| *word).collect();
            format!("must be {}", listed(&words))
        })
    }
}

impl<T: Copy> Describe for OneOf<T> {
    fn schema(&self) -> ObjectBuilder {
        words(self.0.iter().map(|(word, _)| *word))
    }
}

/// One of the words that the endpoint knows: its formats, the columns of its rows.
#[derive(Debug)]
pub(crate) struct OfEndpoint;

impl ParameterKind for OfEndpoint {
    type Value = String;

    fn read(&self, text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }
}

impl Describe for OfEndpoint {
    fn schema(&self) -> ObjectBuilder {
        of_type(Type::String)
    }
}

/// A length of time, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Duration {
    /// The shortest.
    pub(crate) min_ns: u64,
    /// The longest.
    pub(crate) max_ns: u64,
}

impl ParameterKind for Duration {
    type Value = u64;

    fn read(&self, text: &str) -> Result<u64, String> {
        let Self { min_ns, max_ns } = *self;
        let length_ns = duration::parse(text).ok();
        length_ns
            .filter(|length_ns| (min_ns..=max_ns).contains(length_ns))
            .ok_or_else(|| {
                format!(
                    "must be a length of time from {} to {}",
                    duration::format(min_ns),
                    duration::format(max_ns)
                )
            })
    }
}

impl Describe for Duration {
    fn schema(&self) -> ObjectBuilder {
        of_type(Type::String)
            .pattern(Some(format!("^{LENGTH}$")))
            .description(Some(format!(
                "From {} to {}.",
                duration::format(self.min_ns),
                duration::format(self.max_ns)
            )))
    }
}

/// The time that an answer covers.
#[derive(Debug)]
pub(crate) struct SpanValue;

impl ParameterKind for SpanValue {
    type Value = Window;

    fn read(&self, text: &str) -> Result<Window, String> {
        let recent = (text == "recent").then_some(Window::Recent);
        recent
            .or_else(|| span(text))
            .ok_or_else(|| "must be session, recent or a length of time like 30s or 5m".to_owned())
    }
}

impl Describe for SpanValue {
    fn schema(&self) -> ObjectBuilder {
        of_type(Type::String).pattern(Some(format!("^(session|recent|{LENGTH})$")))
    }
}

fn span(text: &str) -> Option<Window> {
    if text == "session" {
        return Some(Window::Session);
    }
    let duration_ns = duration::parse(text).ok().filter(|ns| *ns > 0)?;
    Some(Window::Last { duration_ns })
}

/// A process.
#[derive(Debug)]
pub(crate) struct ProcessParameter;

impl ParameterKind for ProcessParameter {
    type Value = ProcessSelector;

    fn read(&self, text: &str) -> Result<ProcessSelector, String> {
        text.parse().map_err(|error| format!("is wrong: {error}"))
    }
}

impl Describe for ProcessParameter {
    fn schema(&self) -> ObjectBuilder {
        of_type(Type::String).pattern(Some(format!("^{PROCESS}$")))
    }

    fn names_process(&self) -> bool {
        true
    }
}

/// The name of processes.
#[derive(Debug)]
pub(crate) struct CommOf;

impl ParameterKind for CommOf {
    type Value = Comm;

    fn read(&self, text: &str) -> Result<Comm, String> {
        text.parse().map_err(|wrong: NotAComm| wrong.to_string())
    }
}

impl Describe for CommOf {
    fn schema(&self) -> ObjectBuilder {
        of_type(Type::String)
            .min_length(Some(1))
            .max_length(Some(MAX_COMM_CHARS))
    }

    fn names_process(&self) -> bool {
        true
    }
}

/// The name of a session, or of a span of one.
#[derive(Debug)]
pub(crate) struct SessionName;

impl ParameterKind for SessionName {
    type Value = Name;

    fn read(&self, text: &str) -> Result<Name, String> {
        text.parse().map_err(|wrong: NotAName| wrong.to_string())
    }
}

impl Describe for SessionName {
    fn schema(&self) -> ObjectBuilder {
        of_type(Type::String).pattern(Some(format!("^{NAME}$")))
    }

    fn names_session(&self) -> bool {
        true
    }
}

/// A session, or a span of one, as `NAME` or `NAME/SPAN`.
fn named(text: &str) -> Option<Window> {
    let (session, span) = match text.split_once('/') {
        Some((session, span)) => (session, Some(span)),
        None => (text, None),
    };
    let session: Name = session.parse().ok()?;
    let span = span.map(str::parse).transpose().ok()?;
    if is_reserved(session) {
        span.is_none().then_some(Window::Session)
    } else {
        Some(Window::Named { session, span })
    }
}

/// The time from one moment to another, as `FROM..TO`.
fn between(text: &str) -> Option<Window> {
    let (from, to) = text.split_once("..")?;
    Some(Window::Between {
        from: moment(from)?,
        to: Some(moment(to)?),
    })
}

/// A moment: by the clock, in seconds since 1970, or as time before now.
#[derive(Debug)]
pub(crate) struct PointInTime;

impl ParameterKind for PointInTime {
    type Value = Moment;

    fn read(&self, text: &str) -> Result<Moment, String> {
        moment(text).ok_or_else(|| {
            "must be a time like 2026-01-31T12:00:00Z (UTC), seconds since 1970 like 1769860800.5, or a time before now like -90s"
                .to_owned()
        })
    }
}

impl Describe for PointInTime {
    fn schema(&self) -> ObjectBuilder {
        of_type(Type::String).pattern(Some(format!("^{}$", moment_pattern())))
    }
}

fn moment_pattern() -> String {
    MOMENT.replace("LENGTH", LENGTH)
}

fn moment(text: &str) -> Option<Moment> {
    if let Some(ago) = text.strip_prefix('-') {
        let ns = duration::parse(ago).ok()?;
        return Some(Moment::Ago { ns });
    }
    let unix_ns = seconds(text).or_else(|| {
        let time = humantime::parse_rfc3339(text).ok()?;
        let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
        u64::try_from(since.as_nanos()).ok()
    })?;
    Some(Moment::At {
        unix_ns: UnixNs::new(unix_ns),
    })
}

/// Seconds since 1970, with up to nine digits after the point, as nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole_ns = whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    let fraction_ns = format!("{fraction:0<9}").parse::<u64>().ok()?;
    whole_ns.checked_add(fraction_ns)
}

/// One side of a comparison.
#[derive(Debug)]
pub(crate) struct SideValue;

impl ParameterKind for SideValue {
    type Value = DiffSide;

    fn read(&self, text: &str) -> Result<DiffSide, String> {
        if let Ok(selector) = text.parse() {
            return Ok(DiffSide::Process(selector));
        }
        let window = span(text).or_else(|| named(text)).or_else(|| between(text));
        match window {
            Some(window) => Ok(DiffSide::Window {
                window,
                name: text.to_owned(),
            }),
            None => Err(
                "must be a process, as in 1234 or 1234.5678, or session, or a length of time like 30s or 5m, or two times as in -60s..-30s, or the name of a session, or of a span of one, as in NAME/SPAN"
                    .to_owned(),
            ),
        }
    }
}

impl Describe for SideValue {
    fn schema(&self) -> ObjectBuilder {
        let moment = moment_pattern();
        of_type(Type::String).pattern(Some(format!(
            "^({PROCESS}|session|{LENGTH}|{moment}\\.\\.{moment}|{NAME}(/{NAME})?)$"
        )))
    }

    fn names_session(&self) -> bool {
        true
    }

    fn names_process(&self) -> bool {
        true
    }
}

/// A schema of this type.
fn of_type(kind: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(kind)
}

/// A schema of a few words.
pub(crate) fn words(words: impl Iterator<Item = &'static str>) -> ObjectBuilder {
    of_type(Type::String).enum_values(Some(words))
}

/// Words as a sentence lists them: `json, text or csv`.
pub(crate) fn listed(words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => words.concat(),
    }
}
