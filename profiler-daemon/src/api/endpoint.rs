//! What an endpoint is: where it is, what may be asked of it, and the function that reads the
//! question. Which there are is in `endpoints`.

use std::sync::Arc;

use super::answer::Answer;
use super::change::ChangeRequest;
use super::described::Described;
use super::format::Format;
use super::parameter::{Declarations, FORMAT, INTERVAL};
use super::problem::{Fault, Problem, shown};
use super::query_string::Params;
use super::question::AnyQuestion;

use super::source::{BoxFuture, Source};
use super::value::listed;
use crate::export::pprof::Content;
use crate::profile::name::{Name, NotAName};
use crate::report::query::{ImageId, ProcessSelector, Scope};

/// An endpoint.
#[derive(Clone, Copy)]
pub struct Endpoint {
    /// Its path; `{pid}` stands for a process, `{id}` for an image, `{name}` for a named session,
    /// `{number}` for an instrumentation.
    pub path: &'static str,
    /// What it is counted under in the metrics.
    pub handler: &'static str,
    /// What it answers.
    pub about: &'static str,
    /// The parameters it takes.
    pub(crate) parameters: Declarations,
    /// What `GET` does, where it does something.
    pub(crate) get: Option<Does>,
    /// What the other methods do.
    pub(crate) changes: &'static [ChangeRequest],
}

/// What can be asked, at one path or at several.
#[derive(Clone, Copy)]
pub(crate) struct Get {
    /// What it is counted under in the metrics.
    pub(crate) handler: &'static str,
    /// The parameters it takes.
    pub(crate) parameters: Declarations,
    /// What is done.
    pub(crate) does: Does,
}

/// Reads a question.
pub(crate) type QuestionReader = fn(&mut Params, &Context) -> Box<dyn AnyQuestion>;

/// Asks for what is so right now; of the instrumentation that the path names.
pub(crate) type AskLater =
    fn(Arc<dyn Source>, Option<u32>) -> BoxFuture<'static, Result<Box<dyn Answer>, Problem>>;

/// Tells what is so right now.
pub(crate) type AskNow = fn(Arc<dyn Source>) -> BoxFuture<'static, Box<dyn Answer>>;

/// What is done for a `GET`.
#[derive(Clone, Copy)]
pub(crate) enum Does {
    /// A question is answered from the profile, in the format that is asked for.
    Report(QuestionReader, Described),
    /// What is so right now is told, in the format that is asked for.
    Now(AskNow, Described),
    /// What is so right now is asked for and told, in the format that is asked for.
    Later(AskLater, Described),
    /// A question is answered from the profile, in this format; with what the file is for.
    File(QuestionReader, Format, &'static str),
    /// The next seconds are profiled.
    Record(Content),
    /// The first screen, or for a browser the page.
    Index,
    /// The list of endpoints.
    Listing,
    /// Whether the server answers.
    Healthy,
    /// Whether there is something to read.
    Ready,
    /// The metrics.
    Metrics,
    /// The description of the interface.
    OpenApi,
}

/// What a question is made of, beside its query.
pub(crate) struct Context {
    /// Whom the path names.
    pub(crate) scope: Scope,
    /// Which session the path names.
    pub(crate) session: Option<Name>,
    /// Which instrumentation the path names.
    pub(crate) instrumentation: Option<u32>,
    /// Who will be asked.
    pub(crate) source: Arc<dyn Source>,
    /// Time between two samples of one processor, nanoseconds.
    pub(crate) sampling_period_ns: u64,
}

/// How an answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// Once, in this format.
    Once(Format),
    /// As JSON again and again.
    Events {
        /// How often.
        interval_ns: u64,
    },
}

