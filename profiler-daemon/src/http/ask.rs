//! What a request for a report carries: which process, which query, which formats.

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, MatchedPath, Path};
use axum::http::HeaderMap;
use axum::http::request::Parts;

use super::answers;
use super::endpoints::{ENDPOINTS, Endpoint};
use super::format::Format;
use crate::api::problem::Problem;
use crate::api::problem::shown;
use crate::api::query_string::Params;
use crate::profile::name::{Name, NotAName};
use crate::report::query::{ImageId, ProcessSelector, Scope};

/// What a request for a report carries.
pub(super) struct Ask {
    endpoint: &'static Endpoint,
    scope: Scope,
    query: Option<String>,
    headers: HeaderMap,
}

impl Ask {
    /// The session, or whom the path names.
    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    /// Reads the query of an endpoint with several formats: `read` takes what it knows, the format is taken here.
    ///
    /// # Errors
    ///
    /// Every fault of the query at once, or that no format is left.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&mut Params) -> T,
    ) -> Result<(T, Format), Problem> {
        let mut params = Params::parse(self.query.as_deref(), self.endpoint.parameters);
        let query = read(&mut params);
        let formats = answers::of(self.endpoint.handler).formats();
        let format = Format::asked(&mut params, &self.headers, formats);
        params.finish()?;
        Ok((query, format?))
    }

    /// Refuses any parameter: a request that changes something takes none, whatever others of its endpoint take.
    ///
    /// # Errors
    ///
    /// Every parameter that is given.
    pub(super) fn read_nothing(&self) -> Result<(), Problem> {
        Params::parse(self.query.as_deref(), &[]).finish()
    }

    /// Reads the query of an endpoint with one format of its own.
    ///
    /// # Errors
    ///
    /// Every fault of the query at once.
    pub(super) fn read_only<T>(&self, read: impl FnOnce(&mut Params) -> T) -> Result<T, Problem> {
        let mut params = Params::parse(self.query.as_deref(), self.endpoint.parameters);
        let query = read(&mut params);
        params.finish()?;
        Ok(query)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Ask {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let endpoint = endpoint(parts)?;
        let path = Option::<Path<String>>::from_request_parts(parts, state).await;
        let scope = match path {
            Ok(None) => Scope::Session,
            Ok(Some(Path(text))) if endpoint.path.contains("{id}") => Scope::Image(image(&text)?),
            Ok(Some(Path(text))) => Scope::Process(selector(&text)?),
            Err(rejection) => return Err(bad_path(&rejection)),
        };
        Ok(Self {
            endpoint,
            scope,
            query: parts.uri.query().map(str::to_owned),
            headers: parts.headers.clone(),
        })
    }
}

/// What a request about a named session carries.
pub(super) struct AskNamed {
    pub(super) name: Name,
    pub(super) ask: Ask,
}

impl<S: Send + Sync> FromRequestParts<S> for AskNamed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|rejection| bad_path(&rejection))?;
        let name = text.parse().map_err(|wrong: NotAName| {
            Problem::new(
                400,
                "invalid-session",
                "This is no session",
                format!(
                    "{:?} is not the name of a session: a name {wrong}",
                    shown(&text)
                ),
            )
        })?;
        let ask = Ask {
            endpoint: endpoint(parts)?,
            scope: Scope::Session,
            query: parts.uri.query().map(str::to_owned),
            headers: parts.headers.clone(),
        };
        Ok(Self { name, ask })
    }
}

fn endpoint(parts: &Parts) -> Result<&'static Endpoint, Problem> {
    let matched = parts.extensions.get::<MatchedPath>();
    ENDPOINTS
        .iter()
        .find(|endpoint| Some(endpoint.path) == matched.map(MatchedPath::as_str))
        .ok_or_else(|| Problem::internal("the route is no endpoint"))
}

fn selector(text: &str) -> Result<ProcessSelector, Problem> {
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

fn bad_path(rejection: &PathRejection) -> Problem {
    Problem::new(
        400,
        "invalid-path",
        "The path is not text",
        shown(&rejection.body_text()),
    )
}
