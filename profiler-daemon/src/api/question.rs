//! What is asked of a profile: which names it needs, and how it is answered. Whoever asks takes the
//! profile and finds the names in between, at once ([`ask`]) or when it is its turn (`http`).

use std::sync::Arc;
use std::time::Duration;

use super::answer::Answer;
use super::format::Format;
use super::problem::Problem;
use super::source::Source;
use crate::profile::frames::FrameId;
use crate::profile::snapshot::Snapshot;
use crate::report;
use crate::report::error::ReportError;
use crate::report::names::{Lines, Names};
use crate::report::query::{Scope, Window};
use crate::symbols::lines::LineTable;

/// Frames that a question needs something of.
pub(crate) type NeededFrames = Result<Vec<FrameId>, ReportError>;

/// What is known of frames when a question is answered.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    /// The names of those that it [needs](Question::needs).
    pub(crate) names: &'a dyn Names,
    /// What debug information says of its [code](Question::code).
    pub(crate) lines: &'a dyn Lines,
}

/// What is asked of a profile.
pub(crate) trait Question: Send + Sync + 'static {
    /// What it is answered with.
    type Answer: Answer + 'static;

    /// The same, for an answer that will be written in this format.
    fn in_format(&mut self, _format: Format) {}

    /// The frames that must be named before it can be answered.
    fn needs(&self, snapshot: &Snapshot) -> NeededFrames;

    /// The code of which debug information must be read before it can be answered.
    fn code(&self) -> Option<CodeSelection<'_>> {
        None
    }

    /// Whether the answer, or what it is made from, names a function for each node of a call tree
    /// and not once.
    fn names_nodes(&self) -> bool {
        false
    }

    /// Answers it.
    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError>;
}

/// Any question, for those who do not look into the answer.
pub(crate) trait AnyQuestion: Send + Sync {
    /// See [`Question::in_format`].
    fn in_format(&mut self, format: Format);
    /// See [`Question::needs`].
    fn needs(&self, snapshot: &Snapshot) -> NeededFrames;
    /// See [`Question::code`].
    fn code(&self) -> Option<CodeSelection<'_>>;
    /// See [`Question::names_nodes`].
    fn names_nodes(&self) -> bool;
    /// See [`Question::answer`].
    fn answer(&self, snapshot: &Snapshot, known: Known<'_>)
    -> Result<Box<dyn Answer>, ReportError>;
}

impl<Q: Question> AnyQuestion for Q {
    fn in_format(&mut self, format: Format) {
        Question::in_format(self, format);
    }

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        Question::needs(self, snapshot)
    }

    fn code(&self) -> Option<CodeSelection<'_>> {
        Question::code(self)
    }

    fn names_nodes(&self) -> bool {
        Question::names_nodes(self)
    }

    fn answer(
        &self,
        snapshot: &Snapshot,
        known: Known<'_>,
    ) -> Result<Box<dyn Answer>, ReportError> {
        Ok(Box::new(Question::answer(self, snapshot, known)?))
    }
}

/// The code that a question is about.
#[derive(Clone, Copy)]
pub(crate) struct CodeSelection<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) window: Window,
    /// Only of frames of this function.
    pub(crate) function: Option<&'a str>,
    /// Only of frames of this module.
    pub(crate) module: Option<&'a str>,
}

impl CodeSelection<'_> {
    /// The frames of it.
    ///
    /// # Errors
    /// There is no such process or module, or no such time.
    pub(crate) fn frames(&self, snapshot: &Snapshot, names: &dyn Names) -> NeededFrames {
        let mut frames = report::lines_needed(snapshot, self.scope, self.window, self.module)?;
        if let Some(function) = self.function {
            frames.retain(|frame| *names.function(*frame).name == *function);
        }
        Ok(frames)
    }
}

/// What debug information says where none was asked for.
pub(crate) fn no_lines() -> LineTable {
    LineTable::default()
}

/// How long debug information is waited for by those who ask at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks of the profile as it is now.
///
/// # Errors
/// There is no answer, now or at all.
pub(crate) async fn ask<Q: Question>(
    source: &dyn Source,
    question: Q,
) -> Result<Q::Answer, Problem> {
    let snapshot = source.snapshot().await?;
    let frames = question.needs(&snapshot)?;
    let names = source.names(Arc::clone(&snapshot), frames).await;
    let lines: Arc<dyn Lines + Send + Sync> = match question.code() {
        Some(code) => {
            let frames = code.frames(&snapshot, &*names)?;
            source.lines(Arc::clone(&snapshot), frames, PATIENCE).await
        }
        None => Arc::new(no_lines()),
    };
    let answer = tokio::task::spawn_blocking(move || {
        let known = Known {
            names: &*names,
            lines: &*lines,
        };
        question.answer(&snapshot, known)
    });
    let answer = answer
        .await
        .map_err(|_| Problem::internal("making the report failed"))?;
    Ok(answer?)
}