impl Endpoint {
    /// What may be done to it, beside `HEAD`.
    #[must_use]
    pub fn methods(&self) -> Vec<&'static str> {
        let get = self.get.is_some().then_some("GET");
        let changes = self.changes.iter().map(|change| change.method().name());
        get.into_iter().chain(changes).collect()
    }

    /// The names of the parameters it takes.
    #[must_use]
    pub fn parameters(&self) -> Vec<&'static str> {
        names(self.parameters)
    }

    /// Whether it takes a parameter of this name.
    #[must_use]
    pub fn takes(&self, name: &str) -> bool {
        self.parameters.iter().any(|known| known.name() == name)
    }

    /// Reads what a path names, by the part of it that stands for something.
    ///
    /// # Errors
    /// It is no process, image or session.
    pub(crate) fn context(
        &self,
        named: Option<&str>,
        source: Arc<dyn Source>,
        sampling_period_ns: u64,
    ) -> Result<Context, Problem> {
        let (mut scope, mut session, mut instrumentation) = (Scope::Session, None, None);
        match named {
            None => {}
            Some(text) if self.path.contains("{id}") => scope = Scope::Image(image(text)?),
            Some(text) if self.path.contains("{number}") => {
                instrumentation = Some(instrumentation_number(text)?);
            }
            Some(text) if self.path.contains("{name}") => session = Some(session_name(text)?),
            Some(text) => scope = Scope::Process(process(text)?),
        }
        Ok(Context {
            scope,
            session,
            instrumentation,
            source,
            sampling_period_ns,
        })
    }

    /// Reads its query by `read`.
    ///
    /// # Errors
    /// Every fault of the query at once.
    pub(crate) fn read<T>(
        &self,
        query: Option<&str>,
        read: impl FnOnce(&mut Params) -> T,
    ) -> Result<T, Problem> {
        let mut params = Params::parse(query, self.parameters);
        let read = read(&mut params);
        params.finish()?;
        Ok(read)
    }

    /// Reads its query by `read`, and how the answer is sent: in one of `formats`, by the parameter
    /// of that name, else as `accepted` decides.
    ///
    /// # Errors
    /// Every fault of the query at once, or that no format is left.
    pub(crate) fn read_with_format<T>(
        &self,
        query: Option<&str>,
        formats: &[Format],
        accepted: impl FnOnce(&[Format]) -> Result<Format, Problem>,
        read: impl FnOnce(&mut Params) -> T,
    ) -> Result<(T, Sending), Problem> {
        let mut params = Params::parse(query, self.parameters);
        let read = read(&mut params);
        let sending = sending(&mut params, formats, accepted);
        params.finish()?;
        Ok((read, sending?))
    }
}

/// The names of parameters.
pub(crate) fn names(parameters: Declarations) -> Vec<&'static str> {
    parameters.iter().map(|declared| declared.name()).collect()
}

/// Takes how the answer is sent. A wrong format is a fault of the query.
///
/// # Errors
/// What `accepted` says.
fn sending(
    params: &mut Params,
    formats: &[Format],
    accepted: impl FnOnce(&[Format]) -> Result<Format, Problem>,
) -> Result<Sending, Problem> {
    let mut named = false;
    let format = params.take(FORMAT.name, |value| {
        named = true;
        let found = formats.iter().find(|format| format.name() == value);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = formats.iter().map(|format| format.name()).collect();
            format!("must be {}", listed(&names))
        })
    });
    let format = match format {
        Some(format) => format,
        // The fault is told with the others.
        None if named => return Ok(Sending::Once(Format::Json)),
        None => accepted(formats)?,
    };
    if format == Format::Events {
        let interval_ns = params.or_default(&INTERVAL);
        return Ok(Sending::Events { interval_ns });
    }
    if params.is_given(INTERVAL.name) {
        params.fault(Fault {
            parameter: Some(INTERVAL.name.to_owned()),
            given: None,
            detail: format!(
                "{} is for format=events: {} is sent once",
                INTERVAL.name,
                format.name()
            ),
        });
    }
    Ok(Sending::Once(format))
}

fn process(text: &str) -> Result<ProcessSelector, Problem> {
    text.parse().map_err(|_| {
        Problem::new(
            400,
            "invalid-process",
            "This is no process",
            format!(
                "{:?} is not a process: give a process number, as in 1234, or a number and a start time, as in 1234.5678",
                shown(text)
            ),
        )
    })
}

fn image(text: &str) -> Result<ImageId, Problem> {
    text.parse().map_err(|_| {
        Problem::new(
            400,
            "invalid-image",
            "This is no image",
            format!(
                "{:?} is not an image: give the image_id of a row of /api/v1/processes, 16 hexadecimal digits, kernel or other",
                shown(text)
            ),
        )
    })
}

fn session_name(text: &str) -> Result<Name, Problem> {
    text.parse().map_err(|wrong: NotAName| {
        Problem::new(
            400,
            "invalid-session",
            "This is no session",
            format!(
                "{:?} is not the name of a session: a name {wrong}",
                shown(text)
            ),
        )
    })
}

fn instrumentation_number(text: &str) -> Result<u32, Problem> {
    let is_plain = text.len() < 10 && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok();
    let number = number.filter(|_| is_plain && !text.starts_with('0'));
    number.ok_or_else(|| {
        Problem::new(
            400,
            "invalid-instrumentation",
            "This is no instrumentation",
            format!(
                "{:?} is not the number of an instrumentation: /api/v1/instrumentations lists all",
                shown(text)
            ),
        )
    })
}
