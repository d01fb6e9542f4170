//! Instrumentations of running stages, for whoever asks the backend.

use super::live::{Live, NAMES_PATIENCE, unavailable};
use crate::api::{InstrumentationFailure, Unavailable};
use crate::collect::{Command, InstrumentationCommand, InstrumentationState};
use crate::report::{self, Instrumentation};
use crate::stages::instrumenting::{self, InstrumentationRequest, NotBegun};

impl Live {
    /// Has functions measured, or says what that would be.
    pub(super) async fn instrumented(
        &self,
        wanted: InstrumentationRequest,
        dry_run: bool,
    ) -> Result<Instrumentation, InstrumentationFailure> {
        self.has_begun()?;
        if dry_run {
            let preview = instrumenting::preview(self.access(), &self.turns, wanted);
            let state = preview.await.map_err(failure)?;
            return self.shown(&state).await.map_err(Into::into);
        }
        let begun = instrumenting::begin(self.access(), &self.turns, wanted);
        let (state, begun) = begun.await.map_err(failure)?;
        let shown = self.shown(&state).await?;
        // Not before: where nobody waits for this, or there is no answer, it ends.
        begun.told();
        Ok(shown)
    }

    /// All that are kept.
    pub(super) async fn all_instrumentations(&self) -> Result<Vec<Instrumentation>, Unavailable> {
        let all = |answer| Command::Instrumentation(InstrumentationCommand::All { answer });
        let all = self.access().ask(all).await.map_err(unavailable)?;
        let mut shown = Vec::new();
        for state in &all {
            shown.push(self.shown(state).await?);
        }
        Ok(shown)
    }

    /// One of them.
    pub(super) async fn one_instrumentation(
        &self,
        id: u32,
    ) -> Result<Option<Instrumentation>, Unavailable> {
        let one = |answer| Command::Instrumentation(InstrumentationCommand::One { id, answer });
        let one = self.access().ask(one).await.map_err(unavailable)?;
        match &one {
            Some(state) => Ok(Some(self.shown(state).await?)),
            None => Ok(None),
        }
    }

    /// See [`Source::end_instrumentation`](crate::api::Source::end_instrumentation).
    pub(super) async fn ended_instrumentation(
        &self,
        id: u32,
    ) -> Result<Option<Option<Instrumentation>>, Unavailable> {
        let end = |answer| Command::Instrumentation(InstrumentationCommand::End { id, answer });
        let ended = self.access().ask(end).await.map_err(unavailable)?;
        match &ended {
            Some(Some(state)) => Ok(Some(Some(self.shown(state).await?))),
            Some(None) => Ok(Some(None)),
            None => Ok(None),
        }
    }

    /// As it is answered, with the names of callers.
    async fn shown(&self, state: &InstrumentationState) -> Result<Instrumentation, Unavailable> {
        let names = self.access().caller_names(&state.measured, NAMES_PATIENCE);
        let names = names.await.map_err(unavailable)?;
        Ok(report::instrumentation(state, names))
    }
}

fn failure(why: NotBegun) -> InstrumentationFailure {
    match why {
        NotBegun::Busy | NotBegun::Late => Unavailable(why.into()).into(),
        NotBegun::Unanswered(why) => unavailable(why).into(),
        NotBegun::NotChosen(_)
        | NotBegun::Unknown(_)
        | NotBegun::NoPoint(_)
        | NotBegun::Refused(_) => InstrumentationFailure::Refused(why.into()),
    }
}
