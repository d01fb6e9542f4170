//! What can be changed: the targets, and the named sessions. What a request sends is read here,
//! strictly; who does what it asks is the [`Source`](super::Source).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::described::{Described, REPORT};
use super::problem::Problem;
use crate::config::targets::Targets;
use crate::profile::name::{Name, NotAName};
use crate::profile::sessions::SessionChange;
use crate::report::{Instrumentation, SessionTotals};

/// What can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeRequest {
    /// What is profiled.
    SetTargets,
    /// A named session is started.
    StartSession,
    /// A named session is stopped, or removed where it is.
    EndSession,
    /// A span begins in the sessions that run.
    Mark,
    /// Functions are measured.
    Instrument,
    /// An instrumentation is ended, or removed where it has ended.
    EndInstrumentation,
}

/// How a request says that it changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Put,
    Post,
    Delete,
}

impl Method {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }
}

impl ChangeRequest {
    /// How it is asked for.
    pub(crate) const fn method(self) -> Method {
        match self {
            Self::SetTargets => Method::Put,
            Self::StartSession | Self::Mark | Self::Instrument => Method::Post,
            Self::EndSession | Self::EndInstrumentation => Method::Delete,
        }
    }

    /// Bodies of requests for it, for those who sent another.
    pub(crate) const fn examples(self) -> &'static str {
        match self {
            Self::SetTargets => "{\"all\": true} or {\"pids\": [1234]}",
            Self::StartSession => "{\"name\": \"checkout\"} or {}",
            Self::Mark => "{\"name\": \"warm-up done\"}",
            Self::EndSession | Self::EndInstrumentation => "{}",
            Self::Instrument => {
                "{\"functions\": [\"libpq.so*:PQexec*\"], \"pids\": [1234]} or {\"usdt\": [\"python:gc__*\"], \"pids\": [1234]}"
            }
        }
    }

    /// What it is answered with.
    pub(crate) const fn answers(self) -> Described {
        match self {
            Self::SetTargets => Described::report::<Targets>(REPORT),
            Self::StartSession | Self::EndSession => Described::report::<SessionTotals>(REPORT),
            Self::Mark => Described::report::<Marked>(REPORT),
            Self::Instrument | Self::EndInstrumentation => {
                Described::report::<Instrumentation>(REPORT)
            }
        }
    }
}

/// What a session is started with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionStart {
    #[serde(default, deserialize_with = "given")]
    name: Option<String>,
}

/// What a mark is made with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mark {
    name: String,
    #[serde(default, deserialize_with = "given")]
    session: Option<String>,
}

/// A field that may be left out, but is not null.
fn given<'de, D: Deserializer<'de>>(field: D) -> Result<Option<String>, D::Error> {
    String::deserialize(field).map(Some)
}

impl SessionStart {
    /// The change that it asks for.
    ///
    /// # Errors
    /// The name is none.
    pub(crate) fn meant(self) -> Result<SessionChange, Problem> {
        let name = self.name.map(|text| read_name("name", &text)).transpose()?;
        Ok(SessionChange::Start { name })
    }
}

impl Mark {
    /// The change that it asks for.
    ///
    /// # Errors
    /// A name is none.
    pub(crate) fn meant(self) -> Result<SessionChange, Problem> {
        let name = read_name("name", &self.name)?;
        let session = self.session.map(|text| read_name("session", &text));
        Ok(SessionChange::Mark {
            name,
            session: session.transpose()?,
        })
    }
}

/// What a mark did.
#[derive(Serialize, ToSchema)]
pub(crate) struct Marked {
    /// Time of the drain pass that made the border, RFC 3339.
    pub(crate) as_of: String,
    /// What was begun.
    pub(crate) spans: Vec<MarkedSpan>,
}

/// A span that was begun.
#[derive(Serialize, ToSchema)]
pub(crate) struct MarkedSpan {
    /// The session.
    pub(crate) session: String,
    /// The name of its new span.
    pub(crate) span: String,
}

/// The JSON object that a body is.
///
/// # Errors
/// It is none, or not as in `examples`.
pub(crate) fn checked_object<T: DeserializeOwned>(
    body: &[u8],
    examples: &str,
) -> Result<T, Problem> {
    // A list would be read as the object's values in their order.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(invalid_body(&format!(
            "the body must be a JSON object, as in {examples}"
        )));
    }
    serde_json::from_slice(body).map_err(|error| invalid_body(&shown_sentence(&error.to_string())))
}

/// A body that is not allowed.
pub(crate) fn invalid_body(detail: &str) -> Problem {
    Problem::new(400, "invalid-body", "The body is not allowed", detail)
}

/// An error of the JSON reader can repeat what was sent.
fn shown_sentence(sentence: &str) -> String {
    sentence
        .chars()
        .take(400)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// A name out of a body.
pub(crate) fn read_name(field: &str, text: &str) -> Result<Name, Problem> {
    text.parse()
        .map_err(|wrong: NotAName| invalid_body(&format!("{field} {wrong}")))
}
