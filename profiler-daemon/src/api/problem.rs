//! What went wrong, told the same way everywhere, as it is written in
//! `application/problem+json` (RFC 9457).

use serde::Serialize;
use utoipa::ToSchema;

use super::source::{InstrumentationFailure, SessionFailure, TargetsFailure, Unavailable};
use crate::profile::sessions::SessionRefusal;
use crate::report::error::ReportError;

/// Bytes of a given value that are repeated in an answer.
const MAX_SHOWN_BYTES: usize = 64;

/// One fault, usually of one parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Fault {
    /// The parameter or field, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parameter: Option<String>,
    /// What was given, cut to a length fit for reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) given: Option<String>,
    /// What is wrong and what is allowed.
    pub(crate) detail: String,
}

impl Fault {
    /// A fault that is about no parameter.
    pub(crate) fn plain(detail: impl Into<String>) -> Self {
        Self {
            parameter: None,
            given: None,
            detail: detail.into(),
        }
    }
}

/// An answer that says what went wrong; shown as the sentence about this very request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct Problem {
    status: u16,
    /// The last part of the problem's type.
    kind: &'static str,
    title: &'static str,
    detail: String,
    errors: Vec<Fault>,
    retry_after_s: Option<u32>,
}

/// A problem as it is written (RFC 9457).
#[derive(Serialize, ToSchema)]
pub(crate) struct ProblemBody<'a> {
    /// What kind of problem it is; the same for all of a kind.
    #[serde(rename = "type")]
    #[schema(pattern = "^urn:profiler:problem:[a-z-]+$")]
    kind: String,
    /// The kind, for people.
    title: &'a str,
    /// The status code of the answer.
    status: u16,
    /// What is wrong with this very request.
    detail: &'a str,
    /// What is wrong, one by one.
    #[serde(skip_serializing_if = "<[Fault]>::is_empty")]
    errors: &'a [Fault],
}

impl Problem {
    /// A problem of this kind; `detail` is a sentence about this very request.
    pub(crate) fn new(
        status: u16,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            status,
            kind,
            title,
            detail: detail.into(),
            errors: Vec::new(),
            retry_after_s: None,
        }
    }

    /// The same with single faults.
    pub(crate) fn with_errors(mut self, errors: Vec<Fault>) -> Self {
        self.errors = errors;
        self
    }

    /// The same with the advice to come back.
    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// Parameters that are not allowed.
    pub(crate) fn parameters(errors: Vec<Fault>) -> Self {
        let detail = errors
            .iter()
            .map(|fault| fault.detail.as_str())
            .collect::<Vec<_>>()
            .join("; ");
        Self::new(
            400,
            "invalid-parameter",
            "A parameter is not allowed",
            detail,
        )
        .with_errors(errors)
    }

    /// Something failed that should not have.
    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        Self::new(
            500,
            "internal-error",
            "The answer could not be made",
            detail,
        )
    }

    /// The answers come from a saved profile, which does not know this.
    pub(crate) fn replayed(detail: impl Into<String>) -> Self {
        Self::new(409, "replay", "This is a saved profile", detail)
    }

    /// The server has too much to do.
    pub(crate) fn overloaded(detail: impl Into<String>) -> Self {
        Self::new(503, "overloaded", "The server has too much to do", detail).retry_after(1)
    }
}

impl From<Unavailable> for Problem {
    fn from(unavailable: Unavailable) -> Self {
        Self::new(
            503,
            "unavailable",
            "There is no answer now",
            unavailable.to_string(),
        )
        .retry_after(1)
    }
}

impl From<SessionFailure> for Problem {
    fn from(failure: SessionFailure) -> Self {
        match failure {
            SessionFailure::Unavailable(unavailable) => unavailable.into(),
            SessionFailure::Refused(refusal) => refusal.into(),
        }
    }
}

impl From<TargetsFailure> for Problem {
    fn from(failure: TargetsFailure) -> Self {
        match failure {
            TargetsFailure::Unavailable(unavailable) => unavailable.into(),
            TargetsFailure::Refused(_) => Self::new(
                409,
                "targets-refused",
                "The targets could not be set",
                failure.to_string(),
            ),
            TargetsFailure::Failed(_) => Self::internal(failure.to_string()),
        }
    }
}

impl From<InstrumentationFailure> for Problem {
    fn from(failure: InstrumentationFailure) -> Self {
        match failure {
            InstrumentationFailure::Unavailable(unavailable) => unavailable.into(),
            InstrumentationFailure::Refused(_) => Self::new(
                409,
                "instrumentation-refused",
                "It cannot be measured",
                failure.to_string(),
            ),
        }
    }
}

impl From<SessionRefusal> for Problem {
    fn from(refusal: SessionRefusal) -> Self {
        let detail = refusal.to_string();
        let (status, kind, title) = match refusal {
            SessionRefusal::Unknown { .. } => (404, "unknown-session", "There is no such session"),
            SessionRefusal::UnknownSpan { .. } => {
                (404, "unknown-span", "The session has no such span")
            }
            SessionRefusal::GivenUp { .. } => {
                (410, "dropped-session", "The session is no longer kept")
            }
            SessionRefusal::Exists { .. }
            | SessionRefusal::Reserved { .. }
            | SessionRefusal::TooMany { .. }
            | SessionRefusal::TooManySpans { .. }
            | SessionRefusal::Stopped { .. }
            | SessionRefusal::NoneRuns
            | SessionRefusal::Default => (
                409,
                "session-refused",
                "The sessions could not be changed so",
            ),
        };
        Self::new(status, kind, title, detail)
    }
}

impl From<ReportError> for Problem {
    fn from(error: ReportError) -> Self {
        let detail = error.to_string();
        match error {
            ReportError::UnknownProcess { .. } => {
                Self::new(404, "unknown-process", "There is no such process", detail)
            }
            ReportError::DroppedProcess { .. } => Self::new(
                410,
                "dropped-process",
                "The process is no longer kept",
                detail,
            ),
            ReportError::UnknownName { .. } => Self::new(
                404,
                "unknown-name",
                "There is no process of this name",
                detail,
            ),
            ReportError::UnknownImage { .. } => {
                Self::new(404, "unknown-image", "There is no such image", detail)
            }
            ReportError::UnknownSort { given, allowed } => Self::parameters(vec![Fault {
                parameter: Some("sort".to_owned()),
                given: Some(shown(&given)),
                detail: format!("sort must be one of {}", allowed.join(", ")),
            }]),
            ReportError::UnknownModule { parameter, given } => Self::parameters(vec![Fault {
                parameter: Some(parameter.to_owned()),
                given: Some(shown(&given)),
                detail: format!(
                    "{parameter} must name modules that are listed by /api/v1/modules, by path or by its last part; * stands for any text"
                ),
            }]),
            ReportError::UnknownFunction { given, similar } => Self::parameters(vec![Fault {
                parameter: Some("function".to_owned()),
                given: Some(shown(&given)),
                detail: if similar.is_empty() {
                    "function must be the name of a function as /functions lists it, with its module where module= is given".to_owned()
                } else {
                    let similar: Vec<String> = similar.iter().map(|name| shown(name)).collect();
                    format!(
                        "function must be the whole name of a function, as in {}",
                        similar.join(", ")
                    )
                },
            }]),
            ReportError::Session(refusal) => refusal.into(),
            ReportError::WindowTooOld { .. } | ReportError::WindowEmpty { .. } => {
                Self::parameters(vec![Fault {
                    parameter: Some("from".to_owned()),
                    given: None,
                    detail,
                }])
            }
            ReportError::SessionTooOld { .. } => Self::parameters(vec![Fault {
                parameter: Some("window".to_owned()),
                given: None,
                detail,
            }]),
            ReportError::WindowTooLong { longest_ns } => Self::parameters(vec![Fault {
                parameter: Some("window".to_owned()),
                given: None,
                detail: format!(
                    "window must be session, or at most {}s",
                    longest_ns / 1_000_000_000
                ),
            }]),
        }
    }
}

impl Problem {
    /// The status code of the answer.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// When it is worth asking again, in seconds.
    pub(crate) fn retry_after_s(&self) -> Option<u32> {
        self.retry_after_s
    }

    /// The problem as it is written: JSON that ends in a line break.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let body = ProblemBody {
            kind: format!("urn:profiler:problem:{}", self.kind),
            title: self.title,
            status: self.status,
            detail: &self.detail,
            errors: &self.errors,
        };
        let mut text = serde_json::to_vec(&body).unwrap_or_default();
        text.push(b'\n');
        text
    }
}

/// A given value as an answer repeats it: cut, and without control characters.
pub(crate) fn shown(value: &str) -> String {
    let mut shown = String::new();
    for character in value.chars() {
        if shown.len() + character.len_utf8() > MAX_SHOWN_BYTES {
            shown.push('…');
            break;
        }
        shown.push(if character.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            character
        });
    }
    shown
}
